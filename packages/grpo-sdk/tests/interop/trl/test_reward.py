"""Reward functions and data sets for TRL, called as TRL calls them."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import group_tasks
import pytest
import scoring_tasks

from grpo_sdk.errors import AbstentionLimitError, UserError
from grpo_sdk.interop.trl import TaskReward, completion_text, dataset, reward_funcs

TASKS = Path(__file__).with_name("programs") / "trl_tasks.py"
WORDS = f"{Path(group_tasks.__file__)}:words"


@pytest.fixture(scope="module")
def add() -> Iterator[TaskReward]:
    (function,) = reward_funcs(f"{TASKS}:add", workers=1, max_abstain_share=1.0)
    yield function
    function.close()


class Log:
    """What TRL gives to every reward function."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self.metrics: dict[str, float] = {}

    def keywords(self) -> dict[str, Any]:
        return {"log_extra": self.columns.__setitem__, "log_metric": self.metrics.__setitem__, "trainer_state": None}


def batch(completions: list[Any], **columns: Any) -> dict[str, Any]:
    """The keywords of TRL 1.16's call: lists of one length, every column of the dataset by name."""
    n = len(completions)
    row = columns.pop("row", [json.dumps({"id": "1+2", "a": 1, "b": 2})] * n)
    known = {"prompts": ["1+2="] * n, "completion_ids": [[1]] * n, "task": ["trl_tasks.add"] * n}
    return {"completions": completions, "row": row, **known, **columns}


@pytest.mark.parametrize(("completions", "rewards"), [
    (["3", "4", "three"], [1.0, 0.25, 0.0]),  # 0.25 for a number, 0.75 more for the right one
    ([[{"role": "assistant", "content": "3"}]], [1.0]),
    (["3\n4+4=8"], [1.0]),  # what follows a stop string is not scored
])  # fmt: skip
def test_one_number_per_completion_in_order(add: TaskReward, completions: list[Any], rewards: list[float]) -> None:
    assert add(**batch(completions)) == rewards


def test_a_hang_and_a_crash_are_none_and_spoil_nothing_else(add: TaskReward) -> None:
    log = Log()
    assert add(**batch(["hang", "3", "crash"]), **log.keywords()) == [None, 1.0, None]
    assert log.metrics["trl_tasks.add/abstained_rate"] == pytest.approx(2 / 3)
    assert log.metrics["trl_tasks.add/solved_rate"] == 1.0
    assert log.columns["trl_tasks.add/solved"] == [None, True, None]
    assert "boom" in log.columns["trl_tasks.add/why"][2]


def test_parts_solved_and_valid_are_logged(add: TaskReward) -> None:
    log = Log()
    add(**batch(["3", "4", "three"]), **log.keywords())
    assert {name.removeprefix("trl_tasks.add/"): values for name, values in log.columns.items()} == {
        "solved": [True, False, False],
        "valid": [True, True, False],
        "why": ["", "exact 0 of 1", "invalid: no number"],
        "number": [1.0, 1.0, 0.0],
        "exact": [1.0, 0.0, 0.0],
    }
    thirds = {"solved_rate": 1 / 3, "valid_rate": 2 / 3, "number": 2 / 3, "exact": 1 / 3, "abstained_rate": 0.0}
    assert log.metrics == pytest.approx({f"trl_tasks.add/{name}": value for name, value in thirds.items()})


def test_completions_of_other_tasks_are_left_to_their_own_functions() -> None:
    functions = reward_funcs(f"{TASKS}:add,{TASKS}:same", workers=1)
    mixed = batch(["3", "3"], task=["trl_tasks.add", "trl_tasks.same"])
    assert [function(**mixed) for function in functions] == [[1.0, None], [None, 1.0]]
    log = Log()
    assert functions[0](**batch(["3"], task=["trl_tasks.same"]), **log.keywords()) == [None]
    with pytest.warns(UserWarning, match="scores nothing in this batch: its rows are of arithmetic"):
        assert functions[0](**batch(["3"], task=["arithmetic"])) == [None]
    assert functions[0](**batch(["3"], task=["arithmetic"])) == [None], "warned once"
    assert log.columns["trl_tasks.add/solved"] == [None]  # the table keeps one value per completion
    assert log.metrics == {}
    for function in functions:
        function.close()


@pytest.mark.parametrize(("row", "message"), [(None, "no column 'row'"), (["{}"], "got 1 'row' for 2 completions")])
def test_without_the_column_row_it_says_where_to_get_it(add: TaskReward, row: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"{message}.*interop\.trl\.dataset"):
        add(**batch(["3", "4"], row=row))


