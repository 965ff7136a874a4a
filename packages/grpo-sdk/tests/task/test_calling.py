import json
import os
import sys
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.calling import (
    asked_for,
    binding_of,
    call_by_name,
    errors_named,
    known_arguments,
    prints_to_stderr,
    where_raised,
)
from grpo_sdk.task.grading import fault_of

GIVEN = {"text": "T", "row": "R", "config": "C"}


def penalty(text, *, free_chars=50):
    return text, free_chars


@dataclass
class Near:
    """An object without a hash."""

    tolerance: float

    def __call__(self, text, tolerance=None):
        return text * int(self.tolerance)


@pytest.mark.parametrize(("function", "positional", "result"), [
    (lambda config, text: config + text, 2, "CT"),
    (lambda: 7, 1, 7),
    (lambda completion, problem: completion + problem, 2, "TR"),  # customary ones may have other names
    # `row` stands first here: it must get the row, and `completion` the one customary value that is left, the text.
    (lambda row, completion: row + completion, 2, "RT"),
    (penalty, 0, ("T", 50)),
    (partial(penalty, free_chars=9), 0, ("T", 9)),
    (lambda text="unset": text, 0, "T"),
    (lambda row, *args, **kwargs: (row, args, kwargs), 1, ("R", (), {})),
    (Near(2.0), 0, "TT"),
])  # fmt: skip
def test_arguments_come_by_name(function: Any, positional: int, result: object) -> None:
    assert call_by_name(function, GIVEN, positional=positional) == result


class Template:
    def __call__(self, rwo, other):
        return rwo, other


@pytest.mark.parametrize(("function", "available", "positional", "message"), [
    (lambda answer: answer, tuple(GIVEN), 2, "takes 'answer'; it may take text, row, config"),
    (lambda completion: completion, tuple(GIVEN), 2, "takes 'completion'; .*Names of your own .* all of text, row"),
    (lambda confg, more: more, ("config",), 1, r"takes 'confg'; it may take config\..*mean 'config'"),
    (Template(), ("row", "config"), 1, r"Template\(\) takes 'rwo'"),
])  # fmt: skip
def test_what_cannot_be_given_is_refused(function: Any, available: Any, positional: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        binding_of(function, available, positional)


def test_a_pasted_reward_of_trl_is_told_what_differs() -> None:
    def near_answer(completions, solution, **kwargs):
        return [0.0 for _ in completions]

    with pytest.raises(UserError, match=r"takes 'completions'.*TRL takes lists.* one completion as text") as refused:
        known_arguments("reward near_answer()", near_answer, ("answer", "row", "text", "predictions"))
    assert "Did you mean" not in str(refused.value)


PLUGIN, LIBRARY = "/lib/site-packages/plugin/task.py", "/lib/site-packages/library/read.py"


@pytest.mark.parametrize(("task", "helper", "place"), [
    ("/mine/task.py", "/mine/helper.py", "helper.py:2"),  # the standard library says less than a module of the author
    ("/mine/task.py", LIBRARY, "task.py:2"),
    (PLUGIN, LIBRARY, "task.py:2"),  # an installed author calls an installed library
    (PLUGIN, "/lib/site-packages/plugin/helper.py", "helper.py:2"),
])  # fmt: skip
def test_an_exception_is_of_the_authors_line(task: str, helper: str, place: str) -> None:
    names: dict[str, Any] = {"json": json}
    exec(compile("def read(text):\n    return json.loads(text)", helper, "exec"), names)
    exec(compile("def judge(text):\n    return read(text)", task, "exec"), names)
    with pytest.raises(ValueError, match="Expecting") as caught:
        names["judge"]("{")
    assert caught.tb is not None
    assert where_raised(caught.value.with_traceback(caught.tb.tb_next)) == place  # this file is an author's, too


def test_what_a_function_asks_for_is_read_from_its_signature() -> None:
    assert asked_for(Near(2.0), ("text",)) == ("text",)
    with pytest.raises(UserError, match=r"type\(\) has no signature that can be read"):
        asked_for(type, ("row",))


def test_prints_of_threads_that_overlap_are_diverted_until_the_last_ends(capfd: pytest.CaptureFixture[str]) -> None:
    stdout = sys.stdout
    is_inside, may_leave = threading.Event(), threading.Event()

    def load() -> None:
        with prints_to_stderr():
            is_inside.set()
            may_leave.wait(10.0)
            os.write(1, b"second module\n")

    with prints_to_stderr():
        other = threading.Thread(target=load)
        other.start()
        assert is_inside.wait(10.0)
        print("first module")
    os.write(1, b"still diverted\n")
    may_leave.set()
    other.join()
    assert sys.stdout is stdout
    print("a result", flush=True)
    os.write(1, b"another\n")
    captured = capfd.readouterr()
    assert captured.out == "a result\nanother\n"
    assert captured.err == "first module\nstill diverted\nsecond module\n"


@pytest.mark.parametrize(("name", "said", "fault"), [
    ("pyarrow", r"^load\(\) needs the package pyarrow, which is not installed: pip install 'grpo-sdk\[parquet\]'$",
     "infrastructure"),
    ("rapidfuzz", r"^load\(\) needs .*: pip install 'grpo-sdk\[groups\]'$", "infrastructure"),
    ("rapidfuzz.no_such_part", r"^load\(\) raised ModuleNotFoundError \(test_calling", "reward"),
    ("no_such_library", r"^load\(\) raised ModuleNotFoundError \(test_calling", "reward"),
])  # fmt: skip
def test_a_missing_library_of_an_extra_is_not_the_tasks_fault(name: str, said: str, fault: str) -> None:
    with pytest.raises(DataError, match=said) as caught, errors_named("load()"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert fault_of("load()", caught.value.__cause__).fault == fault
