import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import broken_tasks
import pytest

from grpo_sdk import UserError, load_task
from grpo_sdk.check import conformance

THEIRS = f"""
from grpo_sdk.check import conformance

test_conformance = conformance({broken_tasks.__file__ + ":feedback"!r}, rows=2, checks="gold,split,feedback,perfect")
"""


def test_one_line_makes_an_item_of_each_check(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(broken_tasks.__file__).parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    for outcome in (r"-gold\] PASSED", r"-split\] PASSED", r"-feedback\] FAILED", r"-perfect\] SKIPPED"):
        assert re.search(outcome, ran.stdout), ran.stdout + ran.stderr
    assert "what to do: Say what is wrong with the completion" in ran.stdout
    assert "not applicable: it is no game" in ran.stdout


def test_tasks_of_one_name_are_all_checked() -> None:
    tasks = [broken_tasks.broken("sums", prompt=broken_tasks.prompt) for _ in range(3)]
    bound = [load_task("math.echo?size=2"), load_task("math.echo?size=3"), load_task("math.echo?size=2")]
    test: Any = conformance(*tasks, *bound, "math.echo", checks="gold")
    (labels,) = [mark.args[1] for mark in test.pytestmark if mark.args[0] == "task"]
    specs = ["math.echo?size=2", "math.echo?size=3", "math.echo?size=2-2", "math.echo"]
    assert list(labels) == ["sums", "sums-2", "sums-3", *specs]


@pytest.mark.parametrize(("tasks", "options", "message"), [
    ([], {}, "needs a task"),
    (["math.echo"], {"checks": "glod"}, "Did you mean 'gold'"),
    (["math.echo"], {"rows": 0}, "rows=0"),
    (["math.echo"], {"seed": "x"}, "seed='x'"),
])  # fmt: skip
def test_mistakes_are_said_at_collection(tasks: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        conformance(*tasks, **options)
