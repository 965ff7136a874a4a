"""Tasks with an opponent: its answers for a whole batch at once, then the scores that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from grpo_core.engines.base import Engine, Request, SampleKey, Sampling
from grpo_core.scoring import Scorer
from grpo_core.task import Opponent, Prompt, Row, Score

OPPONENT_KEY_PREFIX = "opponent of "
"""Keeps the opponent's random numbers apart from those of the policy, which is keyed by task and row."""


class OpponentSampler(Protocol):
    """Who answers for the opponent: an engine of this process, or an endpoint."""

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | None]:
        """Sample `opponent.samples` texts for each prompt; None where the machinery failed.

        Args:
            prompts: The opponent's prompts of a whole batch.
            opponent: How many answers, and how they are sampled.
            keys: Names the random numbers of each prompt's completion; the answers' numbers derive from it.
        """
        ...


def play_opponents(
    scorer: Scorer, texts: Sequence[str], rows: Sequence[Row], sampler: OpponentSampler, *, keys: Sequence[SampleKey]
) -> list[Score]:
    """Score a batch of one task that has an opponent: validate, ask the opponent once for all, score.

    A completion that the validator refuses is scored without asking. One whose opponent did not answer abstains with
    the fault `infrastructure`: an answer that nobody gave is no statement about the completion.

    Args:
        scorer: Of the task.
        texts: Completions.
        rows: The row of each.
        sampler: Who answers.
        keys: The sampling key of each completion.
    """
    opponent = scorer.task.task.opponent
    assert opponent is not None, f"task {scorer.task.name} has no opponent"
    asked = {index: prompt for index, prompt in enumerate(scorer.opponent_prompts(texts, rows)) if prompt is not None}
    answers = sampler.sample(list(asked.values()), opponent, [keys[index] for index in asked]) if asked else []
    predictions = {
        index: given for index, given in zip(asked, answers, strict=True) if given and len(given) == opponent.samples
    }
    unanswered = asked.keys() - predictions.keys()
    scored = [index for index in range(len(texts)) if index not in unanswered]
    scores = dict.fromkeys(unanswered, _abstention(scorer, "the opponent did not answer"))
    made = scorer.score(
        [texts[index] for index in scored],
        [rows[index] for index in scored],
        predictions=[predictions.get(index, ()) for index in scored],
    )
    for index, score in zip(scored, made, strict=True):
        # Valid now, though its prompt could not be made (a time-out that did not repeat): nobody answered it either.
        lucky = score.valid and index not in predictions
        scores[index] = _abstention(scorer, "the opponent's prompt could not be made") if lucky else score
    return [scores[index] for index in range(len(texts))]


class EngineOpponent:
    """An opponent played by an engine of this process, e.g. on the base with the adapter off.

    Args:
        engine: Who samples.
        encode: A prompt -> its tokens.
    """

    def __init__(self, engine: Engine, encode: Callable[[Prompt], Sequence[int]]) -> None:
        self._engine, self._encode = engine, encode

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | None]:
        """Sample the whole batch in one call of the engine; see `OpponentSampler`."""
        requests = [
            Request(tuple(prompt_ids), opponent_key(key, sample), stop=opponent.stop)
            for prompt_ids, key in zip(map(self._encode, prompts), keys, strict=True)
            for sample in range(opponent.samples)
        ]
        texts = [[""] * opponent.samples for _ in prompts]
        for index, completion in self._engine.generate(requests, sampling_of(opponent)):
            texts[index // opponent.samples][index % opponent.samples] = completion.text
        return [tuple(given) for given in texts]


def sampling_of(opponent: Opponent) -> Sampling:
    """How an opponent's answers are drawn."""
    return Sampling(temperature=opponent.temperature, max_completion_length=opponent.max_completion_length)


def opponent_key(key: SampleKey, sample: int) -> SampleKey:
    """The key of an opponent's answer to the completion that `key` names."""
    return SampleKey(key.seed, key.step, f"{OPPONENT_KEY_PREFIX}{key.prompt_id}/{key.sample}", sample)


def _abstention(scorer: Scorer, why: str) -> Score:
    return Score(None, why=f"task {scorer.task.name}, {why}", fault="infrastructure")
