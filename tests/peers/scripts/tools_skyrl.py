import asyncio
import typing

import typing_extensions

typing.TypedDict = (
    typing_extensions.TypedDict
)  # SkyRL's own are fields of dataclasses of pydantic: Python 3.12's alone are

from episodes import END, WITHOUT_TOOLS, bytes_tokenizer, episode, played, runs  # noqa: E402
from report import report  # noqa: E402
from skyrl.train.config.config import GeneratorConfig, SkyRLGymConfig  # noqa: E402
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator  # noqa: E402

from grpo_sdk.errors import UnscoredError  # noqa: E402
from grpo_sdk.interop.skyrl import dataset, register  # noqa: E402

register()
known = played()
tokenizer = bytes_tokenizer(WITHOUT_TOOLS)
(columns, *_) = dataset(known["spec"])


class Engine:
    """An engine that says the turns of an episode."""

    def __init__(self, texts):
        self._texts, self.prompts = list(texts), []

    async def generate(self, engine_input, model=None):
        self.prompts.append(tokenizer.decode(engine_input["prompt_token_ids"][0]))
        text = self._texts.pop(0)
        return {"responses": [text], "response_ids": [tokenizer.encode(text + END)], "stop_reasons": ["stop"]}

    async def finish_session(self, session_id):
        pass


async def play(each):
    """What SkyRL's generator makes of an episode."""
    config = GeneratorConfig(max_turns=4, max_input_length=1 << 15)
    engine = Engine(each["texts"])
    generator = SkyRLGymGenerator(config, SkyRLGymConfig(), engine, tokenizer)
    extras = {**columns, "reward_spec": {"method": "rule", "ground_truth": each["row"]}}
    batch = {"prompts": [columns["prompt"]], "env_classes": [columns["env_class"]], "env_extras": [extras]}
    try:
        made = await generator.generate(batch, disable_tqdm=True)
    except UnscoredError as error:
        return episode(None, why=str(error))
    assert '"name": "look_up"' in engine.prompts[0]
    (ids,), (mask,), (rewards,) = made["response_ids"], made["loss_masks"], made["rewards"]
    trained, told = runs(tokenizer, ids, mask)
    logged = {name.removeprefix("environment/"): value for name, value in made["rollout_metrics"].items()}
    parts = {name: logged[name] for name in ("solved", "valid", "looked", "spent")}
    return episode(sum(rewards), parts, told, trained=trained)


async def main():
    return [await play(each) for each in known["episodes"]]


report("skyrl", "SkyRLGymGenerator.generate, skyrl_gym.make", asyncio.run(main()))
