"""GPT-2, as in jrahn/RookWorld-LM-124M, by name through loading, sampling and full fine-tuning; here small and random.

It has learned positions, so that a token's logits depend on where it is counted to stand: a batch of prompts of
different lengths must give every token the position that it has alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from grpo_core import train
from grpo_core.algorithms.hidden_states import completion_logprobs
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.engines.base import Request, SampleKey, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.engines.encode import encode_prompt
from grpo_core.engines.native import NativeEngine
from grpo_core.policy.fresh import EOS_TOKEN, byte_tokenizer
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy

PROMPTS = [
    "P: rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "P: 8/8/8/8/8/4k3/8/4K3 w - - 0 1",
    "P: r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4",
    "A: 8/8/8/8/8/4k3/8/4K3 w - - 0 1+e1d1+e1d1+",
]
GREEDY = Sampling(temperature=0, max_completion_length=24)

TASK = """
from collections.abc import Iterable
from grpo_core import Row, Task, reward

def load(config) -> Iterable[Row]:
    return [Row(id=f"{config.split} {number}") for number in range(4)]

@reward(1.0)
def small(text):
    return sum(byte < 64 for byte in text.encode()) / max(1, len(text.encode()))

squares = Task("squares", load, lambda row: "P: " + row.id, lambda text: text, (small,))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a GPT-2 repository holds: no pad token, the head tied to the embedding and stored once."""
    path = tmp_path_factory.mktemp("gpt2")
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = None
    end = tokenizer.convert_tokens_to_ids(EOS_TOKEN)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=160, n_embd=32, n_layer=2, n_head=2, bos_token_id=end, eos_token_id=end
    )
    model = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # far from uniform, positions included
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load_policy(str(folder), device="cpu", precision="float64")


def completions(policy: Policy, prompts: list[str]) -> list[Completion]:
    requests = [Request(encode_prompt(policy.tokenizer, prompt), SampleKey(0, 0, prompt, 0)) for prompt in prompts]
    engine = NativeEngine(policy.model.eval(), policy.tokenizer)
    return [completion for _, completion in sorted(engine.generate(requests, GREEDY), key=lambda pair: pair[0])]


def test_the_head_is_tied_and_the_pad_token_is_the_end_token(policy: Policy, folder: Path) -> None:
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert policy.model.lm_head.weight is policy.model.transformer.wte.weight
    assert policy.tokenizer.pad_token == EOS_TOKEN == policy.tokenizer.eos_token
    assert len(policy.parameters()) == len(list(policy.model.parameters()))


def test_a_batch_of_prompts_is_completed_as_each_is_alone(policy: Policy) -> None:
    together = [each.token_ids for each in completions(policy, PROMPTS)]
    assert together == [completions(policy, [prompt])[0].token_ids for prompt in PROMPTS]
    assert len(set(together)) == len(PROMPTS)
    for prompt, found in zip(PROMPTS, together, strict=True):
        ids = torch.tensor([encode_prompt(policy.tokenizer, prompt)])
        expected = policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=0
        )
        assert tuple(expected[0, ids.shape[1] :].tolist()) == found


def test_logprobs_of_a_left_padded_batch_are_those_of_each_alone_and_those_of_training(policy: Policy) -> None:
    sampled = completions(policy, PROMPTS)
    prompts = [encode_prompt(policy.tokenizer, prompt) for prompt in PROMPTS]
    rows = [torch.tensor(prompt + each.token_ids) for prompt, each in zip(prompts, sampled, strict=True)]
    lengths = torch.tensor([len(each.token_ids) for each in sampled])
    with torch.no_grad():
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        trained, _ = completion_logprobs(policy.model.eval(), padded, torch.tensor([*map(len, prompts)]), lengths)
        # By transformers alone: pads on the left, and positions that count what is attended to.
        width = max(map(len, rows))
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        left = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in rows])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = policy.model(left, attention_mask=mask, position_ids=positions).logits.log_softmax(-1)
        shifted = policy.model(left, attention_mask=mask).logits.log_softmax(-1)  # positions of the padded row
    for row, each in enumerate(sampled):
        count, ids = len(each.token_ids), torch.tensor(each.token_ids)
        expected = logits[row, -count - 1 : -1].gather(-1, ids[:, None])[:, 0]
        assert torch.allclose(trained[row, :count], expected, atol=1e-10)
        assert torch.allclose(torch.tensor(each.logprobs, dtype=torch.float64), expected, atol=1e-10)
        wrong = shifted[row, -count - 1 : -1].gather(-1, ids[:, None])[:, 0]
        assert torch.allclose(wrong, expected, atol=1e-3) == (len(rows[row]) == width)  # so the check can fail


def test_a_full_fine_tune_takes_a_step(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    result = train(
        RunConfig(
            task=f"{tmp_path / 'task.py'}:squares",
            model=str(folder),
            output_dir=str(tmp_path / "runs"),
            device="cpu",
            trainer=TrainerConfig(
                max_steps=1, prompts_per_step=2, num_generations=4, max_completion_length=8, learning_rate=1e-3
            ),
            eval=EvalConfig(at_start=False, at_end=False),
        )
    )
    saved = result.run_dir / "training_state" / "step_final" / "model"
    before, after = load_file(folder / "model.safetensors"), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys()  # the head is still the embedding
    unmoved = [name for name in before if torch.equal(before[name], after[name])]
    assert unmoved == []
    again = load_policy(str(saved), device="cpu").model
    assert again.lm_head.weight is again.transformer.wte.weight
