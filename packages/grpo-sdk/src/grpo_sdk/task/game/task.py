"""The task of a game: its rows are episodes, and transcripts are scored."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count, islice

from grpo_sdk.errors import UserError
from grpo_sdk.task.composition import reward, weighted_sum
from grpo_sdk.task.evaluation import EvaluationDefaults
from grpo_sdk.task.game.replay import read_transcript, replay
from grpo_sdk.task.game.rules import (
    BOTH,
    DEFAULT_EPISODES,
    PERFECT,
    SELF,
    Game,
    GameConfig,
    GamePosition,
    GameStart,
    Rules,
)
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.score import Invalid, Score
from grpo_sdk.task.task import Task


@dataclass(frozen=True, slots=True)
class Result:
    """An episode from one role's side."""

    role: str
    position: GamePosition

    @property
    def value(self) -> float:
        """The role's return."""
        assert self.position.returns is not None
        return self.position.returns[self.role]


def game_task(game: Game) -> Task:
    """Make the task of a game; its rows are starts of episodes.

    Args:
        game: Rules, roles and players.
    """
    result = lru_cache(maxsize=256)(partial(_result, game))

    def of(text: str, row: GameStart, config: GameConfig) -> Result | None:
        try:
            return result(text, row, config.model_dump_json())
        except Invalid:
            return None

    def load(config: GameConfig) -> Iterator[GameStart]:
        return _episodes(game, config)

    load.__doc__ = game.description or f"A game of {', '.join(game.roles)}."

    def prompt(row: GameStart, config: GameConfig) -> Prompt:
        rules = Rules(game, config)
        position = replay(rules, row, (), rules.scripted(row))
        if not position.to_move:
            raise UserError(f"game {game.name!r}: episode {row.id!r} is over before the policy has moved.")
        observation: Prompt = rules.call("observe", state=position.state, role=position.to_move)
        return observation

    def validate(text: str, row: GameStart, config: GameConfig) -> Result:
        played = result(text, row, config.model_dump_json())
        if played.position.illegal == played.role:
            raise Invalid(f"illegal move: {played.position.why}")
        return played

    return Task(
        name=game.name,
        load=load,
        prompt=prompt,
        validate=validate,
        rewards=_rewards(game, of),
        config=game.config,
        row=GameStart,
        version=game.version,
        compose=weighted_sum(),
        solved=lambda parts: parts["win"] == 1.0,
        stop=game.stop,
        max_completion_length=game.max_completion_length,
        default_model=game.default_model,
        timeout_s=game.timeout_s,
        on_timeout="fail",
        demos=game.demos or (lambda config: random_demos(Rules(game, config))),
        max_turns=game.max_turns,
        exempt={"split": "what differs between episodes is a seed", "gold": "the completion is a whole episode"},
        metrics=lambda scores: game_metrics(game, scores),
        evaluation=_evaluation,
        game=game,
    )


def _result(game: Game, text: str, start: GameStart, config_json: str) -> Result:
    """The result of a transcript.

    Raises:
        Invalid: it is none of a whole episode.
    """
    role, moves = read_transcript(text)
    config = game.config.model_validate_json(config_json)
    if role not in game.roles:
        raise Invalid(f"{role!r} is none of {', '.join(game.roles)}")
    position = replay(Rules(game, config), start, moves)
    if position.returns is None:
        raise Invalid(f"the episode is not over: {position.to_move} is to move")
    return Result(role, position)


# Names of arguments and of enclosed variables below are part of the identity of every game.
def _rewards(game: Game, of: Callable[[str, GameStart, GameConfig], Result | None]) -> tuple[Callable[..., float], ...]:
    """The return of an episode, and facts of weight 0 that the metrics count.

    Args:
        game: The game.
        of: Result of a transcript; None where it is invalid.
    """

    # These ask for the text and not for the answer: an episode lost by an illegal move has a return too.
    @reward(maximum=game.maximum)
    def outcome(text: str, row: GameStart, config: GameConfig) -> float:
        result = of(text, row, config)
        return 0.0 if result is None else result.value

    def sides(row: GameStart) -> float:
        """Scores that the episode gives: one for each seat that learns."""
        return 1.0 if row.seat else float(len(game.roles))

    def fact(name: str, holds: Callable[[Result], float]) -> Callable[..., float]:
        def measured(text: str, row: GameStart, config: GameConfig) -> float:
            result = of(text, row, config)
            return 0.0 if result is None else float(holds(result))

        measured.__name__ = name
        return reward(0.0)(measured)

    facts = (
        fact("win", lambda found: found.value > 0),
        fact("draw", lambda found: found.value == 0),
        fact("loss", lambda found: found.value < 0),
        fact("illegal", lambda found: found.position.illegal == found.role),
        fact("replaced", lambda found: sum(found.position.movers[at] == found.role for at in found.position.replaced)),
        fact("turns", lambda found: len(found.position.moves)),
        fact("seat", lambda found: game.roles.index(found.role)),
    )

    return (outcome, *facts, reward(0.0)(sides))


