from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from environments import played

from grpo_sdk import Score, Scorer, load_task
from grpo_sdk.episodes.episode import Episode

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


def answered(scorer: Scorer, *texts: str) -> tuple[Episode[str], Score]:
    (made,), (score,) = played(scorer, scorer.task.rows()[0], [texts])
    return made, score


def test_a_second_attempt_sees_the_test_that_failed(scorer: Scorer) -> None:
    made, score = answered(scorer, WRONG, RIGHT)
    assert [turn.text for turn in made.turns] == [WRONG, RIGHT]
    second = str(made.turns[1].prompt)
    assert second.startswith(str(made.turns[0].prompt) + WRONG) and "assert inc(5) == 6" in second
    assert score.value == 1.0


def test_there_is_no_third_attempt_and_the_last_one_counts(scorer: Scorer) -> None:
    made, score = answered(scorer, RIGHT.replace("x + 1", "x - 1"), WRONG)
    # one of two tests: half of half the reward
    assert len(made.turns) == 2 and score.value == pytest.approx(0.25)


def test_who_is_right_at_once_is_not_asked_again_and_nonsense_is_told_so(scorer: Scorer) -> None:
    assert len(answered(scorer, RIGHT)[0].turns) == 1
    made, score = answered(scorer, "\ud800\x00 (", RIGHT)
    assert len(made.turns) == 2 and score.solved
