"""The rows of a task or a mixture as a dataset for TRL."""

from __future__ import annotations

from typing import Any

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import as_messages, requires
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import Mixture, task_labels
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs


def dataset(task: Tasks, *, seed: int = 0) -> Any:
    """Return the rows of a task or mixture as a `datasets.Dataset` with the columns `prompt`, `row` and `task`.

    A mixture has as many rows as its tasks together, in exact proportion to the weights: a task whose share exceeds its
    rows repeats them. With `shuffle_dataset=False` in TRL's config, every batch has these proportions, too.

    Args:
        task: Task or tasks, as for `reward_funcs`.
        seed: Seed of the mixture's shuffling.

    Raises:
        UserError: prompts that TRL cannot continue: a prefilled message, several turns, or text mixed with messages.
    """
    return rows_dataset(name_tasks(task).spec, seed, with_turns=False)


def rows_dataset(spec: str, seed: int, *, with_turns: bool) -> Any:
    """Like `dataset`, of a spec; `with_turns` also of tasks of several turns and games."""
    with requires("datasets", "pip install datasets"):
        import datasets

    specs = parse_task_specs(spec)
    tasks = [bind(spec) for spec in specs]
    labels = task_labels(tasks)
    rows = {label: each.rows() for label, each in zip(labels, tasks, strict=True)}
    if len(tasks) == 1:
        drawn = [(tasks[0], labels[0], row) for row in rows[labels[0]]]
    else:
        weighted = [(each, spec.weight) for each, spec in zip(tasks, specs, strict=True)]
        mixture = Mixture(weighted, rows, seed)
        drawn = [(draw.task, draw.label, draw.row) for draw in mixture.draw(mixture.prompts_per_epoch)]
    prompts = [_prompt(each, row, with_turns=with_turns) for each, _, row in drawn]
    kinds = {label: type(prompt) for (_, label, _), prompt in zip(drawn, prompts, strict=True)}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{label} ({'text' if kind is str else 'messages'})" for label, kind in kinds.items())
        raise UserError(f"TRL takes prompts of one kind in a dataset, and this mixture has both: {listed}.")
    return datasets.Dataset.from_dict(
        {
            "prompt": prompts,
            "row": [row.model_dump_json() for _, _, row in drawn],
            "task": [label for _, label, _ in drawn],
            **({"environment": [label for _, label, _ in drawn]} if with_turns and len(tasks) > 1 else {}),
        }
    )


def _prompt(task: BoundTask, row: Row, *, with_turns: bool) -> str | list[dict[str, str]]:
    if not with_turns:
        check_single_turn(task)
    if task.task.game is not None:  # the rules make the prompt, which an environment adds
        return [{"role": "user", "content": ""}]
    prompt = task.prompt(row)
    return prompt if isinstance(prompt, str) and not task.has_turns else as_messages(task, prompt, "TRL")


def check_single_turn(task: BoundTask) -> None:
    """Check that a reward function sees a whole rollout of a task.

    Raises:
        UserError: the task has several turns.
    """
    if task.has_turns:
        raise UserError(
            f"task {task.name!r} has several turns; TRL's reward functions see one. Use TrlTask({task.spec!r}), which "
            "has a rollout_func and an environment_factory, or our own trainer."
        )
