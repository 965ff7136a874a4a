import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evaluation_runs import TASKS, FakeModels, make_run
from local_endpoint import completion, serving

import grpo_core.evaluation
from grpo_core.cli import evaluate as command
from grpo_core.evaluation import runs
from grpo_core.evaluation.one_model import Candidate
from grpo_core.evaluation.one_model import evaluate_as as real_evaluate
from grpo_core.evaluation.runs import RunEvaluation
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import UserError

RESULT = {
    **{"solved_rate": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 10, "mean_reward": 0.5, "valid_rate": 1.0},
    **{"abstained": 0, "split": "test", "temperature": 0.0, "mean_length": 4.25, "truncated_frac": 0.0},
}
TIMING = {"seconds": 2.0, "samples_per_s": 5.0, "tokens_per_s": 21.0, "peak_memory_mib": 300.0}


class Fake:
    """Stands where `evaluate_as` is: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.result: dict[str, Any] = dict(RESULT)

    def __call__(
        self, task: str, candidate: Candidate, given: Any, defaults: Any, options: Any, **output: Any
    ) -> dict[str, Any]:
        named = {"task": task, "given": given, "defaults": defaults, "options": options}
        # A fake proves nothing about a function that has changed since.
        inspect.signature(real_evaluate).bind(**named, candidate=candidate, **output)
        self.asked = {**named, **asdict(candidate), **output}
        print("a library prints")
        output["callbacks"][0].on_progress("evaluating", 1, 2)
        return {"tasks.letters": self.result}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def fake(home: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(
        grpo_core.evaluation, "one_model", SimpleNamespace(evaluate_as=made, Candidate=Candidate), raising=False
    )
    return made


PROGRAMS = Path(__file__).with_name("programs")
LETTERS = ("--task", "./tasks.py:letters")

Capture = pytest.CaptureFixture[str]
Grpo = Callable[..., str]


def test_what_nobody_says_is_left_to_the_task(fake: Fake, capsys: Capture) -> None:
    assert entry.main(["eval", *LETTERS]) == 0
    assert fake.asked["given"] == {}
    defaults = fake.asked["defaults"]
    assert (defaults.size, defaults.n, defaults.temperature, defaults.max_completion_length) == (512, 1, 0.0, 64)
    assert (fake.asked["task"], fake.asked["model"]) == ("./tasks.py:letters", "tiny")
    assert (fake.asked["options"].device, fake.asked["options"].engine.max_batch_tokens) == ("auto", 65536)
    captured = capsys.readouterr()
    assert "a library prints" in captured.err
    header, row = captured.out.splitlines()
    assert header.split()[:4] == ["task", "solved", "95%", "interval"]
    assert row.split()[:4] == ["tasks.letters", "0.50", "[0.40,", "0.60]"]
    assert entry.main(["eval", *LETTERS, "eval.max_completion_length=16"]) == 0
    assert fake.asked["given"] == {"max_completion_length": 16}, "what somebody says is above the task's wish"


def test_an_evaluation_without_a_score_has_its_exit_code(fake: Fake, capsys: Capture) -> None:
    fake.result |= {"n": 0, "abstained": 4}
    assert entry.main(["eval", *LETTERS, "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks.letters"]["abstained"] == 4
    assert "task 'tasks.letters': none of 4 completions could be scored" in captured.err


def test_a_run_of_which_nothing_was_scored_has_the_same_exit_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, grpo: Grpo
) -> None:
    (home / "run").mkdir()
    (home / "run" / "config.yaml").write_text("seed: 1\n")
    lost = {**RESULT, "n": 0, "abstained": 4, "solved_rate": None}
    results = {"t": {"base": RESULT, "step_1": lost}}
    monkeypatch.setattr(command, "run_run_evaluation", lambda *_: RunEvaluation(results, {}, [], {}))
    assert "task 't': none of 4 completions could be scored" in grpo("eval", "--run", "run", code=3)
    results["t"]["step_1"] = RESULT
    grpo("eval", "--run", "run")


def test_everything_is_passed_on(fake: Fake, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    for name, file in (("m", "config.json"), ("a", "adapter_config.json")):
        (home / name).mkdir()
        (home / name / file).write_text("{}")
    options = (
        "--model ./m --adapter ./a --base tiny --size 20 --subset-frac 0.5 --split validation --n 4 "
        "--temperature 0.5 --top-p 0.9 --batch-size 3 --seed 2 --eval-dir=~/evals --overwrite --quiet "
        "trainer.max_completion_length=32 eval.surprisal=false"
    )
    assert entry.main(["eval", *LETTERS, *options.split()]) == 0
    wanted = {"model": "./m", "adapter": "./a", "base": "tiny", "overwrite": True, "output_dir": str(home / "evals")}
    assert {name: fake.asked[name] for name in wanted} == wanted
    assert fake.asked["given"] == {"size": 20, "split": "validation", "n": 4, "temperature": 0.5, "top_p": 0.9}
    defaults = fake.asked["defaults"]
    assert (defaults.subset_frac, defaults.batch_size, defaults.seed, defaults.surprisal) == (0.5, 3, 2, False)
    assert defaults.max_completion_length == 32, "the trainer's, below what a task wishes"


def test_json_is_alone_on_stdout(fake: Fake, capsys: Capture) -> None:
    fake.result["timing"] = TIMING
    assert entry.main(["eval", *LETTERS, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"tasks.letters": fake.result}
    assert "speed     5.0 completions/s   21 tok/s   peak memory 300 MiB" in captured.err


def test_the_table_shows_pass_at_k_and_the_control(fake: Fake, grpo: Grpo) -> None:
    fake.result |= {
        **{"pass@1": 0.5, "pass@1_ci_low": 0.4, "pass@2": 0.7, "pass@4": 0.8, "completions_per_row": 4},
        **{"pass@1_n": RESULT["n"], "pass@2_n": RESULT["n"], "pass@4_n": 3},
        **{"temperature": 0.7, "delta": 0.25, "delta_ci_low": 0.1, "delta_ci_high": 0.3, "base": RESULT},
    }
    header, base, row = grpo("eval", *LETTERS, "--n", "4", "--base", "tiny").splitlines()
    columns = "task solved 95% interval over base 95% interval pass@2 pass@4 mean reward valid length truncated rows"
    assert " ".join(header.split()) == f"{columns} split"
    assert base.startswith("tasks.letters (base)   0.50     [0.40, 0.60]   -           -")
    assert "+0.25       [0.10, 0.30]   0.70     0.80 (3 rows)" in row
    assert row.endswith("test, 4 completions a row at temperature 0.7")


# --- a run


@pytest.fixture
def run(home: Path) -> Path:
    return make_run(home)


@pytest.fixture
def models(run: Path, monkeypatch: pytest.MonkeyPatch) -> FakeModels:
    models = FakeModels()
    monkeypatch.setattr(runs, "evaluate_model", models)
    return models


def test_a_run(run: Path, models: FakeModels, capsys: Capture) -> None:
    assert entry.main(["eval", "--run", str(run)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split()[0] for line in lines] == ["checkpoint", "base", "2", "10", "final"]
    assert "+0.00" in lines[2]
    assert f"saved     eval_runs/{run.name}_tasks.letters" in captured.err
    assert "10        tasks.letters   solved 0.50 [0.22, 0.78]   +0.00 over base" in captured.err
    (settings,) = models.jobs[0]["settings"].values()
    assert (settings["n"], settings["temperature"], settings["batch_size"], settings["size"]) == (1, 0.0, None, 8)


def test_what_is_said_now_stands_above_the_runs_own(run: Path, home: Path, models: FakeModels) -> None:
    options = "--n 4 --temperature 1.0 --batch-size 5 --subset-frac 0.5 --no-base --eval-dir out eval.surprisal=false"
    assert entry.main(["eval", "--run", str(run), "--steps", "2", *options.split()]) == 0
    (job,) = models.jobs
    assert job["settings"]["tasks.letters"] == {
        "size": 8, "split": "test", "subset_frac": 0.5, "n": 4, "temperature": 1.0, "top_p": 1.0,
        "max_completion_length": 8, "seed": 5, "batch_size": 5, "surprisal": False,
    }  # fmt: skip
    assert (home / "out" / f"{run.name}_tasks.letters" / "step_2").is_dir()


def test_other_tasks(run: Path, home: Path, models: FakeModels) -> None:
    tasks = f"--eval-task {home}/tasks.py:letters --eval-task {home}/tasks.py:again"
    assert entry.main(["eval", "--run", str(run), "--steps", "2", "--no-base", "--n", "4", *tasks.split()]) == 0
    settings = models.jobs[0]["settings"]
    assert list(settings) == ["tasks.letters", "tasks.again"]
    assert settings["tasks.again"]["temperature"] == 0.7, "several completions are sampled"


def test_a_checkpoint_that_fails_is_exit_code_1_and_the_others_are_evaluated(
    run: Path, models: FakeModels, capsys: Capture
) -> None:
    models.errors = {"step_2": UserError("the weights are damaged")}
    assert entry.main(["eval", "--run", str(run), "--steps", "2,10", "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["failures"] == {"step_2": "the weights are damaged"}
    assert list(found["tasks"]["tasks.letters"]) == ["base", "step_10"]
    assert "warning   step_2 failed: the weights are damaged" in captured.err


# --- an endpoint


def test_an_endpoint_needs_neither_torch_nor_transformers_and_its_key_is_shown_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serving(lambda request: completion(request["prompt"][0])) as server:
        words = ["eval", *LETTERS, "--endpoint", server.url, "--model", "any name", "--eval-dir", "out"]
        said = subprocess.run(
            [sys.executable, PROGRAMS / "report.py"],
            input=json.dumps({"eval": words}), cwd=home, capture_output=True, text=True, check=True,
        )  # fmt: skip
    report = json.loads(said.stdout)["eval"]
    assert report["code"] == 0, report["stderr"]
    assert not report["torch"] and not report["transformers"]
    assert report["stdout"].splitlines()[1].split()[1] == "1.00"
    assert {request["model"] for request in server.seen} == {"any name"}
    written = "".join(path.read_text(errors="replace") for path in home.rglob("out/**/*") if path.is_file())
    assert written and "sk-very-secret" not in said.stdout + written
