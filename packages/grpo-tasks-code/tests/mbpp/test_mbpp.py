import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from grpo_sdk import BoundTask, UserError, load_task
from grpo_tasks_code.mbpp.rows import MBPPRow


def record(task_id: int, **changed: Any) -> dict[str, Any]:
    return {
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\r\n    return a + b\r\n",
        "task_id": task_id,
        "test_setup_code": "nine = 9",
        "test_list": [f"assert add({a}) == {c}" for a, c in (("1, 2", 3), ("0, 0", 0), ("-1, 1", 0), ("nine, 9", 18))],
        "challenge_test_list": ["assert add(10 ** 9, 1) == 10 ** 9 + 1"],
        **changed,
    }


SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "task_id": 11,
    "prompt": "Write a python function for the square root.",
    "code": "def root(x):\n    return math.sqrt(x)",
    "test_imports": ["import math"],
    "test_list": ["assert root(4) == math.sqrt(4)"],
}


def task_of(tmp_path: Path, records: list[dict[str, Any]], options: str = "split=test") -> BoundTask:
    path = tmp_path / "mbpp.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return load_task(f"code.mbpp?path={path}&{options}")


def row_of(task: BoundTask, index: int = 0) -> MBPPRow:
    row = task.rows()[index]
    assert isinstance(row, MBPPRow)
    return row


def test_the_prompt_is_a_docstring_with_the_first_assert(tmp_path: Path) -> None:
    task = task_of(tmp_path, [record(11)])
    assert task.prompt(row_of(task)) == ('"""\nWrite a function to add two numbers.\nassert add(1, 2) == 3\n"""\n')
    assert row_of(task).gold == "```python\ndef add(a, b):\n    return a + b\n```"


@pytest.mark.parametrize(("options", "program", "value", "share"), [
    ("", "return a + b", 1.0, 1.0),
    # Of four tests: none, one, two, three; half of the value is for all of them.
    ("", "return 'x'", 0.0, 0.0),
    ("", "return 3", 0.125, 0.25),
    ("", "return 0", 0.25, 0.5),
    ("", "return a + b if a < 9 else 0", 0.375, 0.75),
    ("&all_weight=1", "return 0", 0.0, 0.5),
    ("&all_weight=1", "return a + b", 1.0, 1.0),
    ("&challenge=true", "return a + b if a < 10 else 0", 0.4, 0.8),  # four of five
])  # fmt: skip
def test_the_share_of_the_tests_and_all_of_them_are_weighed(
    tmp_path: Path, options: str, program: str, value: float, share: float
) -> None:
    task = task_of(tmp_path, [record(11)], f"split=test{options}")
    score = task.score(f"def add(a, b):\n    {program}", row_of(task))
    assert score.value == pytest.approx(value) and score.solved == (value == 1.0)
    assert score.parts == {"passing": pytest.approx(value), "passed_tests": pytest.approx(share)}


def test_splits_go_by_the_number(tmp_path: Path) -> None:
    records = [record(number) for number in (*range(1, 20), *range(505, 520), *range(595, 610), *range(970, 1001))]
    found = {
        split: {int(row.id) for row in task_of(tmp_path, records, f"split={split}").rows()}
        for split in ("train", "validation", "test")
    }
    published = {split: {number for number in numbers if number <= 974} for split, numbers in found.items()}
    assert published["train"] == {*range(601, 610), *range(970, 975)}
    assert published["validation"] == {*range(511, 520), *range(595, 601)}
    assert published["test"] == {*range(11, 20), *range(505, 511)}  # 1 to 10 are for prompts
    # Other numbers, of a file of one's own, go by a hash.
    assert sum(map(len, found.values())) == len(records) - 10
    assert all(numbers - published[split] for split, numbers in found.items())


def test_the_sanitized_form_is_read(tmp_path: Path) -> None:
    task = task_of(tmp_path, [SANITIZED])
    assert row_of(task).text == "Write a python function for the square root."
    assert task.score(SANITIZED["code"], row_of(task)).value == 1.0


