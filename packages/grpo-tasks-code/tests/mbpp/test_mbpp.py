from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import orjson
import pytest

from grpo_core import BoundTask, InfrastructureError, UserError, load_task
from grpo_tasks_code import sandbox, sandboxed
from grpo_tasks_code.mbpp.rows import MBPPRow


def record(task_id: int, **changed: Any) -> dict[str, Any]:
    return {
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\r\n    return a + b\r\n",
        "task_id": task_id,
        "test_setup_code": "",
        "test_list": [
            "assert add(1, 2) == 3",
            "assert add(0, 0) == 0",
            "assert add(-1, 1) == 0",
            "assert add(9, 9) == 18",
        ],
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


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MBPP_")]:
        monkeypatch.delenv(name)


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


def test_gold_earns_the_maximum(tmp_path: Path) -> None:
    task = task_of(tmp_path, [record(11)])
    score = task.score(row_of(task).gold or "", row_of(task))
    assert (score.value, score.solved, score.parts) == (1.0, True, {"passing": 1.0, "passed_tests": 1.0})


# add() that returns 0 passes two of the four tests.
@pytest.mark.parametrize(("all_weight", "value"), [("0", 0.5), ("0.5", 0.25), ("1", 0.0)])
def test_the_share_of_the_tests_and_all_of_them_are_weighed(tmp_path: Path, all_weight: str, value: float) -> None:
    task = task_of(tmp_path, [record(11)], f"split=test&all_weight={all_weight}")
    score = task.score("def add(a, b):\n    return 0", row_of(task))
    assert score.value == pytest.approx(value) and not score.solved
    assert score.parts["passed_tests"] == 0.5
    assert task.score(row_of(task).gold or "", row_of(task)).value == pytest.approx(1.0)


def test_better_never_earns_less(tmp_path: Path) -> None:
    task = task_of(tmp_path, [record(11)])
    ladder = (
        "no program",
        "def add(a, b):\n    return 'x'",
        "def add(a, b):\n    return 3",
        "def add(a, b):\n    return 0",
        "def add(a, b):\n    return a + b if a < 9 else 0",
        "def add(a, b):\n    return a + b",
    )
    values = [task.score(text, row_of(task)).value for text in ladder]
    # Of four tests: none, none, one, two, three, all.
    assert values == pytest.approx([0.0, 0.0, 0.125, 0.25, 0.375, 1.0])


def test_challenge_tests_are_an_option(tmp_path: Path) -> None:
    small = "def add(a, b):\n    return a + b if a < 10 else 0"
    for options, value in (("split=test", 1.0), ("split=test&challenge=true", 0.4)):  # four of five
        task = task_of(tmp_path, [record(11)], options)
        assert task.score(small, row_of(task)).value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "def add(a, b):\n    return type('X', (), {'__eq__': lambda s, o: True})()",
        "import sys\nsys.exit(0)",
        "def add(a, b):\n    import os\n    os._exit(0)",
        "import builtins\nbuiltins.AssertionError = Exception\ndef add(a, b):\n    return 0 if a else 7",
        "def add(a, b):\n    print('passed: 4')\n    return None",
        "",
    ],
)
def test_tricks_earn_nothing(tmp_path: Path, text: str) -> None:
    task = task_of(tmp_path, [record(11)])
    score = task.score(text, row_of(task))
    assert score.value is not None and score.value <= 0.125 and not score.solved, score


def test_splits_go_by_the_number(tmp_path: Path) -> None:
    records = [record(number) for number in range(1, 1001)]
    found = {
        split: {int(row.id) for row in task_of(tmp_path, records, f"split={split}").rows()}
        for split in ("train", "validation", "test")
    }
    published = {split: {number for number in numbers if number <= 974} for split, numbers in found.items()}
    assert published == {"train": {*range(601, 975)}, "validation": {*range(511, 601)}, "test": {*range(11, 511)}}
    # 1 to 10 are for prompts; other numbers, of a file of one's own, go by a hash.
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(11, 1001))
    assert all(numbers - published[split] for split, numbers in found.items())


