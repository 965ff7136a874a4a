from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from grpo_core import Row, load_task
from grpo_core.errors import PluginError, UnknownNameError
from grpo_core.plugins.host import EmbeddedModel, PluginHost, resolve

HEAD = """
from collections.abc import Iterable
from grpo_core import EmbeddedModel, Row, Task, hookimpl, reward

def load(config) -> Iterable[Row]:
    return [Row(id="1", gold="yes")]

@reward()
def agrees(answer):
    return float(answer == "yes")

def task(name):
    return Task(name, load, lambda row: "say yes", lambda text, row: text, (agrees,))
"""

TASKS = """
@hookimpl
def grpo_tasks():
    return [task("couplet"), task("haiku")]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are installed into, as an installer would: modules and their metadata."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def install(site: Path, plugin: str, source: str, *, distribution: str | None = None) -> None:
    distribution = distribution or f"grpo-{plugin}"
    module = distribution.replace("-", "_")
    (site / f"{module}.py").write_text(HEAD + source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[grpo]\n{plugin} = {module}\n")


def host_of(site: Path, only: list[str] | None = None) -> PluginHost:
    points = [point for found in metadata.distributions(path=[str(site)]) for point in found.entry_points]
    return PluginHost(points, only=only)


def test_a_plugin_gives_its_tasks_by_full_name(site: Path) -> None:
    install(site, "rhyme", TASKS)
    host = host_of(site)

    assert host.names == ("rhyme",)
    assert host.task("rhyme.haiku").name == "haiku"
    assert list(host.tasks("rhyme")) == ["rhyme.couplet", "rhyme.haiku"]
    assert host.distribution("rhyme") == "grpo-rhyme 1.0"


def test_a_task_is_loaded_from_the_host_that_is_given(site: Path) -> None:
    install(site, "rhyme", TASKS)
    host = host_of(site)

    assert load_task("rhyme.couplet?size=1", host).rows() == [Row(id="1", gold="yes")]


def test_only_the_plugin_asked_for_is_imported(site: Path) -> None:
    install(site, "rhyme", TASKS)
    install(site, "other", "raise RuntimeError('imported')")
    host_of(site).task("rhyme.couplet")

    assert "grpo_rhyme" in sys.modules and "grpo_other" not in sys.modules


def test_an_unknown_task_lists_what_is_installed_by_package_and_what_is_broken(site: Path) -> None:
    install(site, "rhyme", TASKS)
    install(site, "bad", "import nothing_of_that_name")
    with pytest.raises(UnknownNameError) as caught:
        host_of(site).task("rhyme.cuplet")

    assert str(caught.value) == (
        "no task 'rhyme.cuplet'. Did you mean 'rhyme.couplet'? Installed: rhyme.couplet, rhyme.haiku (grpo-rhyme 1.0)\n"
        "  not loaded: plugin 'bad' (grpo-bad 1.0) failed to load: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


def test_an_unknown_plugin_is_an_unknown_task(site: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no task 'chess\.policy'\. Installed: \(none\)"):
        host_of(site).task("chess.policy")


def test_a_task_without_its_plugin_gets_the_near_one(site: Path) -> None:
    install(site, "rhyme", TASKS)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'rhyme\.couplet'"):
        host_of(site).task("couplet")


HOOK = "@hookimpl\ndef grpo_tasks():\n    "

BROKEN = [
    ("import nothing_of_that_name", "failed to load: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("raise SystemExit('no licence')", "failed to load: SystemExit: no licence"),
    (HOOK + "return 1 / 0", "grpo_tasks() raised ZeroDivisionError: division by zero"),
    (HOOK + "raise SystemExit(3)", "grpo_tasks() raised SystemExit: 3"),
    (HOOK + "yield 1 / 0", "grpo_tasks() raised ZeroDivisionError"),
    (HOOK + "[task('a')]", "grpo_tasks() gave None; it must return what it contributes"),
    (HOOK + "return task('a')", "grpo_tasks() raised TypeError: 'Task' object is not iterable"),
    (HOOK + "return ['a']", "grpo_tasks() gave a str, it must give Task objects"),
    (HOOK + "return [task('a'), task('a')]", "gives task 'bad.a' twice"),
    (HOOK + "return [task('two words')]", "grpo_tasks() raised UserError: task name 'two words'"),
    ("@hookimpl\ndef grpo_tasks(cfg):\n    return []", "Argument(s) {'cfg'} are declared in the hookimpl but"),
    (
        "@hookimpl\ndef grpo_task():\n    return []",
        "implements 'grpo_task', which is no hook. Did you mean 'grpo_tasks'?",
    ),
    ("def grpo_task():\n    return []", "grpo_task() is not marked, or misspelt. Did you mean 'grpo_tasks'?"),
    ("def grpo_tasks():\n    return []", "grpo_tasks() is not marked, or misspelt. Did you mean 'grpo_tasks'?"),
    ("", "contributes nothing: grpo_bad has no function marked @hookimpl named grpo_tasks or "),
    (TASKS + "\ndef grpo_models():\n    return []", "grpo_models() is not marked; write @hookimpl above it"),
]


@pytest.mark.parametrize(("source", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_plugin_is_fatal_only_to_who_asks_for_it(site: Path, source: str, message: str) -> None:
    install(site, "bad", source)
    install(site, "rhyme", TASKS)
    host = host_of(site)

    assert host.task("rhyme.couplet")
    with pytest.raises(PluginError) as caught:
        host.task("bad.a")
    assert message in str(caught.value) and "plugin 'bad' (grpo-bad 1.0)" in str(caught.value)

    bad, rhyme = host.reports()
    assert (bad.name, bad.distribution, bad.tasks, bad.error) == ("bad", "grpo-bad 1.0", {}, str(caught.value))
    assert (rhyme.error, list(rhyme.tasks)) == ("", ["rhyme.couplet", "rhyme.haiku"])


def test_a_name_claimed_by_two_packages_names_both(site: Path) -> None:
    install(site, "rhyme", TASKS, distribution="grpo-rhyme")
    install(site, "rhyme", TASKS, distribution="other-rhyme")
    with pytest.raises(PluginError) as caught:
        host_of(site).task("rhyme.couplet")

    assert str(caught.value) == (
        "plugin 'rhyme' (grpo-rhyme 1.0 and other-rhyme 1.0): two packages claim this name; uninstall one."
    )


def test_an_entry_point_without_a_package_is_named_so() -> None:
    host = PluginHost([metadata.EntryPoint("lost", "nothing_of_that_name", "grpo")])

    assert host.distribution("lost") == "(unknown package)"


def test_one_package_found_twice_is_no_conflict(site: Path) -> None:
    install(site, "rhyme", TASKS)
    points = [point for found in metadata.distributions(path=[str(site)]) for point in found.entry_points]

    assert PluginHost(points * 2).task("rhyme.couplet")


def test_a_plugin_name_that_no_spec_can_say_is_refused(site: Path) -> None:
    install(site, "my-rhyme", TASKS)
    with pytest.raises(PluginError, match=r"plugin 'my-rhyme' .*the entry point's name must be letters, digits and _"):
        host_of(site).tasks("my-rhyme")


def test_a_broken_module_is_imported_once(site: Path) -> None:
    install(site, "bad", "import builtins\nbuiltins.tries = getattr(builtins, 'tries', 0) + 1\nraise ImportError('no')")
    host = host_of(site)
    host.reports(), host.reports()

    import builtins

    assert builtins.__dict__.pop("tries") == 1


OTHERS = """
@hookimpl
def grpo_models():
    return [EmbeddedModel("small", "/somewhere", "a model")]

