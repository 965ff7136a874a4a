from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import small_games
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import Game, GrpoError, UserError, load_task
from grpo_core.evaluation.plan import matchups
from grpo_core.task.bound import BoundTask
from grpo_core.task.game import Episode, Rules, game_metrics, game_task, read_transcript, replay, write_transcript

FILE = Path(small_games.__file__).resolve()


def heap(**options: object) -> BoundTask:
    task = load_task(f"{FILE}:HEAP")
    return task.with_options(**options) if options else task


def rules(**options: object) -> Rules:
    return Rules(small_games.HEAP, small_games.HeapConfig.model_validate(options))


EPISODE = Episode(id="e", seed=1)


def test_an_episode_is_replayed_from_its_moves() -> None:
    # 5 -2-> 3 -3-> 0: the second player took the last one.
    position = replay(rules(), EPISODE, ["2", "3"])
    assert (position.returns, position.movers, position.to_move) == (
        {"first": -1.0, "second": 1.0},
        ("first", "second"),
        "",
    )


def test_an_episode_waits_for_who_is_to_move() -> None:
    position = replay(rules(), EPISODE, ["2"])
    assert (position.to_move, position.state, position.returns) == ("second", (3, "second"), None)


@pytest.mark.parametrize("wrong", ["4", "0", "none", "", "²"])
def test_an_illegal_move_loses_for_who_made_it(wrong: str) -> None:
    position = replay(rules(), EPISODE, ["1", wrong])
    assert (position.illegal, position.returns) == ("second", {"first": 1.0, "second": -1.0})
    assert position.why


def test_the_price_of_an_illegal_move_is_an_option() -> None:
    position = replay(rules(illegal_reward=-1.5, illegal_other=0.5), EPISODE, ["9"])
    assert position.returns == {"first": -1.5, "second": 0.5}


def test_an_illegal_move_may_be_replaced_and_is_remembered() -> None:
    position = replay(rules(illegal="random"), EPISODE, ["9"])
    assert position.to_move == "second" and 2 <= position.state[0] <= 4
    assert list(position.replaced) == [0]
    assert replay(rules(illegal="random"), EPISODE, ["9"]) == position


def test_the_limit_of_turns_is_a_draw() -> None:
    game = rules(heap=30)
    position = replay(game, EPISODE, ["1"] * 25)
    assert position.capped and position.returns == {"first": 0.0, "second": 0.0}
    assert len(position.moves) == game.game.max_turns


def test_perfect_play_wins_a_won_position_whatever_the_other_does() -> None:
    for seed in range(20):
        episode = Episode(id="e", seed=seed, seat="second")
        position = replay(rules(heap=5), episode, (), {"first": "perfect", "second": "random"})
        assert position.returns == {"first": 1.0, "second": -1.0}


@given(st.lists(st.one_of(st.sampled_from("123"), st.text(max_size=5)), max_size=30), st.integers(1, 12))
def test_a_transcript_says_all_of_an_episode(moves: list[str], size: int) -> None:
    first = replay(rules(heap=size), EPISODE, moves, {"first": "random", "second": "greedy"})
    again = replay(rules(heap=size), EPISODE, read_transcript(write_transcript("first", first.moves))[1])
    assert again.returns == first.returns and again.state == first.state
    assert first.returns is not None and sum(first.returns.values()) == 0


def test_a_game_is_a_task_whose_completion_is_a_transcript() -> None:
    task, row = heap(), Episode(id="e", seed=1)
    won = task.score(write_transcript("second", ["2", "3"]), row)
    assert (won.value, won.solved, won.valid, won.parts["turns"]) == (1.0, True, True, 2.0)
    lost = task.score(write_transcript("first", ["2", "3"]), row)
    assert (lost.value, lost.solved, lost.valid, lost.parts["loss"]) == (-1.0, False, True, 1.0)
    illegal = task.score(write_transcript("first", ["7"]), row)
    assert (illegal.value, illegal.valid, illegal.parts["illegal"]) == (-1.0, False, 1.0)
    assert "7 is not legal" in illegal.why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ud800",
        "[]",
        '{"role": "third", "moves": []}',
        '{"role": "first", "moves": [true]}',
        '{"role": "first", "moves": 5}',
        "9" * 10_000,
    ],
)
def test_what_is_no_transcript_gets_a_verdict(text: str) -> None:
    score = heap().score(text, EPISODE)
    assert (score.value, score.valid, score.fault) == (0.0, False, "")


