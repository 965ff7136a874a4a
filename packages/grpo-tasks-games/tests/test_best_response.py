"""Exact results against a best response."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_games import HEAP

from grpo_sdk import Game, Rules, UserError
from grpo_tasks_games import best_response, tictactoe
from grpo_tasks_games.best_response import Tree
from grpo_tasks_games.commands import games

ROLES = ("first", "second")
STICKS = replace(HEAP, legal=lambda state: [take for take in (1, 2) if take <= state[0]], max_turns=50)
"""Each takes one or two sticks; who takes the last one wins."""


def tree_of(game: Game, **options: Any) -> Tree:
    rules = Rules(game, game.config(**options))
    return Tree(rules, [rules.call("initial", seed=0)])


def strategy_of(tree: Tree, choose: Callable[[Any, int], Sequence[float]]) -> best_response.Strategy:
    return tree.strategy([p for turn in tree.turns for state, after in turn.items() for p in choose(state, len(after))])


def test_perfect_play_cannot_be_beaten() -> None:
    tree = tree_of(tictactoe.GAME)
    strategy = strategy_of(
        tree, lambda board, n: [float(cell == tictactoe.best(board)) for cell in tictactoe.legal(board)]
    )
    assert tree.positions == 4520  # of 5,478 boards, 958 are the end of a game
    for role in ROLES:
        result = tree.against_best_response(strategy, role)
        assert (result.reward, result.other, result.lost, result.illegal) == (0, 0, 0, 0)


def test_random_play_agrees_with_a_search_of_the_tree() -> None:
    def search(board: str, role: str, moves: Callable[[str], list[int]] | None) -> tuple[float, float]:
        """Return and share of lost games of random play in a role against moves, or None: the best ones against it."""
        returns = tictactoe.outcome(board)
        if returns is not None:
            return returns[role], float(returns[role] < 0)
        is_own = tictactoe.to_move(board) == role
        cells = tictactoe.legal(board) if is_own or moves is None else moves(board)
        results = [search(tictactoe.apply(board, cell), role, moves) for cell in cells]
        if moves is None and not is_own:
            return min(results, key=lambda result: (result[0], -result[1]))
        mean, lost = (math.fsum(values) / len(results) for values in zip(*results, strict=True))
        return mean, lost

    start = "X...O...X"
    tree = Tree(Rules(tictactoe.GAME, tictactoe.TicTacToeConfig()), [start])
    strategy = strategy_of(tree, lambda board, n: [1 / n] * n)
    moves_of = {
        "random": tictactoe.legal,
        "perfect": lambda board: [tictactoe.best(board)],
        "any_perfect": tictactoe.best_moves,
        "one_ply": tictactoe.careful_moves,
    }
    assert set(moves_of) == set(tictactoe.GAME.scripted)
    for role in ROLES:
        best = tree.against_best_response(strategy, role)
        assert (best.reward, best.lost) == pytest.approx(search(start, role, None))
        for player, moves in moves_of.items():
            found = tree.against_player(strategy, role, player)
            assert (found.reward, found.lost) == pytest.approx(search(start, role, moves))


def test_values_by_hand() -> None:
    # Of two sticks, the first player wins by taking both. A policy takes both with probability 0.5, one with 0.3.
    tree = tree_of(STICKS, heap=2)
    strategy = strategy_of(tree, lambda state, n: [0.3, 0.5] if n == 2 else [0.9])
    first = tree.against_best_response(strategy, "first")
    assert (first.lost, first.illegal) == (pytest.approx(0.3 + 0.2), pytest.approx(0.2))
    assert (first.reward, first.other) == (pytest.approx(0.0), pytest.approx(0.0))
    second = tree.against_best_response(strategy, "second")  # the best response takes both
    assert (second.lost, second.illegal, second.other) == (1, 0, 1)


def test_an_illegal_move_costs_what_the_options_say() -> None:
    def first(**options: Any) -> best_response.Result:
        tree = tree_of(STICKS, heap=2, **options)
        return tree.against_best_response(strategy_of(tree, lambda state, n: [0.3, 0.5] if n == 2 else [0.9]), "first")

    assert first(illegal_reward=-2, illegal_other=0.5).reward == pytest.approx(0.5 - 0.3 - 0.4)
    assert first(illegal_reward=-2, illegal_other=0.5).other == pytest.approx(-0.5 + 0.3 + 0.1)
    replaced = first(illegal="random")  # by one or two sticks, with 0.1 each
    assert (replaced.lost, replaced.illegal) == (pytest.approx(0.4), pytest.approx(0.2))


def test_a_game_with_several_illegal_moves_counts_once() -> None:
    tree = tree_of(STICKS, heap=3, illegal="random")
    strategy = strategy_of(tree, lambda state, n: [0.0, 0.5] if state == (3, "first") else [0.0] * n)
    # Two sticks are taken with 0.5, and the other player ends the game; else an illegal move is followed by others.
    assert tree.against_player(strategy, "first", "one").illegal == pytest.approx(0.5)


def test_a_game_that_is_not_over_in_time_is_a_draw() -> None:
    tree = tree_of(replace(STICKS, max_turns=2), heap=3)
    strategy = strategy_of(tree, lambda state, n: [1.0, 0.0][:n])  # always one
    assert tree.against_best_response(strategy, "first").lost == 1.0  # the second player takes the other two
    assert tree.against_best_response(strategy, "second").reward == 0.0  # 1 + 1, and a stick is left


@pytest.mark.parametrize(
    ("game", "said"),
    [
        (replace(STICKS, roles=("a", "b", "c")), "3 roles"),
        (replace(STICKS, initial=lambda seed: [5, "first"]), "hashable"),
        (replace(STICKS, max_turns=5000), "more than 1,000"),
    ],
    ids=["roles", "states", "positions"],
)
def test_games_that_cannot_be_computed_are_refused(game: Game, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_response, "MAX_POSITIONS", 1000)
    with pytest.raises(UserError, match=said):
        tree_of(game, heap=3000)


def exploit(*words: str) -> str:
    ran = CliRunner().invoke(games, ("exploitability", *words), catch_exceptions=False)
    return ran.stdout + ran.stderr


def refused(*words: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        exploit(*words)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", r"raised RuntimeError \(buggy_games.py:\d+\): boom at depth"),
        ("alike", r"write\(\) gives the same text for two actions, in state \(5, 'first'\): 1, 1"),
        ("nobody", r"to_move\(\) gave 'z', which is none of its roles"),
        ("stuck", r"no legal action, but outcome\(\) gives None"),
    ],
)
def test_a_bug_of_a_game_is_one_line(name: str, said: str) -> None:
    program = Path(__file__).with_name("programs") / "buggy_games.py"
    refused("random", "--task", f"{program}:{name}", match=f"^game '{name}'.*{said}")


def test_starts_that_differ_are_counted() -> None:
    task = "games.nim?style=short&heaps=2,2&drawn=true&size=200"
    found = json.loads(exploit("random", "--task", task, "--json"))["models"]["random"]
    assert (found["starts"], found["rows"]) == (4, 200)
    assert "starts    4 different ones, of 200 test rows: means over these" in exploit("random", "--task", task)


def test_who_has_no_probabilities_is_refused() -> None:
    poker = ("random", "--task", "games.kuhn_poker?style=short", "--against")
    refused("perfect", "--task", "games.tictactoe", match="only `random` and models")
    refused(*poker, "nash", match="nash: its moves have no prob")
    refused(*poker, "perfect", match="scripted players of games.kuhn_poker")
    refused("tiny", "--task", "games.nim?style=short&heaps=1,2", match="another style than short")


@pytest.fixture
def one_stick_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that always takes one object of the first heap."""

    class Model:
        def __init__(self, *args: Any, **options: Any) -> None: ...

        def logprobs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[float]:
            heaps = [next(heap[0] for heap in prompt.split()[1:] if heap[1] != "0") for prompt in prompts]
            return [0.0 if text == f"{heap}1" else -math.inf for heap, text in zip(heaps, texts, strict=True)]

    monkeypatch.setattr("grpo_core.Completer", Model)


