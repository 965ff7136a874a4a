"""Run folders for reports, written without training."""

import random
from pathlib import Path
from typing import Any

import orjson

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">\x1b[31m\u202e\u0000'


def rollout(step: int, group: int, sample: int, value: float | None, **more: Any) -> dict[str, Any]:
    """One line of logs/rollouts.jsonl."""
    scored, solved = value is not None, value == 1.0
    score = {
        "value": value, "parts": {"exact": value, "near": 1.0} if scored else {}, "valid": scored, "solved": solved,
        "why": "" if solved else "exact 0 of 1", "fault": "" if scored else "timeout",
    }  # fmt: skip
    return {
        "step": step, "task": "math.a?size=9", "group": group, "prompt_id": f"math.a/{step}-{group}",
        "prompt": f"question {step}-{group}", "row": {"id": f"row-{group}", "gold": "7"},
        "text": f"answer {sample} of {step}-{group}", "tokens": 3 + sample, "finish_reason": "stop",
        "status": "scored" if scored else "abstained", "logprob": -2.5, "score": score, "reward": value, **more,
    }  # fmt: skip


def rollouts(
    steps: int, groups: int = 4, samples: int = 4, *, seed: int = 0, gain: float = 0.5
) -> list[dict[str, Any]]:
    """Completions of a run that gets better."""
    rng = random.Random(seed)
    return [
        rollout(step, group, sample, float(rng.random() < 0.2 + gain * step / steps))
        for step in range(1, steps + 1)
        for group in range(groups)
        for sample in range(samples)
    ]


def make_run(
    folder: Path,
    lines: list[dict[str, Any]] | None = None,
    *,
    steps: int = 10,
    events: list[dict[str, Any]] | None = None,
    metrics: dict[str, Any] | None = None,
) -> Path:
    """Write a run's folder; `lines` are its completions."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "task: math.a\nmodel: tiny\nseed: 0\ntrainer:\n  prompts_per_step: 4\n  max_grad_norm: 1.0\n"
    )
    logged = [
        {"step": step, "reward": step / steps, "entropy": 1.0, "ess": 1.0, "abstained": 0, "generate_s": 0.5,
         "update_s": 0.25, "step_s": 1.0, "memory/update_mib": 100.0, **(metrics or {})}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    before = {"solved_rate": 0.25, "ci_low": 0.125, "ci_high": 0.5, "n": 16, "mean_reward": 0.3}
    after = {"solved_rate": 0.75, "ci_low": 0.5, "ci_high": 0.9, "n": 16, "mean_reward": 0.8}
    after |= {"delta": 0.5, "delta_ci_low": 0.25, "delta_ci_high": 0.7, "delta_n": 16}
    events = events if events is not None else [
        {"kind": "start", "total_steps": steps, "choices": [{"what": "device", "value": "cpu", "why": "no GPU"}],
         "sources": {"task": "command line", "trainer.prompts_per_step": "run.yaml:3"}},
        {"kind": "evaluation", "step": 0, "task": "math.a", "phase": "initial", "result": before},
        {"kind": "warning", "step": 3, "message": f"beware {HOSTILE}"},
        {"kind": "evaluation", "step": steps, "task": "math.a", "phase": "final", "result": after},
        {"kind": "end", "interrupted": False},
    ]  # fmt: skip
    write_lines(logs / "train_log.jsonl", logged)
    write_lines(logs / "events.jsonl", events)
    if lines is not None:
        write_lines(logs / "rollouts.jsonl", lines)
    return folder


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
