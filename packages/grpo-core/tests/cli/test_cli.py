from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType

import click
import pytest

from grpo_core import __version__
from grpo_core.cli import main as entry
from grpo_core.cli.group import COMMANDS
from grpo_core.errors import AbstentionLimitError, NonFiniteError, UserError
from grpo_core.plugins.facts import EmbeddedModel
from grpo_core.plugins.hooks import hookimpl
from grpo_core.plugins.host import default_host

COUPLET = """
from collections.abc import Iterable
from grpo_core import Invalid, Row, Task, reward

def load(config) -> Iterable[Row]:
    "Words to rhyme with."
    return [Row(id=str(n), gold=f"gold {n}") for n in range(5)]

def validate(text, row):
    if not text:
        raise Invalid("no line")
    return text

@reward(0.25)
def one_line(answer):
    return float("\\n" not in answer)

@reward(0.75, needs="one_line")
def rhymes(answer, row):
    return float(answer == row.gold)

couplet = Task("couplet", load, lambda row: f"rhyme {row.id}\\n\x1b[2J", validate, (one_line, rhymes), stop=("\\n",),
               default_model="tiny", max_completion_length=9, exempt={"split": "a test"})
bare = Task("bare", lambda config: [Row(id="1")], lambda row: ({"role": "user", "content": "hi"},), validate,
            (one_line,), row=Row)
empty = Task("empty", lambda config: [], lambda row: "", validate, (one_line,), row=Row)
"""

POOR = """
@reward()
def broken(answer):
    return answer[9999]

poor = Task("poor", load, lambda row: "", validate, (broken,), row=Row)
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder, without this machine's settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GRPO_") and name != "GRPO_CACHE_DIR"]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install plugins: name -> {hook: what it gives}, or an error that its import raises."""

    def install(**given: Mapping[str, object]) -> None:
        points = []
        for name, hooks in given.items():
            module = ModuleType(f"cli_plugin_{name}")
            for hook, value in hooks.items():
                setattr(module, hook, hookimpl(lambda value=value: value, specname=hook))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            points.append(metadata.EntryPoint(name, module.__name__, "grpo"))
        monkeypatch.setattr("grpo_core.plugins.finder.installed", lambda: (tuple(points), ()))
        default_host.cache_clear()

    yield install  # type: ignore[misc] # the fixture's own clean-up follows
    monkeypatch.undo()
    default_host.cache_clear()


