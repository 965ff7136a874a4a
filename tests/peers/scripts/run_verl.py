import asyncio
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from report import answer, batch, report
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager
from verl.utils.dataset.rl_dataset import RLHFDataset

from grpo_sdk.errors import UnscoredError
from grpo_sdk.interop.export import Cluster, export_files, target_of
from grpo_sdk.interop.verl import TaskAgentLoop


class Tokenizer:
    """One token per character; verl's builder of prompts takes it for a model without a chat template of its own."""

    pad_token_id = eos_token_id = 0
    bos_token_id = None

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(token) for token in (ids.tolist() if torch.is_tensor(ids) else ids) if token)


config = OmegaConf.create(
    {
        "reward": {
            "custom_reward_function": {
                "path": "pkg://grpo_sdk.interop.verl", "name": "compute_score", "reward_kwargs": {"workers": 1},
            },
            "reward_manager": {"source": "register", "name": "naive"},
        }
    }
)  # fmt: skip


async def rewarded(manager, sample):
    """What the reward loop returns for a sample."""
    response = torch.tensor([[ord(character) for character in sample["completion"]] or [0]])
    length = len(sample["completion"])
    mask = torch.ones(1, 1 + response.shape[1], dtype=torch.long)
    mask[:, 1 + length :] = 0
    data = DataProto(
        batch=TensorDict({"prompts": mask[:, :1], "responses": response, "attention_mask": mask}, 1),
        non_tensor_batch={
            "data_source": np.array([sample["task"]], dtype=object),
            "reward_model": np.array([{"style": "rule", "ground_truth": sample["row"]}], dtype=object),
            "extra_info": np.array([{}], dtype=object),
        },
    )  # fmt: skip
    return await manager.run_single(data)


class Server:
    """Always answers the same."""

    def __init__(self, text):
        self.ids = [*map(ord, text), 0]  # with the end token

    async def generate(self, **request):
        return SimpleNamespace(
            token_ids=self.ids, log_probs=None, routed_experts=None, num_preempted=None, extra_fields={}
        )


class Loop(TaskAgentLoop):
    """The agent loop with tokens that are characters."""

    async def ct_build_initial_tokens(self, messages, **options):
        return [ord(character) for message in messages for character in message["content"]]

    async def ct_merge_assistant_token(self, runtime_token_ids, assistant_token_ids, *rest, **options):
        merged = SimpleNamespace(token_ids=[*runtime_token_ids, *assistant_token_ids])
        return merged, [1] * len(assistant_token_ids), None


def loop_of(text):
    """The agent loop of an episode, without the tokenizers of a model."""
    loop = object.__new__(Loop)
    loop.tokenizer, loop.server_manager = Tokenizer(), Server(text)
    loop.config = OmegaConf.create({"algorithm": {"filter_groups": {"enable": False}}, "trainer": {"use_v1": True}})
    loop.rollout_config = OmegaConf.create({"response_length": 1 << 14, "agent": {"num_workers": 1}})
    loop._options = {"workers": 1, "opponent_url": None}
    return loop


async def played(sample):
    """What the agent loop returns for a sample."""
    row = {"data_source": sample["task"], "reward_model": {"ground_truth": sample["row"]}}
    return await loop_of(sample["completion"]).run({}, **row)


def check_export():
    """verl reads what `grpo export` writes for it."""
    files = export_files(target_of("verl"), "math.arithmetic?size=4", "model", Cluster(2, 4), test_size=2)
    Path("train.parquet").write_bytes(files["train.parquet"])
    row = RLHFDataset("train.parquet", Tokenizer(), OmegaConf.create({"filter_overlong_prompts": False}))[0]
    assert row["raw_prompt"][0]["role"] == "user" and row["data_source"] == "math.arithmetic"
    command = files["train.sh"].partition("main_ppo")[2].replace("\\\n", " ").replace('"$@"', "")
    with initialize_config_module("verl.trainer.config", version_base=None):
        made = compose("ppo_trainer", overrides=shlex.split(command))
    assert made.trainer.nnodes == 2 and made.actor_rollout_ref.rollout.agent.default_agent_loop == "grpo"


async def main():
    check_export()
    manager = load_reward_manager(config, Tokenizer())
    answers = []
    for sample in batch():
        outputs = await played(sample)
        try:
            result = await rewarded(manager, sample)
        except UnscoredError:
            assert outputs == []
            answers.append(answer(None, unscored="raises, or no sequence: missing from its group"))
            continue
        info = dict(result["reward_extra_info"])
        assert outputs[-1].reward_score == result["reward_score"] == info["score"]
        assert outputs[-1].extra_fields["reward_extra_info"] == info
        assert "rm_scores" in outputs[-1].as_dict()
        del info["score"]
        answers.append(answer(result["reward_score"], info))
    report("verl", "NaiveRewardManager.run_single of load_reward_manager, AgentLoopBase, AgentLoopOutput", answers)


asyncio.run(main())
