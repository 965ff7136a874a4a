"""Plays the recorded episodes with tools by OpenEnv's client for tools: `tools_openenv.py SPEC FILE`."""

import json
import socket
import sys
import threading
import time
from pathlib import Path

import uvicorn
from openenv.core.env_server import create_app
from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.mcp_client import MCPToolClient

from grpo_sdk.interop.openenv import TaskAction, TaskEnvironment, TaskObservation

SPEC, EPISODES = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())


def sent(calls):
    """Calls in OpenAI's form."""
    return [{"function": {"name": each["name"], "arguments": json.dumps(each["arguments"])}} for each in calls]


def known(result, told):
    """What the client knows when an episode is over."""
    abstained = (result.metadata or {}).get("abstained", "")
    return {"value": result.reward, "done": result.done, "why": abstained, "told": told}


def turn_by_turn(env, episode):
    """An episode whose completions are steps with all their calls."""
    env.reset(row=episode["row"])
    told = []
    for turn in episode["asked"]:
        result = env.step(TaskAction(text=turn["text"], calls=sent(turn["calls"])))
        if not result.done:
            told = [each["content"] for each in result.observation.messages if each["role"] == "tool"]
    return {**known(result, told), "parts": result.observation.parts}


def call_by_call(env, episode):
    """An episode whose calls are steps, as OpenEnv's own environments take them."""
    env.reset(row=episode["row"])
    told, result = [], None
    for turn in episode["asked"]:
        for call in turn["calls"]:
            if result is None or not result.done:
                result = env.step(CallToolAction(tool_name=call["name"], arguments=call["arguments"]))
                told.append(result.observation.result)
        if not turn["calls"]:
            result = env.step(TaskAction(text=turn["text"]))
    return known(result, told)


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
app = create_app(lambda: TaskEnvironment(SPEC), TaskAction, TaskObservation)
server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started:
    time.sleep(0.05)
with MCPToolClient(base_url=f"http://127.0.0.1:{port}").sync() as env:
    tools = {tool.name: tool.description for tool in env.list_tools()}
    turns = {episode["name"]: turn_by_turn(env, episode) for episode in EPISODES}
    calls = {episode["name"]: call_by_call(env, episode) for episode in EPISODES}
    env.reset(row=EPISODES[0]["row"])
    beside = env.call_tool("look_up", item="cup")["result"]
print(json.dumps({"tools": tools, "turns": turns, "calls": calls, "beside": beside}))
