"""Rollouts of several turns, in lock step: all are sampled a turn further, then their tasks say what follows.

    round 1   sample  a1 b1 c1      the tasks' code, in killable workers: a goes on, b is over, c goes on
    round 2   sample  a2 c2         …

Who samples is the caller's: the trainer, which needs tokens and log-probs, or an evaluation, also of an endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.opponents import EndpointOpponent, OpponentSampler, Unanswered
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import check_model
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import SELF, Episode, GameConfig, Move, write_transcript
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.remote import write_moves
from grpo_sdk.task.row import Message, Prompt, Row, story_of
from grpo_sdk.task.score import Fault, Score
from grpo_sdk.task.turns import TurnState, continued, without_prefill

Answer = TypeVar("Answer")

OPPONENT_TOKENS = 256
"""Tokens of an opponent's move where the game does not say how long one is."""


BASE = "base"
"""Name of the opponent that plays with the policy as it was at the start of training."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Answer]):
    """The answer to a turn.

    Attributes:
        text: The completion.
        answer: The completion as its sampler represents it; None where there is none.
        error: Why there is no completion, which says nothing about a policy's skill.
        is_full: Whether there is none because the conversation does not fit the model's context: it is over.
    """

    text: str
    answer: Answer | None
    error: str = ""
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class PlayedTurn(Generic[Answer]):
    """A turn of the policy.

    Attributes:
        role: Role that moved, in a game; empty otherwise.
        prompt: The whole prompt.
        text: The completion.
        answer: The completion as its sampler represents it.
        place: Index among the moves.
        goes_on: Whether it goes on from the turn before; a game shows each player a prompt of its own.
    """

    role: str
    prompt: Prompt
    text: str
    answer: Answer
    place: int
    goes_on: bool


@dataclass(slots=True)
class Play(Generic[Answer]):
    """One rollout while it is made.

    Attributes:
        task: The task.
        scorer: Scorer of the task, whose workers also compute the next turn.
        row: The problem.
        key: Names the random numbers of the first turn.
        prompt: The whole prompt of the next turn.
        opponent: Sampler for the seats that the policy does not play, if a model plays them.
        role: Role that moves next.
        moves: Moves so far; see `TurnState`.
        turns: Turns of the policy.
        replaced: Indices of illegal moves that a random one replaced.
        game: The game as people read it, when it is over.
        fault: Why it could not go on, if the task's code failed or an opponent did not answer.
        why: Reason for the fault, in one line.
    """

    task: BoundTask
    scorer: Scorer
    row: Row
    key: SampleKey
    prompt: Prompt
    opponent: OpponentSampler | None = None
    role: str = ""
    moves: tuple[Move, ...] = ()
    turns: list[PlayedTurn[Answer]] = field(default_factory=list)
    replaced: tuple[int, ...] = ()
    game: tuple[Message, ...] = ()
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

    def follow(self, state: TurnState) -> bool:
        """Go on to the next turn; returns whether there is one."""
        self.moves, self.replaced, self.game = state.moves, state.replaced, state.messages
        self.fault, self.why = state.fault, state.why
        self.role = state.role
        if state.fault or state.prompt is None:
            return False
        self.prompt = state.prompt
        if self.goes_on:
            last = self.turns[-1]
            self.prompt = continued(last.prompt, last.text, state.prompt)
        return True

    @property
    def story(self) -> str:
        """The rollout as people read it: a completion, or who said what."""
        return story_of(self.messages) or (self.turns[-1].text if self.turns else "")

    @property
    def messages(self) -> tuple[Message, ...]:
        """Who said what: a game move by move, a conversation from its first completion on; empty of one completion."""
        if self.task.task.game is not None or len(self.turns) < 2:
            return self.game
        messages: list[Message] = []
        for before, turn in pairwise((None, *self.turns)):
            assert turn is not None
            if before is not None and isinstance(turn.prompt, str):
                messages.append(Message(role="user", content=turn.prompt[len(before.prompt) + len(before.text) :]))
            elif before is not None and not isinstance(before.prompt, str) and not isinstance(turn.prompt, str):
                messages += turn.prompt[len(without_prefill(before.prompt)) + 1 :]
            messages.append(Message(role="assistant", content=turn.text))
        return tuple(messages)

    def scores(self) -> dict[str, Future[Score]]:
        """Submit the scoring of each learning role."""
        roles = learning_roles(self.task, self.row)
        if self.fault == "timeout" and self.turns:
            return {role: self.scorer.out_of_time(self.row, self.why) for role in roles}
        if self.fault or not self.turns:
            why = self.why or "the opponent left nothing to play"
            failed = Score(None, why=why, fault=self.fault or "infrastructure")
            return {role: _done(failed) for role in roles}
        return {role: self.scorer.submit(text, self.row) for role, text in self.scored_texts().items()}

    def scored_texts(self) -> dict[str, str]:
        """The text that is scored for each learning role; empty where the rollout did not come to its end."""
        if self.fault or not self.turns:
            return {}
        if self.task.task.remote is not None:
            return {"": write_moves(self.moves)}
        if self.task.task.game is None:
            return {"": self.task.scored_text([turn.text for turn in self.turns])}
        return {role: write_transcript(role, self.moves) for role in learning_roles(self.task, self.row)}


Answering = Callable[[Sequence[Play[Answer]]], Iterator[tuple[int, Reply[Answer]]]]
"""Samples the next turn of each play: yields (index, reply) as each finishes."""


def play(plays: Sequence[Play[Answer]], answer: Answering[Answer]) -> None:
    """Play to the end, in place.

    Args:
        plays: Rollouts at their start.
        answer: Samples the turns of the policy.
    """
    starting = {
        id(played): played.scorer.next_turn((), played.row) for played in plays if played.task.task.game is not None
    }
    open_ = [played for played in plays if id(played) not in starting or played.follow(starting[id(played)].result())]
    while open_:
        of_policy = [played for played in open_ if not played.seat or played.role == played.seat]
        of_opponent = [played for played in open_ if played.seat and played.role != played.seat]
        following = _answered(of_policy, answer) | _opposed(of_opponent)
        open_ = [
            played
            for played in open_
            if id(played) in following and played.follow(_in_time(played, following[id(played)].result()))
        ]


def _in_time(played: Play[Answer], state: TurnState) -> TurnState:
    retried = retried_turn(played, state)
    return state if retried is None else retried.result()


def retried_turn(played: Play[Answer], state: TurnState) -> Future[TurnState] | None:
    """Compute a turn again where a move cannot be read in time: it counts as an empty one, which no game can read.

    Args:
        played: The rollout.
        state: Its state after the move.

    Returns:
        A future of the state after an empty move; None where the state stands.
    """
    task = played.task.task
    if state.fault != "timeout" or task.on_timeout == "abstain" or task.game is None or not state.moves:
        return None
    return played.scorer.next_turn((*state.moves[:-1], ""), played.row)


def _answered(plays: Sequence[Play[Answer]], answer: Answering[Answer]) -> dict[int, Future[TurnState]]:
    """Sample a turn of the policy in each play; its next turn is computed while others are still sampled."""
    following: dict[int, Future[TurnState]] = {}
    for index, reply in answer(plays):
        played = plays[index]
        if reply.answer is None:
            if not reply.is_full:
                played.fault, played.why = "infrastructure", f"no completion: {reply.error}"
            continue
        played.turns.append(
            PlayedTurn(played.role, played.prompt, reply.text, reply.answer, len(played.moves), played.goes_on)
        )
        following[id(played)] = played.scorer.next_turn((*played.moves, reply.text), played.row)
    return following


def _opposed(plays: Sequence[Play[Answer]]) -> dict[int, Future[TurnState]]:
    """Sample a move of each model that plays against the policy."""
    following: dict[int, Future[TurnState]] = {}
    by_opponent: dict[int, list[Play[Answer]]] = {}
    for played in plays:
        by_opponent.setdefault(id(played.opponent), []).append(played)
    for group in by_opponent.values():
        opponent, task = group[0].opponent, group[0].task
        assert opponent is not None, f"{task.name}: who plays {group[0].role}?"
        prompts, keys = [played.prompt for played in group], [played.turn_key for played in group]
        for played, answer in zip(group, opponent.sample(prompts, game_opponent(task), keys), strict=True):
            if not isinstance(answer, Unanswered):
                following[id(played)] = played.scorer.next_turn((*played.moves, answer[0]), played.row)
            elif not (answer.is_unreadable and played.turns):  # else what the policy wrote ends the game
                played.fault, played.why = "infrastructure", f"the opponent did not answer: {answer.why}"
    return following


def learning_roles(task: BoundTask, row: Row) -> tuple[str, ...]:
    """The roles that the policy plays in an episode; one without a name in a task that is no game."""
    game = task.task.game
    if game is None:
        return ("",)
    assert isinstance(row, Episode)
    return (row.seat,) if row.seat else game.roles


def game_opponent(task: BoundTask) -> Opponent:
    """Settings for sampling a model that plays against the policy."""
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


def check_opponent(task: BoundTask) -> None:
    """Check that the model exists that plays against the policy, where one does.

    Raises:
        UserError: it does not; names the players that are no models.
    """
    if not needs_opponent(task):
        return
    from grpo_sdk.endpoints.openai import OpenAIEngine  # here: most tasks have no opponent

    name = game_opponent(task).engine
    if name == BASE or OpenAIEngine.is_url(name):
        return
    try:
        check_model(name)
    except UserError as error:
        game = task.task.game
        players = ", ".join((SELF, *(game.scripted if game else ()), BASE))
        raise UserError(
            f"{task.name}: opponent={name} is none of {players}, so it has to be a model: {error}"
        ) from None


def plays_base(task: BoundTask) -> bool:
    """Whether a task has an opponent that is the policy at its start."""
    opponent = task.opponent or (game_opponent(task) if needs_opponent(task) else None)
    return opponent is not None and opponent.engine == BASE


def endpoint_opponent(task: BoundTask, url: str | None = None) -> OpponentSampler | None:
    """The endpoint that plays a task's opponent; None where there is no opponent, or no endpoint.

    Args:
        task: The task.
        url: The endpoint, `http://host:port/v1#model`; by default that of the task's options.

    Raises:
        UserError: `url` is no address.
    """
    own = task.opponent or (game_opponent(task) if needs_opponent(task) else None)
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


def _done(score: Score) -> Future[Score]:
    future: Future[Score] = Future()
    future.set_result(score)
    return future
