"""The state of an episode: what was said so far, and whose turn it is. Who plays it is in `player`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.opponents import Unanswered
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Message, Prompt, Row, story_of
from grpo_sdk.task.tools.calls import Reading, ToolTurn, spoken
from grpo_sdk.task.turns import Partner, Toolbox, TurnState, added, continued, partner_of, results_of

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Reply(Generic[Answer]):
    """The policy's answer to a turn.

    Attributes:
        text: The completion.
        answer: The completion as its sampler represents it.
        reading: What it says, in a task with tools.
    """

    text: str
    answer: Answer
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class PlayedTurn(Generic[Answer]):
    """A turn of the policy.

    Attributes:
        role: Role that moved, in a game; empty otherwise.
        prompt: The whole prompt.
        text: The completion.
        answer: The completion as its sampler represents it.
        place: Index among the moves.
        said: The message that it is in the conversation.
    """

    role: str
    prompt: Prompt
    text: str
    answer: Answer
    place: int
    said: Message


@dataclass(slots=True)
class Episode(Generic[Answer]):
    """One attempt at a row, while it is played and after.

    Attributes:
        task: The task.
        row: The problem.
        key: Names the random numbers of the first turn.
        prompt: The whole prompt of the next turn, at first that of the row; a game makes its own when it begins.
        turns: Turns of the policy.
        state: What the partner said last: the moves so far, whose turn it is, faults.
        is_over: Whether no turn follows.
        tools: The tools of the episode, once they are there.
    """

    task: BoundTask
    row: Row
    key: SampleKey
    prompt: Prompt = ""
    turns: list[PlayedTurn[Answer]] = field(default_factory=list)
    state: TurnState = field(default_factory=lambda: TurnState(()))
    is_over: bool = False
    tools: ToolSession | None = None
    partner: Partner = field(init=False)

    def __post_init__(self) -> None:
        self.partner = partner_of(self.task.task, self.task.config, self.task.max_turns)

    @property
    def turn_key(self) -> SampleKey:
        """Names the random numbers of the next turn; the first one's are those of a single turn."""
        place = len(self.state.moves)
        return self.key if not place else self.key._replace(prompt_id=f"{self.key.prompt_id}/turn {place}")

    @property
    def has_begun(self) -> bool:
        """Whether there is a prompt; a game begins with what its first player sees."""
        return not self.partner.begins or self.state.prompt is not None or self.is_over

    @property
    def is_policys_turn(self) -> bool:
        """Whether the policy has the next turn, and not a model that plays against it."""
        return self.state.role in self.partner.roles(self.row)

    @property
    def goes_on(self) -> bool:
        """Whether the next turn goes on from the one before; a game shows each player a prompt of its own."""
        return bool(self.turns) and not self.partner.makes_prompts

    @property
    def added(self) -> Prompt:
        """What follows the last completion: the whole prompt where the next turn does not go on from it."""
        if not self.goes_on:
            return self.prompt
        last = self.turns[-1]
        return added(last.prompt, last.text, self.prompt)

    @property
    def results(self) -> list[Message]:
        """The messages that follow the calls of the last completion, one for each; see `results_of`."""
        calls = self.turns[-1].said.get("tool_calls", ())
        return results_of(self.state, [call["function"]["name"] for call in calls])

    def take(self, reply: Reply[Answer]) -> None:
        """Record the policy's turn."""
        reading = reply.reading or Reading(reply.text)
        said, place = spoken(reading, reply.text), len(self.state.moves)
        self.turns.append(PlayedTurn(self.state.role, self.prompt, reply.text, reply.answer, place, said))

    def follow(self, state: TurnState) -> None:
        """Go on with what the partner says."""
        self.state = state
        if state.fault or state.prompt is None:
            self.is_over = True
        elif self.goes_on:
            last = self.turns[-1]
            self.prompt = continued(last.prompt, last.text, state.prompt, last.said)
        else:
            self.prompt = state.prompt

    def break_off(self, what: str, answer: Unanswered) -> None:
        """End the episode, since nobody answers: it counts where what the policy wrote is too long to go on from.

        Args:
            what: What is missing, as the reason names it.
            answer: Why there is none.
        """
        self.is_over = True
        if not (answer.is_unreadable and self.turns):  # which says nothing about the policy
            self.state = replace(self.state, prompt=None, fault="infrastructure", why=f"{what}: {answer.why}")

    @property
    def messages(self) -> tuple[Message, ...]:
        """Who said what: a game move by move, a conversation from its first completion on; empty of one completion."""
        if isinstance(self.partner, Toolbox):
            return (*self._opening, *tool_story(self.state.moves))
        if self.partner.makes_prompts or len(self.turns) < 2:
            return self.state.messages
        messages: list[Message] = []
        for place, turn in enumerate(self.turns):
            if place:
                before = self.turns[place - 1]
                said = added(before.prompt, before.text, turn.prompt)
                messages += (Message(role="user", content=said),) if isinstance(said, str) else said
            messages.append(Message(role="assistant", content=turn.text))
        return tuple(messages)

    @property
    def _opening(self) -> tuple[Message, ...]:
        """What an environment added to the row's prompt."""
        if not self.partner.begins or not self.turns:
            return ()
        opened = self.turns[0].prompt[len(self.task.prompt(self.row)) :]
        if isinstance(opened, str):
            return (Message(role="environment", content=opened),) if opened else ()
        return opened

    @property
    def story(self) -> str:
        """The episode as people read it: a completion, or who said what."""
        return story_of(self.messages) or (self.turns[-1].text if self.turns else "")

    def scored_texts(self) -> dict[str, str]:
        """The text that is scored for each role that learns; empty where the episode did not come to its end."""
        if self.state.fault or not self.turns:
            return {}
        return self.partner.write(self.state.moves, self.row)


def tool_story(turns: Sequence[ToolTurn]) -> tuple[Message, ...]:
    """Who said what in an episode with tools: the completions, and after each its calls with their results."""
    told: list[Message] = []
    for turn in turns:
        told.append(Message(role="assistant", content=turn.text))
        told += (Message(role="tool", name=call.written, content=call.result) for call in turn.calls)
    return tuple(told)


def learning_roles(task: BoundTask, row: Row) -> tuple[str, ...]:
    """The roles that the policy plays in an episode; one without a name in a task that is no game."""
    return partner_of(task.task, task.config, task.max_turns).roles(row)
