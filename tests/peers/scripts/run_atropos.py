import asyncio
import os
from collections import defaultdict

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from report import answer, batch, report

from grpo_sdk.interop.atropos import TaskEnv
from grpo_sdk.plugins.models import model_source

os.environ["WANDB_MODE"] = "disabled"


class Characters:
    """A tokenizer whose tokens are characters, so that every text of the batch can be sampled."""

    def encode(self, text, **options):
        return [ord(character) for character in text]

    def decode(self, tokens, **options):
        return "".join(map(chr, tokens))

    def apply_chat_template(self, messages, **options):
        return "".join(f"<{message['role']}>{message['content']}" for message in messages)


class Says:
    """A server that answers with one text."""

    def __init__(self, text, config):
        self._text, self.config, self.sem, self.server_healthy = text, config, asyncio.Semaphore(8), True

    async def tokens_and_logprobs_completion(self, *, input_ids, **request):
        tokens = [ord(character) for character in self._text]
        return input_ids, [tokens], [[0.0] * len(tokens)], ["stop"]


class RecordingEnv(TaskEnv):
    """Keeps what is sent to the trainer's API."""

    async def _send_scored_data_to_api(self, scored_data):
        self.sent = scored_data


async def environment(spec):
    config = RecordingEnv.env_config_cls(
        task=spec,
        tokenizer_name=str(model_source("tools-tiny").location),
        group_size=1,
        ensure_scores_are_not_same=False,
        use_wandb=False,
    )
    made = RecordingEnv(config, [APIServerConfig(model_name="says", base_url="http://127.0.0.1:9")], testing=True)
    made.tokenizer = Characters()
    await made.setup()
    return made


async def score(env, sample):
    """What an environment sends of a rollout to the trainer's API."""
    env.server.servers = [Says(sample["completion"], APIServerConfig(model_name="says"))]
    env.sent, env._logged = None, defaultdict(list)
    env.running_items["item"] = {"item": sample["row"]}
    await env.handle_env("item")
    if env.sent is None:
        assert env._logged["abstained_rate"] == [1.0, 1.0]
        return answer(None, unscored="sampled again; then its group is not sent")
    (value,) = env.sent["scores"]
    assert [chr(token) for token in env.sent["masks"][0] if token != -100] == list(sample["completion"])
    return answer(value, {name: each[0] for name, each in env._logged.items() if name != "abstained_rate"})


async def main():
    environments = {spec: await environment(spec) for spec in {sample["task"] for sample in batch()}}
    return [await score(environments[sample["task"]], sample) for sample in batch()]


report("atroposlib", "BaseEnv.handle_env, ManagedServer, handle_send_to_api", asyncio.run(main()))
