#!/usr/bin/env bash
# What: OpenEnv's MCPToolClient.call_tool() does not run the environment's step(): the call pays no reward, ends no
#   episode and is not counted, though the same call as an action, step(CallToolAction(...)), does all three.
# Versions: openenv==0.10.0
# Expected: call_tool(name, ...) is the short form of step(CallToolAction(name, ...)); the client's own docstring
#   shows the two as the simple and the full interface, and both use one session.
# Seen: an environment whose step() gives 1.0 and ends: after call_tool("guess") the tool's text is returned, state()
#   has 0 steps, and a second call works as well; with step() the reward is 1.0, done is True, and 1 step is counted.
# Matters: an agent trained through call_tool gets no reward and plays on behind the end of its episode; limits of
#   steps that the environment keeps in step() never apply.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv openenv==0.10.0
run <<'PYTHON'
import asyncio
import socket
import threading
import time

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State
from openenv.core.mcp_client import MCPToolClient


class Game(MCPEnvironment):
    """A guess ends the game and pays 1.0."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("game")
        self.steps = 0

        @server.tool
        def guess(number: int) -> str:
            """Guess the number."""
            return "right"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **options):
        self.steps = 0
        return Observation(reward=0.0)

    def step(self, action, timeout_s=None, **options):
        return self._paid(super().step(action, timeout_s=timeout_s, **options))

    async def step_async(self, action, timeout_s=None, **options):
        return self._paid(await super().step_async(action, timeout_s=timeout_s, **options))

    def _paid(self, observation):
        self.steps += 1
        return observation.model_copy(update={"reward": 1.0, "done": True})

    def _step_impl(self, action, timeout_s=None, **options):
        raise NotImplementedError

    @property
    def state(self):
        return State(episode_id="game", step_count=self.steps)


app = create_app(Game, CallToolAction, CallToolObservation, env_name="game", max_concurrent_envs=4)
door = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True).start()
while not server.started:
    time.sleep(0.1)


async def main():
    address = f"http://127.0.0.1:{door.getsockname()[1]}"
    async with MCPToolClient(base_url=address) as client:
        await client.reset()
        said = [await client.call_tool("guess", number=1) for _ in range(2)]
        called = (await client.state()).step_count
        await client.reset()
        result = await client.step(CallToolAction(tool_name="guess", arguments={"number": 1}))
        stepped = (await client.state()).step_count
    print("call_tool twice:", said, "steps", called)
    print("step:", result.reward, result.done, "steps", stepped)
    assert (result.reward, result.done, stepped) == (1.0, True, 1), "step() changed"
    assert called == 0, f"call_tool counted {called} steps"


asyncio.run(main())
server.should_exit = True
PYTHON
