"""Runs of a small model that tests stop and resume, and what must be the same in them."""

import json
from pathlib import Path
from typing import Any

import small_games
import torch
from safetensors.torch import load_file
from small_policies import saved_model

from grpo_core.config import CurriculumConfig, EvalConfig, LoraConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.training.catalogue import CATALOGUE

TASKS = """
from collections.abc import Iterable
from grpo_sdk import Environment, Row, Task, reward, tool

def load(config) -> Iterable[Row]:
    for index in range(24):
        yield Row(id=f"{config.split}{index}", gold="x")

@reward(1.0)
def printable(answer):
    return sum(32 <= ord(character) < 127 for character in answer) / max(1, len(answer))

letters = Task("letters", load, lambda row: row.id, lambda text, row: text, (printable,), max_completion_length=5)

class Bell(Environment):
    def reset(self, row) -> str:
        return "!"

    @tool(ends=True)
    def ring(self) -> None:
        "Ring."

bells = Task(
    "bells", load, lambda row: row.id, lambda text, environment: text, (printable,), max_completion_length=5,
    environment=Bell, ends="tool", max_turns=3,
)
"""
TIMES = {metric.name for metric in CATALOGUE if not metric.deterministic}
STEPS = 5

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two iterations, two steps a batch": {"num_iterations": 2, "steps_per_generation": 2},
    "ema, adaptive KL and entropy": {
        "baseline": "ema", "beta": 0.1, "kl_controller": "step_rule", "kl_warmup_steps": 3, "entropy_coef": 0.01,
        "entropy_controller": "adaptive", "num_iterations": 2,
    },
    "value head": {"baseline": "value", "value_head": True, "use_gae": True, "scale_rewards": "none"},
    "dynamic sampling, noise scale": {"dynamic_sampling": True, "gradient_noise_scale": True, "micro_batch_prompts": 1},
    "LoRA with dropout": {"beta": 0.1, "num_iterations": 2},
    "LoRA": {"beta": 0.1, "kl_placement": "reward", "kl": "k1"},
    "LoRA and value head": {
        "baseline": "value", "value_head": True, "use_gae": True, "scale_rewards": "none", "beta": 0.1,
    },
    "a reference that moves": {"beta": 0.1, "ref_model_sync_steps": 2, "num_iterations": 2},
    "curriculum": {},
    "a game": {"baseline": "role", "turn_gamma": 0.9, "num_iterations": 2},
    "a game against its start": {"baseline": "role"},
    "three turns": {"beta": 0.1},
    "float16": {"num_iterations": 2},
    "sampled ahead": {"off_policy_steps": 1, "dynamic_sampling": True},
    "LoRA with dropout, sampled ahead": {"off_policy_steps": 1, "beta": 0.1, "num_iterations": 2},
    "a game, sampled ahead": {"off_policy_steps": 1, "baseline": "role"},
    "tools": {"schedule": "rounds"},
}  # fmt: skip

GAMES = Path(small_games.__file__).resolve()
TASK_OF = {
    "a game": f"{GAMES}:HEAP?size=24", "a game against its start": f"{GAMES}:HEAP?opponent=base&size=24&illegal=random",
    "three turns": f"{GAMES}:GUESS", "a game, sampled ahead": f"{GAMES}:HEAP?size=24",
}  # fmt: skip
"""Of the variants that have rollouts of several turns."""


def model_and_tasks(folder: Path) -> Path:
    """Write the model that the runs start from, and the tasks."""
    saved_model(folder / "model")
    (folder / "tasks.py").write_text(TASKS)
    return folder


def config(folder: Path, out: Path, variant: str, **trainer: Any) -> RunConfig:
    options = {
        "max_steps": STEPS, "prompts_per_step": 4, "num_generations": 4, "max_completion_length": 5,
        "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 2, **VARIANTS[variant], **trainer,
    }  # fmt: skip
    own = f"{folder / 'tasks.py'}:{'bells' if variant == 'tools' else 'letters'}"
    return RunConfig(
        task=TASK_OF.get(variant, own), model=str(folder / "model"), output_dir=str(out),
        device="cpu", precision="float16" if variant == "float16" else "auto", trainer=TrainerConfig(**options),
        lora=LoraConfig(enabled=variant.startswith("LoRA"), r=2, dropout=0.2 if "dropout" in variant else 0.0),
        curriculum=CurriculumConfig(enabled=variant == "curriculum"), scoring=ScoringConfig(workers=1),
        eval=EvalConfig(size=4),
    )  # fmt: skip


def log(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "logs" / "train_log.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def rollouts(run_dir: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run_dir / "logs" / "rollouts.jsonl").read_bytes().splitlines()]
    return [{name: value for name, value in record.items() if not name.endswith("_s")} for record in records]


def evaluations(run_dir: Path) -> list[tuple[int, str, float]]:
    lines = (run_dir / "logs" / "evaluations.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(each["step"], each["phase"], each["eval/tasks.letters/mean_reward"]) for each in found]


def assert_same(one: Path, other: Path) -> None:
    """Two finished runs are the same in everything but times."""
    final = [path / "training_state" / "step_final" for path in (one, other)]
    for name in sorted(path.relative_to(final[0]) for path in final[0].rglob("*.safetensors")):
        ours, theirs = (load_file(path / name) for path in final)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert torch.equal(ours[key], theirs[key]), f"{name}: {key}"
    states = [json.loads((path / "trainer_state.json").read_text()) for path in final]
    for state in states:
        state.pop("seconds")
    assert states[0] == states[1]
    assert log(one) == log(other)
    assert rollouts(one) == rollouts(other)
    summaries = [json.loads((path / "summary.json").read_text())["tasks"] for path in (one, other)]
    assert summaries[0] == summaries[1]
