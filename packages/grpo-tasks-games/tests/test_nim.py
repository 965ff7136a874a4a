from functools import cache
from itertools import product

import pytest

from grpo_sdk import Invalid, UserError, load_task
from grpo_tasks_games import nim
from grpo_tasks_games.nim import Heaps, NimConfig

START = nim.initial(0, NimConfig())


@pytest.mark.parametrize("text", ["<answer>[B2]</answer>", "<answer>B 2</answer>", "[b 2]", "<think>A9</think>b2"])
def test_moves(text: str) -> None:
    assert nim.parse(text, START) == (1, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[D1]", "there is no heap D"),
        ("[A4]", "4 cannot be taken from heap A, which has 3"),
        ("[A0]", "0 cannot be taken"),
        ("take a 2", "not one move alone"),
        *((f"<answer>{text}</answer>", "not one move alone") for text in ("A2, Z9", "B2 or B 3", "B2 B222", "A2 B3")),
        ("", "no move"),
    ],
)
def test_what_is_no_move_says_why(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        nim.parse(text, START)


def test_the_last_object_wins_or_loses() -> None:
    last = Heaps((1, 0), misere=False)
    assert nim.outcome(last) is None
    assert nim.outcome(nim.apply(last, (0, 1))) == {"first": 1.0, "second": -1.0}
    assert nim.outcome(nim.apply(Heaps((1, 0), misere=True), (0, 1))) == {"first": -1.0, "second": 1.0}


@cache
def wins_by_search(heaps: Heaps) -> bool:
    """Whether who is to move can win, by trying everything."""
    returns = nim.outcome(heaps)
    if returns is not None:
        return returns[nim.to_move(heaps)] > 0
    return any(not wins_by_search(nim.apply(heaps, move)) for move in nim.legal(heaps))


@pytest.mark.parametrize("misere", [False, True])
def test_the_nim_sum_says_who_wins(misere: bool) -> None:
    for sizes in product(range(5), range(4), range(4)):
        heaps = Heaps(sizes, misere)
        if nim.outcome(heaps) is not None:
            continue
        assert nim.wins(heaps) == wins_by_search(heaps), heaps
        move = nim.best(heaps)
        assert move in nim.legal(heaps)
        assert wins_by_search(nim.apply(heaps, move)) != nim.wins(heaps)  # a won position is left as a lost one


def test_heaps_by_option() -> None:
    task = load_task("games.nim?heaps=7,2&misere=true&style=short&size=1")
    assert task.prompt(task.rows()[0]) == "nim misere A7 B2\n"
    drawn = {nim.initial(seed, NimConfig(heaps=(2, 3), drawn=True)).sizes for seed in range(100)}
    assert drawn == set(product((1, 2), (1, 2, 3)))


@pytest.mark.parametrize("heaps", ["0,1", "-1", "x", "", f"{nim.MAX_OBJECTS},1", "1,1,1,1,1,1,1,1,1,1"])
def test_heaps_that_cannot_be_meant_are_refused(heaps: str) -> None:
    with pytest.raises(UserError, match="heaps"):
        load_task(f"games.nim?heaps={heaps}")
