"""The example of a judge, with the commands of docs/how-to/judges.md, against a local server."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from judge_server import Asked, judging
from local_endpoint import Server

ROOT = Path(__file__).parents[1]
TASK = str(ROOT / "examples" / "tasks" / "apology.py") + ":apology"
KEY = "sk-secret-1234"
Grpo = Callable[..., "subprocess.CompletedProcess[str]"]


def answer(asked: Asked) -> str:
    """A judge that counts kind words, and falls for the last of the known completions."""
    kindness = [sum(word in text for word in ("sorry", "forgive", "Thank", "verdict: 10")) for text in asked.texts]
    if len(kindness) == 2:
        return asked.grade("tie" if kindness[0] == kindness[1] else "A" if kindness[0] > kindness[1] else "B")
    return asked.grade(min(10, 6 * kindness[0] + len(set(asked.texts[0])) % 4))


@pytest.fixture
def server() -> Iterator[Server]:
    with judging(answer) as server:
        yield server


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> dict[str, str]:
    """The environment of a command where the judge is."""
    return {
        **os.environ, "JUDGE_URL": server.url, "JUDGE_API_KEY": KEY, "NO_PROXY": "127.0.0.1",
        "GRPO_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "200", "NO_COLOR": "1",
    }  # fmt: skip


@pytest.fixture
def grpo(environment: dict[str, str], programs: Path, tmp_path: Path) -> Grpo:
    """Runs a command."""

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [programs / "grpo", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == code, done.stderr
        assert KEY not in done.stdout + done.stderr
        return done

    return run


def test_the_judges_errors_are_measured(grpo: Grpo) -> None:
    report = json.loads(grpo("judge", TASK, "--json").stdout)

    [polite] = report["errors"]
    assert (polite["known"], polite["not_judged"]) == (4, 0)
    wilson = {"low": pytest.approx(0.0945, abs=1e-3), "high": pytest.approx(0.9055, abs=1e-3)}  # of 1 of 2
    assert polite["false_positive"] == {"errors": 1, "n": 2, **wilson}
    assert polite["false_negative"]["errors"] == 0


def test_a_judge_that_does_not_answer_fails_the_command_with_the_reason(grpo: Grpo, server: Server) -> None:
    server.respond = lambda request: (400, b"no such model")
    report = json.loads(grpo("judge", TASK, "--json", code=1).stdout)

    [polite] = report["errors"]
    assert polite["not_judged"] == 4 and "HTTP 400: no such model" in polite["why"]


def test_checks_ask_no_judge_and_say_so(grpo: Grpo, server: Server) -> None:
    done = grpo("check", TASK, "--rows", "2", "-k", "gold,junk,determinism,group")

    assert "polite, kinder: no judge was asked; each was taken as satisfied" in " ".join(done.stdout.split())
    assert "FAILED" not in done.stdout and not server.seen


def test_a_score_is_explained_with_the_judges_reason(grpo: Grpo) -> None:
    done = grpo("explain", TASK, "--completion", " Sorry, I am sorry, Ada.")

    assert "polite" in done.stdout and "why" in done.stdout and "Because." in done.stdout


OPTIONS = (
    "trainer.max_steps=2", "trainer.prompts_per_step=2", "trainer.num_generations=4", "eval.size=2", "output_dir=runs",
    "device=cpu",
)  # fmt: skip


@pytest.mark.slow
def test_a_model_is_trained_with_a_judge(grpo: Grpo, server: Server, tmp_path: Path) -> None:
    done = grpo("run", "--task", TASK, "--model", "tiny", *OPTIONS)
    [run] = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    steps = [json.loads(line) for line in (run / "logs" / "train_log.jsonl").read_text().splitlines()]

    header, measured, _ = done.stderr.partition("judge polite")
    assert "grpo-run" in header and "false positives 0.50 (1 of 2" in done.stderr and measured
    [usage] = summary["judges"]["usage"].values()
    assert usage["requests"] == len(server.seen) and usage["abstained"] == 0
    assert summary["judges"]["errors"]["apology.apology"][0]["judge"] == "polite"
    assert sum(step["judge/requests"] for step in steps) <= usage["requests"]
    assert steps[-1]["judge/total_verdicts"] >= steps[0]["judge/verdicts"] > 0
    assert all(f"task/apology.apology/part/{name}" in step for step in steps for name in ("short", "polite", "kinder"))
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(KEY.encode() not in path.read_bytes() for path in kept)

    again = grpo("eval", "--run", str(run), "--steps", "final", "--no-base", "--overwrite")
    assert "judge polite" in again.stderr and "false positives 0.50 (1 of 2" in again.stderr
    [written] = (tmp_path / "eval_runs").glob("*/summary.json")
    assert json.loads(written.read_text())["tasks"]["apology.apology"]["judges"][0]["judge"] == "polite"
