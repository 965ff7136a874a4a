"""Tasks as reward functions of TRL."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import TaskAdapter
from grpo_sdk.interop.trl.completions import Completion, completion_text
from grpo_sdk.interop.trl.environment import Environment, FunctionTools, ToolEnvironment
from grpo_sdk.interop.trl.rows import check_single_turn
from grpo_sdk.killable.pool import wait_all
from grpo_sdk.plugins.task_objects import AnyTask, Tasks, name_tasks
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.scoring.abstention import check_abstentions
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.parts import part_names
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.spec import parse_task_specs

MAX_ABSTAIN_SHARE = 0.5
"""Largest share of unscored completions in a batch, as in our own trainer."""


class TaskReward:
    """A task as a reward function for TRL: keyword arguments in, one float or None per completion out.

    Scores are computed by killable workers; None means a completion of another task, or one that could not be scored.
    The object can be pickled: a copy starts its own workers. The scored text ends at the task's stop strings, as in our
    engines; TRL itself continues sampling, unless it has `TrlTask.rollout_func`, or vLLM `TrlTask.generation_kwargs`.

    Each batch logs the columns `NAME/solved`, `NAME/valid`, `NAME/why` and one per part, and their means as metrics.

    Attributes:
        adapter: The task behind its workers.

    Args:
        task: Task or its spec.
        label: Task label in logs; rows with another label in the column `task` are not scored.
        workers: Scoring processes.
        opponent_url: Endpoint of the task's opponent.
        max_abstain_share: Largest share of unscored completions.
        num_generations: Completions of a prompt, for a task with group rewards.
        labels: Task labels of the mixture; a batch that has none of them is warned about, once.
        num_generations_eval: Completions of a prompt in an evaluation, where TRL's configuration has other than
            `num_generations`; a group of one is compared with nothing.
    """

    def __init__(
        self,
        task: AnyTask,
        label: str,
        workers: int | None = None,
        opponent_url: str | None = None,
        max_abstain_share: float = MAX_ABSTAIN_SHARE,
        num_generations: int | None = None,
        labels: Collection[str] = (),
        num_generations_eval: int | None = None,
    ) -> None:
        self.__name__ = label  # TRL's name of the reward in its logs
        self.adapter = TaskAdapter(
            task, "TRL", "episodes", workers=workers, opponent_url=opponent_url, end_tokens=(), takes_tools=True
        )
        self._max_abstain_share = max_abstain_share
        self._num_generations, self._num_generations_eval = num_generations, num_generations_eval
        self._labels, self._is_warned = frozenset(labels), False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "tools"}

    @property
    def task(self) -> BoundTask:
        """The task."""
        return self.adapter.task

    def __repr__(self) -> str:
        return f"TaskReward({self.task.spec!r})"

    @cached_property
    def tools(self) -> FunctionTools:
        """The tools of a task without an environment, which it scores the calls of once it was asked for them.

        Raises:
            UserError: the task has no tools, or a state of each episode: an environment, a server's session.
        """
        task = self.task.task
        reasons = {
            "has an environment": task.environment is not None,
            "has no tools": not task.tools,
            "has tools of a server": bool(task.servers()),
        }
        if kind := next((reason for reason, holds in reasons.items() if holds), ""):
            raise UserError(f"task {self.task.name!r} {kind}: use environment_factory=task.environment_factory.")
        return FunctionTools(self.adapter)

    def close(self) -> None:
        """Stop the workers."""
        self.adapter.close()

    def __call__(
        self,
        *,
        completions: Sequence[Completion],
        row: Sequence[str] | None = None,
        task: Sequence[str] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        trainer_state: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """Score a batch; completions of `TrlTask.rollout_func` and of environments bring their scores.

        Raises:
            UserError: there is no column `row`, or a single-turn task cannot score the completions.
            AbstentionLimitError: too many could not be scored.
        """
        if row is None or len(row) != len(completions):
            raise UserError(
                f"reward {self.__name__!r} got {'no column' if row is None else len(row)} 'row' for {len(completions)} "
                f"completions; train on grpo_sdk.interop.trl.dataset({self.task.spec!r}), which has it."
            )
        own = [index for index in range(len(completions)) if task is None or task[index] == self.__name__]
        if task and not own:
            self._warn_of(task)
        environments: Sequence[Environment | ToolEnvironment] | None = columns.get("environments")
        functions = self.__dict__.get("tools")
        if self.task.has_turns and environments is None and functions is None and "task_score" not in columns:
            kind = "tools" if self.task.task.has_tools else "several turns"
            raise UserError(
                f"task {self.task.name!r} has {kind}: give GRPOTrainer(…, rollout_func=task.rollout_func), or "
                "environment_factory=task.environment_factory."
            )
        if environments is not None:
            own_scores = wait_all([environments[index]._score(completions[index]) for index in own])
        elif functions is not None and "task_score" not in columns:
            own_scores = wait_all(functions.score([row[index] for index in own], [completions[i] for i in own]))
        else:
            parsed = {text: self.task.row_from_json(text) for text in {row[index] for index in own}}
            rows = [parsed[row[index]] for index in own]
            if "task_score" in columns:
                texts = [columns["scored_text"][index] for index in own]
                own_scores = [columns["task_score"][index] for index in own]
            else:
                texts = [self.adapter.completion(completion_text(completions[index])) for index in own]
                own_scores = self.adapter.score(texts, rows, step=getattr(trainer_state, "global_step", 0))
            if self.task.task.group_specs():
                own_scores = self._with_group_rewards(texts, rows, own_scores)
        check_abstentions(own_scores, self.__name__, self._max_abstain_share, self.task)
        scores: list[Score | None] = [None] * len(completions)
        for index, score in zip(own, own_scores, strict=True):
            scores[index] = score
        if log_extra is not None:
            logged = [None if score is None else self._logged(score) for score in scores]
            for name in ("solved", "valid", "why", *part_names(self.task)):
                log_extra(f"{self.__name__}/{name}", [each and each[name] for each in logged])
        if log_metric is not None and own_scores:
            for name, mean in self._metrics(own_scores).items():
                log_metric(name, mean)
        return [None if score is None else score.value for score in scores]

    def _warn_of(self, labels: Sequence[str]) -> None:
        """Warn once of a batch without a row of this task, unless other tasks of the mixture are in it."""
        if self._is_warned or self._labels & set(labels):
            return
        self._is_warned = True
        found = ", ".join(sorted(set(labels))[:4])
        warnings.warn(
            f"reward {self.__name__!r} scores nothing in this batch: its rows are of {found}, says their column "
            "'task', and a completion of another task gets None.",
            stacklevel=3,
        )

    def _with_group_rewards(self, texts: Sequence[str], rows: Sequence[Row], scores: Sequence[Score]) -> list[Score]:
        """Add the group rewards; TRL puts the completions of a prompt side by side."""
        groups: list[list[int]] = []
        for _, members in groupby(range(len(rows)), key=lambda index: rows[index].id):
            groups += self._split(list(members))
        batch = [([texts[i] for i in own], rows[own[0]], [scores[i] for i in own]) for own in groups]
        return [score for own in group_scores(self.adapter.scorer, batch) for score in own]

    def _split(self, members: list[int]) -> list[list[int]]:
        """The groups among neighbouring completions of one row, which may have been drawn several times in a row."""
        count, size = len(members), self._num_generations
        if size and count % size == 0:
            return [members[start : start + size] for start in range(0, count, size)]
        if count == self._num_generations_eval:
            return [members]
        hint = "multiples of num_generations"
        if self._num_generations_eval is None:
            hint += "; with GRPOConfig(num_generations_eval=…), give its number here too"
        raise UserError(
            f"reward {self.__name__!r} compares the {size} completions of a prompt, and this process got {count} of "
            f"them: per_device_train_batch_size and per_device_eval_batch_size must be {hint}."
        )

    def _logged(self, score: Score) -> dict[str, Any]:
        # Also of a score that abstained: TRL's table needs the same columns in every batch, and a value for each.
        known = {"solved": None, "valid": None} if score.abstained else {"solved": score.solved, "valid": score.valid}
        return {**known, "why": score.why, **{name: score.parts.get(name) for name in part_names(self.task)}}

    def _metrics(self, scores: Sequence[Score]) -> dict[str, float]:
        scored = [score for score in scores if not score.abstained]
        metrics = {"abstained_rate": 1 - len(scored) / len(scores)}
        if scored:
            metrics["solved_rate"] = sum(score.solved for score in scored) / len(scored)
            metrics["valid_rate"] = sum(score.valid for score in scored) / len(scored)
            for name in part_names(self.task):
                metrics[name] = sum(score.parts.get(name, 0.0) for score in scored) / len(scored)
        return {f"{self.__name__}/{name}": mean for name, mean in metrics.items()}


def reward_funcs(
    task: Tasks,
    *,
    workers: int | None = None,
    opponent_url: str | None = None,
    max_abstain_share: float = MAX_ABSTAIN_SHARE,
    num_generations: int | None = None,
    num_generations_eval: int | None = None,
) -> list[TaskReward]:
    """Return the reward function of a task, or one for each task of a mixture.

    Args:
        task: Spec of a task, as `math.gsm8k?template=r1`, or several separated by commas; a `Task` object, or a list.
        workers: Scoring processes per task; by default one per usable core.
        opponent_url: Endpoint that plays the opponent of tasks that have one: `http://host:port/v1#model`.
        max_abstain_share: Largest share of a task's completions in a batch that may go unscored.
        num_generations: That of TRL's configuration, for a task with group rewards: a process that gets a part of a
            group then says so.
        num_generations_eval: That of TRL's configuration, if it is set there.

    Raises:
        UserError: TRL cannot train the task; gives the reason.
    """
    sizes = {"num_generations": num_generations, "num_generations_eval": num_generations_eval}
    options = {"workers": workers, "opponent_url": opponent_url, "max_abstain_share": max_abstain_share, **sizes}
    return reward_functions(name_tasks(task).spec, with_turns=False, **options)


def reward_functions(spec: str, *, with_turns: bool, **options: Any) -> list[TaskReward]:
    """Like `reward_funcs`, of a spec; `with_turns` also for tasks of several turns and games."""
    tasks = [bind(each) for each in parse_task_specs(spec)]
    for each in tasks:
        if not with_turns:
            check_single_turn(each)
        if each.task.group_specs() and options["num_generations"] is None:
            raise UserError(
                f"task {each.name!r} has the group reward {each.task.group_specs()[0].name}(): give num_generations=N, "
                "the number of TRL's configuration."
            )
    labels = task_labels(tasks)
    return [TaskReward(each, label, labels=labels, **options) for each, label in zip(tasks, labels, strict=True)]
