"""Rollouts: the turns of one attempt at a row, with its score. No torch here: rollouts cross processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.mixture import Draw
from grpo_sdk.task.row import Message, Row, story_of
from grpo_sdk.task.score import Score


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt and its completion.

    Attributes:
        prompt_ids: Everything before the completion, earlier turns included.
        completion: The sampled completion.
        trained: Whether the completion's tokens get a loss; an opponent's do not.
    """

    prompt_ids: tuple[int, ...]
    completion: Completion
    trained: bool = True


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """A drawn prompt with its tokens: one group of rollouts.

    Attributes:
        draw: The prompt; an episode that the policy plays alone gives a group for each role.
        prompt_ids: Tokens of the first turn's prompt.
        role: Role that the policy plays in these rollouts; empty in a task that is no game.
    """

    draw: Draw
    prompt_ids: tuple[int, ...]
    role: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one row.

    Attributes:
        spec: The task's name with its options, as in `math.gsm8k?split=train`.
        row: The problem.
        group: Index of the group in the batch: its members answer the same prompt and share a baseline.
        role: Role that the policy played, in a game; empty otherwise.
        turns: One, or several with feedback or in a game; a turn's prompt may extend the turn before.
        score: The task's score; one that abstained is masked and counted, never 0.
        messages: Who said what, in several turns or a game; empty where there is one completion.
        scored_text: Text that was scored: the completion, the last one of a conversation, or the transcript of a game;
            None where nothing was.
        predictions: Answers of the opponent, in a task that has one; None where it was not asked.
    """

    spec: str
    row: Row
    group: int
    role: str
    turns: tuple[Turn, ...]
    score: Score
    messages: tuple[Message, ...] = ()
    scored_text: str | None = None
    predictions: tuple[str, ...] | None = None

    @property
    def text(self) -> str:
        """The completion, or all turns as people read them."""
        return story_of(self.messages) or (self.turns[-1].completion.text if self.turns else "")

    @property
    def n_tokens(self) -> int:
        """Tokens sampled in all turns; 0 for a seat that a game never reached."""
        return sum(len(turn.completion.token_ids) for turn in self.turns)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Log-probs of the tokens sampled in all turns."""
        return tuple(logprob for turn in self.turns for logprob in turn.completion.logprobs)

    @property
    def is_truncated(self) -> bool:
        """Whether a turn was ended by the length limit."""
        return any(turn.completion.finish_reason == "length" for turn in self.turns)


def packed(rollouts: Sequence[Rollout], first_group: int) -> bytes:
    """Encode rollouts for the other ranks: JSON in ASCII, so that any text survives.

    Groups are counted from `first_group` on. Rows and prompts every rank has itself.
    """
    records = []
    for rollout in rollouts:
        turns = [asdict(turn) for turn in rollout.turns]
        if turns and not rollout.role and not rollout.messages:
            turns[0]["prompt_ids"] = None  # that of the group; a player and an environment make others
        scored = {"scored_text": rollout.scored_text, "predictions": rollout.predictions}
        records.append([rollout.group + first_group, turns, asdict(rollout.score), rollout.messages, scored])
    return json.dumps(records).encode("ascii")  # orjson refuses lone surrogates


def unpacked(data: bytes, groups: Sequence[PromptGroup]) -> list[Rollout]:
    """Decode the rollouts of one rank.

    Args:
        data: Result of `packed`.
        groups: The prompts of all ranks, by group.
    """
    rollouts = []
    for number, turns, score, messages, scored in json.loads(data):
        group, predictions = groups[number], scored["predictions"]
        rollout = Rollout(
            spec=group.draw.task.spec,
            row=group.draw.row,
            group=number,
            role=group.role,
            turns=tuple(_turn(turn, group.prompt_ids) for turn in turns),
            score=Score(**score),
            messages=tuple(messages),
            scored_text=scored["scored_text"],
            predictions=None if predictions is None else tuple(predictions),
        )
        rollouts.append(rollout)
    return rollouts


def _turn(record: Mapping[str, Any], first_prompt: tuple[int, ...]) -> Turn:
    completion, prompt = record["completion"], record["prompt_ids"]
    tuples = {name: tuple(completion[name]) for name in ("token_ids", "logprobs", "certainties")}
    return Turn(
        first_prompt if prompt is None else tuple(prompt),
        Completion(**{**completion, **tuples}),
        trained=record["trained"],
    )
