"""Harbor's own package reads the same folders, and agrees on what they say."""

import json
from pathlib import Path

import pytest
from harbor_folders import COUNT, HELLO, write_folder
from wheels import call

from grpo_tasks_code.harbor.folders import RefusedError, read_folder

READ = """
import json, sys
from harbor.models.task.task import Task

def attempt(path):
    try:
        task = Task(path)
    except Exception as error:
        return type(error).__name__
    own, tests = task.config.environment, task.config.verifier
    return [task.instruction.strip(), own.workdir, tests.timeout_sec, tests.env, own.env, own.memory_mb, own.storage_mb]

print(json.dumps([attempt(path) for path in sys.argv[1:]]))
"""

TASK_TOML = """
version = "1.0"
[verifier]
timeout_sec = 33
env = { A = "1" }
[environment]
workdir = "/data/in"
env = { B = "two" }
memory_mb = 100
storage_mb = 50
"""


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(600)
def test_harbor_reads_the_same(tmp_path: Path) -> None:
    if call("uv", "python", "find", "--no-python-downloads", "3.12", cwd=tmp_path, check=False).returncode:
        pytest.skip("no Python 3.12 is installed here, which Harbor needs")
    folders = [
        write_folder(tmp_path / "hello", HELLO),
        write_folder(tmp_path / "count", COUNT),
        write_folder(tmp_path / "other", HELLO, task_dot_toml=TASK_TOML, solution__solve_dot_sh=None),
        write_folder(tmp_path / "marked", HELLO, instruction_dot_md="<!-- harbor-canary 1 -->\n# a canary\n\nDo it.\n"),
        write_folder(tmp_path / "a", HELLO, tests__test_dot_sh=None),
        write_folder(tmp_path / "b", HELLO, task_dot_toml="[verifier\n"),
        write_folder(tmp_path / "c", HELLO, task_dot_toml="[verifier]\ntimeout_sec = 'long'\n"),
        write_folder(tmp_path / "d", HELLO, instruction_dot_md=None),
    ]
    python = str(tmp_path / "venv" / "bin" / "python")
    call("uv", "venv", "--python", "3.12", str(tmp_path / "venv"), cwd=tmp_path)
    call("uv", "pip", "install", "--python", python, "--no-deps", "harbor", cwd=tmp_path)
    needed = ("pydantic", "toml", "pathspec")  # of 29, all it needs
    call("uv", "pip", "install", "--python", python, *needed, cwd=tmp_path)
    (tmp_path / "read.py").write_text(READ, encoding="utf-8")
    theirs = json.loads(call(python, "read.py", *map(str, folders), cwd=tmp_path).stdout)
    assert [isinstance(read, list) for read in theirs] == [True] * 4 + [False] * 4
    for folder, read in zip(folders, theirs, strict=True):
        if isinstance(read, str):
            with pytest.raises(RefusedError):
                read_folder(folder, on_host=False)
            continue
        ours = read_folder(folder, on_host=False)
        own, tests = ours.settings.environment, ours.settings.verifier
        values = (own.workdir, tests.timeout_sec, tests.env, own.env, own.memory_mb, own.storage_mb)
        assert read == [ours.instruction.strip(), *values]
