"""An environment of OpenEnv served by the released package: guess a number that the seed chooses."""

import random
import socket
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """A guess."""

    guess: str


class Hint(Observation):
    """What is said of it."""

    hint: str


class Numbers(Environment[Guess, Hint, State]):
    """Three guesses at a number from 0 to 9; the third that is wrong costs 1."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Hint:
        self.secret, self.turns = random.Random(seed).randrange(10), 0
        return Hint(hint=f"Game {seed}. Guess a number from 0 to 9.")

    def step(self, action: Guess, timeout_s: float | None = None, **options: Any) -> Hint:
        self.turns += 1
        if action.guess == "crash":
            raise RuntimeError("the environment has a bug")
        if action.guess == str(self.secret):
            return Hint(hint="yes", reward=1.0, done=True)
        is_over = self.turns == 3
        return Hint(hint="higher" if action.guess < str(self.secret) else "lower", reward=-1.0 * is_over, done=is_over)

    @property
    def state(self) -> State:
        return State(step_count=self.turns)


if __name__ == "__main__":
    app = create_app(Numbers, Guess, Hint, env_name="numbers", max_concurrent_envs=int(sys.argv[1]))
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