@pytest.mark.usefixtures("one_stick_at_a_time")
def test_the_command_prints_both_seats_and_results_against_scripted_players() -> None:
    words = ["tiny", "random", "--task", "games.nim?style=short&heaps=1,2"]
    words += ["--against", "random", "--against", "perfect", "--against", "random"]
    found = json.loads(exploit(*words, "--json"))["models"]["tiny"]
    # From 1, 2 the first player wins by leaving 1, 1. The model leaves 0, 2, which the best response takes.
    lost = {"reward": -1, "other": 1, "lost": 1, "illegal": 0}
    assert (found["seats"], found["exploitability"]) == ({"first": lost, "second": lost}, 1)
    assert list(found["against"]) == ["random", "perfect"]
    # Of 0, 2 a random player takes both with 1/2, else the model takes the last one.
    assert found["against"]["random"]["first"] == {"reward": 0, "other": 0, "lost": 0.5, "illegal": 0}
    assert found["against"]["perfect"]["first"]["lost"] == found["against"]["perfect"]["second"]["lost"] == 1
    seats, table, *_ = exploit(*words).split("\n\n")
    assert "lost as second" in seats
    assert [line.split()[:3] for line in table.splitlines()[1:5]] == [
        ["tiny", "random", "0.5000"],
        ["tiny", "perfect", "1.0000"],
        ["random", "random", "0.5000"],
        ["random", "perfect", "0.6667"],
    ]


def test_in_poker_scripted_players_are_met() -> None:
    words = ("random", "--task", "games.kuhn_poker?style=short", "--against", "random")
    found = json.loads(exploit(*words, "--json"))["models"]["random"]["against"]["random"]
    assert found["first"]["reward"] == pytest.approx(1 / 8) == -found["second"]["reward"]  # over the six deals
    assert found["first"]["lost"] == pytest.approx(0.4375) == 1 - found["second"]["lost"]
    assert "lost as first" in exploit(*words)
