import pytest

from grpo_sdk import Diagnosis
from grpo_tasks_code.sandbox import Execution, Level, SandboxUnavailableError, doctor
from grpo_tasks_code.sandbox.doctor import diagnose
from grpo_tasks_code.sandbox.results import Status


def test_what_the_doctor_says_here() -> None:
    level, groups, speed = diagnose()
    assert isinstance(level, Diagnosis)
    assert (level.name, level.status) == ("sandbox", "ok" if level.text.startswith("L3") else "warn")
    assert "no host files" in level.text or "opens no host file" in level.text
    assert (groups.status, "control groups" in groups.text) == ("ok", True)
    assert (speed.status, speed.text.split()[-1]) == ("ok", "ms")


class Fake:
    """An executor of a level, or of none, whose programs end in one way."""

    def __init__(self, title: str, status: Status = "ok") -> None:
        self._title, self._execution = title, Execution(status, "42\n", "the server died", 0.0, 0.0, "L2")

    @property
    def level(self) -> Level:
        if not self._title:
            raise SandboxUnavailableError("no sandbox: L3 namespaces: clone: Operation not permitted. Allow them")
        return Level("L3" if self._title == "namespaces" else "L2", self._title, "some", "L3 namespaces: clone")

    def run(self, code: str) -> Execution:
        return self._execution


@pytest.mark.parametrize(("executor", "at", "status", "text"), [
    (Fake(""), 0, "fail", "Operation not permitted. Allow them"),
    (Fake("landlock"), 0, "warn", "L3 namespaces: clone"),
    (Fake("namespaces", "sandbox_error"), -1, "fail", "died"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_reason(
    executor: Fake, at: int, status: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "default_executor", lambda: executor)
    diagnosis = list(diagnose())[at]
    assert diagnosis.status == status and text in diagnosis.text
