"""The plugin of `grpo-tasks-chess`: its tasks, the model `chess-tiny`, `grpo chess …`, boards and a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_sdk import EmbeddedModel, Frame, Task, hookimpl
from grpo_tasks_chess import environment, policy, puzzle, questions


@hookimpl
def grpo_tasks() -> list[Task]:
    """Return the tasks of the package."""
    answered_by_moves = [questions.BEST_MOVE, questions.MATE_IN_ONE, questions.LEGAL_MOVES]
    return [policy.TASK, environment.TASK, puzzle.TASK, *answered_by_moves]


@hookimpl
def grpo_models() -> list[EmbeddedModel]:
    """Return a model that reads positions and writes the lines of both tasks."""
    return [
        EmbeddedModel(
            name="chess-tiny",
            path=str(Path(__file__).parent / "models" / "chess-tiny"),
            description="5.2 M parameters, plays legal moves mostly and good ones at times; RL adds mates in minutes",
            defaults={
                "trainer.prompts_per_step": 16,
                "trainer.num_generations": 8,
                "trainer.max_steps": 200,
                "trainer.learning_rate": 2e-4,
                "trainer.lr_scheduler_type": "cosine",
                "trainer.warmup_steps": 10,
                "trainer.adam_beta2": 0.99,
                "trainer.max_prompt_length": 128,
                "trainer.max_completion_length": 128,
            },
            task_defaults={
                "chess.mate_in_one": {
                    "trainer.prompts_per_step": 32,
                    "trainer.num_generations": 16,
                    "trainer.max_steps": 400,
                },
            },
            task_options={"template": "policy"},
        )
    ]


@hookimpl
def grpo_commands() -> dict[str, str]:
    """Return `grpo chess`: make and check data, play a game."""
    return {"chess": "grpo_tasks_chess.commands:chess"}


@hookimpl
def grpo_diagnostics() -> dict[str, str]:
    """Return the diagnosis of the engine."""
    return {"chess engine": "grpo_tasks_chess.doctor:diagnose"}


@hookimpl
def grpo_draw_rollout(task: str, row: Mapping[str, Any], text: str) -> list[Frame]:
    """Return the boards of a completion."""
    from grpo_tasks_chess.drawing import draw

    return draw(task, row, text)
