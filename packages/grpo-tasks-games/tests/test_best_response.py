"""Exact results against a best response."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo_core import Game, Rules, UserError
from grpo_tasks_games import best_response, tictactoe
from grpo_tasks_games.best_response import Tree
from grpo_tasks_games.commands import games

ROLES = ("first", "second")


def heap(sticks: int, roles: tuple[str, ...] = ROLES, state: Callable[[tuple[int, int]], Any] = tuple) -> Game:
    """Each takes one or two sticks; who takes the last one wins."""

    def outcome(at: Any) -> dict[str, float] | None:
        return None if at[0] else {role: -1.0 if role == roles[at[1]] else 1.0 for role in roles}

    return Game(
        "heap",
        roles,
        initial=lambda seed: state((sticks, 0)),
        to_move=lambda at: roles[at[1]],
        observe=lambda at, role: f"{at[0]}\n",
        parse=lambda text: int(text),
        apply=lambda at, action: state((at[0] - action, (at[1] + 1) % len(roles))),
        legal=lambda at: [take for take in (1, 2) if take <= at[0]],
        outcome=outcome,
        render=lambda at: str(at),
        write=lambda action: str(action),
        max_turns=50,
    )


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
    @cache
    def search(board: str, role: str) -> tuple[Fraction, Fraction]:
        """Return of the best response, and the share of games that it makes random play lose at most."""
        returns = tictactoe.outcome(board)
        if returns is not None:
            return Fraction(int(-returns[role])), Fraction(returns[role] < 0)
        results = [search(tictactoe.apply(board, cell), role) for cell in tictactoe.legal(board)]
        if tictactoe.to_move(board) != role:
            return max(results)
        returned, lost = (sum(values) / Fraction(len(results)) for values in zip(*results, strict=True))
        return returned, lost

    tree = tree_of(tictactoe.GAME)
    strategy = strategy_of(tree, lambda board, n: [1 / n] * n)
    for role in ROLES:
        result = tree.against_best_response(strategy, role)
        assert (result.other, result.lost) == pytest.approx([float(value) for value in search("." * 9, role)])


def test_results_against_scripted_players_agree_with_a_search_of_the_tree() -> None:
    def search(board: str, role: str, moves: Callable[[str], list[int]]) -> tuple[float, float]:
        """Mean return and share of lost games of random play in a role."""
        returns = tictactoe.outcome(board)
        if returns is not None:
            return returns[role], float(returns[role] < 0)
        cells = tictactoe.legal(board) if tictactoe.to_move(board) == role else moves(board)
        results = [search(tictactoe.apply(board, cell), role, moves) for cell in cells]
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
        for player, moves in moves_of.items():
            found = tree.against_player(strategy, role, player)
            assert (found.reward, found.lost) == pytest.approx(search(start, role, moves))


def test_values_by_hand() -> None:
    # Of two sticks, the first player wins by taking both. A policy takes both with probability 0.5, one with 0.3.
    tree = tree_of(heap(2))
    strategy = strategy_of(tree, lambda state, n: [0.3, 0.5] if n == 2 else [0.9])
    first = tree.against_best_response(strategy, "first")
    assert (first.lost, first.illegal) == (pytest.approx(0.3 + 0.2), pytest.approx(0.2))
    assert (first.reward, first.other) == (pytest.approx(0.0), pytest.approx(0.0))
    second = tree.against_best_response(strategy, "second")  # the best response takes both
    assert (second.lost, second.illegal, second.other) == (1, 0, 1)


def test_an_illegal_move_costs_what_the_options_say() -> None:
    def first(**options: Any) -> best_response.Result:
        tree = tree_of(heap(2), **options)
        return tree.against_best_response(strategy_of(tree, lambda state, n: [0.3, 0.5] if n == 2 else [0.9]), "first")

    assert first(illegal_reward=-2, illegal_other=0.5).reward == pytest.approx(0.5 - 0.3 - 0.4)
    assert first(illegal_reward=-2, illegal_other=0.5).other == pytest.approx(-0.5 + 0.3 + 0.1)
    replaced = first(illegal="random")  # by one or two sticks, with 0.1 each
    assert (replaced.lost, replaced.illegal) == (pytest.approx(0.4), pytest.approx(0.2))


def test_a_game_with_several_illegal_moves_counts_once() -> None:
    game = replace(heap(3), players={"one": lambda at, rng: 1})
    tree = tree_of(game, illegal="random")
    strategy = strategy_of(tree, lambda state, n: [0.0, 0.5] if state == (3, 0) else [0.0] * n)
    # Two sticks are taken with 0.5, and the other player ends the game; else an illegal move is followed by others.
    assert tree.against_player(strategy, "first", "one").illegal == pytest.approx(0.5)


def test_a_game_that_is_not_over_in_time_is_a_draw() -> None:
    tree = tree_of(replace(heap(3), max_turns=2))
    strategy = strategy_of(tree, lambda state, n: [1.0, 0.0][:n])  # always one
    assert tree.against_best_response(strategy, "first").lost == 1.0  # the second player takes the other two
    assert tree.against_best_response(strategy, "second").reward == 0.0  # 1 + 1, and a stick is left


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tree_of(heap(3, roles=("a", "b", "c"))), "3 roles"),
        (lambda: tree_of(heap(3, state=list)), "hashable"),
        (lambda: tree_of(replace(heap(30_000), max_turns=40_000)), "more than 20,000"),
    ],
)
def test_games_that_cannot_be_computed_are_refused(make: Callable[[], Tree], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


def raising(state: Any, action: int) -> Any:
    raise RuntimeError("boom at depth")


BUGS = """
from grpo_core import Game
from test_best_response import heap, raising
from dataclasses import replace
from pathlib import Path

