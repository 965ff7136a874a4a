from __future__ import annotations

import typing
from collections.abc import Callable

import pytest

from grpo_core import load_task
from grpo_core.plugins.host import default_host
from grpo_core.rewards import Shaping
from grpo_tasks_chess.doctor import diagnose
from grpo_tasks_chess.plugin import grpo_tasks


def test_the_tasks_are_found_by_name() -> None:
    names = [f"chess.{task.name}" for task in grpo_tasks()]
    assert {*names} == {
        f"chess.{name}" for name in ("policy", "environment", "puzzle", "best_move", "mate_in_one", "legal_moves")
    }
    for name in names:
        assert load_task(name).name == name


def test_every_hook_leads_somewhere() -> None:
    host = default_host()
    for target in (host.command("chess"), *host.facts()["chess"].diagnostics.values()):
        module, _, attribute = target.partition(":")
        assert callable(getattr(__import__(module, fromlist=[attribute]), attribute))


def test_a_better_answer_never_earns_less() -> None:
    fields = ("best_move", "format", "candidates", "evaluations")
    steps = {"graduated": 5, "linear": 101, "binary": 2, "continuous": 101}
    for name in typing.get_args(Shaping):
        bound = load_task(f"chess.policy?shaping={name}")
        values = [
            bound.task.compose(bound.rewards, dict.fromkeys(fields, percent / 100), True) for percent in range(101)
        ]
        assert values == sorted(values) and values[-1] == pytest.approx(1.0)
        # Linear: −0.3 … 0 is lifted by 0.1 for the form, up to 0, where the last of those meet.
        assert len({round(value, 6) for value in values}) in range(steps[name] - 8, steps[name] + 1)


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
