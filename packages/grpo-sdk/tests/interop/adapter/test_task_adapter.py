import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from scoring_tasks import sums

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.interop.adapter import DOORS, TaskAdapter

SHOP = Path(__file__).parents[2] / "scoring" / "shop_tasks.py"
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


def test_a_copy_has_workers_of_its_own(adapter: TaskAdapter) -> None:
    with pickle.loads(pickle.dumps(adapter)) as copy:
        assert copy.score(["4<end>"], [SUM]) == adapter.score(["4<end>"], [SUM])
        assert copy.scorer is not adapter.scorer


def test_messages_of_a_text_and_of_a_prefill(adapter: TaskAdapter) -> None:
    assert adapter.messages("hello") == [{"role": "user", "content": "hello"}]
    with pytest.raises(UserError, match="prefilled message by the assistant, which Trainer would close"):
        adapter.messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])


@pytest.mark.parametrize(("trainer", "door"), [*DOORS.items(), ("Trainer", "the reward gets one completion")])
def test_a_trainer_that_cannot_call_tools_refuses_a_task_with_tools(trainer: str, door: str) -> None:
    said = re.escape(f"'shop_tasks.shop' has tools; in {trainer} {door}. Train it with grpo run, or in TRL, ")
    with pytest.raises(UserError, match=said):
        TaskAdapter(f"{SHOP}:SHOP", trainer, "episodes")


def test_an_adapter_of_a_task_with_tools_pickles() -> None:
    with TaskAdapter(f"{SHOP}:SHOP", "Trainer", "episode", takes_tools="text", workers=1) as adapter:
        again = pickle.loads(pickle.dumps(adapter))
        assert again.task.name == adapter.task.name
        assert again.first_messages(row := adapter.task.rows()[0]) == adapter.first_messages(row)
