"""An author's function that does not return in this process, where nothing can kill it, is told."""

import time
from collections.abc import Iterator

import pytest

from grpo_sdk import Row, Task, load_task
from grpo_sdk.task.watching import watching


def test_a_prompt_and_a_row_that_do_not_come_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_sdk.task.watching.SLOW_S", 0.05)
    monkeypatch.setattr("grpo_sdk.task.watching.TELL_S", 0.01)
    told: list[str] = []

    def until_told(what: str) -> None:
        while not any(what in each for each in told):
            time.sleep(0.01)

    def load(config) -> Iterator[Row]:
        yield Row(id="1")
        until_told("load()")
        yield Row(id="2")

    def prompt(row: Row) -> str:
        if row.id == "2":
            until_told("prompt()")
        return row.id

    slow = Task("slow", load, prompt, lambda text: text, (lambda answer: 1.0,))
    task = load_task(slow)
    with watching(lambda what, *counts: told.append(what)):
        assert [task.prompt(row) for row in task.rows()] == ["1", "2"]
        reports = len(told)
        time.sleep(0.1)
    assert len(told) == reports, "only what runs is told"
    assert {each.partition(",")[0] for each in told} >= {"load() of python.slow", "prompt() of row '2' of python.slow"}
    assert any(each.endswith("running for 0 s") for each in told)
