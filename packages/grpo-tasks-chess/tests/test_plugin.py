from collections.abc import Callable

import pytest

from grpo_sdk.plugins.host import default_host
from grpo_tasks_chess.doctor import diagnose


def test_every_hook_leads_somewhere() -> None:
    host = default_host()
    for target in (host.command("chess"), *host.facts()["chess"].diagnostics.values()):
        module, _, attribute = target.partition(":")
        assert callable(getattr(__import__(module, fromlist=[attribute]), attribute))


def test_the_doctor_names_the_engine(monkeypatch: pytest.MonkeyPatch, make_engine: Callable[[str], str]) -> None:
    monkeypatch.setenv("GRPO_CHESS_ENGINE", make_engine("plays"))
    (found,) = diagnose()
    assert found.status == "ok" and "GRPO_CHESS_ENGINE names it" in found.text
    monkeypatch.setenv("GRPO_CHESS_ENGINE", make_engine("dies"))
    (found,) = diagnose()
    assert found.status == "fail"
    monkeypatch.setenv("GRPO_CHESS_ENGINE", "/nowhere/engine")
    (found,) = diagnose()
    assert found.status == "warn" and "apt install stockfish" in found.text and "built-in search" in found.text