MAX_LEFT_OUT = 10
"""Episodes that are over before the policy has moved, for each that is not, at most."""

EVALUATION_EPISODES = 256
"""A rate near one half is then known to about 0.06, and one near 0.02 to about 0.02."""


def _evaluation(config: GameConfig) -> EvaluationDefaults:
    # As in training: who bluffs plays a mixed strategy, and greedy play is another one. Against an opponent that always
    # replies in the same way, all greedy episodes would be one.
    return EvaluationDefaults(size=EVALUATION_EPISODES, temperature=1.0)


def game_metrics(game: Game, scores: Sequence[Score]) -> dict[str, float]:
    """Rates for each seat, and SPIRAL's counts of a batch of episodes, but for those that did not end.

    Args:
        game: The game.
        scores: Scores of the game's task, one for each learning seat of an episode.
    """
    scored = [score.parts for score in scores if not score.abstained]
    parts = [facts for facts in scored if facts["win"] + facts["draw"] + facts["loss"] > 0]
    metrics = {"games/unfinished": float(len(scored) - len(parts))} if scored else {}
    for seat, role in enumerate(game.roles):
        own = [facts for facts in parts if facts["seat"] == seat]
        others = [facts for facts in parts if facts["seat"] != seat and facts["sides"] == 1]
        for name in ("win", "draw", "loss", "illegal") if own else ():
            metrics[f"games/{game.name}/{role}/{name}_rate"] = sum(facts[name] for facts in own) / len(own)
        if parts:  # with two players, one wins what the other loses
            wins = sum(facts["win"] for facts in own) + sum(facts["loss"] for facts in others)
            metrics[f"games/won_player_{seat}"] = wins
    if parts:
        metrics["games/drawn"] = sum(facts["draw"] / facts["sides"] for facts in parts)
        metrics["games/invalid_moves"] = sum(facts["illegal"] + facts["replaced"] for facts in parts)
        metrics["games/avg_length"] = sum(facts["turns"] for facts in parts) / len(parts)
    return metrics


def _episodes(game: Game, config: GameConfig) -> Iterator[GameStart]:
    if config.seat != BOTH and config.seat not in game.roles:
        raise UserError(f"game {game.name!r}: seat={config.seat!r} must be {', '.join(game.roles)} or {BOTH}.")
    if config.opponent == PERFECT and game.best is None:
        raise UserError(f"game {game.name!r} has no perfect player; opponent= may be {', '.join(game.scripted)}.")
    for name in ("illegal_reward", "illegal_other"):
        if getattr(config, name) > game.maximum:
            raise UserError(
                f"game {game.name!r}: {name}={getattr(config, name):g} is above the largest return, {game.maximum:g}: "
                "it would not be scored."
            )
    seats = [""] if config.opponent == SELF else list(game.roles) if config.seat == BOTH else [config.seat]
    size, left_out = config.size or DEFAULT_EPISODES, 0
    for index in count():
        # A start is drawn once for all seats, so that they are compared on the same starts.
        start = random.Random(f"{config.split}/{config.seed}/{index // len(seats)}").getrandbits(32)
        episode = GameStart(id=f"{config.split}-{config.seed}-{index}", seed=start, seat=seats[index % len(seats)])
        if not _is_over_at_once(Rules(game, config), episode):
            yield episode
        else:
            left_out += 1
            if left_out > MAX_LEFT_OUT * size:
                raise UserError(
                    f"game {game.name!r}: with opponent={config.opponent} and seat={config.seat}, hardly any episode "
                    "goes on until the policy moves."
                )
        if index + 1 - left_out == size:
            return


def _is_over_at_once(rules: Rules, start: GameStart) -> bool:
    """Whether the episode is over before the policy has moved, so that there is nothing to learn or to measure."""
    try:
        return replay(rules, start, (), rules.scripted(start)).returns is not None
    except Exception:  # what the game raises is attributed where the episode is played
        return False


DEFAULT_DEMOS = 65_536
"""Demos where no size is given: 1,000 steps of 64 examples."""


def random_demos(rules: Rules) -> Iterator[tuple[Prompt, str]]:
    """Positions of random games, each with a random legal move."""
    return islice(_random_moves(rules), rules.config.size or DEFAULT_DEMOS)


def _random_moves(rules: Rules) -> Iterator[tuple[Prompt, str]]:
    rng = random.Random(f"demos/{rules.config.seed}/{rules.config.split}")
    while True:
        state = rules.call("initial", seed=rng.getrandbits(32))
        for _ in range(rules.game.max_turns):
            if rules.outcome(state) is not None:
                break
            role, action = rules.call("to_move", state=state), rng.choice(rules.legal(state))
            yield rules.call("observe", state=state, role=role), rules.call("write", action=action, state=state)
            state = rules.call("apply", state=state, action=action)
