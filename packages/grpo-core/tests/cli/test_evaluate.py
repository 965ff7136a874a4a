from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evaluation_runs import TASKS, FakeModels, make_run
from local_endpoint import completion, serving

import grpo_core.evaluation
from grpo_core import evaluate
from grpo_core.cli import evaluate as command
from grpo_core.cli import main as entry
from grpo_core.display.libraries import BAR_SWITCHES
from grpo_core.errors import InfrastructureError, UserError
from grpo_core.evaluation.evaluate import Candidate
from grpo_core.evaluation.evaluate import evaluate_as as real_evaluate
from grpo_core.evaluation.runs import RunEvaluation

RESULT = {
    **{"solved_rate": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 10, "mean_reward": 0.5, "valid_rate": 1.0},
    **{"abstained": 0, "split": "test", "temperature": 0.0, "mean_length": 4.25, "truncated_frac": 0.0},
}
TIMING = {"seconds": 2.0, "samples_per_s": 5.0, "tokens_per_s": 21.0, "peak_memory_mib": 300.0}


class Fake:
    """Stands where `evaluate_as` is: remembers what it was asked."""

    def __init__(self) -> None:
        self.call: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.result: dict[str, Any] = dict(RESULT)

    def __call__(
        self, task: str, candidate: Candidate, given: Any, defaults: Any, options: Any, **output: Any
    ) -> dict[str, Any]:
        named = {"task": task, "given": given, "defaults": defaults, "options": options}
        self.call = {**named, "candidate": candidate, **output}
        self.asked = {**named, **asdict(candidate), **output}
        print("a library prints")
        output["callbacks"][0].on_progress("evaluating", 1, 2)
        return {"tasks.letters": self.result}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GRPO_") and name != "GRPO_CACHE_DIR"]:
        monkeypatch.delenv(name)
    for name in BAR_SWITCHES:  # set, and so restored: the commands set them where they are not
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def fake(home: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(
        grpo_core.evaluation, "evaluate", SimpleNamespace(evaluate_as=made, Candidate=Candidate), raising=False
    )
    return made


LETTERS = ("--task", "./tasks.py:letters")


def test_what_nobody_says_is_left_to_the_task(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_evaluation_without_a_score_has_its_exit_code(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.result |= {"n": 0, "abstained": 4}
    assert entry.main(["eval", *LETTERS, "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks.letters"]["abstained"] == 4
    assert "task 'tasks.letters': none of 4 completions could be scored" in captured.err


def test_a_run_of_which_nothing_was_scored_has_the_same_exit_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "run").mkdir()
    (home / "run" / "config.yaml").write_text("seed: 1\n")
    lost = {**RESULT, "n": 0, "abstained": 4, "solved_rate": None}
    results = {"t": {"base": RESULT, "step_1": lost}}
    monkeypatch.setattr(command, "run_run_evaluation", lambda *_: RunEvaluation(results, {}, [], {}))
    assert entry.main(["eval", "--run", "run"]) == 3
    assert "task 't': none of 4 completions could be scored" in capsys.readouterr().err
    results["t"]["step_1"] = RESULT
    assert entry.main(["eval", "--run", "run"]) == 0


def test_everything_is_passed_on(fake: Fake) -> None:
    options = (
        "--model ./m --adapter ./a --base tiny --size 20 --subset-frac 0.5 --split validation --n 4 "
        "--temperature 0.5 --top-p 0.9 --batch-size 3 --seed 2 --eval-dir out --overwrite --quiet "
        "trainer.max_completion_length=32 eval.surprisal=false"
    )
    assert _with_a_model(["eval", *LETTERS, *options.split()]) == 0
    wanted = {"model": "./m", "adapter": "./a", "base": "tiny", "overwrite": True}
    wanted |= {"output_dir": str(Path("out").absolute())}
    assert {name: fake.asked[name] for name in wanted} == wanted
    assert fake.asked["given"] == {"size": 20, "split": "validation", "n": 4, "temperature": 0.5, "top_p": 0.9}
    defaults = fake.asked["defaults"]
    assert (defaults.subset_frac, defaults.batch_size, defaults.seed, defaults.surprisal) == (0.5, 3, 2, False)
    assert defaults.max_completion_length == 32, "the trainer's, below what a task wishes"


def _with_a_model(arguments: list[str]) -> int:
    Path("m").mkdir()
    Path("m/config.json").write_text("{}")
    Path("a").mkdir()
    Path("a/adapter_config.json").write_text("{}")
    return entry.main(arguments)


def test_a_home_folder_is_expanded(fake: Fake, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert entry.main(["eval", *LETTERS, "--eval-dir=~/evals"]) == 0
    assert fake.asked["output_dir"] == str(home / "evals")


def test_the_length_of_an_evaluation_stands_above_a_tasks_wish(fake: Fake) -> None:
    assert entry.main(["eval", *LETTERS, "eval.max_completion_length=16"]) == 0
    assert fake.asked["given"] == {"max_completion_length": 16}


def test_the_fake_has_the_signature_of_the_real_one(fake: Fake) -> None:
    # A fake proves nothing about a function that has changed since.
    assert entry.main(["eval", *LETTERS]) == 0
    inspect.signature(real_evaluate).bind(**fake.call)


def test_json_is_alone_on_stdout(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.result["timing"] = TIMING
    assert entry.main(["eval", *LETTERS, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"tasks.letters": fake.result}
    assert "speed     5.0 completions/s   21 tok/s   peak memory 300 MiB" in captured.err


def test_the_table_shows_pass_at_k_and_the_control(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.result |= {
        **{"pass@1": 0.5, "pass@1_ci_low": 0.4, "pass@2": 0.7, "pass@4": 0.8, "completions_per_row": 4},
        **{"pass@1_n": RESULT["n"], "pass@2_n": RESULT["n"], "pass@4_n": 3},
        **{"temperature": 0.7, "delta": 0.25, "delta_ci_low": 0.1, "delta_ci_high": 0.3, "base": RESULT},
    }
    assert entry.main(["eval", *LETTERS, "--n", "4", "--base", "tiny"]) == 0
    header, base, row = capsys.readouterr().out.splitlines()
    columns = "task solved 95% interval over base 95% interval pass@2 pass@4 mean reward valid length truncated rows"
    assert " ".join(header.split()) == f"{columns} split"
    assert base.startswith("tasks.letters (base)   0.50     [0.40, 0.60]   -           -")
    assert "+0.25       [0.10, 0.30]   0.70     0.80 (3 rows)" in row
    assert row.endswith("test, 4 completions a row at temperature 0.7")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--run nothing", "no run nothing: there is no such folder"),
        ("--run . --model tiny", "--model: --run takes the models of the run."),
        ("--run . --endpoint http://x", "--endpoint: --run takes the models of the run."),
        ("--steps 1", "--steps: without --run there are no checkpoints."),
        ("--eval-task math.echo", "--eval-task: without --run there are no checkpoints."),
        ("--timeout-s 5", "--timeout-s: without --run there are no checkpoints."),
        ("--concurrency 3", "--concurrency: it is for --endpoint."),
        ("--overwrite", "--overwrite: nothing is written without --eval-dir."),
        ("--endpoint http://localhost:1/v1", "--endpoint http://localhost:1/v1 needs --model NAME"),
        ("--task math.arithmetc", "no task 'math.arithmetc'. Did you mean 'math.arithmetic'?"),
        ("--n 0", "eval.n=0: must be a whole number, 1 or more and at most 10^9."),
        ("--subset-frac 2", "eval.subset_frac=2: must be a number above 0 and at most 1, or null."),
        ("--model tny", "no model 'tny'. Did you mean 'tiny'?"),
    ],
)
def test_mistakes_are_one_line(home: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    words = arguments.split()
    assert entry.main(["eval", *(() if "--task" in words or "--run" in words else LETTERS), *words]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("working")]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith(f"error: {message}"), lines[0]
    assert captured.out == ""


# --- a run


@pytest.fixture
def run(home: Path) -> Path:
    return make_run(home)


@pytest.fixture
def models(run: Path, monkeypatch: pytest.MonkeyPatch) -> FakeModels:
    from grpo_core.evaluation import runs

    models = FakeModels()
    monkeypatch.setattr(runs, "evaluate_model", models)
    return models


def test_a_run(run: Path, models: FakeModels, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["eval", "--run", str(run)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split()[0] for line in lines] == ["checkpoint", "base", "2", "10", "final"]
    assert "+0.00" in lines[2]
    assert f"saved     eval_runs/{run.name}_tasks.letters" in captured.err
    assert "10        tasks.letters   solved 0.50 [0.22, 0.78]   +0.00 over base" in captured.err
    (settings,) = models.jobs[0]["settings"].values()
    assert (settings["n"], settings["temperature"], settings["batch_size"], settings["size"]) == (1, 0.0, None, 8)


def test_several_completions_of_a_run_are_sampled(
    run: Path, models: FakeModels, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["eval", "--run", str(run), "--steps", "2", "--no-base", "--n", "4"]) == 0
    assert models.jobs[0]["settings"]["tasks.letters"]["temperature"] == 0.7
    assert entry.main(["eval", "--run", str(run), "--steps", "2", "--n", "4", "--temperature", "0"]) == 2
    assert "eval.n=4 at temperature 0" in capsys.readouterr().err


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
    tasks = [word for name in ("letters", "again") for word in ("--eval-task", f"{home}/tasks.py:{name}")]
    assert entry.main(["eval", "--run", str(run), "--steps", "2", "--no-base", *tasks]) == 0
    assert list(models.jobs[0]["settings"]) == ["tasks.letters", "tasks.again"]


def test_a_checkpoint_that_fails_is_exit_code_1_and_the_others_are_evaluated(
    run: Path, models: FakeModels, capsys: pytest.CaptureFixture[str]
) -> None:
    models.errors = {"step_2": UserError("the weights are damaged")}
    assert entry.main(["eval", "--run", str(run), "--steps", "2,10", "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["failures"] == {"step_2": "the weights are damaged"}
    assert list(found["tasks"]["tasks.letters"]) == ["base", "step_10"]
    assert "warning   step_2 failed: the weights are damaged" in captured.err


def test_a_run_takes_no_other_configuration(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["eval", "--run", str(run), "--config", "x.yaml"]) == 2
    assert entry.main(["eval", "--run", str(run), "--base", "tiny", "--no-base"]) == 2
    assert "--base and --no-base contradict each other" in capsys.readouterr().err


# --- an endpoint


def test_an_endpoint(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serving(lambda request: completion(request["prompt"][0])) as server:
        arguments = ["eval", *LETTERS, "--endpoint", server.url, "--model", "any name", "--eval-dir", "out"]
        assert entry.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split()[1] == "1.00"
    assert {request["model"] for request in server.seen} == {"any name"}
    written = "".join(path.read_text(errors="replace") for path in home.rglob("out/**/*") if path.is_file())
    assert "sk-very-secret" not in captured.out + captured.err + written


def test_an_endpoint_that_answers_nonsense_is_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda request: (400, b"<html>\x1b[31mwhat?</html>")) as server:
        code = entry.main(["eval", *LETTERS, "--endpoint", server.url, "--model", "m"])
    assert code == InfrastructureError.exit_code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("working")]
    assert line.startswith("error: task tasks.letters: none of 8 completions came:")
    assert "HTTP 400" in line
    assert "\x1b" not in line


SERVER = """
import sys
sys.path.append(sys.argv.pop(1))  # behind what is installed, which keeps its versions
from transformers.cli.transformers import main
main()
"""


@pytest.mark.slow
@pytest.mark.network
def test_transformers_own_server_gives_the_same_numbers(home: Path) -> None:
    """`transformers serve` needs three packages that nothing else here does; they go to a folder of their own."""
    uv = shutil.which("uv")
    install = [uv, "pip", "install"] if uv else [sys.executable, "-m", "pip", "install"]
    python = ["--python", sys.executable] if uv else []
    packages = ["--target", str(home / "extra"), "fastapi", "uvicorn", "openai"]
    if subprocess.run([*install, "--quiet", *python, *packages], check=False).returncode:
        pytest.skip("fastapi, uvicorn and openai could not be installed")
    from grpo_core.plugins.host import default_host

    model = default_host().models()["tiny"].path
    port = _free_port()
    (home / "server.py").write_text(SERVER)
    serve = [sys.executable, "server.py", str(home / "extra"), "serve", str(model), "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with (home / "serve.log").open("w") as log:
        server = subprocess.Popen(
            [*serve, "--device", "cpu", "--dtype", "float32"], stdout=log, stderr=log, env=environment
        )
    try:
        _wait_for(port, server, home / "serve.log")
        settings: dict[str, Any] = {"size": 24, "max_completion_length": 16}
        (own,) = evaluate("math.arithmetic", "tiny", **settings).values()
        url = f"http://localhost:{port}/v1"
        (served,) = evaluate("math.arithmetic", str(model), endpoint=url, concurrency=2, **settings).values()
    finally:
        server.terminate()
        server.wait(timeout=30)
    assert served["abstained"] == 0
    for name in ("solved_rate", "ci_low", "ci_high", "mean_reward", "valid_rate", "n"):
        assert served[name] == own[name], name


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    import httpx2

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx2.get(f"http://localhost:{port}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")


def test_help_names_every_mode() -> None:
    text = command.evaluate.get_help(command.evaluate.make_context("grpo eval", [], resilient_parsing=True))
    for option in ("--run", "--steps", "--endpoint", "--base", "--n ", "--subset-frac", "--overwrite", "--timeout-s"):
        assert option in text