def grpo(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `grpo` in this process.

    Returns:
        (exit code, stdout, stderr).
    """
    code = entry.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command is refused, as a user's mistake."""
    code, out, err = grpo(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    return err.removeprefix("error: ").rstrip("\n")


def test_what_needs_no_model_imports_no_torch() -> None:
    code = (
        "import sys; from grpo_core.cli.main import main\n"
        "code = main(['--help'])\n"
        "assert 'rich' not in sys.modules\n"
        "assert main(['run', 'learning_rate=1']) == main(['run', '--show-config', '--task', 'no.such']) == 2\n"
        "assert main(['run', '--model', 'tinny']) == main(['eval', '--model', 'tinny']) == 2\n"
        "assert main(['warm-start', '--task', 'no.such', '--out', 'x', '--model', 'tinny']) == 2\n"
        "assert main(['tasks']) == main(['models']) == 0\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for name, (_, help_line) in COMMANDS.items():
        assert f"\n  {name}" in done.stdout
        assert help_line in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--model", ""), "--model is empty"),
        (("run", "--model="), "--model is empty"),
        (("eval", "--base", ""), "--base is empty"),
        (("warm-start", "--task", "x.y", "--out", ""), "--out is empty"),
        (("resume", ""), "an argument is empty ('')"),
        (("publish", "run", ""), "an argument is empty ('')"),
        (("run", "model="), "model is empty"),
        (("run", "trainer.max_steps="), "trainer.max_steps is empty"),
        (("run", "--config", "-"), "--config '-': standard input and output are not used here"),
        (("resume", "-"), "RUN '-': standard input and output are not used here"),
        (("run", "--output-dir", "-"), "output_dir '-': standard input"),
        (("run", "--config", "/dev/null"), "it is a device; give a file"),
        (("resume", "/dev/null"), "is not a run folder: it is a device"),
        (("run", "--task", "/dev:x"), "task spec"),
        (("sample", "./no.py:x"), "there is no file ./no.py"),
        (("sample", "./no.py"), "there is no file ./no.py"),
        (("run", f"trainer.max_steps=1{'0' * 30}"), "at most 10^9"),
        (("run", "trainer.learning_rate=1e300"), "at most 10."),
        (("resume", "x", "--additional-steps", "1" * 30), "is not in the range 1<=x<=1000000000"),
        (("sample", f"math.arithmetic?seed=1{'0' * 30}"), "option seed: a whole number has at most 64 bits"),
        (("eval", "--run", "x", "--timeout-s", "nan"), "nan is no number in the range"),
    ],
)
def test_what_no_value_can_be_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refusal(capsys, *words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = grpo(capsys, name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: grpo {name}")
    assert grpo(capsys, name, "-h")[1] == out


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert grpo(capsys, "--version")[:2] == (0, f"grpo-core {__version__}\n")
    assert entry.main_run(["--version"]) == 0
    assert capsys.readouterr().out == f"grpo-core {__version__}\n"


def test_alone_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = grpo(capsys)
    assert code == 0
    assert "Commands:" in out + err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rn"], "no command 'rn'. Did you mean 'run'?"),
        (["run", "--lr", "3"], "no option --lr. Settings are written without dashes: trainer.learning_rate=VALUE"),
        (["run", "--num-generations", "3"], "trainer.num_generations=VALUE"),
        (["run", "--max-step", "3"], "'--max-steps'"),
        (["run", "--task"], "--task"),
        (["run", "trainer.num_generation=4"], "Did you mean 'trainer.num_generations'?"),
        (["run", "learning_rate=1"], "no setting 'learning_rate'. Did you mean 'trainer.learning_rate'?"),
        (["run", "--model", "tinny"], "no model 'tinny'. Did you mean 'tiny'?"),
        (["run", "--recipe", "dapoo"], "no recipe 'dapoo'. Did you mean 'dapo'?"),
        (["run", "--recipe", "dapo", "trainer.loss_type=grpo"], "the recipe dapo is trainer.loss_type=dapo, but"),
        (["run", "k_samples=4", "trainer.num_generations=8"], "trainer.num_generations is given twice"),
        (["run", "rollout_batch_size=4"], "sampling is batched by memory"),
        (["run", "math.gsm8k"], "'math.gsm8k' is not KEY=VALUE"),
        (["run", "--seed", "1", "seed=2"], "seed is given twice on the command line: '1' and '2'."),
        (["run", "--seed", "x"], "seed=x: must be a whole number"),
        (["run", "--max-steps", "0"], "trainer.max_steps=0: must be a whole number, 1 or more"),
        (["run", "trainer.num_generations=1"], "the baseline group_mean needs a group; alone, every advantage is 0"),
        (["run", "--config", "nope.yaml"], "--config nope.yaml: there is no such file."),
        (["run", "--task", "a b"], "task spec 'a b' cannot be read"),
        (["eval", "--size", "0"], "eval.size=0: must be a whole number, 1 or more"),
        (["eval", "--split", "tset"], "Did you mean 'test'?"),
        (["sample", "./no.py:task"], "there is no file ./no.py"),
        (["sample", "math.echo", "-n", "0"], "-n"),
        (["tasks", "shw"], "shw"),
        (["warm-start", "--out", "x"], "--task"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in refusal(capsys, *arguments)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("wrong"), 2),
        (NonFiniteError("diverged"), 1),
        (AbstentionLimitError("3 of 4"), 3),
        (click.UsageError("usage"), 2),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
        (SystemExit(7), 7),
    ],
)
def test_every_error_has_its_exit_code(capsys: pytest.CaptureFixture[str], error: BaseException, code: int) -> None:
    @click.command()
    def fails() -> None:
        raise error

    assert entry.run_command(fails, [], "grpo") == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fails() -> None:
        raise ZeroDivisionError("of ours")

    assert entry.run_command(fails, [], "grpo") == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: this is a bug in grpo-core or in a plugin, not yours: ZeroDivision")


@pytest.mark.parametrize("words", [["eval", "--task", "math.arithmetic", "--model"], ["runs"]])
def test_a_name_that_no_system_takes_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert entry.main([*words, "a" * 300]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "File name too long" in line and "a" * 300 in line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "r/logs/events.jsonl"), "Permission denied: r/logs/events"),
        (
            OSError(errno.EROFS, "Read-only file system", "/data/runs"),
            "Read-only file system: /data/runs. Name",
        ),
    ],
)
def test_a_file_that_may_not_be_used_is_one_line(capsys: pytest.CaptureFixture[str], error: OSError, said: str) -> None:
    @click.command()
    def fails() -> None:
        raise error

    assert entry.run_command(fails, [], "grpo") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")


