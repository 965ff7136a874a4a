from __future__ import annotations

import pytest

from grpo_core import Diagnosis
from grpo_tasks_code.sandbox import Execution, Level, SandboxUnavailableError, doctor
from grpo_tasks_code.sandbox.doctor import diagnose


def test_what_the_doctor_says_here() -> None:
    level, groups, speed = diagnose()
    assert isinstance(level, Diagnosis)
    assert (level.name, level.status) == ("sandbox", "ok" if level.text.startswith("L3") else "warn")
    assert "no host files" in level.text or "opens no host file" in level.text
    assert (groups.status, "control groups" in groups.text) == ("ok", True)
    assert (speed.status, speed.text.split()[-1]) == ("ok", "ms")


class Fake:
    def __init__(self, level: Level | None, execution: Execution | None = None) -> None:
        self._level, self._execution = level, execution

    @property
    def level(self) -> Level:
        if self._level is None:
            raise SandboxUnavailableError("no sandbox: L3 namespaces: clone: Operation not permitted. Allow them")
        return self._level

    def run(self, code: str) -> Execution:
        assert self._execution is not None
        return self._execution


def test_no_level_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "default_executor", lambda: Fake(None))
    (only,) = diagnose()
    assert only.status == "fail"
    assert "Operation not permitted. Allow them" in only.text


def test_a_weaker_level_is_a_warning_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    level = Level("L2", "landlock", "some", "the strongest …; L3 namespaces: clone: Operation not permitted")
    works = Execution("ok", "42\n", "", 0.0, 0.0, "L2")
    monkeypatch.setattr(doctor, "default_executor", lambda: Fake(level, works))
    first, _, last = diagnose()
    assert (first.status, last.status) == ("warn", "ok")
    assert "L3 namespaces: clone" in first.text


def test_a_sandbox_that_does_not_run_programs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    level = Level("L3", "namespaces", "all", "a test")
    broken = Execution("sandbox_error", "", "the server of the sandbox died", 0.0, 0.0, "L3")
    monkeypatch.setattr(doctor, "default_executor", lambda: Fake(level, broken))
    *_, last = diagnose()
    assert last.status == "fail"
    assert "died" in last.text
