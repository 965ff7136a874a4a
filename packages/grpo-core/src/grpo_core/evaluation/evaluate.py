"""Held-out evaluation: a fixed set of rows, greedy unless asked otherwise, every number with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from grpo_core.binding import BoundTask, bind
from grpo_core.callbacks import Callback
from grpo_core.engines.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_core.engines.encode import encode_prompt
from grpo_core.errors import ExhaustedError
from grpo_core.evaluation.intervals import bootstrap_mean, wilson
from grpo_core.mixture import task_labels
from grpo_core.opponents import OpponentSampler, play_opponents
from grpo_core.rollout import Completion
from grpo_core.scoring import Scorer
from grpo_core.task import Row, Score, Split
from grpo_core.taskspec import parse_task_specs

EVALUATION_STEP = 0
"""The step in sampling keys of an evaluation: training steps count from 1, so no random number is used twice."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one task's held-out rows gave, row by row, in order."""

    rows: Sequence[Row]
    texts: Sequence[str]
    lengths: Sequence[int]
    truncated: Sequence[bool]
    scores: Sequence[Score]
    temperature: float
    split: Split

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """The entry of `summary.json`. Abstained rows are counted apart and leave every rate."""
        scored = [score for score in self.scores if not score.abstained]
        values = [score.value for score in scored if score.value is not None]
        solved = wilson(sum(score.solved for score in scored), len(scored))
        reward = bootstrap_mean(values, seed=seed)
        n = len(self.scores)
        return {
            "solved_rate": solved.value if scored else None,
            "ci_low": solved.low,
            "ci_high": solved.high,
            "n": len(scored),
            "abstained": n - len(scored),
            "mean_reward": reward.value if values else None,
            "mean_reward_ci_low": reward.low if values else None,
            "mean_reward_ci_high": reward.high if values else None,
            "valid_rate": sum(score.valid for score in scored) / len(scored) if scored else None,
            "mean_length": sum(self.lengths) / n if n else None,
            "truncated_frac": sum(self.truncated) / n if n else None,
            "temperature": self.temperature,
            "split": self.split,
        }

    def paired_delta(self, base: Evaluation, *, seed: int = 0) -> dict[str, float]:
        """Difference of the solved rates over `base` on the same rows, with its bootstrap interval."""
        pairs = zip(self.scores, base.scores, strict=True)
        differences = [float(s.solved) - float(b.solved) for s, b in pairs if not (s.abstained or b.abstained)]
        delta = bootstrap_mean(differences, seed=seed)
        return {"delta": delta.value, "delta_ci_low": delta.low, "delta_ci_high": delta.high, "delta_n": delta.n}


def held_out(task: BoundTask, *, size: int | None, split: Split) -> BoundTask:
    """The task on its held-out rows: `size` of `split`, or as many as there are."""
    wanted = task.with_options(split=split, size=size)
    try:
        wanted.rows()
    except ExhaustedError as exhausted:
        wanted = task.with_options(split=split, size=exhausted.available)
    return wanted


def evaluate_task(
    task: BoundTask,
    rows: Sequence[Row],
    *,
    engine: Engine,
    tokenizer: Any,
    scorer: Scorer,
    sampling: Sampling,
    seed: int,
    opponent: OpponentSampler | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Answer every row once.

    Args:
        task: The task.
        rows: Its held-out rows.
        engine: Who samples.
        tokenizer: Of the model.
        scorer: Of the task.
        sampling: Greedy at temperature 0.
        seed: Of the random numbers above temperature 0.
        opponent: For a task that has one.
        progress: Told (rows done, rows) after each.
        should_stop: Asked after every completion.

    Raises:
        StopRequested: `should_stop` said so.
    """
    requests = [
        Request(
            encode_prompt(tokenizer, task.prompt(row)),
            SampleKey(seed, EVALUATION_STEP, f"{task.name}/{row.id}", 0),
            stop=task.task.stop,
            max_completion_length=task.task.max_completion_length,
        )
        for row in rows
    ]
    completions: dict[int, Completion] = {}
    futures: dict[int, Future[Score]] = {}
    for index, completion in engine.generate(requests, sampling):
        if should_stop():
            raise StopRequested
        completions[index] = completion
        if opponent is None:
            futures[index] = scorer.submit(completion.text, rows[index])
        progress(len(completions), len(rows))
    order = range(len(rows))
    texts = [completions[index].text for index in order]
    if opponent is None:
        scores = [futures[index].result() for index in order]
    else:
        scores = play_opponents(scorer, texts, rows, opponent, keys=[request.key for request in requests])
    return Evaluation(
        rows=rows,
        texts=texts,
        lengths=[len(completions[index].token_ids) for index in order],
        truncated=[completions[index].finish_reason == "length" for index in order],
        scores=scores,
        temperature=sampling.temperature,
        split=task.config.split,
    )


def evaluate(
    task: str,
    model: str,
    *,
    adapter: str | None = None,
    size: int | None = 512,
    split: Split = "test",
    temperature: float = 0.0,
    max_completion_length: int = 256,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    callbacks: Sequence[Callback] = (),
) -> dict[str, dict[str, Any]]:
    """Evaluate a model on held-out rows of one task or several.

    Args:
        task: A task spec; a mixture is evaluated task by task, its weights do not matter.
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: A PEFT adapter to put on it.
        size: Rows per task; None is all of the split.
        split: Which rows.
        temperature: 0 is greedy.
        max_completion_length: Tokens per completion; a task may need fewer.
        seed: Of sampling above temperature 0.
        device: Where.
        precision: In which floating-point type.
        callbacks: Told of progress and of each result.

    Returns:
        Task name -> the numbers of `summary.json`.
    """
    from grpo_core.engines.native import NativeEngine
    from grpo_core.engines.opponent import opponent_sampler
    from grpo_core.model_source import model_source
    from grpo_core.policy.load import load_policy

    specs = parse_task_specs(task)
    tasks = [held_out(bind(spec), size=size, split=split) for spec in specs]
    sampling = Sampling(temperature=temperature, max_completion_length=max_completion_length)
    model_source(model)
    policy = load_policy(model, adapter=adapter, device=device, precision=precision)
    engine = NativeEngine(policy.model.eval(), policy.tokenizer)
    results: dict[str, dict[str, Any]] = {}
    with ExitStack() as resources:
        for label, bound in zip(task_labels(tasks), tasks, strict=True):
            scorer = resources.enter_context(Scorer(bound))
            opponent = opponent_sampler(bound, policy, resources) if bound.task.opponent is not None else None
            with policy.precision():
                evaluation = evaluate_task(
                    bound,
                    bound.rows(),
                    engine=engine,
                    tokenizer=policy.tokenizer,
                    scorer=scorer,
                    sampling=sampling,
                    seed=seed,
                    opponent=opponent,
                    progress=_progress(callbacks, label),
                )
            results[label] = {**evaluation.summary(seed=seed), "identity": bound.identity}
            for callback in callbacks:
                callback.on_evaluation(label, "base", results[label])
    return results


def _progress(callbacks: Sequence[Callback], label: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        for callback in callbacks:
            callback.on_progress(f"evaluating {label}", done, total)

    return tell
