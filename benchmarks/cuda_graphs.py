"""Tokens per second of the native engine with and without CUDA graphs, beside `model.generate`, on a CUDA device.

    python benchmarks/cuda_graphs.py [--shapes tiny smollm2] [--precisions float32 bfloat16] [--json]

Models are random Llamas. Every completion has the full length. Before the times are printed, the log-probs with graphs
must be those without, as far as the tokens agree, also after the weights have changed in place; in float32 greedy
tokens must be equal, except where two logits nearly tie.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from arguments import command_line, say
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.engines.native import NativeEngine
from grpo_core.policy.fresh import byte_tokenizer
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 4096, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2,
    },
    "smollm2": {
        "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3,
    },
}  # fmt: skip
WORKLOADS = ((32, 8, 128), (4, 8, 256))
"""Prompts, completions of each, tokens of each."""

PROMPT_TOKENS, MOST_SHORTER = 64, 7
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference of log-probs that rounding explains."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second of one workload.

    Attributes:
        shape: Name of the model.
        precision: Of the products.
        workload: Prompts, completions, tokens.
        eager: Without graphs.
        graphs: With graphs, the captures left out.
        capture_s: Seconds that the captures took.
        transformers: `model.generate`, under autocast in bfloat16.
        difference: Largest difference of log-probs with and without graphs.
        parted: Share of sampled completions whose tokens part somewhere.
    """

    shape: str
    precision: str
    workload: tuple[int, int, int]
    eager: float
    graphs: float
    capture_s: float
    transformers: float
    difference: float
    parted: float


def requests_of(prompts: int, completions: int, vocab_size: int) -> list[Request]:
    generator = torch.Generator().manual_seed(prompts)
    texts = torch.randint(0, vocab_size, (prompts, PROMPT_TOKENS), generator=generator).tolist()
    return [
        Request(tuple(text[: PROMPT_TOKENS - index % MOST_SHORTER]), SampleKey(0, 0, str(index), number))
        for index, text in enumerate(texts)
        for number in range(completions)
    ]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start


def sampled(engine: NativeEngine, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
    found = dict(engine.generate(requests, sampling))
    return [found[index] for index in range(len(requests))]


def difference(ones: Sequence[Completion], others: Sequence[Completion]) -> tuple[float, float]:
    """Largest difference of log-probs up to where tokens part, and the share of completions that part."""
    worst, parted = 0.0, 0
    for one, other in zip(ones, others, strict=True):
        pairs = list(zip(one.token_ids, other.token_ids, strict=True))
        same = next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))
        parted += same < len(pairs)
        gaps = [abs(a - b) for a, b in zip(one.logprobs[:same], other.logprobs[:same], strict=True)]
        worst = max([worst, *gaps])
    return worst, parted / len(ones)


def generated(model: LlamaForCausalLM, requests: Sequence[Request], tokens: int, precision: str) -> float:
    """Seconds of `model.generate`."""
    shortest = PROMPT_TOKENS - MOST_SHORTER + 1
    ids = torch.tensor([request.prompt_ids[:shortest] for request in requests], device="cuda")

    def run(length: int) -> Any:
        options = {"do_sample": True, "top_k": 0, "pad_token_id": 0, "max_new_tokens": length, "min_new_tokens": length}
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            return model.generate(ids, attention_mask=torch.ones_like(ids), **options)

    run(4)
    return timed(lambda: run(tokens))[1]


def measure(shape: str, precision: str, workload: tuple[int, int, int]) -> Speed:
    prompts, completions, tokens = workload
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=2048, tie_word_embeddings=True, pad_token_id=0)
    model = LlamaForCausalLM(config).to("cuda").eval()
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.05)
    dtype: Any = "auto" if precision == "float32" else "bfloat16"
    eager = NativeEngine(model, byte_tokenizer(), dtype=dtype, cuda_graphs="off")
    graphs = NativeEngine(model, byte_tokenizer(), dtype=dtype)
    eager.eos_ids = graphs.eos_ids = frozenset()  # so that all completions are of one length
    requests = requests_of(prompts, completions, config.vocab_size)
    sampling = Sampling(max_completion_length=tokens)
    sampled(eager, requests, Sampling(max_completion_length=4))
    expected, eager_s = timed(lambda: sampled(eager, requests, sampling))
    _, first_s = timed(lambda: sampled(graphs, requests, sampling))
    found, graphs_s = timed(lambda: sampled(graphs, requests, sampling))
    worst, parted = difference(found, expected)
    greedy, few = Sampling(temperature=0, max_completion_length=96), requests[: 4 * completions]
    for _ in range(2):
        found, expected = (sampled(engine, few, greedy) for engine in (graphs, eager))
        gap, differing = difference(found, expected)
        assert gap <= TOLERANCE[precision] and (precision == "bfloat16" or differing <= 0.1), (gap, differing)
        worst = max(worst, gap)
        with torch.no_grad():  # in place, as a trainer does
            torch._foreach_mul_(list(model.parameters()), 0.97)
    assert worst <= TOLERANCE[precision], f"log-probs with graphs differ by {worst}"
    count = prompts * completions * tokens
    seconds = generated(model, requests, tokens, precision)
    rates = (count / eager_s, count / graphs_s, first_s - graphs_s, count / seconds)
    return Speed(shape, precision, workload, *rates, worst, parted)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="models (all)")
    parser.add_argument("--precisions", nargs="+", choices=TOLERANCE, default=list(TOLERANCE), help="products (both)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device.")
    results = [
        measure(shape, precision, workload)
        for shape in options.shapes
        for precision in options.precisions
        for workload in WORKLOADS
    ]
    if options.json:
        print(json.dumps({"device": torch.cuda.get_device_name(), "results": [asdict(each) for each in results]}))
        return
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; tokens per second")
    for each in results:
        size = " x ".join(map(str, each.workload))
        print(
            f"{each.shape:8} {each.precision:8} {size:13} eager {each.eager:9,.0f}  graphs {each.graphs:9,.0f}  "
            f"generate {each.transformers:9,.0f}  graphs / generate {each.graphs / each.transformers:5.1f}  "
            f"captures {each.capture_s:.2f} s  parted {each.parted:.0%}"
        )


if __name__ == "__main__":
    main()
