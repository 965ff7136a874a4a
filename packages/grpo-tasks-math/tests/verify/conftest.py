import pytest

from grpo_tasks_math.verify import symbolic


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test whose answers are not decided exactly."""

    def refuse(gold: str, answer: str, *_: object) -> bytes:
        raise AssertionError(f"{gold[:60]!r} against {answer[:60]!r} went to the symbolic engine")

    monkeypatch.setattr(symbolic, "encode", refuse)
