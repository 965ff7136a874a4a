from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator

import group_tasks
import pytest
from scoring_tasks import guess, sums
from small_games import HEAP

from grpo_core.errors import DataError, UserError
from grpo_core.interop.adapter import TaskAdapter

SUM = '{"id": "2+2", "gold": "4", "a": 2, "b": 2}'


@pytest.fixture(scope="module")
def adapter() -> Iterator[TaskAdapter]:
    with TaskAdapter(sums, "Trainer", workers=1, end_tokens=("<end>",)) as adapter:
        yield adapter


def test_a_row_is_json_text_or_what_a_parser_made_of_it(adapter: TaskAdapter) -> None:
    row = {"id": "2+2", "gold": "4", "a": 2, "b": 2}
    assert adapter.row(SUM) == adapter.row(row) == adapter.row(adapter.row(SUM))
    with pytest.raises(DataError, match="JSON text, as its data set holds it; got int"):
        adapter.row(4)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="b: Field required"):
        adapter.row('{"id": "2+2", "a": 2}')


def test_scores_are_those_of_the_scorer_and_end_tokens_are_no_part_of_a_completion(adapter: TaskAdapter) -> None:
    right, wrong = adapter.score(["4<end>\n", "5"], [SUM, SUM])
    assert (right.value, right.solved, wrong.value) == (2.0, True, 0.0)
    assert asyncio.run(adapter.ascore(["4<end>", "5"], [SUM, SUM])) == [right, wrong]


def test_a_copy_has_workers_of_its_own(adapter: TaskAdapter) -> None:
    with pickle.loads(pickle.dumps(adapter)) as copy:
        assert copy.score(["4<end>"], [SUM]) == adapter.score(["4<end>"], [SUM])
        assert copy.scorer is not adapter.scorer


def test_the_completions_of_a_prompt_are_compared_after_each_was_scored() -> None:
    with TaskAdapter(group_tasks.words, "Trainer", "group", workers=1) as words:
        row = words.task.rows()[0]
        scores = words.score(["a", "banana"], [row, row])
        compared = words.compare(["a", "banana"], row, scores)
        assert compared == words.score_group(["a", "banana"], row.model_dump_json())
        assert [score.parts["shortest"] for score in compared] == [1.0, 0.0]


def test_a_task_that_a_trainer_cannot_train_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"heap' is a game; Trainer's"):
        TaskAdapter(HEAP, "Trainer", "group")
    with pytest.raises(UserError, match="has a model as its opponent: serve one"):
        TaskAdapter(guess, "Trainer")


def test_messages_of_a_text_and_of_a_prefill(adapter: TaskAdapter) -> None:
    assert adapter.messages("hello") == [{"role": "user", "content": "hello"}]
    with pytest.raises(UserError, match="prefilled message by the assistant, which Trainer would close"):
        adapter.messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
