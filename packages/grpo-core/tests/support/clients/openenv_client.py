"""Plays episodes with OpenEnv's released client, and prints the results as JSON: `openenv_client.py URL`."""

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient


def played(url: str, completions: list[str], **options: Any) -> dict[str, Any]:
    """The last result of an episode, of the synchronous client."""
    with GenericEnvClient(base_url=url).sync() as env:
        env.reset(**options)
        for completion in completions:
            result = env.step({"text": completion})
        return {"reward": result.reward, "done": result.done, "steps": env.state()["step_count"]}


async def played_async(url: str, completions: list[str], **options: Any) -> dict[str, Any]:
    """The last result of an episode, of the asynchronous client."""
    async with GenericEnvClient(base_url=url) as env:
        await env.reset(**options)
        for completion in completions:
            result = await env.step({"text": completion})
        return {"reward": result.reward, "done": result.done, "rewards": result.observation["rewards"]}


def called(url: str) -> dict[str, Any]:
    """An episode with tools: what can be called, what a call by itself gives, and a completion with calls."""
    order = {"name": "order", "arguments": json.dumps({"item": "cup", "count": 3})}
    with GenericEnvClient(base_url=url).sync() as env:
        listed = env.step({"type": "list_tools"}).observation["tools"]
        env.reset(row="cup 9")
        look = env.step({"type": "call_tool", "tool_name": "look_up", "arguments": {"item": "cup"}})
        last = env.step({"text": "All of them.", "calls": [{"type": "function", "function": order}]})
        return {
            "tools": [tool["name"] for tool in listed if tool["description"]],
            "result": look.observation["result"],
            "reward": last.reward,
            "done": last.done,
        }


def main(url: str) -> None:
    results = {
        "single": played(f"{url}/scoring_tasks.sums", ["4"], row="2+2"),
        "unscored": played(f"{url}/scoring_tasks.sums", ["404"], row="2+2"),
        "turns": played(f"{url}/small_games.guess", ["x", "y", "z"], index=0),
        "tools": called(f"{url}/recorded_shop.shop"),
        "game": asyncio.run(played_async(f"{url}/python.heap", ["2", "3"], index=0)),
    }
    print(json.dumps(results))


main(sys.argv[1])
