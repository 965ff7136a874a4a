"""`grpo new` as a user types it: each kind of plugin, in a clean environment, by the commands that it prints.

Installing takes what a registry serves; a local CPU torch comes from UV_FIND_LINKS, as in .ci/run.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from wheels import ROOT, call, new_environment

pytestmark = [pytest.mark.packaging, pytest.mark.network, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def environment(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    new_environment(folder, wheels, "--constraint", str(wheels / "constraints.txt"), "grpo-sdk")
    records = [{"prompt": f"How many feet are {yards} yards?", "gold": 3 * yards} for yards in range(1, 200)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    return folder


@pytest.mark.parametrize(("name", "options"), [
    ("a-task", ()),
    ("a-game", ("--game",)),
    ("two-turns", ("--multi-turn",)),
    ("with-tools", ("--tools",)),
    ("yards", ("--from-jsonl", "rows.jsonl")),
])  # fmt: skip
def test_the_printed_commands_install_check_and_train(
    environment: Path, wheels: Path, name: str, options: tuple[str, ...]
) -> None:
    programs = environment / "venv" / "bin"
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment / "venv"),
        "UV_PYTHON": str(environment / "venv"),  # which would count more, as in .ci/run
        "UV_FIND_LINKS": ",".join(filter(None, (str(wheels), os.environ.get("UV_FIND_LINKS")))),
    }
    printed = call("grpo", "new", name, *options, cwd=environment, **variables).stdout
    commands = re.findall(r"^next +(.*)$", printed, re.MULTILINE)
    of_trainer = [command for command in commands if "[train]" in command]  # which the first plugin installs
    assert [each.split()[0] for each in commands if each not in of_trainer] == ["uv", "grpo", "pytest", "grpo"]
    for command in commands:
        # A new model takes its steps; whether it learns is what tests/test_learning.py measures.
        fewer = ["--max-steps", "2", "eval.size=16"] if "--quick" in command else []
        done = call(*shlex.split(command, comments=True), *fewer, cwd=environment, **variables)
        if command.startswith("pytest"):
            assert re.search(r"\d+ passed", done.stdout) and "failed" not in done.stdout
    assert list((environment / "training_runs").glob("run_*/training_state/step_final/model/*.safetensors"))


def test_a_plugin_of_the_sdk_alone_scores_beside_trl(wheels: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "grpo_core", "new", "made", cwd=tmp_path)
    python = new_environment(tmp_path, wheels, "./made", "trl")
    listed = json.loads(call("uv", "pip", "list", "--python", str(python), "--format", "json", cwd=tmp_path).stdout)
    assert {each["name"] for each in listed if each["name"].startswith("grpo")} == {"grpo-sdk"}
    grpo = str(python.with_name("grpo"))
    (row,) = json.loads(call(grpo, "sample", "made.reverse", "-n", "1", "--json", cwd=tmp_path).stdout)
    sample = {"task": "made.reverse", "row": json.dumps(row["row"])}
    texts = [{**sample, "completion": each} for each in (row["gold"], " x")]
    (tmp_path / "batch.json").write_text(json.dumps(texts))
    done = call(str(python), str(ROOT / "tests" / "programs" / "score_in_trl.py"), "batch.json", cwd=tmp_path)
    values = [each["value"] for each in json.loads(done.stdout.splitlines()[-1])["answers"]]
    assert values[0] == 1.0 and values[1] < 1.0
