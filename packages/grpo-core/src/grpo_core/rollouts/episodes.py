"""Rollouts of several turns, in lock step: all are sampled a turn further, then their tasks say what follows.

    round 1   sample  a1 b1 c1      the tasks' code, in killable workers: a goes on, b is over, c goes on
    round 2   sample  a2 c2         …

Who samples is the caller's: the trainer, which needs tokens and log-probs, or an evaluation, also of an endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from grpo_core.engines.base import SampleKey
from grpo_core.rollouts.opponents import OpponentSampler, Unanswered
from grpo_core.scoring import Scorer
from grpo_core.task.bound import BoundTask
from grpo_core.task.game import SELF, Episode, GameConfig, Move, write_transcript
from grpo_core.task.opponent import Opponent
from grpo_core.task.row import Message, Prompt, Row
from grpo_core.task.score import Fault, Score
from grpo_core.task.turns import TurnState, continued

Made = TypeVar("Made")

OPPONENT_TOKENS = 256
"""Tokens of an opponent's move where the game does not say how long one is."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Made]):
    """What a turn was answered with.

    Attributes:
        text: The completion.
        made: The same as the sampler knows it; None where there is none.
        error: Why there is none, which says nothing about a policy's skill.
        is_full: There is none because the conversation does not fit the model's context any more: it is over.
    """

    text: str
    made: Made | None
    error: str = ""
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class PlayedTurn(Generic[Made]):
    """A turn of the policy.

    Attributes:
        role: Who moved, in a game; empty otherwise.
        prompt: All that was answered.
        text: The completion.
        made: The same as the sampler knows it.
        place: Its place among the moves.
        goes_on: Whether it goes on from the turn before; a game shows each player a prompt of its own.
    """

    role: str
    prompt: Prompt
    text: str
    made: Made
    place: int
    goes_on: bool


@dataclass(slots=True)
class Play(Generic[Made]):
    """One rollout while it is made.

    Attributes:
        task: Of the rollout.
        scorer: Of the task; its workers also say what comes next.
        row: The problem.
        key: Names the random numbers of the first turn.
        prompt: What is answered next; all of it.
        opponent: Who plays the seats that the policy does not have, if a model does.
        role: Whose turn it is.
        moves: Made so far; see `TurnState`.
        turns: Those of the policy.
        replaced: Places of illegal moves that a random one replaced.
        told: The game as people read it, when it is over.
        fault: Why it could not go on, if the task's code failed or an opponent did not answer.
        why: The same in one line.
    """

    task: BoundTask
    scorer: Scorer
    row: Row
    key: SampleKey
    prompt: Prompt
    opponent: OpponentSampler | None = None
    role: str = ""
    moves: tuple[Move, ...] = ()
    turns: list[PlayedTurn[Made]] = field(default_factory=list)
    replaced: tuple[int, ...] = ()
    told: str = ""
    fault: Fault = ""
    why: str = ""

    @property
    def turn_key(self) -> SampleKey:
        """Names the random numbers of the next turn; the first one's are those of a single turn."""
        place = len(self.moves)
        return self.key if not place else self.key._replace(prompt_id=f"{self.key.prompt_id}/turn {place}")

    @property
    def goes_on(self) -> bool:
        """Whether the next turn goes on from the one before."""
        return bool(self.turns) and self.task.task.game is None

    @property
    def seat(self) -> str:
        """The role that the policy has; empty where it has all."""
        return self.row.seat if isinstance(self.row, Episode) else ""

    @property
    def learning_roles(self) -> tuple[str, ...]:
        """The roles that are scored; one without a name in a task that is no game."""
        game = self.task.task.game
        return ("",) if game is None else (self.seat,) if self.seat else game.roles

    def follow(self, progress: TurnState) -> bool:
        """Take in what comes next: whether there is something to answer."""
        self.moves, self.replaced, self.told = progress.moves, progress.replaced, progress.story
        self.fault, self.why = progress.fault, progress.why
        self.role = progress.role
        if progress.fault or progress.prompt is None:
            return False
        last = self.turns[-1] if self.turns else None
        goes_on = last is not None and self.task.task.game is None
        self.prompt = continued(last.prompt, last.text, progress.prompt) if last and goes_on else progress.prompt
        return True

    @property
    def story(self) -> str:
        """What people read of the rollout: a game move by move, a conversation from its first completion on."""
        if self.told or not self.turns:
            return self.told
        first, last = self.turns[0].prompt, self.turns[-1]
        if len(self.turns) == 1:
            return last.text
        if isinstance(first, str):
            return f"{last.prompt}{last.text}"[len(first) :]
        said = [*last.prompt[len(first) :], Message(role="assistant", content=last.text)]
        return "\n".join(f"{message['role']}: {message['content']}" for message in said)

    def scores(self) -> dict[str, Future[Score]]:
        """Ask for the score of each learning role."""
        if self.fault == "timeout" and self.turns:
            return {role: self.scorer.out_of_time(self.row, self.why) for role in self.learning_roles}
        if self.fault or not self.turns:
            why = self.why or "the opponent left nothing to play"
            failed = Score(None, why=why, fault=self.fault or "infrastructure")
            return {role: _done(failed) for role in self.learning_roles}
        if self.task.task.game is None:
            return {"": self.scorer.submit(self.turns[-1].text, self.row)}
        return {role: self.scorer.submit(write_transcript(role, self.moves), self.row) for role in self.learning_roles}


