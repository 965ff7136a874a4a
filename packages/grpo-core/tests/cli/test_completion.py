"""Completion in a shell: what is offered, how fast, and in real shells."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from growing_run import GrowingRun
from terminals import Terminal

from grpo_core.cli import main as entry
from grpo_core.cli.completion import candidates
from grpo_core.cli.group import COMMANDS
from grpo_core.config.keys import keys

Capture = pytest.CaptureFixture[str]

BIN = str(Path(sys.executable).parent)

MAX_CPU_S = 0.3
"""Processor time of a Tab, with what Python takes to start."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str) -> list[str]:
    *words, word = line.split(" ")
    return list(candidates(words, word))


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("", ["run", "runs", "watch", "chess"]),
        ("ru", ["run", "runs"]),
        ("runs sh", ["show"]),
        ("run --ta", ["--task"]),
        ("run --task ma", ["math."]),
        ("run --task math.ar", ["math.arithmetic"]),
        ("run --task=math.ar", ["--task=math.arithmetic"]),
        ("run --task math.echo:2,math.ar", ["math.echo:2,math.arithmetic"]),
        ("sample math.gsm", ["math.gsm8k"]),
        ("run --model ti", ["tiny"]),
        ("run tra", ["trainer.", "tracking."]),
        ("run --quiet trainer.max_st", ["trainer.max_steps="]),
        ("run seed=1 trainer.loss_type=dr_", ["trainer.loss_type=dr_grpo"]),
        ("run lora.enabled=", ["lora.enabled=true", "lora.enabled=false"]),
        ("run --recipe da", ["dapo"]),
        ("warm-start --precision b", ["bfloat16"]),
        ("export v", ["verl"]),
        ("chess ver", ["verify"]),
        ("warm-start --preset ", ["tiny", "medium", "small"]),
        ("run --preset ba", ["baseline"]),
        ("serve math.gs", ["math.gsm8k"]),
        ("sweep trainer.learning_r", ["trainer.learning_rate="]),
        ("launch slurm trainer.max_st", ["trainer.max_steps="]),
        ("--install-completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_words_are_offered_by_their_place(line: str, some: list[str]) -> None:
    found = offered(line)
    assert set(some) <= set(found)
    word = line.rpartition(" ")[2]
    assert all(each.startswith(word) for each in found)


def test_every_command_and_every_setting_is_offered() -> None:
    assert {*COMMANDS} <= {*offered("")}
    sections = {key.partition(".")[0] for key in keys()}
    of_sections = {each for section in sections for each in offered(f"run {section}.")}
    assert {f"{key}=" for key in keys() if "." in key} <= of_sections


def test_runs_are_offered_newest_first_and_files_where_they_belong(here: Path) -> None:
    for name in ("run_1", "run_2", "notes"):
        if name != "notes":
            GrowingRun(here / "training_runs" / name)
    (here / "training_runs" / "notes").mkdir()
    for name in ("mine.py", "run.yaml", "model.gguf"):
        (here / name).touch()
    for command in ("watch ", "resume ", "runs show ", "rollouts ", "publish ", "eval --run ", "archive "):
        assert offered(command) == ["training_runs/run_2", "training_runs/run_1"]
    assert offered("runs compare training_runs/run_1 run_") == ["training_runs/run_2", "training_runs/run_1"]
    assert offered("watch ./") == ["./training_runs/"]
    assert offered("run --config r") == ["run.yaml"]
    assert offered("sample ./m") == ["./mine.py"]
    assert offered("run --model ./m") == ["./model.gguf"]


def complete(shell: str, line: str, word: str = "", **variables: str) -> tuple[list[str], float]:
    """What the process of a Tab prints, and its processor time in seconds."""
    environment = {**os.environ, "_GRPO_COMPLETE": shell, "_GRPO_LINE": line, "_GRPO_WORD": word, **variables}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([f"{BIN}/grpo"], env=environment, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr == ""
    return done.stdout.splitlines(), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("line", ["grpo run --task math.gsm8", "grpo run trainer.max_st", "grpo watch "])
def test_a_tab_is_answered_at_once(line: str) -> None:
    complete("bash", line)  # the words are stored
    assert min(complete("bash", line, line.rpartition(" ")[2])[1] for _ in range(5)) < MAX_CPU_S


def test_bash_gets_what_stands_behind_its_word_breaks_with_specials_escaped(here: Path) -> None:
    assert complete("bash", "grpo run lora.enabled=t", "t")[0] == ["word\ttrue"]
    assert complete("bash", "grpo run lora.enabled=", "=")[0] == ["word\ttrue", "word\tfalse"]
    assert complete("bash", "grpo run trainer.max_st", "trainer.max_st")[0] == ["part\ttrainer.max_steps="]
    (here / "a $(touch owned)").touch()
    (here / "a\x1b[31m\nb").touch()
    assert complete("bash", "grpo run --config a", "a")[0] == ["word\ta\\ \\$\\(touch\\ owned\\)"]
    assert complete("fish", "", "a", _GRPO_WORDS="grpo\nrun\n--config")[0] == ["word\ta $(touch owned)"]
    assert complete("bash", "grpo run --config 'a", "'a")[0] == ["word\ta $(touch owned)"]
    assert complete("bash", 'grpo run --config "a', '"a')[0] == ["word\ta \\$(touch owned)"]
    assert complete("bash", r"grpo run --config=a\ ", r"a\ ")[0] == ["word\ta\\ \\$\\(touch\\ owned\\)"]
    assert complete("bash", "grpo run 'unfinished \"", "x")[0] == []


def test_bash_expands_a_tilde_that_was_typed_without_quotes(here: Path) -> None:
    (here / "~mine.yaml").touch()
    assert complete("bash", "grpo run --config ~/mi", "~/mi", HOME=str(here))[0] == []
    (here / "mine.yaml").touch()
    assert complete("bash", "grpo run --config ~/mi", "~/mi", HOME=str(here))[0] == ["word\t~/mine.yaml"]
    assert complete("bash", r"grpo run --config \~m", r"\~m")[0] == ["word\t\\~mine.yaml"]


def test_other_plugins_are_noticed() -> None:
    assert "word\tchess" in complete("bash", "grpo ")[0]
    assert "word\tchess" not in complete("bash", "grpo ", GRPO_PLUGINS="math")[0]
    assert complete("bash", "grpo sample m", "m", GRPO_PLUGINS="math")[0] == ["part\tmath."]


@pytest.fixture
def home(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(here))
    return here


START = {"bash": ".bashrc", "zsh": ".zshrc"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_is_installed_once_and_says_what_was_done(shell: str, home: Path, capsys: Capture) -> None:
    start = home / START.get(shell, "unused")
    start.write_text("export A=1")
    assert entry.main(["--install-completion", shell]) == 0
    said = capsys.readouterr().out
    assert f"wrote     {home}" in said and f"next      open a new {shell}" in said
    assert entry.main(["--install-completion", shell]) == 0
    assert entry.main(["--show-completion", shell]) == 0
    shown = capsys.readouterr().out
    if shell == "fish":
        script = home / ".config" / "fish" / "completions" / "grpo-run.fish"
        assert start.read_text() == "export A=1"
    else:
        script = home / ".local" / "share" / "grpo" / f"completion.{shell}"
        assert start.read_text() == f"export A=1\nsource {script}  # completion of grpo\n"
        assert "kept " in shown
    assert shown.endswith(script.read_text())


def test_the_shell_is_detected(home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.Process.parents", lambda self: [])
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert entry.main(["--install-completion"]) == 0
    assert "grpo.fish" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert entry.main(["--install-completion"]) == 2
    assert "error: the shell cannot be detected. Name it: grpo --install-completion bash" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--install-completion", "bahs"), "no such shell. Did you mean 'bash'? Allowed: bash, zsh, fish."),
        (("--show-completion", "tcsh"), "--show-completion 'tcsh': no such shell."),
    ],
)
def test_another_shell_is_refused(words: tuple[str, ...], said: str, home: Path, capsys: Capture) -> None:
    assert entry.main(list(words)) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(home.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(home: Path, capsys: Capture) -> None:
    (home / ".local").touch()
    assert entry.main(["--install-completion", "bash"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_start_file_that_cannot_be_written_does_without(home: Path, capsys: Capture) -> None:
    (home / ".zshrc").symlink_to(home / "store" / "zshrc")  # as those who manage their start files have it
    assert entry.main(["--install-completion", "zsh"]) == 2
    script = home / ".local" / "share" / "grpo" / "completion.zsh"
    said = " ".join(capsys.readouterr().err.split())
    assert script.exists()
    assert f"cannot be written: No such file or directory. Add this line to it yourself: source {script} #" in said


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "--noprofile --rcfile .bashrc"), ("zsh", "--no-globalrcs"), ("fish", "")],
)
def test_a_real_shell_completes(shell: str, words: str, home: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert entry.main(["--install-completion", shell]) == 0
    GrowingRun(home / "training_runs" / "run_2026")
    (home / "a b.yaml").touch()
    (home / "bin").symlink_to(BIN)
    if shell != "fish":
        with (home / START[shell]).open("a") as file:
            file.write("PS1='ready> '\n")
    path = f"{BIN}:{os.environ['PATH']}"
    terminal = Terminal(home, f"env HOME={home} PATH={path} LANG=C.UTF-8 {shell} {words}", columns=160)
    try:
        terminal.until("ready>" if shell != "fish" else "Welcome to fish")
        for typed, completed in (
            ("grpo warm-", "grpo warm-start"),
            ("grpo run trainer.max_st", "grpo run trainer.max_steps="),
            ("grpo run --task math.gsm", "grpo run --task math.gsm8k"),
            ("grpo watch train", "grpo watch training_runs/run_2026"),
            ("grpo-run lora.enabled=t", "grpo-run lora.enabled=true"),
            ("grpo sample 'math.gsm", "grpo sample 'math.gsm8k'"),
            ("grpo run --config 'a", "grpo run --config 'a b.yaml'"),
            ("grpo run --config a\\ ", "grpo run --config a\\ b.yaml"),
            ("grpo run --config ~/a", "grpo run --config ~/a\\ b.yaml"),
            ("~/bin/grpo resu", "~/bin/grpo resume"),
        ):
            terminal.press(typed, "Tab")
            terminal.until(completed)
            terminal.press("C-u")
        terminal.press("grpo run trainer.max_st", "Tab", "7")
        terminal.until("trainer.max_steps=7")  # no space in between
    finally:
        terminal.close()
