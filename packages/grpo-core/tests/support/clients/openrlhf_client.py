"""Asks a reward server as OpenRLHF's released executor does: `openrlhf_client.py FOLDER URL`, of an unpacked release.

The package itself needs flash-attn; its module for rewards needs aiohttp alone, so it is loaded without the others.
"""

import asyncio
import importlib
import json
import sys
import types

folder, url = sys.argv[1:]
for name in ("openrlhf", "openrlhf.utils"):
    package = types.ModuleType(name)
    package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
    sys.modules[name] = package
agent = importlib.import_module("openrlhf.utils.agent")


async def main() -> None:
    executor = agent.SingleTurnAgentExecutor(f"{url}/scoring_tasks.sums/get_reward")
    (right,) = await executor._fetch_rewards_via_http(["<s>2 + 2 = 4</s>"], ["2 + 2 ="], ["2+2"])
    try:
        await executor._fetch_rewards_via_http(["2 + 2 = 404</s>"], ["2 + 2 ="], ["2+2"])
    except RuntimeError as error:
        unscored = str(error)
    print(json.dumps({"right": right, "unscored": unscored}))


asyncio.run(main())