Answering = Callable[[Sequence[Play[Made]]], Iterator[tuple[int, Reply[Made]]]]
"""Samples the next turn of each play: yields (index, reply) as each finishes."""


def play(plays: Sequence[Play[Made]], answer: Answering[Made]) -> None:
    """Play to the end, in place.

    Args:
        plays: Rollouts at their start.
        answer: The policy.
    """
    starting = [each for each in plays if each.task.task.game is not None]
    progresses = [each.scorer.next_turn((), each.row) for each in starting]
    over = [one for one, made in zip(starting, progresses, strict=True) if not one.follow(made.result())]
    open_ = [each for each in plays if not any(each is one for one in over)]
    while open_:
        mine = [one for one in open_ if not one.seat or one.role == one.seat]
        theirs = [one for one in open_ if one.seat and one.role != one.seat]
        following = _answered(mine, answer) | _opposed(theirs)
        open_ = [
            one for one in open_ if id(one) in following and one.follow(_in_time(one, following[id(one)].result()))
        ]


def _in_time(one: Play[Made], progress: TurnState) -> TurnState:
    """What comes next, where a move that cannot be read in time counts as an empty one, which no game can read."""
    task = one.task.task
    if progress.fault != "timeout" or task.on_timeout == "abstain" or task.game is None or not progress.moves:
        return progress
    return one.scorer.next_turn((*progress.moves[:-1], ""), one.row).result()


def _answered(plays: Sequence[Play[Made]], answer: Answering[Made]) -> dict[int, Future[TurnState]]:
    """Let the policy move; what comes next is found out while others are still sampled."""
    following: dict[int, Future[TurnState]] = {}
    for index, reply in answer(plays):
        one = plays[index]
        if reply.made is None:
            if not reply.is_full:
                one.fault, one.why = "infrastructure", f"no completion: {reply.error}"
            continue
        turn = PlayedTurn(one.role, one.prompt, reply.text, reply.made, len(one.moves), one.goes_on)
        one.turns.append(turn)
        following[id(one)] = one.scorer.next_turn((*one.moves, reply.text), one.row)
    return following


def _opposed(plays: Sequence[Play[Made]]) -> dict[int, Future[TurnState]]:
    """Let the models move that play against the policy."""
    following: dict[int, Future[TurnState]] = {}
    by_opponent: dict[int, list[Play[Made]]] = {}
    for one in plays:
        by_opponent.setdefault(id(one.opponent), []).append(one)
    for group in by_opponent.values():
        opponent, task = group[0].opponent, group[0].task
        assert opponent is not None, f"{task.name}: who plays {group[0].role}?"
        answers = opponent.sample([one.prompt for one in group], game_opponent(task), [one.turn_key for one in group])
        for one, given in zip(group, answers, strict=True):
            if not isinstance(given, Unanswered):
                following[id(one)] = one.scorer.next_turn((*one.moves, given[0]), one.row)
            elif not (
                given.is_unreadable and one.turns
            ):  # else what the policy wrote ends the game, as where it is full
                one.fault, one.why = "infrastructure", f"the opponent did not answer: {given.why}"
    return following


def game_opponent(task: BoundTask) -> Opponent:
    """How a model that plays against the policy is sampled."""
    assert isinstance(task.config, GameConfig)
    return Opponent(
        prompt=task.prompt,
        samples=1,
        engine=task.config.opponent,
        temperature=1.0,
        max_completion_length=task.task.max_completion_length or OPPONENT_TOKENS,
        stop=task.task.stop,
    )


def needs_opponent(task: BoundTask) -> bool:
    """Whether a model plays against the policy."""
    game = task.task.game
    if game is None:
        return False
    assert isinstance(task.config, GameConfig)
    return task.config.opponent not in (SELF, *game.scripted)


def _done(score: Score) -> Future[Score]:
    future: Future[Score] = Future()
    future.set_result(score)
    return future
