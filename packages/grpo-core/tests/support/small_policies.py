"""A small model, a batch of its rollouts and a configuration, for tests of single updates."""

from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.config import TrainerConfig
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.training.batch import TokenBatch, TrainBatch, collate
from grpo_core.training.update import Updater
from grpo_sdk.endpoints.completion import Completion, FinishReason
from grpo_sdk.plugins.models import ModelSource
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

LENGTHS = [(3, 4), (3, 2), (2, 5), (2, 1)]  # (prompt, completion) tokens of each row
ADVANTAGES = torch.tensor([0.5, -1.0, 0.75, 0.25], dtype=torch.float64)
LENGTH = 8  # max_completion_length


def model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


def policy_of(network: LlamaForCausalLM) -> Policy:
    return Policy(network, None, ModelSource("folder", "x", "x", ""), torch.device("cpu"), None)


def turn(
    prompt: tuple[int, ...], tokens: tuple[int, ...], finish: FinishReason = "stop", *, trained: bool = True
) -> Turn:
    return Turn(prompt, Completion(tokens, (-0.5,) * len(tokens), "", finish, 0), trained)


def rollout(*turns: Turn, group: int = 0, value: float = 1.0, role: str = "") -> Rollout:
    return Rollout("t", Row(id="r"), group, role, turns, Score(value))


def collated(*rollouts: Rollout, mask_truncated: bool = False) -> TokenBatch:
    return collate(rollouts, pad_id=0, mask_truncated=mask_truncated)


def batch(sampler_shift: float = 0.0) -> TokenBatch:
    generator = torch.Generator().manual_seed(1)
    rollouts = []
    for index, (n_prompt, n_completion) in enumerate(LENGTHS):
        ids = torch.randint(0, 13, (n_prompt + n_completion,), generator=generator).tolist()
        completion = Completion(tuple(ids[n_prompt:]), (-2.0 + sampler_shift,) * n_completion, "", "stop", 0)
        turn = Turn(tuple(ids[:n_prompt]), completion)
        rollouts.append(Rollout("t.t", Row(id=str(index)), index, "", (turn,), Score(0.0)))
    return collated(*rollouts)


def frozen(
    updater: Updater,
    tokens: TokenBatch | None = None,
    *,
    advantages: Tensor = ADVANTAGES,
    returns: Tensor | None = None,
) -> TrainBatch:
    """A batch for an update, by default of the rollouts of `batch`, as the policy sees them now."""
    tokens = batch() if tokens is None else tokens
    return updater.batch(tokens, updater.forward.snapshot(tokens), advantages, returns)


def settings(**options: object) -> TrainerConfig:
    sizes = {"num_generations": 2, "prompts_per_step": 2, "max_completion_length": LENGTH, "max_grad_norm": 1e9}
    return TrainerConfig(**{**sizes, **options})


def update(updater: Updater, made: TrainBatch | None = None) -> dict[str, float]:
    """Take every optimizer step of a batch, by default that of `frozen`: the mean of their metrics."""
    metrics = updater.update(frozen(updater) if made is None else made)
    return {name: value for name, value in metrics.items() if name not in ("update_s", "skipped_updates")}


def saved_model(folder: Path, *, tied: bool = True, bias: bool = False) -> Path:
    """Write a model over bytes, smaller than any preset, with its tokenizer into a folder."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=tied, attention_bias=bias,
            mlp_bias=bias, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def logits(policy: Policy) -> torch.Tensor:
    """What a policy of `saved_model` predicts after four bytes."""
    with torch.no_grad():
        return policy.model(torch.tensor([[5, 6, 7, 8]])).logits
