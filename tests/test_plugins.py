"""Plugins as their users meet them: the packages under tests/plugins, installed, and the command line."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from grpo_core import load_task
from grpo_core.plugins.host import PluginHost

BROKEN = {
    "broken": "failed to load: ModuleNotFoundError: No module named 'a_package_that_nobody_installed'",
    "exits": "failed to load: SystemExit: this plugin needs a licence",
    "interrupts": "failed to load: KeyboardInterrupt (grpo_plugin_interrupts.py:3)",
    "leaves": "failed to load: it ends the process that imports it (its worker exited with status 0, twice)",
    "raises": "grpo_tasks() raised FileNotFoundError: word list not found",
    "twice": "gives task 'twice.yes' twice",
    "typo": "implements 'grpo_task', which is no hook. Did you mean 'grpo_tasks'?",
    "unmarked": "contributes nothing: grpo_plugin_unmarked has no function marked @hookimpl",
    "empty": "contributes nothing: grpo_plugin_empty has no function marked @hookimpl",
}


@pytest.fixture(scope="module", autouse=True)
def installed(install: Any) -> None:
    install("examples/rhyme", "tests/plugins/good", *(f"tests/plugins/{name}" for name in BROKEN))


@pytest.fixture(scope="module")
def listing(run: Any) -> dict[str, Any]:
    done = run("grpo", "tasks", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_broken_plugin_is_a_row_with_its_package_and_its_error(listing: dict[str, Any]) -> None:
    rows = {row["plugin"]: row for row in listing["broken"]}

    assert set(rows) == set(BROKEN)
    for name, reason in BROKEN.items():
        assert reason in rows[name]["error"]
        assert rows[name]["distribution"] == f"grpo-plugin-{name} 1.0"


def test_no_completion_can_abstain_by_taking_too_long_in_our_own_tasks() -> None:
    host = PluginHost(only=("math", "code", "chess", "games"))
    ours = {f"{plugin}.{name}": task.on_timeout for plugin in host.names for name, task in host.tasks(plugin).items()}

    assert len(ours) >= 20 and set(ours.values()) == {"fail"}, ours


def test_the_sound_ones_are_listed_all_the_same(listing: dict[str, Any]) -> None:
    names = {row["name"] for row in listing["tasks"]}

    assert {"good.shout", "math.arithmetic"} <= names
    assert not any(name.split(".")[0] in BROKEN for name in names)


def test_a_sound_plugin_works_beside_broken_ones(run: Any) -> None:
    done = run("grpo", "sample", "good.shout", "-n", "1", "--json")

    assert done.returncode == 0, done.stderr
    assert "Shout 'cat'" in done.stdout and "CAT" in done.stdout


def test_asking_for_a_broken_plugin_is_one_clear_message_and_exit_2(run: Any) -> None:
    done = run("grpo", "sample", "typo.anything")

    assert done.returncode == 2 and done.stdout == ""
    assert "error: plugin 'typo' (grpo-plugin-typo 1.0)" in " ".join(done.stderr.split())
    assert "Did you mean 'grpo_tasks'?" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["leaves", "interrupts"])
def test_what_would_end_the_command_is_a_message_and_exit_2(run: Any, name: str) -> None:
    done = run("grpo", "sample", f"{name}.anything", "--json")

    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: plugin '{name}' (grpo-plugin-{name} 1.0) {BROKEN[name]}" in done.stderr


def test_what_no_plugin_that_loads_has_may_be_of_one_that_does_not(run: Any) -> None:
    for words in (("leaves",), ("run", "--model", "leaves-tiny")):
        done = run("grpo", *words)
        assert done.returncode == 2 and "not loaded: plugin 'leaves' (grpo-plugin-leaves 1.0)" in done.stderr


def test_the_help_lists_commands_of_plugins_with_their_lines_and_what_is_broken(run: Any) -> None:
    done = run("grpo", "--help")

    assert done.returncode == 0
    assert "\n  shout" in done.stdout and "Not shown: plugin 'leaves'" in done.stdout


def test_a_plugin_brings_its_own_command(run: Any) -> None:
    assert run("grpo", "shout", "moon").stdout == "MOON\n"


def test_the_environment_restricts_what_is_loaded(run: Any) -> None:
    done = run("grpo", "tasks", "--json", GRPO_PLUGINS="good")

    assert [row["name"] for row in json.loads(done.stdout)["tasks"]] == ["core.qa", "good.shout"]
    assert json.loads(done.stdout)["broken"] == []
    assert run("grpo", "tasks", "show", "math.echo", GRPO_PLUGINS="good").returncode == 2


LOADED = """
import sys
from grpo_core import load_task
load_task("good.shout").rows()
print(*sorted(name for name in sys.modules if name.startswith(("grpo_plugin", "grpo_tasks_math"))))
"""


def test_asking_for_a_task_imports_its_plugin_and_no_other(run: Any) -> None:
    done = run("-c", LOADED)

    assert (done.stdout, done.stderr) == ("grpo_plugin_good\n", "")


def test_the_example_is_listed_when_it_is_installed(run: Any) -> None:
    done = run("grpo", "tasks", "show", "rhyme.couplet")

    assert done.stdout.startswith("rhyme.couplet   grpo-tasks-rhyme 0.1.0   task version 0\n")


def test_every_gold_of_the_example_is_solved_and_no_word_is_in_two_splits(root: Path) -> None:
    words: list[str] = []
    for split in ("train", "validation", "test"):
        task = load_task(f"{root}/examples/rhyme/rhyme.py:couplet?split={split}")
        assert all(task.score(row.gold, row).solved for row in task.rows())
        words += [row.id for row in task.rows()]

    assert len(words) == len(set(words)) == 1820


def test_two_packages_that_claim_one_plugin_are_both_named(install: Any, site: Path) -> None:
    before = set(site.iterdir())
    install("tests/plugins/claims_good")
    points = [point for found in metadata.distributions(path=[str(site)]) for point in found.entry_points]
    report = next(report for report in PluginHost(points, only=["good"]).reports())
    for path in set(site.iterdir()) - before:  # the other tests' environment has one of the two
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    assert report.error == (
        "plugin 'good' (grpo-plugin-claims-good 1.0 and grpo-plugin-good 1.0): "
        "two packages claim this name; uninstall one."
    )
