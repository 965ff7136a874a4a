import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.profiles.accelerator import Accelerator
from grpo_core.profiles.gpu import matching, named, profiles
from grpo_sdk import Row, Scorer, Variant, load_task
from grpo_sdk.errors import PluginError, UnknownNameError, UserError
from grpo_sdk.plugins.facts import EmbeddedModel, PluginFacts
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.plugins.loading import resolve
from grpo_sdk.plugins.probe import probe

HEAD = (Path(__file__).parent / "programs" / "rhyme_head.py").read_text()
HOOK = "@hookimpl\ndef grpo_tasks():\n    "
TASKS = f"\n{HOOK}return [task('couplet'), task('haiku')]\n"
RHYME = ["rhyme.couplet", "rhyme.haiku"]
OTHERS = """
@hookimpl
def grpo_models(): return [EmbeddedModel("small", "/somewhere", "a model")]

@hookimpl
def grpo_variants(): return {"kl": {"k9": "grpo_rhyme:k9"}}

@hookimpl
def grpo_commands(): return {"rhyme": "grpo_rhyme:command"}

def k9(): return 9
"""


@contextmanager
def importable(folder: Path) -> Iterator[Path]:
    """A folder that packages are installed into, as an installer would: modules and their metadata."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with importable(tmp_path):
        yield tmp_path


def install(site: Path, plugin: str, source: str = TASKS, *, distribution: str = "", points: str | bytes = b"") -> None:
    distribution = distribution or f"grpo-{plugin}"
    module = distribution.replace("-", "_")
    (site / f"{module}.py").write_text(HEAD + source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    points = points or f"[grpo]\n{plugin} = {module}\n"
    (info / "entry_points.txt").write_bytes(points if isinstance(points, bytes) else points.encode())


def points_of(site: Path) -> list[metadata.EntryPoint]:
    return [point for found in metadata.distributions(path=[str(site)]) for point in found.entry_points]


def host_of(site: Path, only: list[str] | None = None) -> PluginHost:
    return PluginHost(points_of(site), only=only)


def test_a_plugin_gives_its_tasks_by_full_name_and_no_other_is_imported(site: Path) -> None:
    install(site, "rhyme")
    install(site, "other", "raise RuntimeError('imported')")
    host = host_of(site)
    assert host.names == ("other", "rhyme")
    assert host.task("rhyme.haiku").name == "haiku"
    assert list(host.tasks("rhyme")) == RHYME
    assert host.distribution("rhyme") == "grpo-rhyme 1.0"
    assert load_task("rhyme.couplet?size=1", host).rows() == [Row(id="1", gold="yes")]
    assert "grpo_rhyme" in sys.modules and "grpo_other" not in sys.modules


def test_an_unknown_task_lists_what_is_installed_by_package_and_what_is_broken(site: Path) -> None:
    install(site, "rhyme")
    install(site, "bad", "import nothing_of_that_name")
    installed = r"no task 'rhyme\.cuplet'.* mean 'rhyme\.couplet'\?.* rhyme\.couplet, rhyme\.haiku \(grpo-rhyme 1\.0\)"
    broken = r"not loaded: plugin 'bad' \(grpo-bad 1\.0\) failed to load: ModuleNotFoundError: No module named 'nothing"
    with pytest.raises(UnknownNameError, match=rf"^{installed}\n  {broken}"):
        host_of(site).task("rhyme.cuplet")


FINDS = """
@hookimpl
def grpo_find_task(name):
    if name == "ghazal":
        raise UserError("no ghazal is installed: pip install ghazal.")
    if name == "sonnet":
        raise RuntimeError("no luck")
    return task(name.removeprefix("x_")) if name != "limerick" else None
