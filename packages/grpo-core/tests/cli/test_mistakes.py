"""A mistake is reported before torch is imported, which takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest

from grpo_core.tracking.presence import working_in

TASK = """
from grpo_core import Row, Task, reward


@reward()
def right(answer, row):
    return float(answer == row.gold)


def load(config):
    return [Row(id=str(i), gold=None if config.path == "nogold" else "1") for i in range(8)]


letters = Task("letters", load, lambda row: row.id, lambda text, row: text, (right,), row=Row)
"""

LETTERS = ("--task", "./t.py:letters")
SWEEP = ("task=./t.py:letters", "model=tiny", "trainer.learning_rate=1e-5,1e-4")
NEW = ("--preset", "tiny", "--out", "out")

MISTAKES: Mapping[str, tuple[Sequence[str], str]] = {
    "run: task": (("run", "--task", "nothing.here"), "no task 'nothing.here'"),
    "run: option of a task": (("run", "--task", "./t.py:letters?sise=3"), "Did you mean 'size'?"),
    "run: model": (("run", *LETTERS, "--model", "tny"), "Did you mean 'tiny'?"),
    "run: model of the hub": (("run", *LETTERS, "--model", "nobody/nothing"), "not in the hub's cache"),
    "run: adapter": (("run", *LETTERS, "--model", "tiny", "--adapter", "./a"), "--adapter ./a: a PEFT adapter"),
    "run: setting": (("run", *LETTERS, "trainer.learnin_rate=1"), "Did you mean 'trainer.learning_rate'?"),
    "run: argument of a loss": (("run", *LETTERS, "--model", "tiny", "trainer.loss_args.foo=1"), "no argument 'foo'"),
    "run: rows": (("run", *LETTERS, "--model", "tiny", "trainer.train_size=9"), "has 8 training rows"),
    "run: held-out task": (("run", *LETTERS, "--model", "tiny", "--eval-task", "no.no"), "no task 'no.no'"),
    "run: tracker": (("run", *LETTERS, "--model", "tiny", "--track", "wand"), "Did you mean 'wandb'?"),
    "eval: task": (("eval", "--task", "nothing.here", "--model", "tiny"), "no task 'nothing.here'"),
    "eval: model of the hub": (("eval", *LETTERS, "--model", "nobody/nothing"), "not in the hub's cache"),
    "eval: control": (("eval", *LETTERS, "--model", "tiny", "--base", "./none"), "there is no such folder"),
    "eval: split": (("eval", *LETTERS, "--model", "tiny", "--split", "tests"), "must be train, validation or test"),
    "eval: adapter": (("eval", *LETTERS, "--model", "tiny", "--adapter", "a"), "--adapter a: there is no such adapter"),
    "eval: folder of results": (("eval", *LETTERS, "--model", "tiny", "--eval-dir", "t.py"), "nothing can be made in"),
    "publish: license": (("publish", "finished", "o", "--license", "a: ["), "--license 'a: ['"),
    "publish: dataset": (("publish", "finished", "o", "--dataset", "a b"), "--dataset 'a b' is no hub id"),
    "publish: evaluations": (("publish", "finished", "o", "--eval-dir", "t.py"), "--eval-dir t.py: it is a file"),
    "serve: opponent": (("serve", "./t.py:letters", "--opponent-url", "x"), "write http://host:port/v1#model"),
    "serve: opponent's address": (("serve", "./t.py:letters", "--opponent-url", "http://"), "is no address"),
    "serve: token": (("serve", "./t.py:letters", "--token-file", "no"), "--token-file no: No such file or directory."),
    "sweep: folder": (("sweep", *SWEEP, "--output-dir", "t.py"), "--output-dir t.py: nothing can be made in"),
    "sweep: baseline": (("sweep", *SWEEP, "--baseline", "3"), "are numbered from 1 to 2"),
    "archive: a file": (("archive", "finished", "file:t.py"), "file:t.py: it is a file"),
    "archive: no folder": (("archive", "--list", "file:nowhere"), "file:nowhere: there is no such folder"),
    "launch: memory": (("launch", "slurm", "--mem", "nan", "--dry-run"), "--mem 'nan': give a number"),
    "warm-start: no start": (("warm-start", *LETTERS, "--out", "out"), "--preset tiny for a new model"),
    "warm-start: preset": (("warm-start", *LETTERS, "--preset", "tny", "--out", "out"), "Did you mean 'tiny'?"),
    "warm-start: task": (("warm-start", "--task", "nothing.here", *NEW), "no task 'nothing.here'"),
    "warm-start: no gold": (("warm-start", "--task", "./t.py:letters?path=nogold", *NEW), "has no gold"),
    "warm-start: tokenizer": (("warm-start", *LETTERS, *NEW, "--tokenizer", "tny"), "Did you mean 'tiny'?"),
    "warm-start: vocabulary": (("warm-start", *LETTERS, *NEW, "--vocab-size", "3"), "the least is 258"),
    "warm-start: folder": (("warm-start", *LETTERS, "--preset", "tiny", "--out", "."), "the folder is not empty"),
    "resume: no run": (("resume", "nowhere"), "no run nowhere"),
    "resume: finished": (("resume", "finished"), "nothing is left to do"),
    "resume: checkpoint": (("resume", "finished", "--from-step", "7"), "has no step_7"),
    "resume: changed setting": (("resume", "changed"), "seed is 5 now, and the checkpoint was trained with 0"),
    "resume: steps": (("resume", "finished", "--stop-after", "0"), "'--stop-after'"),
    "resume: processes": (
        ("resume", "finished", "--additional-steps", "1", "--allow", "task", "--nproc", "5"),
        "5 ranks cannot share the 32 prompts of an optimizer step",
    ),
    "resume: in use": (("resume", "used", "--additional-steps", "1"), "used is in use: process"),
    "resume: changed task": (("resume", "finished", "--additional-steps", "1"), "changed since the checkpoint"),
    "publish: no run": (("publish", "nowhere", "./x"), "no run nowhere"),
    "rollouts: no run": (("rollouts", "nowhere"), "no run nowhere"),
    "sample: task": (("sample", "nothing.here"), "no task 'nothing.here'"),
    "tasks show: task": (("tasks", "show", "nothing.here"), "no task 'nothing.here'"),
    "fetch: task": (("fetch", "nothing.here"), "no task 'nothing.here'"),
    "no command": (("trian",), "no command 'trian'"),
}

CODE = """
import contextlib, io, json, sys
from grpo_core.cli.main import main
reports = {}
for name, words in json.load(sys.stdin).items():
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        code = main(words)
    reports[name] = [code, error.getvalue(), "torch" in sys.modules]