def test_debug_shows_the_traceback_of_a_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_DEBUG", "1")
    code, _, err = grpo(capsys, "run", "--seed", "x")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: seed=x")


def test_out_of_memory_comes_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    class OutOfMemoryError(RuntimeError):  # the name of torch's
        pass

    @click.command()
    def fails() -> None:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    assert entry.run_command(fails, [], "grpo") == 1
    assert "Lower trainer.micro_batch_tokens" in capsys.readouterr().err


def test_hostile_words_in_an_error_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in refusal(capsys, "run", "\x1b[2J=1")


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
    assert "GRPO_SEED" not in os.environ, "a setting there would rank above .env"
    assert "grpo_seed" not in os.environ, "it would be refused as the environment's"


# Commands that list and show


def test_tasks_lists_what_is_installed_and_what_is_broken(
    capsys: pytest.CaptureFixture[str], plugins: Callable[..., None], elsewhere: Path
) -> None:
    namespace: dict[str, object] = {}
    exec(compile(COUPLET, "couplet.py", "exec", dont_inherit=True), namespace)
    plugins(rhyme={"grpo_tasks": [namespace["couplet"], namespace["bare"]]}, broken={"grpo_takss": []})
    code, out, _ = grpo(capsys, "tasks", "--json")
    listed = json.loads(out)
    assert code == 0
    assert [task["name"] for task in listed["tasks"]] == ["rhyme.couplet", "rhyme.bare"]
    assert listed["tasks"][0]["description"] == "Words to rhyme with."
    assert listed["tasks"][0]["default_model"] == "tiny"
    assert listed["tasks"][0]["options"] == {"seed": 0, "split": "train", "size": None, "path": None}
    assert listed["broken"][0]["plugin"] == "broken"
    assert "grpo_tasks" in listed["broken"][0]["error"], "the near hook"

    code, out, _ = grpo(capsys, "tasks")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["task", "from", "default", "model", "what"]
    assert any(line.startswith("rhyme.couplet") and "Words to rhyme with." in line for line in lines)
    assert any(line.startswith("broken") and "NOT LOADED" in line for line in lines)
    assert "\x1b" not in out
    assert not any(line.endswith(" ") for line in lines)


def test_tasks_lists_names_that_two_packages_give(
    capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]
) -> None:
    wee = EmbeddedModel("wee", "/m", "")
    plugins(
        one={"grpo_models": [wee], "grpo_variants": {"kl": {"k3": "mine:k3"}}},
        two={"grpo_models": [wee]},
    )
    conflicts = json.loads(grpo(capsys, "tasks", "--json")[1])["conflicts"]
    assert len(conflicts) == 2
    assert "model 'wee' is given by" in conflicts[0]
    assert "kl 'k3' is given by grpo_core.algorithms.kl:k3 and mine:k3" in conflicts[1]
    assert grpo(capsys, "tasks")[1].count("CONFLICT: ") == 2


def test_tasks_without_plugins_says_what_to_do(
    capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]
) -> None:
    plugins()
    assert "pip install grpo-tasks-math" in grpo(capsys, "tasks")[1]


