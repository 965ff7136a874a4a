import asyncio
import logging
import os
from collections import defaultdict

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from episodes import END, WITHOUT_TOOLS, bytes_tokenizer, episode, played, runs
from report import report

from grpo_sdk.interop.atropos import TaskEnv
from grpo_sdk.plugins.models import model_source

os.environ["WANDB_MODE"] = "disabled"
known = played()
tokenizer = bytes_tokenizer(WITHOUT_TOOLS)


class Says:
    """A server that says the turns of an episode, and again where it is sampled again."""

    def __init__(self, texts, config):
        self._texts, self.config, self.sem, self.server_healthy = [*texts, *texts], config, asyncio.Semaphore(8), True

    async def tokens_and_logprobs_completion(self, *, input_ids, **request):
        tokens = tokenizer.encode(self._texts.pop(0) + END)
        return input_ids, [tokens], [[-0.5] * len(tokens)], ["stop"]


class RecordingEnv(TaskEnv):
    """Keeps what is sent to the trainer's API."""

    async def _send_scored_data_to_api(self, scored_data):
        self.sent = scored_data


warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger("grpo_sdk.interop.atropos").addHandler(handler)


async def play(env, each):
    """What an environment sends of an episode to the trainer's API."""
    env.server.servers = [Says(each["texts"], APIServerConfig(model_name="says"))]
    env.sent, env._logged = None, defaultdict(list)
    env.running_items["item"] = {"item": each["row"]}
    warnings.clear()
    await env.handle_env("item")
    if env.sent is None:
        assert env._logged["abstained_rate"] == [1.0, 1.0]
        return episode(None, why=warnings[0])
    (value,), (ids,), (mask,) = env.sent["scores"], env.sent["tokens"], env.sent["masks"]
    trained, (prompt, *told) = runs(tokenizer, ids, [token != -100 for token in mask])
    assert '"name": "look_up"' in prompt
    parts = {name: values[0] for name, values in env._logged.items() if name != "abstained_rate"}
    return episode(value, parts, told, trained=trained)


async def main():
    config = RecordingEnv.env_config_cls(
        task=known["spec"],
        tokenizer_name=str(model_source("tools-tiny").location),
        group_size=1,
        ensure_scores_are_not_same=False,
        use_wandb=False,
    )
    env = RecordingEnv(config, [APIServerConfig(model_name="says", base_url="http://127.0.0.1:9")], testing=True)
    env.tokenizer = tokenizer
    await env.setup()
    return [await play(env, each) for each in known["episodes"]]


report("atroposlib", "BaseEnv.handle_env, ManagedServer, handle_send_to_api", asyncio.run(main()))
