#!/usr/bin/env bash
# What: OpenEnv's list_tools() answers [] where it could not ask: any error, a refused connection or time-out included,
#   is swallowed, so an environment that has died looks like one without tools.
# Versions: openenv==0.10.0
# Expected: it raises, as call_tool(), reset() and step() of the same client do; an empty list is an answer.
# Seen: a client that is connected lists ['guess']; once the server has stopped, list_tools(use_cache=False) is []
#   without a log line, and call_tool() raises ConnectError.
# Matters: prompts are built without tools for the episodes that begin during a restart or an overload; the model is
#   then trained on them, with a reward of 0 for not calling any.
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
    """A game with one tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("game")

        @server.tool
        def guess(number: int) -> str:
            """Guess the number."""
            return "right"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **options):
        return Observation(reward=0.0)

    def _step_impl(self, action, timeout_s=None, **options):
        raise NotImplementedError

    @property
    def state(self):
        return State(episode_id="game", step_count=0)


app = create_app(Game, CallToolAction, CallToolObservation, env_name="game", max_concurrent_envs=4)
door = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
thread.start()
while not server.started:
    time.sleep(0.1)


async def main():
    client = MCPToolClient(base_url=f"http://127.0.0.1:{door.getsockname()[1]}")
    await client.connect()
    before = [tool.name for tool in await client.list_tools()]
    server.should_exit = server.force_exit = True
    await asyncio.to_thread(thread.join)
    door.close()
    after = await client.list_tools(use_cache=False)
    try:
        called = await client.call_tool("guess", number=1)
    except Exception as error:
        called = type(error).__name__
    print("tools:", before, "and once the server has stopped:", after, "call_tool:", called)
    assert before == ["guess"], f"a running server lists {before} now"
    assert called == "ConnectError", f"call_tool() of a stopped server is {called!r} now"
    assert after == [], f"a stopped server lists {after} now"
    await client.close()


asyncio.run(main())
PYTHON
