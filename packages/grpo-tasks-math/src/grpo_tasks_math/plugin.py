"""The tasks of `grpo-tasks-math`, as users write them: `math.arithmetic`; and the model `tools-tiny`."""

from __future__ import annotations

from pathlib import Path

from grpo_sdk import EmbeddedModel, Task, hookimpl
from grpo_tasks_math import (
    arithmetic,
    base_conversion,
    calculator,
    comparison,
    competition,
    countdown,
    counting,
    echo,
    gsm8k,
    ladder,
    pattern,
    scheduling,
    word_problem,
)


@hookimpl
def grpo_tasks() -> list[Task]:
    """Every task of the package, easiest first."""
    easier = (echo, pattern, arithmetic, counting, base_conversion, comparison, word_problem, gsm8k)
    harder = (countdown, calculator, competition, scheduling, ladder)
    return [module.TASK for module in easier + harder]


@hookimpl
def grpo_models() -> list[EmbeddedModel]:
    """A model that knows how a tool is called, and seldom does."""
    return [
        EmbeddedModel(
            name="tools-tiny",
            path=str(Path(__file__).parent / "models" / "tools-tiny"),
            description="1.8 M parameters, guesses products and seldom calls the calculator; learns to in minutes",
            defaults={
                "trainer.prompts_per_step": 32,
                "trainer.max_steps": 80,
                "trainer.learning_rate": 2e-4,
                "trainer.lr_scheduler_type": "cosine",
                "trainer.warmup_steps": 5,
                "trainer.adam_beta2": 0.99,
                "trainer.max_prompt_length": 128,
                "trainer.max_completion_length": 64,
            },
        )
    ]