raises = replace(heap(3), name="raises", apply=raising)
alike = replace(heap(3), name="alike", write=lambda action: "1")
nobody = replace(heap(3), name="nobody", to_move=lambda at: "z")
stuck = replace(heap(3), name="stuck", legal=lambda at: [])
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", r"game 'raises' raised RuntimeError \(test_best_response.py:\d+\): boom at depth"),
        ("alike", "game 'alike': write\\(\\) gives the same text for two actions, in state \\(3, 0\\): 1, 1"),
        ("nobody", "game 'nobody': to_move\\(\\) gave 'z', which is none of its roles"),
        ("stuck", "game 'stuck': no legal action, but outcome\\(\\) gives None"),
    ],
)
def test_a_bug_of_a_game_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "bugs.py").write_text(BUGS)
    said_instead = CliRunner().invoke(games, ("exploitability", "random", "--task", f"{tmp_path}/bugs.py:{name}"))
    assert isinstance(said_instead.exception, UserError)
    assert re.match(said, str(said_instead.exception))


def test_starts_that_differ_are_counted() -> None:
    task = "games.nim?style=short&heaps=2,2&drawn=true&size=200"
    said = CliRunner().invoke(games, ("exploitability", "random", "--task", task, "--json"), catch_exceptions=False)
    found = json.loads(said.stdout)["models"]["random"]
    assert (found["starts"], found["rows"]) == (4, 200)
    said = CliRunner().invoke(games, ("exploitability", "random", "--task", task), catch_exceptions=False)
    assert "starts    4 different ones, of 200 test rows: means over these" in said.stderr


def test_who_has_no_probabilities_is_refused() -> None:
    said = CliRunner().invoke(games, ("exploitability", "perfect", "--task", "games.tictactoe"))
    assert isinstance(said.exception, UserError) and "only `random` and models" in str(said.exception)


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
def test_the_command_prints_both_seats() -> None:
    task = "games.nim?style=short&heaps=1,2"
    said = CliRunner().invoke(games, ("exploitability", "tiny", "--task", task, "--json"), catch_exceptions=False)
    found = json.loads(said.stdout)["models"]["tiny"]
    # From 1, 2 the first player wins by leaving 1, 1. The model leaves 0, 2, which the best response takes.
    assert found["seats"]["first"] == {"reward": -1, "other": 1, "lost": 1, "illegal": 0}
    assert found["seats"]["second"] == {"reward": -1, "other": 1, "lost": 1, "illegal": 0}
    assert found["exploitability"] == 1
    assert found["against"] == {}
    table = CliRunner().invoke(games, ("exploitability", "tiny", "--task", task), catch_exceptions=False).stdout
    assert table.splitlines()[0].split("  ")[0] == "model" and "lost as second" in table


