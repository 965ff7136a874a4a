import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_games
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.evaluation.plan import matchups
from grpo_sdk import Game, UserError, load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import GameStart, Rules, game_metrics, game_task, read_transcript, replay, write_transcript

FILE = Path(small_games.__file__).resolve()
EPISODE = GameStart(id="e", seed=1)


def heap(**options: object) -> BoundTask:
    return load_task(f"{FILE}:HEAP").with_options(**options)


def rules(**options: object) -> Rules:
    return Rules(small_games.HEAP, small_games.HeapConfig.model_validate(options))


def changed(**change: Any) -> Game:
    return replace(small_games.HEAP, **change)


WON, LOST = write_transcript("second", ["2", "3"]), write_transcript("first", ["2", "3"])
"""5 -2-> 3 -3-> 0: the second player took the last one."""


def test_an_episode_is_replayed_from_its_moves_up_to_who_is_to_move() -> None:
    over = replay(rules(), EPISODE, ["2", "3"])
    assert (over.returns, over.movers, over.to_move) == ({"first": -1.0, "second": 1.0}, ("first", "second"), "")
    waiting = replay(rules(), EPISODE, ["2"])
    assert (waiting.returns, waiting.state, waiting.to_move) == (None, (3, "second"), "second")


@pytest.mark.parametrize("wrong", ["4", "0", "none", "", "²"])
def test_an_illegal_move_loses_for_who_made_it(wrong: str) -> None:
    position = replay(rules(), EPISODE, ["1", wrong])
    assert (position.illegal, position.returns) == ("second", {"first": 1.0, "second": -1.0})
    assert position.why


def test_an_illegal_move_has_a_price_or_is_replaced_and_remembered() -> None:
    paid = replay(rules(illegal_reward=-1.5, illegal_other=0.5), EPISODE, ["9"])
    assert paid.returns == {"first": -1.5, "second": 0.5}
    replaced = replay(rules(illegal="random"), EPISODE, ["9"])
    assert replaced.to_move == "second" and 2 <= replaced.state[0] <= 4
    assert list(replaced.replaced) == [0]
    assert replay(rules(illegal="random"), EPISODE, ["9"]) == replaced


def test_the_limit_of_turns_is_a_draw() -> None:
    game = rules(heap=30)
    position = replay(game, EPISODE, ["1"] * 25)
    assert position.capped and position.returns == {"first": 0.0, "second": 0.0}
    assert len(position.moves) == game.game.max_turns


@pytest.mark.parametrize("seed", range(20))
def test_perfect_play_wins_a_won_position_whatever_the_other_does(seed: int) -> None:
    episode = GameStart(id="e", seed=seed, seat="second")
    position = replay(rules(heap=5), episode, (), {"first": "perfect", "second": "random"})
    assert position.returns == {"first": 1.0, "second": -1.0}


@given(st.lists(st.one_of(st.sampled_from("123"), st.text(max_size=5)), max_size=30), st.integers(1, 12))
def test_a_transcript_says_all_of_an_episode(moves: list[str], size: int) -> None:
    first = replay(rules(heap=size), EPISODE, moves, {"first": "random", "second": "greedy"})
    again = replay(rules(heap=size), EPISODE, read_transcript(write_transcript("first", first.moves))[1])
    assert again.returns == first.returns and again.state == first.state
    assert first.returns is not None and sum(first.returns.values()) == 0


@pytest.mark.parametrize(("text", "value", "valid", "part", "why"), [
    (WON, 1.0, True, "win", ""),
    (LOST, -1.0, True, "loss", ""),
    (write_transcript("first", ["7"]), -1.0, False, "illegal", "7 is not legal"),
    (write_transcript("first", ["1"]), 0.0, False, None, "second is to move"),
    ("", 0.0, False, None, ""),
    ('{"role": "third", "moves": []}', 0.0, False, None, ""),
    ('{"role": "first", "moves": [true]}', 0.0, False, None, ""),
])  # fmt: skip
def test_a_game_is_a_task_whose_completion_is_a_transcript(text, value, valid, part, why):
    score = heap().score(text, EPISODE)
    assert (score.value, score.valid, score.solved, score.fault) == (value, valid, value == 1.0, "")
    assert why in score.why
    assert part is None or score.parts[part] == 1.0


def test_seats_take_turns_against_an_opponent_on_the_same_starts() -> None:
    rows = heap(opponent="random", size=4).rows()
    assert [row.seat for row in rows] == ["first", "second", "first", "second"]  # type: ignore[attr-defined]
    assert rows[0].seed == rows[1].seed != rows[2].seed  # type: ignore[attr-defined]
    assert {row.seat for row in heap(opponent="random", seat="second", size=3).rows()} == {"second"}  # type: ignore[attr-defined]


