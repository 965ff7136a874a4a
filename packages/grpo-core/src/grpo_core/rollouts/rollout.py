"""Rollouts: the turns of one attempt at a row, with its score. No torch here: rollouts cross processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.row import story_of

if TYPE_CHECKING:
    from grpo_sdk.task.row import Message, Row
    from grpo_sdk.task.score import Score

RolloutStatus = Literal["scored", "abstained", "unscored"]


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
class Rollout:
    """One attempt at one row.

    Attributes:
        spec: The task's name with its options, as in `math.gsm8k?split=train`.
        row: The problem.
        group: Index of the group in the batch: its members answer the same prompt and share a baseline.
        role: Role that the policy played, in a game; empty otherwise.
        turns: One, or several with feedback or in a game; a turn's prompt may extend the turn before.
        score: The task's score; None before scoring.
        status: `scored`; `abstained` (no value: masked and counted, never 0); or `unscored` so far.
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
    score: Score | None = None
    status: RolloutStatus = "unscored"
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

    def __post_init__(self) -> None:
        expected = "unscored" if self.score is None else "abstained" if self.score.value is None else "scored"
        if self.status != expected:
            raise ValueError(f"status {self.status!r} does not fit score {self.score!r}, which is {expected!r}.")
