"""What grpo-core adds to grpo-sdk through the hooks of plugins: the embedded model, and what `grpo doctor` asks."""

from __future__ import annotations

from pathlib import Path

from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.hooks import hookimpl


@hookimpl
def grpo_models() -> list[EmbeddedModel]:
    """The models that ship with grpo-core."""
    return [
        EmbeddedModel(
            name="tiny",
            path=str(Path(__file__).parent / "models" / "tiny"),
            description="1.8 M parameters, half-taught two-digit sums; learns in minutes on a laptop",
            defaults={
                "trainer.prompts_per_step": 32,
                "trainer.max_steps": 500,
                "trainer.learning_rate": 1.2e-4,
                "trainer.lr_scheduler_type": "cosine",
                "trainer.warmup_steps": 10,
                "trainer.adam_beta2": 0.99,
                "trainer.max_prompt_length": 128,
                "trainer.max_completion_length": 64,
            },
        )
    ]


@hookimpl
def grpo_diagnostics() -> dict[str, str]:
    """Settings, torch and the profile of a run on this machine."""
    return {"run": "grpo_core.doctor:settings", "torch": "grpo_core.doctor:torch_and_device"}