@pytest.mark.usefixtures("one_stick_at_a_time")
def test_the_command_prints_results_against_scripted_players() -> None:
    words = ("exploitability", "tiny", "random", "--task", "games.nim?style=short&heaps=1,2", "--against", "random")
    words += ("--against", "perfect", "--against", "random")
    said = CliRunner().invoke(games, (*words, "--json"), catch_exceptions=False)
    found = json.loads(said.stdout)["models"]["tiny"]["against"]
    assert list(found) == ["random", "perfect"]
    # The model leaves 0, 2, of which a random player takes both with 1/2, else the model takes the last one.
    assert found["random"]["first"] == {"reward": 0, "other": 0, "lost": 0.5, "illegal": 0}
    assert found["perfect"]["first"]["lost"] == found["perfect"]["second"]["lost"] == 1
    _, table = CliRunner().invoke(games, words, catch_exceptions=False).stdout.split("\n\n")
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["tiny", "random", "0.5000"],
        ["tiny", "perfect", "1.0000"],
        ["random", "random", "0.5000"],
        ["random", "perfect", "0.6667"],
    ]


def test_in_poker_scripted_players_are_met_and_one_without_probabilities_is_refused() -> None:
    words = ("exploitability", "random", "--task", "games.kuhn_poker?style=short", "--against")
    said = CliRunner().invoke(games, (*words, "random", "--json"), catch_exceptions=False)
    found = json.loads(said.stdout)["models"]["random"]["against"]["random"]
    assert found["first"]["reward"] == pytest.approx(1 / 8) == -found["second"]["reward"]  # over the six deals
    assert found["first"]["lost"] == pytest.approx(0.4375) == 1 - found["second"]["lost"]
    assert "lost as first" in CliRunner().invoke(games, (*words, "random"), catch_exceptions=False).stdout
    said = CliRunner().invoke(games, (*words, "nash"))
    assert isinstance(said.exception, UserError) and "nash: its moves have no prob" in str(said.exception)
    said = CliRunner().invoke(games, (*words, "perfect"))
    assert isinstance(said.exception, UserError) and "scripted players of games.kuhn_poker" in str(said.exception)


def test_a_prompt_that_several_positions_share_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, str]] = []

    class Model:
        def __init__(self, *args: Any, **options: Any) -> None: ...

        def logprobs(self, prompts: Sequence[Any], texts: Sequence[str]) -> list[float]:
            asked.extend(zip(prompts, texts, strict=True))
            return [-float(text) for text in texts]

    monkeypatch.setattr("grpo_core.Completer", Model)
    a, b = (({"role": "user", "content": content},) for content in "ab")
    moves = [(a, "1"), (b, "1"), (a, "2"), (a, "1")]
    found = best_response._probabilities("tiny", moves, (), "cpu", lambda done, of: None)
    assert found == [math.exp(-1), math.exp(-1), math.exp(-2), math.exp(-1)]
    assert asked == moves[:3]


def test_a_player_without_probabilities_is_refused_before_the_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.Completer", None)
    (tmp_path / "shuffled.py").write_text(
        "from dataclasses import replace\n"
        "from grpo_tasks_games.tictactoe import GAME, legal\n"
        "def first(board, rng):\n    cells = legal(board)\n    rng.shuffle(cells)\n    return cells[0]\n"
        "game = replace(GAME, name='shuffled', players={'first': first}, evaluated_against=None)\n"
    )
    words = ("exploitability", "tiny", "--task", f"{tmp_path}/shuffled.py:game", "--against", "first")
    said = CliRunner().invoke(games, words)
    assert isinstance(said.exception, UserError) and "more than 10,000 outcomes" in str(said.exception)


def test_a_model_that_writes_its_moves_in_another_form_is_told() -> None:
    task = "games.nim?style=short&heaps=1,2"
    said = CliRunner().invoke(games, ("exploitability", "tiny", "--task", task))
    assert isinstance(said.exception, UserError) and "another style than short" in str(said.exception)