def test_an_episode_that_is_not_over_has_no_return() -> None:
    score = heap().score(write_transcript("first", ["1"]), EPISODE)
    assert not score.valid and "second is to move" in score.why


def test_seats_take_turns_against_an_opponent_on_the_same_starts() -> None:
    rows = heap(opponent="random", size=4).rows()
    assert [row.seat for row in rows] == ["first", "second", "first", "second"]  # type: ignore[attr-defined]
    assert rows[0].seed == rows[1].seed != rows[2].seed  # type: ignore[attr-defined]
    assert {row.seat for row in heap(opponent="random", seat="second", size=3).rows()} == {"second"}  # type: ignore[attr-defined]


def test_the_prompt_is_what_the_policy_sees_first() -> None:
    assert heap(size=1).prompt(heap(size=1).rows()[0]) == "first sees 5:"
    task = heap(opponent="greedy", seat="second", size=1)  # the greedy one has taken 3
    assert task.prompt(task.rows()[0]) == "second sees 2:"


def test_the_next_turn_holds_the_moves_of_scripted_players() -> None:
    task = heap(opponent="greedy", seat="first", heap=9, size=1)
    made = task.next_turn(task.rows()[0], ["1"])
    assert (made.moves, made.role, made.prompt) == (("1", 2), "first", "first sees 5:")


def test_a_crash_of_the_game_is_attributed() -> None:
    task = heap()
    object.__setattr__(task.task, "game", Game(**{**_contributions(), "legal": lambda state: []}))
    assert task.next_turn(EPISODE, []).fault == ""
    made = task.next_turn(EPISODE, ["1"])
    assert made.fault == "reward" and "no legal action" in made.why


def _contributions() -> dict[str, object]:
    game = small_games.HEAP
    return {name: getattr(game, name) for name in game.__dataclass_fields__}


@pytest.mark.parametrize(
    ("change", "state", "message"),
    [
        ({"outcome": lambda state: {"first": 1}}, (0, "first"), r"outcome\(\) gave \{'first': 1\}; it gives a"),
        ({"outcome": lambda state: 1}, (0, "first"), r"gave 1; it gives a number for each of first, second"),
        (
            {"outcome": lambda state: {"first": 5, "second": -5}}, (0, "first"),
            r"outcome\(\) gave first 5, above the largest return, 1: Game\(…, maximum=5\)",
        ),
        ({"outcome": lambda state: {"first": 1, "second": math.nan}}, (0, "first"), r"outcome\(\) gave second nan"),
        ({"best": lambda state: 9}, (4, "first"), r"player 'perfect' gave 9, which is none of the .* \[1, 2, 3\]"),
        ({"legal": lambda state: []}, (4, "first"), r"no legal action, but outcome\(\) gives None"),
    ],
)  # fmt: skip
def test_a_mistake_of_a_game_is_named(change: dict[str, object], state: object, message: str) -> None:
    wrong = Rules(Game(**{**_contributions(), **change}), small_games.HeapConfig())
    with pytest.raises(ValueError, match=message):
        if "outcome" in change:
            wrong.outcome(state)
        else:
            wrong.choose("perfect", state, random.Random(0))


def test_demos_are_legal_moves() -> None:
    pairs = list(heap(size=50).demos())
    assert len(pairs) == 50
    assert all(1 <= int(text) <= min(3, int(str(prompt).split()[-1][:-1])) for prompt, text in pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roles": ("one",)}, "two or more"),
        ({"roles": ("a", "a")}, "two or more"),
        ({"maximum": 0.0}, "above 0"),
        ({"players": {"self": None}}, "'self' is no name"),
        ({"parse": lambda text, state, rng: 0}, "parse"),
    ],
)
def test_a_game_that_cannot_be_meant_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(GrpoError, match=message):
        Game(**{**_contributions(), **change})


