import asyncio
from pathlib import Path
from types import SimpleNamespace

from report import answer, batch, report
from stubs import stub

from grpo_sdk.errors import UnscoredError

stub("ray", "vllm", "tqdm", "transformers", "datasets", "deepspeed")

from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor  # noqa: E402
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402


class Tokenizer:
    """One token per character."""

    def __call__(self, text, add_special_tokens, return_tensors=None):
        ids = [ord(character) for character in text]
        return {"input_ids": [SimpleNamespace(tolist=lambda: ids)] if return_tensors else ids}

    def decode(self, ids, skip_special_tokens):
        return "".join(map(chr, ids))


class Engine:
    """Always answers the same."""

    def __init__(self, text):
        self.ids = [ord(character) for character in text]

    async def generate(self, tokens, sampling, multi_modal_data=None):
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.ids, finish_reason="stop", logprobs=None)])


async def response_of(executor, sample):
    sampling = SimpleNamespace(max_tokens=1 << 14, logprobs=None)
    engine = Engine(sample["completion"])
    return await executor.execute("the prompt:", sample["row"], sampling, 1 << 15, Tokenizer(), engine)


def file(kind, task, text):
    path = Path(f"{kind}{abs(hash(task))}.py")
    path.write_text(f"from grpo_sdk.interop.openrlhf import TaskReward, agent_executor\n{text}\n")
    return str(path)


samples = batch()
specs = {each["task"] for each in samples}
agents = {
    spec: _load_agent_executor(file("agent", spec, f"AgentExecutor = agent_executor({spec!r}, attempts=2)"))
    for spec in specs
}
rewards = {spec: SingleTurnAgentExecutor(file("reward", spec, f"reward_func = TaskReward({spec!r})")) for spec in specs}
answers = []
for sample in samples:
    by_reward = asyncio.run(response_of(rewards[sample["task"]], sample))["reward"]
    try:
        response = asyncio.run(response_of(agents[sample["task"]], sample))
    except UnscoredError:
        assert by_reward is None
        answers.append(answer(None, unscored="sampled again, and the run ends after some in a row"))
        continue
    experience = SamplesGenerator._process_response_into_experience(None, response, max_len=1 << 15)
    assert experience.rewards.item() == float(by_reward), (experience.rewards, by_reward)
    logs = {name: experience.info[name].item() for name in response["extra_logs"]}
    answers.append(answer(experience.rewards.double().item(), logs))
report(
    "openrlhf", "SingleTurnAgentExecutor.execute, SamplesGenerator._process_response_into_experience, a loaded agent",
    answers,
)  # fmt: skip
