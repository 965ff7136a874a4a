"""A run's folder as the trainer leaves it, made without training: the tiny model, its weights moved a little."""

import shlex
from pathlib import Path
from typing import Any

import orjson
import torch

from grpo_core.checkpoints import CheckpointStore, write_json
from grpo_core.config import EvalConfig, LoraConfig, RunConfig, TrainerConfig, to_yaml
from grpo_core.policy.load import load_policy

TASK = "math.arithmetic?size=8"
BASE = {
    "solved_rate": 0.5, "ci_low": 0.25, "ci_high": 0.75, "n": 16, "abstained": 0, "mean_reward": 0.6,
    "mean_reward_ci_low": 0.5, "mean_reward_ci_high": 0.7, "temperature": 0.0, "split": "test",
}  # fmt: skip
FINAL = {**BASE, "solved_rate": 0.75, "ci_low": 0.5, "ci_high": 0.9, "abstained": 1, "delta": 0.25, "delta_ci_low": 0.1,
         "delta_ci_high": 0.4, "delta_n": 16}  # fmt: skip


def make_run(
    folder: Path, *, lora: bool = False, value_head: bool = False, model: str = "tiny", **options: Any
) -> Path:
    """A run of two steps with step_1 and step_final; its weights, and an adapter's product, differ from the base's."""
    config = RunConfig(
        task=TASK, model=model, output_dir=str(folder.parent), device="cpu", seed=3,
        trainer=TrainerConfig(max_steps=2, temperature=0.8, top_k=20, max_completion_length=12, beta=0.1),
        eval=EvalConfig(size=16), lora=LoraConfig(enabled=lora, r=4, **options),
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    store = CheckpointStore(folder)
    torch.manual_seed(0)  # a new adapter draws its first matrix from it
    policy = load_policy(model, lora=config.lora, device="cpu", precision="float32")
    generator, out = torch.Generator().manual_seed(0), folder.parent
    words = ["grpo-run", "--output-dir", str(out), "--seed", "3", f"--output-dir={out}", f"output_dir={out}"]
    for step, which in ((1, 1), (2, "final")):
        for parameter in policy.parameters():
            parameter.data += 0.01 * torch.randn(parameter.shape, generator=generator)
        if value_head:
            policy.add_value_head(0)
        with store.writing(which) as checkpoint:  # type: ignore[arg-type] # 1 and "final"
            policy.save(checkpoint / "model")
            write_json(checkpoint / "training_info.json", {
                "command": shlex.join(words), "step": step, "planned_steps": 2,
                "training_config": config.model_dump(mode="json"), "identities": {TASK: "0123456789abcdef"},
                "versions": {"python": "3.11.0", "torch": "2.13.0"}, "hardware": {"device": "cpu", "threads": 1},
            })  # fmt: skip
    (folder / "reference").mkdir()
    write_json(folder / "reference" / "reference.json", {"kind": "base" if lora else "model", "base": model})
    (folder / "logs").mkdir()
    lines = [orjson.dumps({"step": step, "reward": 0.5, "kl": 0.01 * step}) for step in (1, 2)]
    (folder / "logs" / "train_log.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    tasks = {"math.arithmetic": {"identity": "0123456789abcdef", "initial": BASE, "final": FINAL}}
    write_json(folder / "summary.json", {"tasks": tasks, "steps": 2, "tokens": 640, "seconds": 12.5, "seed": 3})
    return folder
