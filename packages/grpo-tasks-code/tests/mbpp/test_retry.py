from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest

from grpo_sdk import Scorer, load_task
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.player import Player, play

PROBLEM = {
    "task_id": 601,
    "text": "Write a function to add one.",
    "code": "def inc(x):\n    return x + 1",
    "test_list": ["assert inc(1) == 2", "assert inc(5) == 6"],
}
RIGHT, WRONG = "```python\ndef inc(x):\n    return x + 1\n```", "```python\ndef inc(x):\n    return 2\n```"


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    path = tmp_path_factory.mktemp("mbpp") / "problems.jsonl"
    path.write_bytes(orjson.dumps(PROBLEM) + b"\n")
    with Scorer(load_task(f"code.mbpp_retry?path={Path(path)}"), workers=1) as made:
        yield made


def answered(scorer: Scorer, *texts: str) -> Episode[str]:
    row = scorer.task.rows()[0]
    one = Episode[str](scorer.task, row, SampleKey(0, 1, "p", 0), scorer.task.prompt(row))

    def answer(asked: Sequence[int]) -> Iterator[tuple[int, Reply[str]]]:
        text = texts[len(one.turns)]
        yield 0, Reply(text, text)

    play([(Player(scorer), one)], answer)
    return one


def test_a_second_attempt_sees_the_test_that_failed(scorer: Scorer) -> None:
    made = answered(scorer, WRONG, RIGHT)
    assert [turn.text for turn in made.turns] == [WRONG, RIGHT]
    second = str(made.turns[1].prompt)
    assert second.startswith(str(made.turns[0].prompt) + WRONG) and "assert inc(5) == 6" in second
    assert Player(scorer).score(made)[""].result().value == 1.0


def test_there_is_no_third_attempt_and_the_last_one_counts(scorer: Scorer) -> None:
    made = answered(scorer, RIGHT.replace("x + 1", "x - 1"), WRONG)
    assert len(made.turns) == 2
    # one of two tests: half of half the reward
    assert Player(scorer).score(made)[""].result().value == pytest.approx(0.25)


def test_who_is_right_at_once_is_not_asked_again(scorer: Scorer) -> None:
    assert len(answered(scorer, RIGHT).turns) == 1


def test_nonsense_is_told_so(scorer: Scorer) -> None:
    made = answered(scorer, "\ud800\x00 (", RIGHT)
    assert len(made.turns) == 2 and Player(scorer).score(made)[""].result().solved
