"""Tasks with an opponent: its answers for a whole batch at once, then the scores that depend on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from grpo_sdk.endpoints.base import Engine, Request, SampleKey, Sampling
from grpo_sdk.errors import EmptyPromptError
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.score import Fault, Score

if TYPE_CHECKING:
    from grpo_sdk.endpoints.openai import OpenAIEngine

OPPONENT_KEY_PREFIX = "opponent of "
"""Keeps the opponent's random numbers apart from those of the policy, which is keyed by task and row."""

MAX_SEED = 2**31 - 1
"""Largest seed that every endpoint takes."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The opponent gave no answers, which says nothing about the completion unless its prompt was unreadable.

    Attributes:
        why: Reason, in one line.
        is_unreadable: The prompt that the completion made has no tokens, or more than the opponent can read: the
            completion is at fault.
    """

    why: str
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class OpponentScores:
    """Scores of a batch of a task that has an opponent.

    Attributes:
        scores: Score of each completion.
        predictions: The opponent's answers to each; None where it was not asked or did not answer.
    """

    scores: list[Score]
    predictions: list[tuple[str, ...] | None]


class OpponentSampler(Protocol):
    """Samples the opponent's answers: an engine of this process, or an endpoint."""

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        """Sample `opponent.samples` texts for each prompt, in order.

        Args:
            prompts: The opponent's prompts of a whole batch.
            opponent: How many answers, and how they are sampled.
            keys: Names the random numbers of each prompt's completion; the answers' numbers derive from it.
        """
        ...


def play_opponents(
    scorer: Scorer, texts: Sequence[str], rows: Sequence[Row], sampler: OpponentSampler, *, keys: Sequence[SampleKey]
) -> OpponentScores:
    """Score a batch of one task that has an opponent: validate, ask the opponent once for all, score.

    A completion that the validator refuses is scored without asking. One that makes a prompt which the opponent cannot
    read, e.g. longer than its context, is invalid too. One whose opponent did not answer abstains with the fault
    `infrastructure`; one whose prompt for the opponent could not be made, with the fault `reward`.

    Args:
        scorer: Scorer of the task.
        texts: Completions.
        rows: The row of each.
        sampler: Sampler of the opponent's answers.
        keys: The sampling key of each completion.
    """
    opponent = scorer.task.opponent
    assert opponent is not None, f"task {scorer.task.name} has no opponent"
    prompts = {index: prompt for index, prompt in enumerate(scorer.opponent_prompts(texts, rows)) if prompt is not None}
    prompt_keys = [keys[index] for index in prompts]
    answers = sampler.sample(list(prompts.values()), opponent, prompt_keys) if prompts else []
    predictions: dict[int, tuple[str, ...]] = {}
    scores: dict[int, Score] = {}
    refused: dict[int, Future[Score]] = {}
    for index, answer in zip(prompts, answers, strict=True):
        if not isinstance(answer, Unanswered):
            predictions[index] = answer
        elif answer.is_unreadable:
            refused[index] = scorer.refuse(texts[index], rows[index], f"the opponent cannot read it: {answer.why}")
        else:
            scores[index] = _abstention(scorer, f"the opponent did not answer: {answer.why}")
    scores |= {index: future.result() for index, future in refused.items()}
    scored = [index for index in range(len(texts)) if index not in scores]
    completed = scorer.score(
        [texts[index] for index in scored],
        [rows[index] for index in scored],
        predictions=[predictions.get(index, ()) for index in scored],
    )
    for index, score in zip(scored, completed, strict=True):
        if score.valid and index not in predictions:  # a reward may take "nobody guessed it" for a success
            score = _abstention(scorer, "the opponent's prompt could not be made: it crashed or timed out", "reward")
        scores[index] = score
    return OpponentScores(
        [scores[index] for index in range(len(texts))], [predictions.get(index) for index in range(len(texts))]
    )


class EngineOpponent:
    """An opponent played by an engine of this process, e.g. on the base with the adapter off.

    Args:
        engine: Engine that samples.
        encode: A prompt -> its tokens.
        max_context: Tokens of prompt and answer that the model can read, if they are limited.
    """

    def __init__(
        self, engine: Engine, encode: Callable[[Prompt], Sequence[int]], *, max_context: int | None = None
    ) -> None:
        self._engine, self._encode, self._max_context = engine, encode, max_context

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        """Sample the whole batch in one call of the engine; see `OpponentSampler`."""
        unreadable: dict[int, Unanswered] = {}
        requests: list[Request] = []
        places: list[tuple[int, int]] = []
        for place, (prompt, key) in enumerate(zip(prompts, keys, strict=True)):
            encoded = self._encoded(prompt, opponent)
            if isinstance(encoded, Unanswered):
                unreadable[place] = encoded
                continue
            for sample in range(opponent.samples):
                requests.append(Request(encoded, opponent_key(key, sample), stop=opponent.stop))
                places.append((place, sample))
        texts = [[""] * opponent.samples for _ in prompts]
        for index, completion in self._engine.generate(requests, sampling_of(opponent)):
            place, sample = places[index]
            texts[place][sample] = completion.text
        return [unreadable.get(place, tuple(answers)) for place, answers in enumerate(texts)]

    def _encoded(self, prompt: Prompt, opponent: Opponent) -> tuple[int, ...] | Unanswered:
        try:
            prompt_ids = tuple(self._encode(prompt))
        except EmptyPromptError as error:
            return Unanswered(str(error), is_unreadable=True)
        needed = len(prompt_ids) + opponent.max_completion_length
        if self._max_context is not None and needed > self._max_context:
            why = (
                f"a prompt of {len(prompt_ids)} tokens and {opponent.max_completion_length} for the answer; "
                f"the opponent's context is {self._max_context}"
            )
            return Unanswered(why, is_unreadable=True)
        return prompt_ids


class EndpointOpponent:
    """An opponent behind an OpenAI-compatible endpoint.

    Args:
        engine: The endpoint.
    """

    def __init__(self, engine: OpenAIEngine) -> None:
        self._engine = engine

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        """Request the whole batch at once; the first failed answer of k leaves its prompt unanswered."""
        k = opponent.samples
        answers = dict(
            self._engine.answers(
                [prompt for prompt in prompts for _ in range(k)],
                sampling_of(opponent),
                stop=opponent.stop,
                seeds=[endpoint_seed(opponent_key(key, sample)) for key in keys for sample in range(k)],
            )
        )
        groups = [[answers[k * place + sample] for sample in range(k)] for place in range(len(prompts))]
        failures = [next((answer for answer in group if answer.error), None) for group in groups]
        return [
            Unanswered(failure.error, is_unreadable=failure.is_too_long)
            if failure
            else tuple(answer.text for answer in group)
            for group, failure in zip(groups, failures, strict=True)
        ]


def sampling_of(opponent: Opponent) -> Sampling:
    """Sampling settings of an opponent's answers."""
    return Sampling(temperature=opponent.temperature, max_completion_length=opponent.max_completion_length)


def opponent_key(key: SampleKey, sample: int) -> SampleKey:
    """The key of an opponent's answer to the completion that `key` names."""
    return SampleKey(key.seed, key.step, f"{OPPONENT_KEY_PREFIX}{key.prompt_id}/{key.sample}", sample)


def endpoint_seed(key: SampleKey) -> int:
    """The seed that an endpoint is given for a completion."""
    digest = hashlib.blake2b(repr(tuple(key)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (MAX_SEED + 1)


def _abstention(scorer: Scorer, why: str, fault: Fault = "infrastructure") -> Score:
    return Score(None, why=f"task {scorer.task.name}, {why}", fault=fault)
