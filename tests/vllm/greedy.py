"""Compares greedy completions of a real vLLM with our own engine's, before and after an update: greedy.py MODEL.

Prints JSON: whether tokens agree, and the mean difference of log-probs.
"""

import json
import sys
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_core.engines.native import NativeEngine
from grpo_core.engines.servers.vllm import open_vllm
from grpo_sdk.endpoints.base import Engine, Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

PROMPTS = ("12 + 35 =", "The capital of France is", "def add(a, b):\n", "Once upon a time")
GREEDY = Sampling(temperature=0.0, max_completion_length=16)
NOISE, ADAPTER_NOISE = 0.02, 0.1
"""Of an update, as a share of a weight's size, and of an adapter's weights: enough to change what is said."""


def completions(engine: Engine, requests: list[Request], sampling: Sampling) -> list[Completion]:
    found = dict(engine.generate(requests, sampling))
    return [found[index] for index in range(len(requests))]


def tokens(found: list[Completion]) -> list[tuple[int, ...]]:
    return [each.token_ids for each in found]


def difference(first: list[Completion], second: list[Completion]) -> float:
    pairs = [
        abs(a - b) for x, y in zip(first, second, strict=True) for a, b in zip(x.logprobs, y.logprobs, strict=False)
    ]
    return sum(pairs) / len(pairs)


def main(folder: str, *, adapter: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter:
        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"]))
    prompts = [tuple(tokenizer(text)["input_ids"]) for text in PROMPTS]
    requests = [Request(ids, SampleKey(0, 0, str(index), 0), stop=("\n\n",)) for index, ids in enumerate(prompts)]
    native = NativeEngine(model, tokenizer)
    engine = open_vllm(model, tokenizer, max_batch_tokens=2048, precision="float32", sampling=Sampling())
    try:
        before, native_before = (completions(each, requests, GREEDY) for each in (engine, native))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    size = ADAPTER_NOISE if adapter else NOISE * parameter.std().nan_to_num()
                    parameter.add_(torch.randn_like(parameter) * size)
        engine.sync(1)
        after, native_after = (completions(each, requests, GREEDY) for each in (engine, native))
        return {
            "before": tokens(before) == tokens(native_before),
            "after": tokens(after) == tokens(native_after),
            "texts": [each.text for each in after] == [each.text for each in native_after],
            "changed": tokens(after) != tokens(before),
            "versions": sorted({each.policy_version for each in after}),
            "logprob_difference": difference(after, native_after),
        }
    finally:
        engine.close()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], adapter="--adapter" in sys.argv)))
