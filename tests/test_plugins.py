"""Plugins as their users meet them, installed and on the command line; grpo-core tests what can be wrong in one."""

from __future__ import annotations

import json
from typing import Any

import pytest

LEAVES = "it ends the process that imports it (its worker exited with status 0, twice)"


@pytest.fixture(scope="module", autouse=True)
def installed(install: Any) -> None:
    install("examples/rhyme", "tests/plugins/good", "tests/plugins/leaves")


def test_sound_plugins_are_listed_beside_a_broken_one(run: Any) -> None:
    done = run("grpo", "tasks", "--json")
    assert done.returncode == 0, done.stderr
    listing = json.loads(done.stdout)
    assert {"good.shout", "rhyme.couplet", "math.arithmetic"} <= {row["name"] for row in listing["tasks"]}
    (broken,) = listing["broken"]
    assert (broken["plugin"], broken["distribution"]) == ("leaves", "grpo-plugin-leaves 1.0")
    assert LEAVES in broken["error"]


def test_a_sound_plugin_has_tasks_and_a_command(run: Any) -> None:
    done = run("grpo", "sample", "good.shout", "-n", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert "Shout 'cat'" in done.stdout and "CAT" in done.stdout
    assert run("grpo", "shout", "moon").stdout == "MOON\n"
    shown = run("grpo", "--help").stdout
    assert "\n  shout" in shown and "Not shown: plugin 'leaves'" in shown


def test_asking_for_a_broken_plugin_is_one_clear_message_and_exit_2(run: Any) -> None:
    done = run("grpo", "sample", "leaves.anything")
    assert done.returncode == 2 and done.stdout == ""
    said = " ".join(done.stderr.split())
    assert f"error: plugin 'leaves' (grpo-plugin-leaves 1.0) failed to load: {LEAVES}" in said
    assert "Traceback" not in done.stderr