@hookimpl
def grpo_variants():
    return {"kl": {"k9": "grpo_rhyme:k9"}}

@hookimpl
def grpo_commands():
    return {"rhyme": "grpo_rhyme:command"}

def k9():
    return 9
"""


# Restriction


def test_a_host_can_be_restricted(site: Path) -> None:
    install(site, "rhyme", TASKS)
    install(site, "other", TASKS)

    assert host_of(site, only=["other"]).names == ("other",)


def test_a_restriction_keeps_what_core_contributes(site: Path) -> None:
    install(site, "core", OTHERS, distribution="stands-for-core")
    install(site, "other", TASKS)

    assert list(host_of(site, only=["other"]).models()) == ["small"]


def test_the_environment_restricts(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "rhyme", TASKS)
    install(site, "other", TASKS)
    monkeypatch.setenv("GRPO_PLUGINS", " rhyme , ")
    assert host_of(site).names == ("rhyme",)

    monkeypatch.setenv("GRPO_PLUGINS", "")
    assert host_of(site).names == ("other", "rhyme")


def test_a_restriction_to_what_is_not_there_is_a_mistake(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "rhyme", TASKS)
    monkeypatch.setenv("GRPO_PLUGINS", "rhyme,ryme")
    with pytest.raises(UnknownNameError, match=r"no plugin \(from GRPO_PLUGINS\) 'ryme'\. Did you mean 'rhyme'\?"):
        host_of(site)


# The other hooks


def test_models_variants_and_commands(site: Path) -> None:
    install(site, "rhyme", OTHERS)
    host = host_of(site)

    assert host.models() == {"small": EmbeddedModel("small", "/somewhere", "a model")}
    assert host.variants("kl") == {"k9": "grpo_rhyme:k9"} and host.variants("loss") == {}
    assert host.commands() == {"rhyme": "grpo_rhyme:command"}
    assert host.tasks("rhyme") == {}
    assert resolve(host.variants("kl")["k9"])() == 9


@pytest.mark.parametrize("method", ["models", "commands"])
def test_one_name_from_two_plugins_names_both(site: Path, method: str) -> None:
    install(site, "rhyme", OTHERS)
    install(site, "other", OTHERS)
    with pytest.raises(PluginError, match=r"is given by grpo-other 1\.0 and grpo-rhyme 1\.0"):
        getattr(host_of(site), method)()
    with pytest.raises(PluginError, match=r"'k9' is given by grpo-other 1\.0 and grpo-rhyme 1\.0; uninstall one"):
        host_of(site).variants("kl")


@pytest.mark.parametrize(
    ("hook", "returned", "message"),
    [
        ("grpo_models", "['small']", "grpo_models() raised TypeError: a str where an EmbeddedModel is wanted"),
        ("grpo_models", "1 / 0", "grpo_models() raised ZeroDivisionError"),
        ("grpo_variants", "None", "grpo_variants() gave None"),
        ("grpo_variants", "{'kl': 3}", "grpo_variants() raised TypeError"),
        ("grpo_commands", "'rhyme'", "grpo_commands() raised ValueError"),
        ("grpo_diagnostics", "['level']", "grpo_diagnostics() raised ValueError"),
    ],
)
def test_a_hook_that_fails_is_reported_and_harms_no_other_plugin(
    site: Path, hook: str, returned: str, message: str
) -> None:
    install(site, "bad", f"{TASKS}\n@hookimpl\ndef {hook}():\n    return {returned}")
    install(site, "rhyme", OTHERS)
    host = host_of(site)

    assert (
        list(host.models()) == ["small"] and list(host.commands()) == ["rhyme"] and list(host.variants("kl")) == ["k9"]
    )
    assert host.task("bad.couplet")
    assert message in host.reports()[0].error and list(host.reports()[0].tasks) == ["bad.couplet", "bad.haiku"]