def test_a_file_per_split_decides_whatever_the_numbers(tmp_path: Path) -> None:
    for split, numbers in (("train", (1, 11)), ("test", (2, 700)), ("prompt", (3,))):
        (tmp_path / f"{split}.jsonl").write_bytes(b"\n".join(orjson.dumps(record(number)) for number in numbers))
    task = load_task(f"code.mbpp?shots=1&path={tmp_path}/{{split}}.jsonl")
    assert {row.id for row in task.rows()} == {"1", "11"}
    assert {row.id for row in task.with_options(split="test").rows()} == {"2", "700"}
    assert str(task.prompt(row_of(task))).count("```python") == 1


def test_the_sample_is_fixed_by_the_seed_and_a_smaller_one_is_its_beginning(tmp_path: Path) -> None:
    records = [record(number) for number in range(11, 111)]
    five = [row.id for row in task_of(tmp_path, records, "split=test&size=5").rows()]
    assert five == [row.id for row in task_of(tmp_path, records[::-1], "split=test&size=9").rows()][:5]
    assert five != [row.id for row in task_of(tmp_path, records, "split=test&size=5&seed=1").rows()]
    assert five != [str(number) for number in range(11, 16)]


def test_shots_are_problems_that_are_in_no_split(tmp_path: Path) -> None:
    records = [record(number, text=f"Problem {number}.") for number in (3, 2, 4, 11, 12)]
    task = task_of(tmp_path, records, "split=test&shots=2")
    prompt = task.prompt(row_of(task))
    assert isinstance(prompt, str)
    assert prompt.startswith('"""\nProblem 2.\nassert add(1, 2) == 3\n"""\n```python\ndef add')
    assert prompt.count("```python") == 2 and "Problem 3." in prompt and "Problem 4." not in prompt
    assert prompt.endswith(f'"""\n{row_of(task).text}\nassert add(1, 2) == 3\n"""\n')
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="shots=1, and of problems 1 to 10 the data has 0"):
        without = task_of(other, records[3:], "split=test&shots=1")
        without.prompt(row_of(without))


@pytest.mark.parametrize(("changed", "message"), [
    ({"test_list": []}, "mbpp.jsonl:1: test_list: no tests"),
    ({"test_list": "assert True"}, "test_list: a list of texts is wanted"),
    ({"code": "x" * 70_000}, "code: more than"),
    ({"test_list": ["assert True"] * 101}, "at most 100 texts"),
    ({"test_list": ["assert f(1) == 1", "f(2)"]}, "mbpp.jsonl:1: test 1 asserts nothing"),
    ({"test_list": ["assert f(1).equals(1)"]}, "test 0 cannot be judged: .* asks the program"),
    ({"test_setup_code": "x ="}, "setup is not Python"),
])  # fmt: skip
def test_a_record_that_does_not_fit_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_of(tmp_path, [record(11, **changed)]).rows()


def test_a_missing_field_is_named_with_the_way_out(tmp_path: Path) -> None:
    renamed = {**record(11), "question": "?"}
    del renamed["text"]
    with pytest.raises(UserError, match=r"no field 'text' \(full\) or 'prompt' \(sanitized\).*fields=text:COLUMN"):
        task_of(tmp_path, [renamed]).rows()
    assert task_of(tmp_path, [renamed], "split=test&fields=text:question").rows()


def test_without_data_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def unreachable(*names: Any, split: str) -> Any:
        asked.append((*names, split))
        raise ConnectionError("no network")

    hub = ModuleType("datasets")  # importing the real one takes seconds
    hub.load_dataset = unreachable
    monkeypatch.setitem(sys.modules, "datasets", hub)
    with pytest.raises(UserError, match=r"google-research-datasets/mbpp.*no network.*give a local file: \?path="):
        load_task("code.mbpp?split=test").rows()
    with pytest.raises(UserError, match="full"):
        load_task("code.mbpp?variant=full").rows()
    shots = load_task("code.mbpp?shots=1")
    with pytest.raises(UserError, match="prompt"):
        shots.prompt(MBPPRow(id="11", task_id=11, text="?", tests=("assert True",)))
    name = "google-research-datasets/mbpp"
    assert asked == [(name, "sanitized", "test"), (name, "full", "train"), (name, "sanitized", "prompt")]
