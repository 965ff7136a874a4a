"""`grpo` itself, its exit codes and help, the commands that list and show, and those of plugins."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType

import click
import pytest

from grpo_core.cli.start import main_run
from grpo_sdk import __version__, load_task
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import AbstentionLimitError, ExitCode, NonFiniteError, UserError
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.hooks import hookimpl
from grpo_sdk.plugins.host import default_host

RHYME = Path(__file__).parent / "programs" / "rhyme.py"
DIAGNOSED = Path(__file__).parents[1] / "support" / "diagnosed_tasks.py"

Capture = pytest.CaptureFixture[str]
Grpo = Callable[..., str]
Plugins = Callable[..., None]


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins]:
    """Install plugins: name -> {hook: what it gives}."""

    def install(**given: Mapping[str, object]) -> None:
        points = []
        for name, hooks in given.items():
            module = ModuleType(f"cli_plugin_{name}")
            for hook, value in hooks.items():
                setattr(module, hook, hookimpl(lambda value=value: value, specname=hook))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            points.append(metadata.EntryPoint(name, module.__name__, "grpo"))
        monkeypatch.setattr("grpo_sdk.plugins.finder.installed", lambda: (tuple(points), ()))
        default_host.cache_clear()

    yield install
    monkeypatch.undo()
    default_host.cache_clear()


def test_versions(grpo: Grpo, capsys: Capture) -> None:
    assert grpo("--version") == f"grpo-sdk {__version__}\ngrpo-core {__version__}\n"
    assert main_run(["--version"]) == 0
    assert capsys.readouterr().out == f"grpo-core {__version__}\n"


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(("error", "code", "said"), [
    (UserError("wrong"), 2, "error: wrong"),
    (NonFiniteError("diverged"), 1, "error: diverged"),
    (AbstentionLimitError("3 of 4"), 3, "error: 3 of 4"),
    (click.UsageError("usage"), 2, "error: usage"),
    (MemoryError(), 1, "error: "),
    (KeyboardInterrupt(), 130, "stopped: interrupted"),
    (SystemExit(7), 7, ""),
    (OSError(errno.EROFS, "Read-only file system", "/data/runs"), 2, "error: Read-only file system: /data/runs"),
    (OutOfMemoryError("CUDA out of memory. Tried 2 GiB\nmore"), 1, "Lower trainer.micro_batch_tokens"),
    (ZeroDivisionError("ours"), 1, "\nerror: this is a bug in grpo or in a plugin, not yours: ZeroDivisionError"),
])  # fmt: skip
def test_every_error_has_its_exit_code_and_a_bug_alone_its_traceback(
    capsys: Capture, error: BaseException, code: int, said: str
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    assert entry.run_command(fails, [], "grpo") == code
    printed = capsys.readouterr().err
    assert said in printed and ("Traceback" in printed) == isinstance(error, ZeroDivisionError)


def test_debug_shows_the_traceback_of_a_mistake(grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_DEBUG", "1")
    err = grpo("run", "--seed", "x", code=2)
    assert "Traceback" in err and err.splitlines()[-1].startswith("error: seed=x")


def test_every_exit_code_is_reached_by_a_command_and_documented(grpo: Grpo, elsewhere: Path) -> None:
    (elsewhere / "texts.jsonl").write_text('{"row": "0", "completion": "1"}\n')
    grpo("explain", f"{RHYME}:couplet", code=ExitCode.DONE)
    grpo("explain", f"{RHYME}:poor", code=ExitCode.FAILED)
    grpo("explain", f"{RHYME}:none", code=ExitCode.USER_MISTAKE)
    grpo("score", f"{RHYME}:poor", "--file", "texts.jsonl", code=ExitCode.ABSTENTION_LIMIT)
    page = (Path(__file__).parents[4] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {int(code)} | {code.meaning} |" in page


def test_a_dotenv_file_serves_libraries_and_never_the_environment_s_settings(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / ".env").write_text("SOME_LIBRARY_HOME=/x\nGRPO_LOG_DIR=logs\nGRPO_SEED=3\ngrpo_seed=3\nKEPT=new\n")
    for name in ("SOME_LIBRARY_HOME", "GRPO_LOG_DIR"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    monkeypatch.setenv("KEPT", "old")
    entry.load_dotenv(elsewhere / ".env")
    assert (os.environ["SOME_LIBRARY_HOME"], os.environ["GRPO_LOG_DIR"], os.environ["KEPT"]) == ("/x", "logs", "old")
    assert not {"GRPO_SEED", "grpo_seed"} & set(os.environ), "settings there would rank above .env"


def test_tasks_lists_what_is_installed_and_what_is_broken(grpo: Grpo, plugins: Plugins) -> None:
    tasks = [load_task(f"{RHYME}:{name}").task for name in ("couplet", "bare")]
    plugins(rhyme={"grpo_tasks": tasks}, broken={"grpo_takss": []})
    listed = json.loads(grpo("tasks", "--json"))
    couplet, bare = listed["tasks"]
    assert (couplet["name"], bare["name"], couplet["default_model"]) == ("rhyme.couplet", "rhyme.bare", "tiny")
    assert couplet["description"] == "Words to rhyme with."
    assert couplet["options"] == {"seed": 0, "split": "train", "size": None, "path": None}
    assert listed["broken"][0]["plugin"] == "broken"
    assert "grpo_tasks" in listed["broken"][0]["error"], "the near hook"
    heading, *lines = grpo("tasks").splitlines()
    assert heading.split() == ["task", "from", "default", "model", "what"]
    assert any(line.startswith("rhyme.couplet") and "Words to rhyme with." in line for line in lines)
    assert any(line.startswith("broken") and "NOT LOADED" in line for line in lines)
    plugins()
    assert "pip install grpo-tasks-math" in grpo("tasks")


def test_tasks_lists_names_that_two_packages_give(grpo: Grpo, plugins: Plugins) -> None:
    wee = EmbeddedModel("wee", "/m", "")
    plugins(one={"grpo_models": [wee], "grpo_variants": {"kl": {"k3": "mine:k3"}}}, two={"grpo_models": [wee]})
    model, kl = json.loads(grpo("tasks", "--json"))["conflicts"]
    assert "model 'wee' is given by" in model
    assert "kl 'k3' is given by grpo_core.algorithms.kl:k3 and mine:k3" in kl
    assert grpo("tasks").count("CONFLICT: ") == 2


def test_tasks_show_tells_everything(grpo: Grpo) -> None:
    facts = json.loads(grpo("tasks", "show", f"{RHYME}:couplet?size=3", "--json"))
    assert facts["options"]["size"] == {"value": 3, "default": None, "type": "whole number or null"}
    assert facts["rewards"] == [
        {"name": "one_line", "weight": 0.25, "maximum": 1.0, "needs": None},
        {"name": "rhymes", "weight": 0.75, "maximum": 1.0, "needs": "one_line"},
    ]
    assert (facts["rows"], facts["row"]["gold"], facts["stop"]) == (3, "gold 0", ["\n"])
    assert len(facts["identity"]) == 16 and facts["ingredients"].keys() == {"code", "config", "data"}
    shown = grpo("tasks", "show", f"{RHYME}:couplet")
    for words in ("train, validation or test", "9 tokens, scored within 5 s", "split: a test", r"\x1b[2J"):
        assert words in shown
    assert f"code {facts['ingredients']['code']}" in shown
    assert "has no rows for split 'train'" in grpo("tasks", "show", f"{RHYME}:empty")


def test_sample_shows_rows_with_gold_and_its_score(grpo: Grpo, capsys: Capture) -> None:
    first, second = json.loads(grpo("sample", f"{RHYME}:couplet", "-n", "2", "--json"))
    assert (first["gold"], second["gold"], first["prompt"]) == ("gold 0", "gold 1", "rhyme 0\n\x1b[2J")
    # 0.25 for one line and 0.75 for the rhyme: the gold earns everything.
    assert (first["score"]["value"], first["score"]["solved"]) == (1.0, True)
    shown = grpo("sample", f"{RHYME}:couplet,{RHYME}:bare", "-n", "1")
    for words in ('gold     "gold 0"', "1   solved   one_line 1, rhymes 1", 'user: "hi"', "score    -"):
        assert words in shown
    assert entry.main(["sample", f"{RHYME}:bare", "-n", "1", "--json"]) == 0
    said, why = capsys.readouterr()
    assert json.loads(said)[0]["conditions"] == {"ear": "a keen one"} and "a keen one" in why


def test_sample_fails_where_a_gold_is_not_scored(capsys: Capture) -> None:
    assert entry.main(["sample", f"{RHYME}:poor,{RHYME}:couplet", "-n", "1"]) == 1
    out, err = capsys.readouterr()
    assert "not scored (reward): reward broken() raised OSError (rhyme.py:" in out and "solved   one_line 1" in out
    assert "1 of 2 golds could not be scored" in err and "row '0' of rhyme.poor" in err


def test_sample_fails_where_a_gold_is_not_solved_unless_the_task_says_why(grpo: Grpo) -> None:
    assert "2 of 2 golds are not solved" in grpo("sample", f"{DIAGNOSED}:unsolvable", "-n", "2", code=1)
    assert "NOT SOLVED" in grpo("sample", f"{DIAGNOSED}:sound", "-n", "1")


def test_models_lists_embedded_ones(grpo: Grpo, plugins: Plugins) -> None:
    on_tasks = {"toy.hard": {"trainer.beta": 0.2}}
    plugins(toy={"grpo_models": [EmbeddedModel("wee", "/m", "Small.", {"trainer.beta": 0.1}, {"n": "2"}, on_tasks)]})
    wee = json.loads(grpo("models", "--json"))["wee"]
    assert wee.pop("task_defaults") == on_tasks
    assert list(wee.values()) == ["Small.", "/m", {"trainer.beta": 0.1}, {"n": "2"}]
    assert "trainer.beta=0.1; on toy.hard: trainer.beta=0.2   n=2" in grpo("models")


def test_a_plugin_s_command_runs(grpo: Grpo, plugins: Plugins) -> None:
    @click.command()
    @click.argument("word")
    def command(word: str) -> None:
        click.echo(f"toy {word}")

    plugins(toy={"grpo_commands": {"toy": "cli_plugin_toy:command"}})
    vars(sys.modules["cli_plugin_toy"])["command"] = command
    assert grpo("toy", "hello") == "toy hello\n"
    assert "Commands of plugins:\n  toy" in grpo("--help")


@pytest.mark.parametrize(("commands", "message"), [
    ([{"toy": "cli_plugin_one:gone"}], "the command at cli_plugin_one:gone cannot be imported"),
    ([{"toy": "cli_plugin_one:__name__"}], "is a str; a plugin's command is a click command or group"),
    ([{"toy": "a:b"}, {"toy": "c:d"}], "'toy' is given by"),
])  # fmt: skip
def test_a_broken_command_of_a_plugin_is_named_and_breaks_only_it(
    grpo: Grpo, plugins: Plugins, commands: list[dict[str, str]], message: str
) -> None:
    plugins(**{name: {"grpo_commands": each} for name, each in zip(("one", "two"), commands, strict=False)})
    assert message in grpo("toy", code=2)
    assert "Train a model" in grpo("run", "--help")


def test_a_plugin_cannot_replace_a_command(grpo: Grpo, plugins: Plugins) -> None:
    plugins(toy={"grpo_commands": {"run": "cli_plugin_toy:x", "toy": "cli_plugin_toy:y"}})
    out = grpo("--help")
    assert "a plugin's command has the name of a built-in one: run." in " ".join(out.split()) and "\n  toy" in out
    assert "Train a model" in grpo("run", "--help")


@pytest.mark.parametrize(("words", "shown"), [
    ("run", ("math.arithmetic]", "[default: training_runs]", "[default: 0]")),
    ("eval", ("[default: 512]", "[default: test]", "[default: all]")),
    ("resume", ("[default: latest]",)),
    ("warm-start", ("[default: 1000", "[default: constant]")),
    ("publish", ("[default: latest]", "[default: merged]")),
    ("rollouts", ("[default: 10",)),
])  # fmt: skip
def test_help_shows_defaults(words: str, shown: tuple[str, ...], grpo: Grpo) -> None:
    text = " ".join(grpo(words, "-h").split())
    assert all(default in text for default in shown), text
    assert "[default: null]" not in text


def test_grpo_alone_prints_its_help_and_succeeds(grpo: Grpo) -> None:
    out = grpo()
    assert out.startswith("Usage: grpo ") and "warm-start" in out


@pytest.mark.parametrize("words", ["new mine", "export verl math.arithmetic mine --size 4 --test-size 4"])
def test_what_writes_a_folder_says_it_as_json_too(words: str, grpo: Grpo) -> None:
    written = json.loads(grpo(*words.split(), "--json"))
    assert written["folder"] == "mine"
    assert {*written["files"]} == {str(file.relative_to("mine")) for file in Path("mine").rglob("*") if file.is_file()}
