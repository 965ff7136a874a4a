"""A task or a mixture as the arguments of TRL's `GRPOTrainer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

from grpo_sdk.errors import UserError
from grpo_sdk.interop.trl.environment import environment_factory
from grpo_sdk.interop.trl.reward import MAX_ABSTAIN_SHARE, reward_functions
from grpo_sdk.interop.trl.rows import rows_dataset
from grpo_sdk.plugins.loading import of_trainer
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs


class TrlTask:
    """A task or a mixture as arguments of `GRPOTrainer`.

    `rollout_func` samples with our engine and trains the text that our own trainer trains: completions end at stop
    strings, prefills are continued, turns follow one another. Without it TRL samples, which suits tasks of one turn
    without stop strings; with vLLM, give it `generation_kwargs`. With `environment_factory` TRL samples and the model
    calls the task's tools, or takes its turns by calling one, for models that are trained to.

    Args:
        task: Spec of a task, as `math.gsm8k?template=r1`, or several separated by commas; a `Task` object, or a list.
        workers: Scoring processes per task; by default one per usable core.
        opponent_url: Endpoint that plays the opponent of tasks that have one: `http://host:port/v1#model`.
        max_abstain_share: Largest share of a task's completions in a batch that may go unscored.
        num_generations: That of TRL's configuration, for a task with group rewards.
        num_generations_eval: That of TRL's configuration, if it is set there.
        seed: Seed of a mixture's shuffling.

    Attributes:
        tasks: Tasks by label.
        reward_funcs: A reward function for each task.

    Raises:
        UserError: TRL cannot train the task; gives the reason.
    """

    def __init__(
        self,
        task: Tasks,
        *,
        workers: int | None = None,
        opponent_url: str | None = None,
        max_abstain_share: float = MAX_ABSTAIN_SHARE,
        num_generations: int | None = None,
        num_generations_eval: int | None = None,
        seed: int = 0,
    ) -> None:
        self._spec, self._seed = name_tasks(task).spec, seed
        self._workers = workers
        sizes = {"num_generations": num_generations, "num_generations_eval": num_generations_eval}
        options = {"workers": workers, "opponent_url": opponent_url, "max_abstain_share": max_abstain_share, **sizes}
        self.reward_funcs = reward_functions(self._spec, with_turns=True, **options)
        self.tasks = {function.__name__: function.task for function in self.reward_funcs}
        self._closing: list[Callable[[], None]] = [function.close for function in self.reward_funcs]

    @cached_property
    def train_dataset(self) -> Any:
        """The training rows as a `datasets.Dataset`; see `dataset`."""
        return rows_dataset(self._spec, self._seed, with_turns=True)

    @cached_property
    def eval_dataset(self) -> Any:
        """The test rows.

        Raises:
            UserError: the task has no test split.
        """
        specs = [spec.with_options(split="test").weighted for spec in parse_task_specs(self._spec)]
        return rows_dataset(",".join(specs), self._seed, with_turns=True)

    @cached_property
    def rollout_func(self) -> Callable[[Sequence[Any], Any], dict[str, Any]]:
        """Function that completes TRL's prompts with our engine, and scores them.

        Raises:
            UserError: the task is a game, whose moves answer a prompt each.
        """
        for each in self.tasks.values():
            if each.task.game is not None:
                raise UserError(
                    f"task {each.name!r} is a game, in which each move answers a prompt of its own; TRL trains one "
                    "sequence for each completion. Use environment_factory, with a model that calls tools, or our own "
                    "trainer."
                )
        rollouts_class = of_trainer("grpo_core.training.trl_rollouts:Rollouts", "rollout_func")
        rollouts = rollouts_class(self.tasks, self._row_of, self._workers)
        self._closing.append(rollouts.close)
        return rollouts  # type: ignore[no-any-return] # as it is imported

    @cached_property
    def environment_factory(self) -> Any:
        """Function that makes environments with the task's tools; by label for a mixture.

        A task of several turns without tools gets the tool `answer`, a game `move`.

        Raises:
            UserError: TRL does not take the name of a tool.
        """
        factories = {}
        for function in self.reward_funcs:
            function.adapter.check("episode")
            factories[function.__name__] = environment_factory(function.adapter)
        return factories if len(factories) > 1 else next(iter(factories.values()))

    @cached_property
    def tools(self) -> list[Any]:
        """TRL's `tools` of a task without an environment, for prompts that all use the same.

        Raises:
            UserError: the task has an environment or no tools, or there are several tasks.
        """
        if len(self.reward_funcs) > 1:
            raise UserError("TRL's tools= are those of every prompt; of several tasks use task.environment_factory.")
        return self.reward_funcs[0].tools.tools

    @property
    def max_tool_calling_iterations(self) -> int:
        """The argument of TRL's configuration with which a rollout has as many turns as in our trainer.

        Of a mixture it is that of the longest task. The calls of the last turn run when the rollout is scored.
        """
        return max(each.max_turns - each.task.has_tools for each in self.tasks.values())

    @property
    def generation_kwargs(self) -> dict[str, Any]:
        """TRL's `generation_kwargs` with which vLLM ends completions at the tasks' stop strings.

        Without vLLM use `rollout_func`: `generate()` of transformers would get no tokenizer for stop strings, and TRL
        would train on the padding behind them.
        """
        stop = sorted({string for each in self.tasks.values() for string in each.task.stop})
        return {"stop": stop, "include_stop_str_in_output": True} if stop else {}

    def close(self) -> None:
        """Stop the workers."""
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _row_of(self, prompt: Any) -> tuple[str, Row]:
        """The task's label and the row of a prompt.

        Raises:
            UserError: no row has this prompt, or rows that differ have it.
        """
        found = self._rows.get(_key(prompt)) or self._held_out_rows.get(_key(prompt))
        if not found:
            raise UserError("rollout_func got a prompt that no row of the task has: train on task.train_dataset.")
        first = found[0]
        for other in found:
            if other[0] != first[0] or other[1].model_dump(exclude={"id"}) != first[1].model_dump(exclude={"id"}):
                raise UserError(
                    f"task {first[0]!r}: the rows {first[1].id} and {other[1].id} differ and have the same prompt, "
                    "which is all that TRL tells rollout_func. Leave rollout_func out."
                )
        return first

    @cached_property
    def _rows(self) -> dict[str, list[tuple[str, Row]]]:
        return self._by_prompt(self.train_dataset)

    @cached_property
    def _held_out_rows(self) -> dict[str, list[tuple[str, Row]]]:
        return self._by_prompt(self.eval_dataset)

    def _by_prompt(self, rows: Any) -> dict[str, list[tuple[str, Row]]]:
        by_prompt: dict[str, list[tuple[str, Row]]] = {}
        for each in rows:
            row = self.tasks[each["task"]].row_from_json(each["row"])
            by_prompt.setdefault(_key(each["prompt"]), []).append((each["task"], row))
        return by_prompt


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True)