@pytest.mark.parametrize("name", ["illegal_reward", "illegal_other"])
def test_a_price_above_the_largest_return_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}=2 is above the largest return, 1"):
        heap(**{name: "2"}).rows()


def test_an_unknown_seat_is_refused() -> None:
    with pytest.raises(UserError, match="seat='third' must be first, second or both"):
        heap(seat="third").rows()


def test_options_change_the_identity() -> None:
    assert heap(size=2).identity != heap(size=2, illegal="random").identity


def test_rates_and_counts_of_a_batch() -> None:
    task = heap()
    won, lost = write_transcript("second", ["2", "3"]), write_transcript("first", ["2", "3"])
    alone = Episode(id="e", seed=1)
    seated = Episode(id="f", seed=1, seat="first")
    # In self-play both sides of one episode; against an opponent one that the first player lost.
    scores = [task.score(lost, alone), task.score(won, alone), task.score(lost, seated)]
    made = game_metrics(small_games.HEAP, scores)
    assert made["games/heap/first/loss_rate"] == made["games/heap/second/win_rate"] == 1.0
    assert (made["games/won_player_0"], made["games/won_player_1"]) == (0, 2)
    assert (made["games/drawn"], made["games/avg_length"], made["games/invalid_moves"]) == (0, 2, 0)
    assert game_metrics(small_games.HEAP, []) == {}


def test_an_episode_that_did_not_end_is_in_no_rate() -> None:
    task = heap()
    won = task.score(write_transcript("first", ["1", "1", "3"]), EPISODE)
    unfinished = [task.score(text, EPISODE) for text in (write_transcript("first", ["1"]), "no transcript")]
    assert won.solved
    alone = game_metrics(small_games.HEAP, [won])
    assert game_metrics(small_games.HEAP, [won, *unfinished]) == {**alone, "games/unfinished": 2.0}
    assert (alone["games/heap/first/win_rate"], alone["games/unfinished"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "rivals"),
    [
        ({}, ("random", "perfect")),
        ({"best": None, "players": dict.fromkeys("ab", lambda state, rng: 1)}, ("random", "a", "b")),
        ({"players": dict.fromkeys("ab", lambda state, rng: 1), "evaluated_against": ("b", "random")}, ("random", "b")),
        ({"evaluated_against": ()}, ("random",)),
    ],
)
def test_self_play_is_evaluated_against_the_opponents_that_the_author_names(
    change: dict[str, Any], rivals: tuple[str, ...]
) -> None:
    game = Game(**{**_contributions(), **change})
    assert game.rivals == rivals
    evaluated = matchups({"heap": load_task(game_task(game))})
    assert [each.config.model_dump()["opponent"] for each in evaluated.values()] == list(rivals)
    assert next(iter(evaluated)) == "heap", "its own label is its play against random moves"


def test_an_opponent_of_evaluations_exists() -> None:
    with pytest.raises(UserError, match="evaluated_against has 'prefect'; its opponents are random, perfect"):
        Game(**{**_contributions(), "evaluated_against": ("prefect",)})


def test_an_episode_that_is_over_before_the_policy_moves_is_no_row() -> None:
    task = heap(opponent="random", heap=2, seat="second", size=30)  # the first player may take both
    assert len(task.rows()) == 30
    assert all(task.prompt(row) for row in task.rows())
    numbers = [int(row.id.split("-")[-1]) for row in task.rows()]
    assert numbers != list(range(30)) and numbers == sorted(numbers)
    with pytest.raises(UserError, match="opponent=random and seat=second, hardly any episode"):
        heap(opponent="random", heap=1, seat="second").rows()


@pytest.mark.parametrize(("name", "value"), [("legal", None), ("best", 3)])
def test_what_a_game_needs_is_a_function(name: str, value: object) -> None:
    with pytest.raises(UserError, match=f"game 'heap': {name}={value} must be a function"):
        Game(**{**_contributions(), name: value})