"""


@pytest.mark.parametrize(("name", "error", "message"), [
    ("sums.py", UnknownNameError, r"A file starts with \./ or /, as in \./sums\.py:task\."),
    ("couplet", UnknownNameError, r"Did you mean 'rhyme\.couplet'"),
    ("rhyme.limerick", UnknownNameError, r"no task 'rhyme\.limerick'"),
    ("rhyme.ghazal", UserError, r"^no ghazal is installed: pip install ghazal\.$"),
    ("rhyme.sonnet", PluginError, r"plugin 'rhyme' .* grpo_find_task\(\) raised RuntimeError: no luck"),
    ("rhyme.x_ode", PluginError, r"grpo_find_task\('x_ode'\) must give the Task of this name, or None"),
])  # fmt: skip
def test_a_plugin_may_find_tasks_that_it_cannot_list(site, name, error, message):
    install(site, "rhyme", TASKS + FINDS)
    host = host_of(site)
    assert list(host.tasks("rhyme")) == RHYME and host.task("rhyme.ode").name == "ode"
    with pytest.raises(error, match=message):
        host.task(name)


# What is broken

GIVES_NOTHING = [  # NAME is the name of the plugin
    ("import nothing_of_that_name", "failed to load: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("raise SystemExit('no licence')", "failed to load: SystemExit: no licence"),
    (HOOK + "return 1 / 0", "grpo_tasks() raised ZeroDivisionError: division by zero"),
    (HOOK + "[task('a')]", "grpo_tasks() gave None; it must return what it contributes"),
    (HOOK + "return task('a')", "grpo_tasks() raised TypeError: 'Task' object is not iterable"),
    (HOOK + "return ['a']", "grpo_tasks() gave a str, it must give Task objects"),
    (HOOK + "return [task('a'), task('a')]", "gives task 'NAME.a' twice"),
    (HOOK + "return [task('two words')]", "grpo_tasks() raised UserError: task name 'two words'"),
    ("@hookimpl\ndef grpo_tasks(cfg):\n    return []", "Argument(s) {'cfg'} are declared in the hookimpl but"),
    ("@hookimpl\ndef grpo_task():\n    return []",
     "implements 'grpo_task', which is no hook. Did you mean 'grpo_tasks'"),
    ("def grpo_tasks():\n    return []", "grpo_tasks() is not marked, or misspelt. Did you mean 'grpo_tasks'?"),
    ("", "contributes nothing: grpo_NAME has no function marked @hookimpl named grpo_tasks or "),
    (TASKS + "\ndef grpo_models():\n    return []", "grpo_models() is not marked; write @hookimpl above it"),
]  # fmt: skip
HARMFUL = [  # what hangs or ends a process is not imported here
    ("import time\ntime.sleep(600)", "failed to load: it takes longer than 3 s and was ended"),
    ("import os\nos._exit(0)", "it ends the process that imports it (its worker exited with status 0, twice)"),
    ("raise KeyboardInterrupt", "failed to load: KeyboardInterrupt (grpo_NAME.py:"),
]
A_HOOK_FAILS = [
    ("grpo_models", "['small']", "grpo_models() gave a str, it must give EmbeddedModel objects"),
    ("grpo_variants", "{'kl': 3}", "grpo_variants() raised TypeError"),
    ("grpo_commands", "'rhyme'", "grpo_commands() raised ValueError"),
    ("grpo_profiles", "[GpuProfile('a', 'A', backend='cudaa')]",
     "raised UserError: GpuProfile('a', backend='cudaa'): "),
    ("grpo_profiles", "2 * [GpuProfile('slice', 'A slice')]", "gives GPU profile 'slice' twice"),
    ("grpo_profiles", "1001 * [GpuProfile('slice', 'A slice')]", "gives 1001 GPU profiles; at most 1000 are read"),
    ("grpo_diagnostics", "['level']", "grpo_diagnostics() raised ValueError"),
]  # fmt: skip
NOT_MODULES = [
    ("1 2 3", "the entry point '1 2 3' must name a module"),
    ("grpo_NAME:load", "the entry point 'grpo_NAME:load' names a function, not a module"),
    ("grpo_NAME:nothing", "failed to load: AttributeError"),
]
BROKEN = [
    *((f"nothing{index}", source, message) for index, (source, message) in enumerate(GIVES_NOTHING)),
    *((f"harmful{index}", source, message) for index, (source, message) in enumerate(HARMFUL)),
    *((f"point{index}", value, message) for index, (value, message) in enumerate(NOT_MODULES)),
    *(
        (f"hook{index}", f"{TASKS}\n@hookimpl\ndef {hook}():\n    return {returned}", message)
        for index, (hook, returned, message) in enumerate(A_HOOK_FAILS)
    ),
]


@dataclass(frozen=True)
class Ward:
    """All the broken plugins beside a sound one: what is said of each, and which were imported here when asked for."""

    host: PluginHost
    errors: Mapping[str, str]
    imported: frozenset[str]


def error_of(host: PluginHost, plugin: str) -> str:
    try:
        host.task(f"{plugin}.couplet")
    except PluginError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    names = ["rhyme", *(name for name, _, _ in BROKEN)]
    with importable(tmp_path_factory.mktemp("ward")) as site, pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_sdk.plugins.finder.PROBE_TIMEOUT_S", 3.0)
        install(site, "rhyme", TASKS + OTHERS)
        for name, source, _ in BROKEN:
            if name.startswith("point"):
                install(site, name, points=f"[grpo]\n{name} = {source.replace('NAME', name)}\n")
            else:
                install(site, name, source)
        host = host_of(site)
        host.reports()
        errors = {name: error_of(host, name) for name in names}
        return Ward(host, errors, frozenset(name for name in names if f"grpo_{name}" in sys.modules))


@pytest.mark.parametrize(("name", "source", "message"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_plugin_is_fatal_only_to_who_asks_for_it(ward: Ward, name: str, source: str, message: str) -> None:
    (report,) = (report for report in ward.host.reports() if report.name == name)
    assert report.distribution == f"grpo-{name} 1.0" and f"plugin '{name}' (grpo-{name} 1.0)" in report.error
    assert message.replace("NAME", name) in report.error
    if name.startswith("hook"):
        assert (ward.errors[name], list(report.tasks)) == ("", [f"{name}.couplet", f"{name}.haiku"])
    else:
        assert (ward.errors[name], report.tasks) == (report.error, {})
    assert not name.startswith("harmful") or name not in ward.imported


def test_a_sound_plugin_is_not_harmed_by_broken_ones(ward: Ward) -> None:
    (rhyme,) = (report for report in ward.host.reports() if report.name == "rhyme")
    assert (ward.errors["rhyme"], rhyme.error, list(rhyme.tasks)) == ("", "", RHYME)
    assert [*ward.host.models(), *ward.host.commands(), *ward.host.variants("kl")] == ["small", "rhyme", "k9"]


def test_a_name_claimed_by_two_packages_names_both(site: Path) -> None:
    install(site, "rhyme")
    assert PluginHost(points_of(site) * 2).task("rhyme.couplet"), "one package found twice is no conflict"
    install(site, "rhyme", distribution="other-rhyme")
    with pytest.raises(PluginError, match=r"'rhyme' \(grpo-rhyme 1\.0 and other-rhyme 1\.0\): two .* uninstall"):
        host_of(site).task("rhyme.couplet")


def test_an_entry_point_is_named_by_its_package_and_in_letters(site: Path) -> None:
    host = PluginHost([metadata.EntryPoint("lost", "nothing_of_that_name", "grpo")])
    assert host.distribution("lost") == "(unknown package)"
    install(site, "my-rhyme")
    with pytest.raises(PluginError, match=r"plugin 'my-rhyme' .*must be letters, digits and _"):
        host_of(site).tasks("my-rhyme")


# Restriction


def test_the_caller_or_the_environment_restricts_to_plugins_beside_core(site, monkeypatch):
    install(site, "core", OTHERS, distribution="stands-for-core")
    install(site, "rhyme")
    install(site, "other")
    assert host_of(site, only=["other"]).names == ("core", "other")
    assert list(host_of(site, only=["other"]).models()) == ["small"]
    for value, names in ((" rhyme , ", ("core", "rhyme")), ("", ("core", "other", "rhyme"))):
        monkeypatch.setenv("GRPO_PLUGINS", value)
        assert host_of(site).names == names
    monkeypatch.setenv("GRPO_PLUGINS", "rhyme,ryme")
    with pytest.raises(UnknownNameError, match=r"no plugin \(from GRPO_PLUGINS\) 'ryme'\. Did you mean 'rhyme'\?"):
        host_of(site)


# The other hooks


def test_models_variants_and_commands(site: Path) -> None:
    install(site, "rhyme", OTHERS)
    host, small = host_of(site), EmbeddedModel("small", "/somewhere", "a model")
    assert host.models() == {"small": small}
    assert host.variants("kl") == {"k9": Variant("grpo_rhyme:k9")} and host.variants("loss") == {}
    assert host.commands() == {"rhyme": "From grpo-rhyme 1.0."}
    assert "grpo_rhyme" not in sys.modules, "listing imports nothing"
    assert (host.command("rhyme"), host.model("small"), host.tasks("rhyme")) == ("grpo_rhyme:command", small, {})
    assert host.model("other") is host.command("other") is host.variant("kl", "other") is None
    variant = host.variant("kl", "k9")
    assert variant is not None and resolve(variant.target)() == 9


def test_one_name_from_two_plugins_names_both_and_harms_no_other_name(site: Path) -> None:
    install(site, "rhyme", OTHERS)
    install(site, "other", OTHERS.replace('{"rhyme": "grpo', '{"verse": "grpo_rhyme:command", "rhyme": "grpo'))
    host = host_of(site)
    both = "is given by grpo-other 1.0 and grpo-rhyme 1.0; uninstall one."
    assert host.conflicts() == [f"model 'small' {both}", f"command 'rhyme' {both}", f"kl 'k9' {both}"]
    assert (host.models(), list(host.commands()), host.variants("kl")) == ({}, ["verse"], {})
    assert host.command("verse") == "grpo_rhyme:command"
    for ask in (lambda: host.model("small"), lambda: host.command("rhyme"), lambda: host.variant("kl", "k9")):
        with pytest.raises(PluginError, match="is given by grpo-other"):
            ask()


def test_a_profile_of_a_plugin_is_found_without_importing_it(site: Path) -> None:
    give = "{TASKS}\n@hookimpl\ndef grpo_profiles():\n    return [{profiles}]"
    ours = "GpuProfile('slice', 'A slice', capabilities=('9.0',), max_micro_batch_tokens=8192)"
    install(site, "rhyme", give.format(TASKS=TASKS, profiles=ours))
    install(site, "bad", give.format(TASKS=TASKS, profiles="GpuProfile('slices', 'A slice', memory_gib=-1)"))
    host = host_of(site)
    profile = GpuProfile("slice", "A slice", capabilities=("9.0",), max_micro_batch_tokens=8192)
    assert named("slice", host) == profile
    assert matching(Accelerator("cuda", "a slice", 10, "9.0"), profiles(host).values())[0] == profile
    assert not {"grpo_rhyme", "grpo_bad"} & set(sys.modules)
    with pytest.raises(UnknownNameError, match=r"no profile 'slices'.*Did you mean 'slice'.*\n.*memory_gib=-1"):
        named("slices", host)


# Malformed packages


def test_a_malformed_file_of_entry_points_harms_only_its_package(site: Path) -> None:
    install(site, "rhyme")
    install(site, "bad", points="[grpo]\nno equals sign\n")
    install(site, "cut", points="[grpo]\nrhyme")
    install(site, "binary", points=b"[grpo]\n\xff = x\n")
    for name, text in (("other", "[other]\nalso none\n"), ("nonsense", "\x00[[[")):  # with nothing of ours
        install(site, name, points=text)
    host = PluginHost()
    assert list(host.tasks("rhyme")) == RHYME
    errors = {report.distribution: report.error for report in host.reports()}
    for name in ("bad", "cut"):
        said = f"package grpo-{name} 1.0: its entry_points.txt cannot be read"
        assert errors[f"grpo-{name} 1.0"].partition(" (")[0] == said
    assert not {"grpo-other 1.0", "grpo-nonsense 1.0"} & errors.keys()


RAISES_IN_A_WORKER = """
import os
if "GRPO_KILLABLE_WORKER" in os.environ:
    raise RuntimeError("broken")