def test_the_policy_sees_the_position_after_the_moves_of_scripted_players() -> None:
    assert heap(size=1).prompt(heap(size=1).rows()[0]) == "first sees 5:"
    task = heap(opponent="greedy", seat="second", size=1)  # the greedy one has taken 3
    assert task.prompt(task.rows()[0]) == "second sees 2:"


def test_a_crash_of_the_game_is_attributed() -> None:
    task = heap()
    object.__setattr__(task.task, "game", changed(legal=lambda state: []))
    assert task.next_turn(EPISODE, []).fault == ""
    made = task.next_turn(EPISODE, ["1"])
    assert made.fault == "reward" and "no legal action" in made.why


@pytest.mark.parametrize(("change", "message"), [
    ({"outcome": lambda state: {"first": 1}}, r"outcome\(\) gave \{'first': 1\}; it gives a"),
    ({"outcome": lambda state: {"first": 5, "second": -5}}, "first 5, .* largest return, 1: .*=5"),
    ({"outcome": lambda state: {"first": 1, "second": math.nan}}, r"outcome\(\) gave second nan"),
    ({"best": lambda state: 9}, r"'perfect' gave 9, which is none of the .* \[1, 2, 3\]"),
    ({"legal": lambda state: []}, r"no legal action, but outcome\(\) gives None"),
])  # fmt: skip
def test_a_mistake_of_a_game_is_named(change: dict[str, object], message: str) -> None:
    wrong = Rules(changed(**change), small_games.HeapConfig())
    with pytest.raises(ValueError, match=message):
        wrong.outcome((0, "first"))
        wrong.choose("perfect", (4, "first"), random.Random(0))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: changed(roles=("one",)), "two or more"),
    (lambda: changed(maximum=0.0), "above 0"),
    (lambda: changed(players={"self": None}), "'self' is no name"),
    (lambda: changed(parse=lambda text, state, rng: 0), "parse"),
    (lambda: changed(legal=None), "game 'heap': legal=None must be a function"),
    (lambda: changed(evaluated_against=("prefect",)), "has 'prefect'; its opponents are random, perfect"),
    (lambda: heap(illegal_reward="2").rows(), "illegal_reward=2 is above the largest return, 1"),
    (lambda: heap(seat="third").rows(), "seat='third' must be first, second or both"),
    (lambda: heap(opponent="random", heap=1, seat="second").rows(), "and seat=second, hardly any episode"),
])  # fmt: skip
def test_a_game_that_cannot_be_meant_or_played_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_demos_are_legal_moves() -> None:
    pairs = list(heap(size=50).demos())
    assert len(pairs) == 50
    assert all(1 <= int(text) <= min(3, int(str(prompt).split()[-1][:-1])) for prompt, text in pairs)


def test_an_episode_that_is_over_before_the_policy_moves_is_no_row() -> None:
    task = heap(opponent="random", heap=2, seat="second", size=30)  # the first player may take both
    assert len(task.rows()) == 30
    assert all(task.prompt(row) for row in task.rows())
    numbers = [int(row.id.split("-")[-1]) for row in task.rows()]
    assert numbers != list(range(30)) and numbers == sorted(numbers)


def test_rates_and_counts_of_a_batch_leave_out_what_did_not_end() -> None:
    task, seated = heap(), GameStart(id="f", seed=1, seat="first")
    # In self-play both sides of one episode; against an opponent one that the first player lost.
    scores = [task.score(LOST, EPISODE), task.score(WON, EPISODE), task.score(LOST, seated)]
    made = game_metrics(small_games.HEAP, scores)
    assert made["games/heap/first/loss_rate"] == made["games/heap/second/win_rate"] == 1.0
    assert (made["games/won_player_0"], made["games/won_player_1"]) == (0, 2)
    assert (made["games/drawn"], made["games/avg_length"], made["games/invalid_moves"]) == (0, 2, 0)
    assert made["games/unfinished"] == 0.0
    unfinished = [task.score(text, EPISODE) for text in (write_transcript("first", ["1"]), "no transcript")]
    assert game_metrics(small_games.HEAP, [*scores, *unfinished]) == {**made, "games/unfinished": 2.0}
    assert game_metrics(small_games.HEAP, []) == {}


OTHERS = dict.fromkeys("ab", lambda state, rng: 1)


@pytest.mark.parametrize(("change", "rivals"), [
    ({}, ("random", "perfect")),
    ({"best": None, "players": OTHERS}, ("random", "a", "b")),
    ({"players": OTHERS, "evaluated_against": ("b", "random")}, ("random", "b")),
    ({"evaluated_against": ()}, ("random",)),
])  # fmt: skip
def test_self_play_is_evaluated_against_the_opponents_that_the_author_names(change, rivals):
    game = changed(**change)
    assert game.rivals == rivals
    evaluated = matchups({"heap": load_task(game_task(game))})
    assert [each.config.model_dump()["opponent"] for each in evaluated.values()] == list(rivals)
    assert next(iter(evaluated)) == "heap", "its own label is its play against random moves"