json.dump(reports, sys.stdout)
"""


def stored_run(folder: Path, *, seed: int) -> None:
    """A finished run of two steps, as far as its folder is read without its weights."""
    from grpo_core.checkpoints import CheckpointStore
    from grpo_core.config import RunConfig, resolve, to_yaml

    config = resolve(RunConfig(task="./t.py:letters", model="tiny", seed=0, trainer={"max_steps": 2})).config
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(config.model_copy(update={"seed": seed})))
    with CheckpointStore(folder).writing("final") as checkpoint:
        state = {"step": 2, "planned_steps": 2, "seconds": 1.0, "best": {"waited": 0}}
        (checkpoint / "trainer_state.json").write_bytes(orjson.dumps(state))
        identities = {"./t.py:letters": "0" * 16}
        info = {"training_config": config.model_dump(mode="json"), "identities": identities, "versions": {}}
        (checkpoint / "training_info.json").write_bytes(orjson.dumps(info))
    events = [{"kind": "end", "step": 2, "interrupted": False}]
    (folder / "logs" / "events.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events))
    (folder / "summary.json").write_bytes(orjson.dumps({"steps": 2, "tasks": {}}))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, bool]]:
    """Exit code, stderr and whether torch was imported, of every mistake; one process makes all of them."""
    here = tmp_path_factory.mktemp("mistakes")
    (here / "t.py").write_text(TASK)
    before = Path.cwd()
    os.chdir(here)
    try:
        stored_run(here / "finished", seed=0)
        stored_run(here / "changed", seed=5)
        stored_run(here / "used", seed=0)
    finally:
        os.chdir(before)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPO_")}
    with working_in(here / "used"):
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            input=json.dumps({name: words for name, (words, _) in MISTAKES.items()}),
            capture_output=True,
            text=True,
            cwd=here,
            env={**environment, "HF_HUB_OFFLINE": "1"},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return {name: tuple(report) for name, report in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_before_torch_is_imported(reports: dict[str, tuple[int, str, bool]], name: str) -> None:
    code, error, has_torch = reports[name]
    assert (code, has_torch) == (2, False), error
    assert MISTAKES[name][1] in error
    assert len(error.splitlines()) == 1


NO_TORCH = """
import sys
sys.modules["torch"] = None
from grpo_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "words", [("run", "--task", "core.qa?path=rows.jsonl", "--model", "tiny"), ("eval", "--model", "tiny")]
)
def test_a_missing_torch_says_how_to_install_it(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"question": "{i}?", "answer": "{i}"}}\n' for i in range(64)))
    task = () if "--task" in words else ("--task", "core.qa?path=rows.jsonl")
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *words, *task], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert line.startswith(f"error: torch is not installed in {sys.prefix}") and "uv pip install 'torch>=" in line
    assert "bug" not in done.stderr and "Traceback" not in done.stderr