class plugin:
    def new_schema_validator(*args): return None, None, None
"""
SCORE = """
from grpo_sdk import Scorer, load_task
with Scorer("rhyme.couplet", workers=1) as scorer:
    print(scorer.score([""], scorer.task.rows())[0].fault or "scored")
"""
SHOW = """
import os, sys
from grpo_core.cli.start import main_run
from grpo_core import UserError, train
assert main_run(["--show-config"]) == 0
for mistake, told in (({"max_step": 5}, "max_steps"), ({"callbacks": [3]}, "a list of Callback objects")):
    try:
        train("math.echo", **mistake)
    except UserError as error:
        assert told in str(error), error
assert "torch" not in sys.modules
assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"  # else torch's import fails
"""


@pytest.mark.parametrize(("points", "program", "printed"), [
    ((b"[grpo]\n\xff = x\n", b"[pydantic]\nbad = grpo_raises:plugin\n"), SCORE, "scored\n"),
    ((b"[other]\nno equals sign\n",), SHOW, "trainer.learning_rate"),
])  # fmt: skip
def test_what_breaks_pydantics_or_torchs_own_search_for_plugins_breaks_no_process(site, points, program, printed):
    install(site, "rhyme")
    for index, each in enumerate(points):
        install(site, f"binary{index}", points=each)
    (site / "grpo_raises.py").write_text(RAISES_IN_A_WORKER)
    environment = {**os.environ, "PYTHONPATH": str(site), "GRPO_PLUGINS": "rhyme" if program == SCORE else ""}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (made.returncode, made.stderr if program == SHOW else "") == (0, ""), made.stderr
    assert printed in made.stdout


def test_prints_go_to_stderr(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loud = "import os\nprint('one')\nos.system('echo two')\n"
    install(site, "loud", f"{loud}{TASKS}".replace("    return [task", "    print('three')\n    return [task"))
    host = host_of(site)
    host.reports()
    host.tasks("loud")
    out, err = capfd.readouterr()
    assert out == "" and err.split()[-3:] == ["one", "two", "three"]


# What is remembered


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache") / "new"
    monkeypatch.setenv("GRPO_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def looked_at(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the plugins that were imported in another process."""
    names: list[str] = []

    def spy(asked: dict[str, object], timeout_s: float) -> dict[str, PluginFacts]:
        names.extend(asked)
        return probe(asked, timeout_s)  # type: ignore[arg-type] # handed on as it came

    monkeypatch.setattr("grpo_sdk.plugins.probe.probe", spy)
    return names


