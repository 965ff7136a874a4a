"""From prompts to scored rollouts: sample every completion, scoring each one as it finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from grpo_core.engines.base import Engine, Request, SampleKey, Sampling, StopRequested
from grpo_core.mixture import Draw
from grpo_core.opponents import OpponentSampler, play_opponents
from grpo_core.rollout import Completion, Rollout, Turn
from grpo_core.scoring import Scorer
from grpo_core.task import Score


@dataclass(frozen=True, slots=True)
class Prompted:
    """A drawn prompt with its tokens."""

    draw: Draw
    prompt_ids: tuple[int, ...]


def sample_rollouts(
    prompted: Sequence[Prompted],
    *,
    engine: Engine,
    scorers: Mapping[str, Scorer],
    sampling: Sampling,
    generations: int,
    seed: int,
    step: int,
    opponents: Mapping[str, OpponentSampler],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Rollout]:
    """Sample `generations` completions of each prompt and score them.

    Scores overlap with sampling, completion by completion; a task with an opponent is scored when its whole batch has
    been answered.

    Args:
        prompted: Prompts with their draws; each is one group, in order.
        engine: Who samples.
        scorers: By task label.
        sampling: How.
        generations: G.
        seed: Of the run; names the random numbers with `step`.
        step: 1 for the first.
        opponents: By label of each task that has one.
        should_stop: Asked after every completion.

    Returns:
        G rollouts per prompt, group by group.

    Raises:
        StopRequested: `should_stop` said so.
    """
    requests = [
        Request(
            one.prompt_ids,
            SampleKey(seed, step, one.draw.prompt_id, sample),
            stop=one.draw.task.task.stop,
            max_completion_length=one.draw.task.task.max_completion_length,
        )
        for one in prompted
        for sample in range(generations)
    ]
    completions: dict[int, Completion] = {}
    pending: dict[int, Future[Score]] = {}
    for index, completion in engine.generate(requests, sampling):
        if should_stop():
            raise StopRequested
        completions[index] = completion
        draw = prompted[index // generations].draw
        if draw.label not in opponents:
            pending[index] = scorers[draw.label].submit(completion.text, draw.row)
    scores = {index: future.result() for index, future in pending.items()}
    for label, opponent in opponents.items():
        mine = [index for index in range(len(requests)) if prompted[index // generations].draw.label == label]
        texts = [completions[index].text for index in mine]
        rows = [prompted[index // generations].draw.row for index in mine]
        keys = [requests[index].key for index in mine]
        scores.update(zip(mine, play_opponents(scorers[label], texts, rows, opponent, keys=keys), strict=True))
    return [
        Rollout(
            spec=prompted[index // generations].draw.task.spec,
            row=prompted[index // generations].draw.row,
            group=index // generations,
            role="",
            turns=(Turn(request.prompt_ids, completions[index], trained=True),),
            score=scores[index],
            status="abstained" if scores[index].abstained else "scored",
        )
        for index, request in enumerate(requests)
    ]
