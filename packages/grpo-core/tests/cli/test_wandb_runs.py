"""`grpo runs --wandb`, with a stand-in for wandb's public API."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

wandb = pytest.importorskip("wandb", reason="the extra wandb")

KEY = "0123456789abcdef0123456789abcdef01234567"

Grpo = Callable[..., str]


def run(number: int, **fields: Any) -> Any:
    summary = {"reward": number / 10, "step": 3, "eval/math.a/solved_rate": 0.5, "_runtime": 9}
    points = [{"step": 2, "reward": 0.5}, {"step": 1, "reward": 0.25}, {"step": None, "reward": 1}]
    known = {
        "path": ["us", "sums", f"r{number}"], "name": f"run of r{number}", "state": "finished", "url": "https://w/r",
        "created_at": "2026-11-20T10:00:00Z", "summary_metrics": summary, "history": lambda **_: points,
        "config": {"task": "math.a", "model": "tiny", "_wandb": {"version": 1}},
    }  # fmt: skip
    return SimpleNamespace(**{**known, **fields})


class Api:
    """Has one project, or the error that an environment without a server makes."""

    error: Exception | None = None
    asked: dict[str, Any]

    def __init__(self, timeout: int) -> None:
        if self.error is not None:
            raise self.error

    def runs(self, project: str, **options: Any) -> list[Any]:
        type(self).asked = options
        if project != "us/sums":
            raise ValueError(f"Could not find project {project}")
        return [run(30, state="running", name="evil\x1b[31m"), *(run(number) for number in range(29, 0, -1))]

    def run(self, path: str) -> Any:
        if path != "us/sums/r5":
            raise wandb.errors.CommError("Could not find run", ValueError("Could not find run"))
        return run(5)


@pytest.fixture(autouse=True)
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Api]:
    monkeypatch.setattr(wandb, "Api", type("OneApi", (Api,), {}))
    for name, value in {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://w", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_SILENT", "true")  # set, and so restored: the command sets it
    made: type[Api] = wandb.Api
    return made


def shown(grpo: Grpo, *words: str, code: int = 0) -> list[str]:
    """The lines of a command, with runs of spaces made one."""
    said = grpo("runs", *words, code=code)
    assert KEY not in said
    return [" ".join(line.split()) for line in said.splitlines()]


def test_the_latest_runs_are_listed(grpo: Grpo, api: type[Api]) -> None:
    heading, *rows = shown(grpo, "--wandb", "us/sums", "--limit", "12")
    assert heading == "run state name reward solved task model started"
    assert len(rows) == 12
    assert rows[-1] == r"us/sums/r30 running evil\x1b[31m 3 0.5 math.a tiny 2026-11-20T10:00:00Z"
    assert rows[0].startswith("us/sums/r19 finished run of r19 1.9 0.5")
    assert (api.asked["order"], api.asked["per_page"]) == ("-created_at", 12)


def test_the_project_is_by_default_that_of_new_runs(grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "sums")
    monkeypatch.setenv("WANDB_ENTITY", "us")
    assert len(json.loads("\n".join(shown(grpo, "--wandb", "--json")))) == 20


def test_one_run_is_shown(grpo: Grpo) -> None:
    lines = shown(grpo, "show", "us/sums/r5", "--wandb")
    assert lines[0] == "run us/sums/r5 run of r5 finished 2026-11-20T10:00:00Z"
    assert "reward ▁█ 0.25 0.5 0.25 0.5" in lines
    assert {"eval/math.a/solved_rate 0.5", "task math.a", "model tiny"} <= set(lines)
    facts = json.loads("\n".join(shown(grpo, "show", "us/sums/r5", "--wandb", "--json")))
    assert (facts["history"], facts["metrics"]["reward"]) == ({"reward": [[1, 0.25], [2, 0.5]]}, 0.5)
    assert set(facts["settings"]) == {"task", "model"}


def unreachable() -> Exception:
    error: Exception = wandb.errors.AuthenticationError(f"no answer for {KEY}")
    error.__cause__ = OSError("connection refused")
    return error


@pytest.mark.parametrize(("words", "error", "code", "said"), [
    ("--wandb us/sums", wandb.errors.AuthenticationError("401"), 2, "W&B refuses the key: 401 Run `wandb"),
    ("--wandb us/sums", unreachable(), 1, "W&B at http://w cannot be reached"),
    ("--wandb us/sums", TimeoutError("too slow"), 1, "W&B at http://w cannot be read: "),
    ("--wandb us/other", None, 2, "W&B has no 'us/other'"),
    ("show us/sums/r99 --wandb", None, 2, "W&B has no 'us/sums/r99'"),
])  # fmt: skip
def test_a_refusal_is_one_line(
    grpo: Grpo, api: type[Api], words: str, error: Exception | None, code: int, said: str
) -> None:
    api.error = error
    (line,) = shown(grpo, *words.split(), code=code)
    assert said in line


def test_without_a_key_it_says_how_to_log_in(grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    (line,) = shown(grpo, "--wandb", "us/sums", code=2)
    assert line.startswith("error: no key for W&B: run `wandb login`")
