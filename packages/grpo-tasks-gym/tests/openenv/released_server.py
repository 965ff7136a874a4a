"""Environments of OpenEnv served by the released package, and its own client of tools.

python released_server.py guess CONNECTIONS       serves one whose actions are guesses; prints the port
python released_server.py tools CONNECTIONS       serves one whose actions are tool calls; prints the port
python released_server.py play ADDRESS EPISODES   plays [[seed, [[tool, arguments], …]], …]; prints rewards and results
"""

import asyncio
import json
import random
import socket
import sys
import time
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.mcp_client import MCPToolClient


class Guess(Action):
    """A guess."""

    guess: str


class Hint(Observation):
    """What is said of it."""

    hint: str


class Guesses(Environment[Guess, Hint, State]):
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


REWARDS = {"right": 1.0, "nan": float("nan"), "nothing": None}


class Tools(MCPEnvironment):
    """Guess a number that the seed chooses; a guess that is wrong costs 0.25, looking costs 0.125."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("numbers")
        self.secret = -1

        @server.tool
        def is_above(number: int) -> bool:
            """Whether the number is above another."""
            if number == 99:
                time.sleep(4)
            if number == 98:
                raise ValueError("98 is no number to look at")
            return self.secret > number

        @server.tool
        def guess(number: int) -> str:
            """Say the number, which ends the game."""
            return {self.secret: "right", 97: "nan", 96: "nothing"}.get(number, "wrong")

        @server.tool
        def draw() -> Image:
            """Draw the number."""
            return Image(data=b"png", format="png")

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        self.secret = random.Random(seed).randrange(10)
        return Observation(reward=0.0, metadata={"question": f"Game {seed}: which number from 0 to 9?"})

    async def step_async(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        seen = await super().step_async(action, timeout_s=timeout_s, **options)
        if isinstance(seen, CallToolObservation) and seen.error is None:
            if seen.tool_name != "guess":
                seen.reward = -0.125
            else:
                seen.reward, seen.done = REWARDS.get(seen.result.content[0].text, -0.25), True
        return seen

    def _step_impl(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        raise ValueError("only tools can be called")

    @property
    def state(self) -> State:
        return State()


async def play(address: str, episodes: list[Any]) -> list[Any]:
    played = []
    for seed, calls in episodes:
        async with MCPToolClient(base_url=address) as client:
            await client.reset(seed=seed)
            steps = [await client.step(CallToolAction(tool_name=name, arguments=given)) for name, given in calls]
            results = [step.observation.result for step in steps]
            texts = [result and result["content"][0]["text"] for result in results]
            played.append([sum(step.reward or 0.0 for step in steps), texts])
    return played


KINDS = {"guess": (Guesses, Guess, Hint), "tools": (Tools, CallToolAction, CallToolObservation)}

if __name__ == "__main__":
    if sys.argv[1] == "play":
        print(json.dumps(asyncio.run(play(sys.argv[2], json.loads(sys.argv[3])))))
        sys.exit()
    app = create_app(*KINDS[sys.argv[1]], env_name="numbers", max_concurrent_envs=int(sys.argv[2]))
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
