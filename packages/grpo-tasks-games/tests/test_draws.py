"""Probabilities of a scripted player's moves."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from grpo_sdk import Rules, UserError
from grpo_tasks_games import best_response, tictactoe
from grpo_tasks_games.best_response import move_probabilities

BOARD = "X...O...."  # seven free cells


def rules_with(player: Callable[[str, random.Random], int]) -> Rules:
    game = replace(tictactoe.GAME, players={"mine": player}, evaluated_against=("perfect",))
    return Rules(game, tictactoe.TicTacToeConfig())


def first_free(board: str, rng: random.Random) -> int:
    return tictactoe.legal(board)[0]


def twice(board: str, rng: random.Random) -> int:
    """Half of the time the first cell, else any."""
    return tictactoe.legal(board)[0] if rng.randint(0, 1) else rng.choice(tictactoe.legal(board))


def shuffled(board: str, rng: random.Random) -> int:
    cells = tictactoe.legal(board)
    rng.shuffle(cells)
    return cells[0] if rng.randrange(1, 7, 3) == 4 else min(cells[:2])


def test_probabilities_are_those_of_the_draws() -> None:
    assert move_probabilities(rules_with(first_free), "mine", BOARD) == [1, 0, 0, 0, 0, 0, 0]
    assert move_probabilities(rules_with(twice), "mine", BOARD) == pytest.approx([1 / 2 + 1 / 14, *[1 / 14] * 6])
    assert move_probabilities(rules_with(first_free), "random", BOARD) == pytest.approx([1 / 7] * 7)
    best = move_probabilities(rules_with(first_free), "perfect", BOARD)
    assert sorted(best) == [0] * 6 + [1] and best[tictactoe.legal(BOARD).index(tictactoe.best(BOARD))] == 1


def test_every_order_of_a_shuffle_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_response, "MAX_OUTCOMES", 20_000)  # seven cells have 5,040 orders
    # The first of an order is each cell with 1/7. Of the 21 pairs of cells, the earlier one is the first cell in 6.
    found = move_probabilities(rules_with(shuffled), "mine", BOARD)
    assert found == pytest.approx([(1 / 7 + pairs / 21) / 2 for pairs in (6, 5, 4, 3, 2, 1, 0)])


def guarded(board: str, rng: random.Random) -> int:
    try:
        return 1 if rng.random() < 0.5 else 2
    except Exception:
        return 3


@pytest.mark.parametrize(
    "player", [guarded, lambda board, rng: rng.choices([1, 2])[0], lambda board, rng: rng.sample([1, 2], 1)[0]]
)
def test_other_draws_are_refused(player: Callable[[str, random.Random], int]) -> None:
    with pytest.raises(UserError, match="mine: its moves have no probabilities that are known"):
        move_probabilities(rules_with(player), "mine", BOARD)


@pytest.mark.parametrize("ends", [0, 1, 2])
def test_draws_without_end_are_refused(ends: int) -> None:
    def player(board: str, rng: random.Random) -> int:
        while rng.randint(0, 1) != ends:
            pass
        return tictactoe.legal(board)[0]

    with pytest.raises(UserError, match="or more than 1,000 times"):
        move_probabilities(rules_with(player), "mine", BOARD)


def test_too_many_outcomes_are_refused() -> None:
    with pytest.raises(UserError, match="more than 10,000 outcomes"):
        move_probabilities(rules_with(lambda board, rng: 1 + rng.randrange(10**9) % 2), "mine", BOARD)


def test_an_illegal_move_and_an_empty_choice_are_bugs_of_the_game() -> None:
    with pytest.raises(ValueError, match="its player 'mine' gave 4, which is none of the legal"):
        move_probabilities(rules_with(lambda board, rng: 4), "mine", BOARD)
    with pytest.raises(IndexError):
        move_probabilities(rules_with(lambda board, rng: rng.choice([])), "mine", BOARD)