def test_tasks_show_tells_everything(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    (elsewhere / "rhyme.py").write_text(COUPLET)
    code, out, _ = grpo(capsys, "tasks", "show", "./rhyme.py:couplet?size=3", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["options"]["size"] == {"value": 3, "default": None, "type": "whole number or null"}
    assert facts["rewards"] == [
        {"name": "one_line", "weight": 0.25, "maximum": 1.0, "needs": None},
        {"name": "rhymes", "weight": 0.75, "maximum": 1.0, "needs": "one_line"},
    ]
    assert (facts["rows"], facts["row"]["gold"], facts["stop"]) == (3, "gold 0", ["\n"])
    assert len(facts["identity"]) == 16
    assert facts["ingredients"].keys() == {"code", "config", "data"}
    assert facts["versions"] == {"grpo-core": __version__}

    code, out, _ = grpo(capsys, "tasks", "show", "./rhyme.py:couplet")
    assert code == 0
    assert "train, validation or test" in out
    assert "9 tokens, scored within 5 s" in out
    assert "split: a test" in out
    assert f"code {facts['ingredients']['code']}" in out
    assert "\x1b" not in out
    assert r"\x1b[2J" in out, "the prompt's control code is visible"


def test_tasks_show_without_data_says_why(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    (elsewhere / "rhyme.py").write_text(COUPLET)
    code, out, _ = grpo(capsys, "tasks", "show", "./rhyme.py:empty")
    assert code == 0
    assert "has no rows for split 'train'" in out


def test_sample_shows_rows_with_gold_and_its_score(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    (elsewhere / "rhyme.py").write_text(COUPLET)
    code, out, _ = grpo(capsys, "sample", "./rhyme.py:couplet", "-n", "2", "--json")
    entries = json.loads(out)
    assert code == 0
    assert [entry["gold"] for entry in entries] == ["gold 0", "gold 1"]
    assert entries[0]["prompt"] == "rhyme 0\n\x1b[2J"
    # 0.25 for one line and 0.75 for the rhyme: the gold earns everything.
    assert (entries[0]["score"]["value"], entries[0]["score"]["solved"]) == (1.0, True)

    code, out, _ = grpo(capsys, "sample", "./rhyme.py:couplet,./rhyme.py:bare", "-n", "1")
    assert code == 0
    assert 'gold     "gold 0"' in out
    assert "1   solved   one_line 1, rhymes 1" in out
    assert 'user: "hi"' in out
    assert "score    -" in out, "bare has no gold"


def test_sample_fails_where_a_gold_is_not_scored(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    (elsewhere / "rhyme.py").write_text(COUPLET + POOR)
    code, out, err = grpo(capsys, "sample", "./rhyme.py:poor,./rhyme.py:couplet", "-n", "1")
    assert code == 1
    assert "not scored (reward): reward broken() raised IndexError (rhyme.py:" in out and "solved   one_line 1" in out
    assert "1 of 2 golds could not be scored" in err and "row '0' of rhyme.poor" in err


WEE = EmbeddedModel(
    "wee", "/m/wee", "A small model.", {"trainer.beta": 0.1}, {"n": "2"}, {"toy.hard": {"trainer.beta": 0.2}}
)


def test_models_lists_embedded_ones(capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]) -> None:
    plugins(toy={"grpo_models": [WEE]})
    code, out, _ = grpo(capsys, "models", "--json")
    assert code == 0
    assert json.loads(out)["wee"] == {
        "description": "A small model.",
        "path": "/m/wee",
        "defaults": {"trainer.beta": 0.1},
        "task_options": {"n": "2"},
        "task_defaults": {"toy.hard": {"trainer.beta": 0.2}},
    }
    assert "trainer.beta=0.1; on toy.hard: trainer.beta=0.2   n=2" in grpo(capsys, "models")[1]


# Commands of plugins


def test_a_plugin_s_command_runs(capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]) -> None:
    plugins(toy={"grpo_commands": {"toy": "cli_plugin_toy:command"}})

    @click.command()
    @click.argument("word")
    def command(word: str) -> None:
        click.echo(f"toy {word}")

    sys.modules["cli_plugin_toy"].command = command  # type: ignore[attr-defined] # a module made by the fixture
    assert grpo(capsys, "toy", "hello")[:2] == (0, "toy hello\n")
    assert "Commands of plugins:\n  toy" in grpo(capsys, "--help")[1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cli_plugin_toy:gone", "the command at cli_plugin_toy:gone cannot be imported"),
        ("cli_plugin_toy:__name__", "is a str; a plugin's command is a click command or group"),
    ],
)
def test_a_broken_command_of_a_plugin_is_named(
    capsys: pytest.CaptureFixture[str], plugins: Callable[..., None], target: str, message: str
) -> None:
    plugins(toy={"grpo_commands": {"toy": target}})
    assert message in refusal(capsys, "toy")


def test_a_plugin_cannot_replace_a_command(capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]) -> None:
    plugins(toy={"grpo_commands": {"run": "cli_plugin_toy:x", "toy": "cli_plugin_toy:y"}})
    code, out, _ = grpo(capsys, "--help")
    assert code == 0
    assert "a plugin's command has the name of a built-in one: run." in " ".join(out.split())
    assert "\n  toy" in out
    assert "Train a model" in grpo(capsys, "run", "--help")[1]


def test_two_plugins_with_one_command_break_only_it(
    capsys: pytest.CaptureFixture[str], plugins: Callable[..., None]
) -> None:
    plugins(one={"grpo_commands": {"toy": "a:b"}}, two={"grpo_commands": {"toy": "c:d"}})
    assert grpo(capsys, "--help")[0] == 0
    assert "'toy' is given by" in refusal(capsys, "toy")
