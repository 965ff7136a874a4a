"""Printed commands are typed as this process was started."""

import sys
from pathlib import Path

import pytest

from grpo_sdk.display.invocation import UV_RUN, command, program


@pytest.mark.parametrize(("started", "on_path", "variables", "typed"), [
    ("env/bin/grpo", False, {}, "env/bin/grpo"),
    ("env/bin/grpo", True, {}, "grpo"),
    ("env/bin/grpo-run", True, {UV_RUN: "1"}, "uv run grpo"),
    ("/site-packages/grpo_core/__main__.py", False, {}, "env/bin/python -m grpo_core"),
    ("/site-packages/grpo_core/__main__.py", True, {}, "python -m grpo_core"),
    ("/site-packages/grpo_core/__main__.py", True, {"RANK": "0"}, "grpo"),  # a launcher started it, no person
    ("/usr/bin/jupyter-lab", True, {UV_RUN: "1"}, "grpo"),  # inside of another program
])  # fmt: skip
def test_a_command_is_typed_as_this_process_was_started(
    started: str, on_path: bool, variables: dict[str, str], typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    for name in ("grpo", "grpo-run", "python"):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / started)])
    for name in (UV_RUN, "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "PATH": str(folder) if on_path else "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    assert program() == typed
    assert command("eval", "--model", "./my model") == f"{typed} eval --model './my model'"