def test_what_a_plugin_gives_is_remembered_until_it_changes(site: Path, looked_at: list[str]) -> None:
    install(site, "rhyme", OTHERS + TASKS)
    first = host_of(site).facts()
    assert looked_at == ["rhyme"] and list(first["rhyme"].tasks) == RHYME
    assert host_of(site).facts() == first and looked_at == ["rhyme"]

    (site / "grpo_rhyme.py").write_text(HEAD + TASKS.replace("haiku", "sonnet"))
    assert list(host_of(site).facts()["rhyme"].tasks) == ["rhyme.couplet", "rhyme.sonnet"]
    (site / "grpo_rhyme-1.0.dist-info").rename(site / "grpo_rhyme-1.1.dist-info")
    metadata_file = site / "grpo_rhyme-1.1.dist-info" / "METADATA"
    metadata_file.write_text(metadata_file.read_text().replace("1.0", "1.1"))
    host_of(site).facts()
    assert looked_at == ["rhyme"] * 3


def test_a_failure_is_listed_from_memory_for_a_while_and_tried_again_when_it_is_asked_for(site, looked_at, monkeypatch):
    install(site, "bad", f"import os\nif not os.path.exists({str(site / 'licence')!r}):\n    os._exit(0)\n{TASKS}")
    assert host_of(site).reports()[0].error == host_of(site).reports()[0].error != ""
    assert looked_at == ["bad"]
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3601)
    host_of(site).facts()
    assert looked_at == ["bad"] * 2
    (site / "licence").touch()
    assert host_of(site).task("bad.couplet")
    assert looked_at == ["bad"] * 3
    assert host_of(site).reports()[0].error == ""