def test_one_file_per_split_and_the_sanitized_form(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_bytes(orjson.dumps(SANITIZED))
    task = load_task(f"code.mbpp?split=test&path={tmp_path}/{{split}}.jsonl")
    row = row_of(task)
    assert (row.setup, row.text) == ("import math", "Write a python function for the square root.")
    assert task.score("import math\n" + SANITIZED["code"], row).value == 1.0


def test_a_file_per_split_decides_whatever_the_numbers(tmp_path: Path) -> None:
    for split, numbers in (("train", (1, 11)), ("test", (2, 700)), ("prompt", (3,))):
        (tmp_path / f"{split}.jsonl").write_bytes(b"\n".join(orjson.dumps(record(number)) for number in numbers))
    task = load_task(f"code.mbpp?shots=1&path={tmp_path}/{{split}}.jsonl")
    assert {row.id for row in task.rows()} == {"1", "11"}
    assert {row.id for row in task.with_options(split="test").rows()} == {"2", "700"}
    assert str(task.prompt(row_of(task))).count("```python") == 1


def test_imports_and_setup_run_before_the_tests(tmp_path: Path) -> None:
    tests = ["assert add(nine, 1) == 10", "assert add(math.floor(2.5), 1) == 3"]
    task = task_of(tmp_path, [record(11, test_imports=["import math"], test_setup_code="nine = 9", test_list=tests)])
    assert task.score(row_of(task).gold or "", row_of(task)).value == 1.0


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test_list": []}, "mbpp.jsonl:1: test_list: no tests"),
        ({"test_list": "assert True"}, "test_list: a list of texts is wanted"),
        ({"code": None}, "code: a NoneType where text is wanted"),
        ({"challenge_test_list": [1]}, "mbpp.jsonl:1: challenge_test_list: a list of texts"),
        ({"code": "x" * 70_000}, "code: more than"),
        ({"test_list": ["assert True"] * 101}, "at most 100 texts"),
        ({"test_list": ["assert f(1) == 1", "f(2)"]}, "mbpp.jsonl:1: test 1 asserts nothing"),
        ({"test_list": ["assert f(1).equals(1)"]}, "test 0 cannot be judged: .* asks the program"),
        ({"test_setup_code": "x ="}, "setup is not Python"),
    ],
)
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
    hub.load_dataset = unreachable  # type: ignore[attr-defined] # a module takes attributes
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


def test_a_failing_sandbox_abstains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(tmp_path, [record(11)])
    fine, broken = (sandbox.Execution(status, "", "it broke", 0.0, 0.0, "L2") for status in ("ok", "sandbox_error"))
    results = [
        sandbox.TestResult(0, 1, [False], ["sandbox_error"], ["it broke"], "L2", broken),
        sandbox.TestResult(1, 2, [True, False], ["passed", "sandbox_error"], ["", "it broke"], "L2", fine),
    ]
    for result in results:
        monkeypatch.setattr(sandboxed, "run_tests", lambda *args, found=result, **options: found)
        score = task.score("x = 1", row_of(task))
        assert (score.value, score.fault) == (None, "infrastructure")
        with pytest.raises(InfrastructureError):
            sandboxed.run_against_tests("x = 1", ["assert True"], timeout_s=1, memory_mib=512)


def shared_rows(split: str, size: int | None = None) -> BoundTask:
    """The real problems, from GRPO_SHARED_DATA or a `shared/data` folder above this file."""
    folders = [Path(os.environ["GRPO_SHARED_DATA"])] if "GRPO_SHARED_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    path = next((file for folder in folders if (file := folder / "mbpp_600.jsonl").is_file()), None)
    if path is None:
        pytest.skip("mbpp_600.jsonl is in no shared/data folder above the tests, nor in $GRPO_SHARED_DATA")
    return load_task(f"code.mbpp?split={split}&path={path}" + (f"&size={size}" if size else ""))


def unsolved(task: BoundTask) -> set[int]:
    scores = [(row, task.score(row.gold or "", row)) for row in task.rows()]
    assert all(score.value is not None for _, score in scores)
    return {int(row.id) for row, score in scores if not (score.solved and score.value == pytest.approx(1.0))}


def test_reference_solutions_of_real_problems_earn_the_maximum() -> None:
    assert not unsolved(shared_rows("test", size=25))


@pytest.mark.slow
@pytest.mark.parametrize(("split", "count"), [("test", 500), ("validation", 90)])
def test_every_reference_solution_earns_the_maximum(split: str, count: int) -> None:
    task = shared_rows(split)
    assert len(task.rows()) == count
    assert not unsolved(task)  # none is broken in the data


def test_a_solution_of_another_problem_passes_nothing() -> None:
    task = shared_rows("test", size=25)
    rows = task.rows()
    Random(0).shuffle(rows)
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        assert task.score(other.gold or "", row).value == 0.0, (row.id, other.id)
