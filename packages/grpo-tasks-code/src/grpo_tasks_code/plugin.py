"""Plugin of `grpo-tasks-code`: its tasks, the model `code-tiny`, and a diagnosis for `grpo doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grpo_core import EmbeddedModel, Task, hookimpl
from grpo_tasks_code import computed, execution, humaneval, mbpp, output_prediction, prediction_game


@hookimpl
def grpo_tasks() -> list[Task]:
    """Every task of the package, easiest first."""
    return [
        execution.TASK,
        computed.TASK,
        output_prediction.TASK,
        prediction_game.TASK,
        mbpp.TASK,
        mbpp.RETRY,
        humaneval.TASK,
    ]


@hookimpl
def grpo_models() -> list[EmbeddedModel]:
    """A model that writes short programs, half of which run, and predicts what they print."""
    return [
        EmbeddedModel(
            name="code-tiny",
            path=str(Path(__file__).parent / "models" / "code-tiny"),
            description="1.9 M parameters, writes programs of two to five lines; learns to make them run in minutes",
            defaults={
                "trainer.prompts_per_step": 16,
                "trainer.max_steps": 60,
                "trainer.learning_rate": 2e-4,
                "trainer.lr_scheduler_type": "cosine",
                "trainer.warmup_steps": 5,
                "trainer.adam_beta2": 0.99,
                "trainer.max_prompt_length": 128,
                "trainer.max_completion_length": 64,
            },
            task_options={"max_difficulty": "2"},
        )
    ]


@hookimpl
def grpo_diagnostics() -> Mapping[str, str]:
    """Diagnoses for `grpo doctor`: how well programs are isolated here."""
    return {"sandbox": "grpo_tasks_code.sandbox.doctor:diagnose"}