def test_a_damaged_memory_is_made_anew(site: Path, cache: Path) -> None:
    install(site, "rhyme")
    facts = host_of(site).facts()
    (file,) = (cache / "plugins").iterdir()
    for entry in ("nope", "[]", "[" * 100_000, '{"format": 1, "plugins": []}'):
        file.write_text(entry)
        assert host_of(site).facts() == facts, entry[:50]
        assert "rhyme" in json.loads(file.read_text())["plugins"]


KEYS = st.sampled_from([*PluginFacts().to_json(), "name", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each) | st.dictionaries(KEYS, each),
)


@given(VALUES, st.sampled_from(list(PluginFacts().to_json())))
def test_facts_from_anybody_are_facts_or_refused(value: object, key: str) -> None:
    for data in (value, PluginFacts().to_json() | {key: value}):
        try:
            facts = PluginFacts.from_json(data)
        except ValueError:
            continue
        assert PluginFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_a_forged_memory_runs_nothing(site: Path, cache: Path) -> None:
    install(site, "rhyme", OTHERS)
    host_of(site).facts()
    (file,) = (cache / "plugins").iterdir()
    file.write_text(file.read_text().replace("/somewhere", "/forged").replace("grpo_rhyme:k9", "antigravity:x"))
    host = host_of(site)
    assert host.models()["small"].path == "/forged", "it lists what it read"
    model = host.model("small")
    assert model is not None and model.path == "/somewhere", "it uses what the plugin says"
    assert host.variant("kl", "k9") == Variant("grpo_rhyme:k9")


