from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from grpo_core.plugins.host import default_host
from grpo_core.testing import conformance
from grpo_tasks_chess.doctor import diagnose

test_all_conformance_checks_hold = conformance(
    "chess.environment?size=60", "chess.policy?rows=packaged&size=60", "chess.puzzle?size=6", rows=4
)


def test_loading_and_scoring_import_nothing_heavy() -> None:
    code = (
        "import sys; from grpo_core import load_task; import grpo_tasks_chess.rewards\n"
        "task = load_task('chess.environment?size=3'); load_task('chess.policy').identity\n"
        "assert all(task.score(row.gold, row).solved for row in task.rows())\n"
        "assert not {'torch', 'transformers', 'datasets', 'numpy', 'scipy', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
