import builtins
import math
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import pytest

from grpo_core.config import RunConfig
from grpo_core.display.notebook import NotebookConsole, is_notebook
from grpo_core.display.plots import svg_curve
from grpo_core.display.progress import ProgressDisplay
from grpo_sdk.callbacks import RunInfo, StepRecord


def test_a_kernel_is_known_by_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    assert not is_notebook(), "a plain Python"
    for name, module, expected in (
        ("ZMQInteractiveShell", "ipykernel.zmqshell", True),  # Jupyter, VS Code, Kaggle
        ("Shell", "google.colab._shell", True),
        ("TerminalInteractiveShell", "IPython.terminal.interactiveshell", False),
    ):
        shell = type(name, (), {"__module__": module})()
        monkeypatch.setattr(builtins, "get_ipython", lambda shell=shell: shell, raising=False)
        assert is_notebook() is expected


def test_a_run_has_a_live_table_and_curve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[dict[str, str]] = []
    ids: set[str] = set()

    def show(content: dict[str, str], *, raw: bool, display_id: str) -> None:
        assert raw
        shown.append(dict(content))
        ids.add(display_id)

    for name in ("display", "update_display"):
        monkeypatch.setattr(f"IPython.display.{name}", show)
    times = count()
    progress = ProgressDisplay(NotebookConsole(), RunConfig(), clock=lambda: float(next(times)))
    with progress:
        progress.on_run_start(RunInfo(tmp_path, {"a": (8, 8)}, (), 3))
        progress.on_evaluation("a", "initial", {"solved_rate": 0.25, "ci_low": 0.0, "ci_high": 0.5, "n": 8})
        for step in (1, 2, 3):
            progress.on_step(StepRecord(step, {"reward": step / 4, "solved_rate": step / 8, "kl": math.nan}))
            newest = shown[-1]
            assert f"<td>{step / 8:.4g}</td>" in newest["text/html"] and "<svg" in newest["text/html"]
            assert f"{step / 4:.4g}" in newest["text/plain"] and "●" in newest["text/plain"]
            assert "kl" not in newest["text/plain"]
        progress.on_evaluation("<b>hostile", "final", {"solved_rate": 0.5, "n": 8})
        progress.on_run_end({"steps": 3}, tmp_path)
    assert len(ids) == 1  # one block that is redrawn
    assert "<b>" not in shown[-1]["text/html"] and "report    grpo report" in shown[-1]["text/plain"]


def test_a_picture_is_well_formed_and_its_title_escaped() -> None:
    picture = svg_curve(
        "<script>&", [(1, 0.5), (2, math.nan), (3, 1.0)], [(0, 0.5, 0.25, 0.75), (3, 1.0, math.nan, 1.0)]
    )
    root = ElementTree.fromstring(picture)
    assert [text.text for text in root.iter("text")] == ["<script>&", "1", "0.25", "0", "3"]
    assert len(list(root.iter("circle"))) == 2
    assert svg_curve("", []) == ""
