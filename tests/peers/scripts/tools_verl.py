import asyncio
import logging

import hydra
from episodes import END, TEMPLATE, WITHOUT_TOOLS, bytes_tokenizer, episode, played, runs
from omegaconf import OmegaConf
from report import report
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

known = played()
LOOP = {"_target_": "grpo_sdk.interop.verl.TaskAgentLoop", "workers": 1}
ROLLOUT = {"response_length": 1 << 14, "prompt_length": 1 << 14, "agent": {"num_workers": 1}}
CONFIG = {
    "actor_rollout_ref": {"rollout": ROLLOUT},
    "algorithm": {"filter_groups": {"enable": False}},
    "trainer": {"use_v1": True},
    "data": {},
}


class Server:
    """A server that says the turns of an episode; they are no longer than the task allows, which counts tokens."""

    def __init__(self, tokenizer, texts):
        self._tokenizer, self._texts, self.prompts = tokenizer, list(texts), []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **rest):
        assert sampling_params["max_tokens"] == 48
        self.prompts.append(self._tokenizer.decode(prompt_ids))
        ids = self._tokenizer.encode(self._texts.pop(0) + END)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed")


async def play(tokenizer, each):
    """What an agent loop, made as verl's worker makes it, returns of an episode."""
    config, server = OmegaConf.create(CONFIG), Server(tokenizer, each["texts"])
    loop = hydra.utils.instantiate(
        config=LOOP,
        trainer_config=DictConfigWrap(config=config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=None,
        hf_model_type=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )
    warnings.clear()
    outputs = await loop.run(
        {"temperature": 1.0}, data_source=known["spec"], reward_model={"ground_truth": each["row"]}
    )
    assert '"name": "look_up"' in server.prompts[0]
    if not outputs:
        return episode(None, why=warnings[0])
    (output,) = outputs
    made = output.as_dict()
    assert float(made["rm_scores"].sum()) == float(made["rm_scores"][-1])
    trained, told = runs(tokenizer, made["responses"].tolist(), made["response_mask"].tolist())
    parts = {**made["extra_fields"]["reward_extra_info"]}
    return episode(parts.pop("score"), parts, told, trained=trained)


warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger("grpo_sdk.interop.verl.agent_loop").addHandler(handler)


async def main():
    answers = []
    for template in (WITHOUT_TOOLS, TEMPLATE):  # the latter's answers are reported
        before, answers = answers, []
        tokenizer = bytes_tokenizer(template)
        for each in known["episodes"]:
            answers.append(await play(tokenizer, each))
        assert not before or [each["value"] for each in before] == [each["value"] for each in answers]
    report("verl", "AgentLoopBase by hydra.utils.instantiate, AgentLoopOutput.as_dict", answers)


asyncio.run(main())