def test_a_folder_that_cannot_be_written_is_one_line(site, monkeypatch, capsys):
    (site / "file").touch()
    monkeypatch.setenv("GRPO_CACHE_DIR", str(site / "file"))
    install(site, "rhyme")
    install(site, "other")
    host = host_of(site)
    host.facts(["rhyme"]), host.facts(["other"])
    assert list(host.facts()["rhyme"].tasks) == RHYME
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cannot be written (Not a directory)" in said and "GRPO_CACHE_DIR" in said


# Workers


@pytest.fixture
def no_host() -> Iterator[None]:
    """The process's own host is made anew, and forgotten."""
    default_host.cache_clear()
    yield
    default_host.cache_clear()


@pytest.mark.usefixtures("no_host")
def test_a_worker_imports_the_plugin_of_its_task_alone(site: Path) -> None:
    install(site, "rhyme")
    install(site, "other", "open(__file__ + '.imported', 'w')\n" + TASKS)
    with Scorer("rhyme.couplet", workers=1) as scorer:
        (score,) = scorer.score(["yes"], [Row(id="1", gold="yes")])
    assert score.solved and not (site / "grpo_other.py.imported").exists()


def test_a_worker_that_looks_for_a_model_goes_by_what_is_remembered(site, cache, monkeypatch):
    install(site, "rhyme", OTHERS)
    install(site, "other")
    host_of(site).facts()
    monkeypatch.setenv("GRPO_KILLABLE_WORKER", "1")
    assert host_of(site).model("small") is not None
    assert "grpo_rhyme" in sys.modules and "grpo_other" not in sys.modules


def test_importing_the_sdk_leaves_the_process_as_it_was():
    program = """
import os, signal, sys, threading, warnings
def state():
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    return (
        dict(os.environ), list(sys.meta_path), list(sys.path_hooks), list(sys.path), list(warnings.filters), handlers,
        threading.active_count(), "importlib.metadata" in sys.modules, sys.excepthook,
    )
before = state()
import grpo_sdk
assert state() == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)
