"""`grpo new` as a user types it: each kind of plugin, in a clean environment, by the commands that it prints.

Installing takes what a registry serves; a local CPU torch comes from UV_FIND_LINKS, as in .ci/run.
"""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from wheels import build_wheels, call

pytestmark = [pytest.mark.packaging, pytest.mark.network, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    wheels = build_wheels(folder / "wheels")
    call("uv", "venv", "--python", "3.11", str(folder / "venv"), cwd=folder)
    python = ("--python", str(folder / "venv"), "--constraint", str(wheels / "constraints.txt"))
    call("uv", "pip", "install", *python, "--find-links", str(wheels), "grpo-core", "pytest", cwd=folder)
    records = [{"prompt": f"How many feet are {yards} yards?", "gold": 3 * yards} for yards in range(1, 200)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    return folder


@pytest.mark.parametrize(("name", "options"), [
    ("a-task", ()),
    ("a-game", ("--game",)),
    ("two-turns", ("--multi-turn",)),
    ("yards", ("--from-jsonl", "rows.jsonl")),
])  # fmt: skip
def test_the_printed_commands_install_check_and_train(environment: Path, name: str, options: tuple[str, ...]) -> None:
    programs = environment / "venv" / "bin"
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment / "venv"),
        "UV_FIND_LINKS": ",".join(filter(None, (str(environment / "wheels"), os.environ.get("UV_FIND_LINKS")))),
    }
    printed = call("grpo", "new", name, *options, cwd=environment, **variables).stdout
    commands = re.findall(r"^next +(.*)$", printed, re.MULTILINE)
    assert [shlex.split(command)[0] for command in commands] == ["uv", "grpo", "pytest", "grpo"]
    for command in commands:
        # A new model takes its steps; whether it learns is what tests/test_learning.py measures.
        short = [*shlex.split(command), *(["--max-steps", "2", "eval.size=16"] if "--quick" in command else [])]
        done = call(*short, cwd=environment, **variables)
        if command.startswith("pytest"):
            assert re.search(r"\d+ passed", done.stdout) and "failed" not in done.stdout
    assert list((environment / "training_runs").glob("run_*/training_state/step_final/model/*.safetensors"))
