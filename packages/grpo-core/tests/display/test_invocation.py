"""Printed commands are typed as this process was started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpo_core.display.invocation import UV_RUN, command, program


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with its scripts, in the working directory; nothing of it is on the PATH."""
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    for name in ("grpo", "grpo-run", "python"):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    for name in (UV_RUN, "RANK"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.parametrize("script", ["grpo", "grpo-run"])
def test_a_script_of_an_activated_environment_is_found_by_its_name(
    script: str, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(scripts / script)])
    assert program() == "env/bin/grpo", "not on the PATH"
    monkeypatch.setenv("PATH", str(scripts))
    assert command("eval", "--model", "./my model") == "grpo eval --model './my model'"


def test_uv_run(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(scripts / "grpo-run")])
    monkeypatch.setenv("PATH", str(scripts))
    monkeypatch.setenv(UV_RUN, "1")
    assert program() == "uv run grpo"


def test_python_m(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/site-packages/grpo_core/__main__.py"])
    assert program() == "env/bin/python -m grpo_core"
    monkeypatch.setenv("PATH", str(scripts))
    assert program() == "python -m grpo_core"
    monkeypatch.setenv("RANK", "0")
    assert program() == "grpo", "a launcher started this module, no person"


def test_inside_of_another_program_it_is_grpo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UV_RUN, "1")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/jupyter-lab"])
    assert program() == "grpo"
