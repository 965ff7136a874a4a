"""Plugin of `grpo-tasks-code`: its tasks, the model `code-tiny`, and a diagnosis for `grpo doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_sdk import EmbeddedModel, Frame, Invalid, Score, Task, hookimpl
from grpo_tasks_code import computed, execution, humaneval, mbpp, output_prediction, prediction_game
from grpo_tasks_code.extraction import program_of


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


@hookimpl
def grpo_draw_rollout(task: str, row: Mapping[str, Any], text: str, score: Score) -> list[Frame]:
    """The program of a completion below the sandbox's verdict, as far as the score holds it."""
    try:
        program = str(row.get("source", "")) if task == "output_prediction" else program_of(text)
    except Invalid as invalid:
        return [Frame(caption=f"no program: {invalid}")]
    caption = "the program whose output is predicted" if task == "output_prediction" else _verdict(score)
    return [Frame(caption=caption, text=program)]


def _verdict(score: Score) -> str:
    parts = score.parts
    if score.abstained:
        verdict = f"not scored ({score.fault})"
    elif parts.get("uncompilable"):
        verdict = "does not compile"
    elif parts.get("timed_out"):
        verdict = "ran too long"
    elif "ran" in parts:
        verdict = "ran without output" if parts["ran"] and not score.solved else "ran" if parts["ran"] else "failed"
    else:
        verdict = "all tests pass" if score.solved else score.why or "not solved"
    return f"sandbox: {verdict}"
