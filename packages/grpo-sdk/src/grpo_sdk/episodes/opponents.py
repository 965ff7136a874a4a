"""Models that answer the policy or play against it: who they are, and their answers for a whole batch at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from grpo_sdk.endpoints.base import SampleKey, Sampling
from grpo_sdk.errors import UserError
from grpo_sdk.killable.pool import resolved
from grpo_sdk.plugins.models import check_model
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import SELF, GameConfig
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.score import Score

if TYPE_CHECKING:
    from grpo_sdk.endpoints.openai import OpenAIEngine

OPPONENT_KEY_PREFIX = "opponent of "
"""Keeps the opponent's random numbers apart from those of the policy, which is keyed by task and row."""

MAX_SEED = 2**31 - 1
"""Largest seed that every endpoint takes."""

OPPONENT_TOKENS = 256
"""Tokens of an opponent's move where the game does not say how long one is."""

BASE = "base"
"""Name of the opponent that plays with the policy as it was at the start of training."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A model gave no answer, which says nothing about what was written before, unless that made it unreadable.

    Attributes:
        why: Reason, in one line.
        is_unreadable: Whether the prompt has no tokens, or more than the model can read.
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
    answered = dict(zip(prompts, answers, strict=True))
    found = [answered.get(index) for index in range(len(texts))]
    futures = [_scored(scorer, *each) for each in zip(texts, rows, found, strict=True)]
    scores = [future.result() for future in futures]
    for index, score in enumerate(scores):
        if score.valid and index not in answered:  # a reward may take "nobody guessed it" for a success
            why = f"task {scorer.task.name}, the opponent's prompt could not be made: it crashed or timed out"
            scores[index] = Score(None, why=why, fault="reward")
    return OpponentScores(scores, [None if isinstance(answer, Unanswered) else answer for answer in found])


def _scored(scorer: Scorer, text: str, row: Row, answer: tuple[str, ...] | Unanswered | None) -> Future[Score]:
    """Queue the score of a completion with what the opponent answered; None where it was not asked."""
    if not isinstance(answer, Unanswered):
        return scorer.submit(text, row, answer or ())
    if answer.is_unreadable:
        return scorer.refuse(text, row, f"the opponent cannot read it: {answer.why}")
    why = f"task {scorer.task.name}, the opponent did not answer: {answer.why}"
    return resolved(Score(None, why=why, fault="infrastructure"))


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


def opponent_of(task: BoundTask) -> Opponent | None:
    """How the model is sampled that answers the policy, or plays a game against it; None where none does."""
    game = task.task.game
    if game is None:
        return task.opponent
    assert isinstance(task.config, GameConfig)
    if task.config.opponent in (SELF, *game.scripted):
        return None
    return Opponent(
        prompt=task.prompt,
        samples=1,
        engine=task.config.opponent,
        temperature=1.0,
        max_completion_length=task.task.max_completion_length or OPPONENT_TOKENS,
        stop=task.task.stop,
    )


def check_opponent(task: BoundTask) -> None:
    """Check that the model exists that plays a game against the policy, where one does.

    Raises:
        UserError: it does not; names the players that are no models.
    """
    game, opponent = task.task.game, opponent_of(task)
    if game is None or opponent is None:
        return
    from grpo_sdk.endpoints.openai import OpenAIEngine  # here: most tasks have no opponent

    name = opponent.engine
    if name == BASE or OpenAIEngine.is_url(name):
        return
    try:
        check_model(name)
    except UserError as error:
        players = ", ".join((SELF, *game.scripted, BASE))
        raise UserError(
            f"{task.name}: opponent={name} is none of {players}, so it has to be a model: {error}"
        ) from None


def plays_base(task: BoundTask) -> bool:
    """Whether a task has an opponent that is the policy at its start."""
    opponent = opponent_of(task)
    return opponent is not None and opponent.engine == BASE


def endpoint_opponent(task: BoundTask, url: str | None = None) -> OpponentSampler | None:
    """The endpoint that plays a task's opponent; None where there is no opponent, or no endpoint.

    Args:
        task: The task.
        url: The endpoint, `http://host:port/v1#model`; by default that of the task's options.

    Raises:
        UserError: `url` is no address.
    """
    own = opponent_of(task)
    if own is None and url is None:
        return None
    from grpo_sdk.endpoints.openai import OpenAIEngine  # here: most tasks have no opponent

    if url is not None and not OpenAIEngine.is_url(url):
        raise UserError(f"opponent_url={url!r}: write http://host:port/v1#model.")
    address = url or (own.engine if own is not None else "")
    if not OpenAIEngine.is_url(address):
        return None
    engine = OpenAIEngine.from_url(address)  # also where nobody plays: a wrong address is refused
    return None if own is None else EndpointOpponent(engine)


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
