"""Every logged metric has its line with formula and healthy range, and every line is logged."""

from __future__ import annotations

import json
import re
from pathlib import Path

from grpo_core import train
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig

TASK, REWARDS = "math.arithmetic", ("integer", "near", "exact")


def documented(root: Path) -> set[str]:
    page = (root / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    text = "\n".join(rows) + re.search(r"For each task NAME: (.*?)\n\n", page, re.DOTALL)[1]
    return set(re.findall(r"`([a-zA-Z_/]+)`", text))


def test_the_reference_names_what_is_logged_and_nothing_else(root: Path, tmp_path: Path) -> None:
    config = RunConfig(
        task=f"{TASK}?size=4",
        model="tiny",
        output_dir=str(tmp_path),
        trainer=TrainerConfig(prompts_per_step=2, num_generations=2, max_completion_length=8, max_steps=1, beta=0.01),
        eval=EvalConfig(at_start=False, at_end=False),
    )
    run = train(config).run_dir
    (line,) = (run / "logs" / "train_log.jsonl").read_text().splitlines()

    logged = {name.replace(TASK, "NAME") for name in json.loads(line)} - {"step"}
    logged = {re.sub(f"/part/({'|'.join(REWARDS)})$", "/part/FUNCTION", name) for name in logged}
    assert logged == documented(root)