def test_too_many_abstentions_stop_the_run_by_name() -> None:
    (function,) = reward_funcs(f"{TASKS}:add", workers=1)
    with pytest.raises(AbstentionLimitError, match=r"trl_tasks\.add"):
        function(**batch(["crash", "crash", "3"]))
    function.close()


@pytest.mark.parametrize("content", ["a", [{"type": "text", "text": "a"}], None])
def test_the_text_of_a_completion_is_that_of_its_message(content: Any) -> None:
    assert completion_text([{"role": "assistant", "content": content}]) == ("a" if content else "")


@pytest.mark.parametrize(("wrong", "message"), [
    *((each, "a completion is a text, or a list of one message") for each in (None, 5, b"5", ["5"])),
    ([{"role": "assistant", "content": ""}, {"role": "tool", "content": "4"}], "has: assistant, tool"),
    ([{"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}], "to reasoning_content"),
])  # fmt: skip
def test_what_is_no_completion_of_one_message_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        completion_text(wrong)


def test_rows_of_a_data_set_are_those_of_the_task_and_its_golds_earn_everything(add: TaskReward) -> None:
    rows = dataset(f"{TASKS}:add")
    assert rows.column_names == ["prompt", "row", "task"] and set(rows["task"]) == {"trl_tasks.add"}
    assert rows["prompt"][:2] == ["1+1=", "1+2="]
    assert [add.task.row_from_json(text) for text in rows["row"]] == add.task.rows()
    golds = [json.loads(text)["gold"] for text in rows["row"]]
    columns = {"row": rows["row"][:], "task": rows["task"][:]}
    assert add(prompts=rows["prompt"], completions=golds, completion_ids=[], **columns) == [1.0] * 8
    assert dataset(f"{TASKS}:chat")["prompt"][0] == [{"role": "user", "content": "1+1="}]


def test_a_mixture_has_the_proportion_of_its_weights() -> None:
    labels = dataset(f"{TASKS}:add:2,{TASKS}:same:1")["task"][:]
    # 8 + 8 rows; every three in a row hold two of one task and one of the other.
    assert [labels[start : start + 3].count("trl_tasks.add") for start in range(0, 15, 3)] == [2] * 5


@pytest.mark.parametrize(("make", "spec", "message"), [
    (dataset, f"{TASKS}:add,{TASKS}:chat", r"add \(text\), trl_tasks\.chat \(messages\)"),
    (dataset, f"{TASKS}:turns", "several turns"),
    (reward_funcs, f"{TASKS}:turns", "several turns"),
    (reward_funcs, WORDS, r"group reward shortest\(\): give num_generations=N"),
])  # fmt: skip
def test_what_trl_cannot_train_is_refused(make: Any, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(spec)


def test_an_opponent_with_an_endpoint_is_accepted() -> None:
    spec = f"{Path(scoring_tasks.__file__)}:guess"
    (function,) = reward_funcs(spec, workers=1, opponent_url="http://127.0.0.1:9/v1#m")
    function.close()


def words(*texts: str, rows: str = "", **options: Any) -> list[float | None]:
    """Rewards of completions that are compared, of row 0 or of a row each."""
    (function,) = reward_funcs(WORDS, workers=1, num_generations=2, max_abstain_share=1.0, **options)
    copy = pickle.loads(pickle.dumps(function))
    try:
        row = [json.dumps({"id": number}) for number in rows or "0" * len(texts)]
        return copy(**batch(list(texts), row=row, task=None))  # type: ignore[no-any-return]
    finally:
        function.close()
        copy.close()


def test_group_rewards_compare_the_completions_of_a_prompt() -> None:
    assert words("a", "aa", "bb", "b", rows="0011") == [0.75, 0.5, 0.0, 0.25]
    # One row twice, side by side; compared with all four, "aa" would be as long as the shortest of its own pair.
    assert words("aa", "aaa", "a", "b") == [0.75, 0.5, 0.75, 0.25]
    with pytest.raises(UserError, match="compares the 2 completions of a prompt, and this process got 3 of them"):
        words("a", "a", "a")


def test_a_completion_alone_is_a_group_in_an_evaluation_of_one_completion_a_prompt() -> None:
    assert words("a", num_generations_eval=1) == [0.5]
    with pytest.raises(UserError, match=r"got 1 of them: .*per_device_eval_batch_size.*num_generations_eval=…"):
        words("a")
