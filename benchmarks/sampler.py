"""Tokens per second of the native engine beside `model.generate`, alternating in one run.

    python benchmarks/sampler.py [--shapes bytes large smollm2] [--tokens 64] [--repeats 3] [--threads 1] [--json]
    python benchmarks/sampler.py --model DIR

Shapes are random Llamas: `bytes` and `large` (hidden 128 × 4 layers, vocabularies of 258 and 49,152), and `smollm2`
(SmolLM2-135M's; random weights cost what trained ones cost).

Two workloads: every completion has the full length, and lengths spread evenly from an eighth to the full length (as
completions do in training; `generate` ends a row by a stopping criterion, the engine by the request's limit). Before
timing, greedy tokens must equal those of `generate`, and the sampler's log-probs those of a training forward.
Times are process CPU time, with wall time beside it: on a shared machine only ratios within one run mean something.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from arguments import command_line, count, folder, say
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
)

from grpo_core.algorithms.hidden_states import completion_states
from grpo_core.engines.native import FLOAT32_MARGIN, NativeEngine
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

PROMPTS, GENERATIONS, PROMPT_LENGTH = 4, 8, 48  # the batch of the table in the design notes on speed
SMALL = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}
SHAPES: dict[str, dict[str, Any]] = {
    "bytes": {"vocab_size": 258, **SMALL},
    "large": {"vocab_size": 49_152, **SMALL},
    "smollm2": {
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
}
LOGPROB_TOLERANCE = 1e-4  # float32, at |log p| of about 10


@dataclass(frozen=True)
class Timing:
    """One workload: useful tokens per second of either side, and how many times faster the engine is."""

    model: str
    workload: str
    tokens: int
    engine_cpu_s: float
    generate_cpu_s: float
    engine_wall_s: float
    generate_wall_s: float

    @property
    def ratio(self) -> float:
        """CPU time of `generate` over that of the engine."""
        return self.generate_cpu_s / self.engine_cpu_s

    @property
    def wall_ratio(self) -> float:
        """The same of wall time."""
        return self.generate_wall_s / self.engine_wall_s


@dataclass(frozen=True)
class Checks:
    """What must hold before a time means anything."""

    model: str
    greedy_rows_equal: int
    greedy_rows: int
    rows_excused_by_margin: int
    largest_logprob_difference: float


class RowLimits(StoppingCriteria):
    """Ends row i of `generate` after `limits[i]` tokens."""

    def __init__(self, prompt_length: int, limits: torch.Tensor) -> None:
        self._prompt_length = prompt_length
        self._limits = limits

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return which rows are done."""
        return self._limits <= input_ids.shape[1] - self._prompt_length


class Workbench:
    """A model, its prompts, and both ways to sample."""

    def __init__(self, name: str, model: PreTrainedModel, tokens: int) -> None:
        self.name = name
        self.model: Any = model.train(False)
        # A random model never ends by itself, and a real one must not: lengths are part of the workload.
        self.model.generation_config.eos_token_id = None
        self.tokens = tokens
        self.engine = NativeEngine(model, byte_tokenizer())
        vocabulary = model.config.vocab_size
        generator = torch.Generator().manual_seed(0)
        self.prompts = torch.randint(3, vocabulary, (PROMPTS, PROMPT_LENGTH), generator=generator)
        self.ids = self.prompts.repeat_interleave(GENERATIONS, 0).to(model.device)  # [A, L]
        self.spread = torch.randint(max(1, tokens // 8), tokens + 1, (len(self.ids),), generator=generator)

    def with_engine(self, limits: torch.Tensor, temperature: float = 1.0) -> list[Completion]:
        """Sample every row up to its limit; temperature 0 is greedy."""
        requests = [
            Request(tuple(ids), SampleKey(0, 0, "", row), max_completion_length=limit)
            for row, (ids, limit) in enumerate(zip(self.ids.tolist(), limits.tolist(), strict=True))
        ]
        sampling = Sampling(temperature=temperature, max_completion_length=self.tokens)
        done = dict(self.engine.generate(requests, sampling))
        return [done[row] for row in range(len(requests))]

    @torch.no_grad()
    def with_generate(self, limits: torch.Tensor, do_sample: bool = True) -> torch.Tensor:
        """Do the same with `generate`; return [A, T], padded."""
        sampled = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if do_sample else {}
        generated: torch.Tensor = self.model.generate(
            self.ids,
            attention_mask=torch.ones_like(self.ids),
            do_sample=do_sample,
            max_new_tokens=self.tokens,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([RowLimits(PROMPT_LENGTH, limits.to(self.ids.device))]),
            **sampled,
        )
        return generated[:, PROMPT_LENGTH:]

    def check(self) -> Checks:
        """Compare both sides' greedy tokens, and the sampler's log-probs with those of a training forward."""
        full = torch.full((len(self.ids),), self.tokens)
        expected = self.with_generate(full, do_sample=False).cpu()
        greedy = torch.tensor([completion.token_ids for completion in self.with_engine(full, temperature=0)])
        equal = (greedy == expected).all(1)
        excused = sum(self._margin_at_difference(row, greedy, expected) < FLOAT32_MARGIN for row in (~equal).nonzero())
        sampled = self.with_engine(full)
        tokens = torch.tensor([completion.token_ids for completion in sampled])
        with torch.no_grad():
            logp, _ = completion_states(
                self.model,
                torch.cat((self.ids, tokens.to(self.ids.device)), 1),
                torch.full((len(full),), PROMPT_LENGTH, device=self.ids.device),
                full.to(self.ids.device),
            ).logprobs()
        kept = torch.tensor([completion.logprobs for completion in sampled])
        difference = float((kept - logp.float().cpu()).abs().max())
        checks = Checks(self.name, int(equal.sum()), len(equal), excused, difference)
        if checks.greedy_rows_equal + excused < len(equal) or difference > LOGPROB_TOLERANCE:
            raise SystemExit(f"the two samplers disagree, so their times say nothing: {checks}")
        return checks

    def _margin_at_difference(self, row: torch.Tensor, greedy: torch.Tensor, expected: torch.Tensor) -> float:
        index = int(row)
        at = int((greedy[index] != expected[index]).nonzero()[0])
        with torch.no_grad():
            ids = torch.cat((self.ids[index].cpu(), expected[index, :at]))[None].to(self.ids.device)
            best = self.model(ids, logits_to_keep=1).logits[0, -1].topk(2).values
        return float(best[0] - best[1])

    def time(self, workload: str, limits: torch.Tensor, repeats: int) -> Timing:
        """Run both sides in turn; keep the least time of each."""
        sides: tuple[Callable[[], object], Callable[[], object]] = (
            lambda: self.with_engine(limits),
            lambda: self.with_generate(limits),
        )
        cpu, wall = [float("inf")] * 2, [float("inf")] * 2
        for _ in range(repeats):
            for side, run in enumerate(sides):
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                run()
                if self.ids.is_cuda:
                    torch.cuda.synchronize()
                cpu[side] = min(cpu[side], time.process_time() - cpu_start)
                wall[side] = min(wall[side], time.perf_counter() - wall_start)
        return Timing(self.name, workload, int(limits.sum()), cpu[0], cpu[1], wall[0], wall[1])


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes: no stop string is used, so that it decodes finished completions only."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def random_llama(shape: str) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[shape], tie_word_embeddings=True, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(config)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["bytes", "large"], metavar="SHAPE", help=", ".join(SHAPES)
    )
    parser.add_argument("--model", type=folder, metavar="DIR", help="folder of a model, in place of the random ones")
    parser.add_argument("--tokens", type=count, default=64, help="full length of a completion")
    parser.add_argument("--repeats", type=count, default=3, help="of each side; the least time counts")
    parser.add_argument("--threads", type=count, default=1, help="of torch")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="device of torch (cpu)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if arguments.model:
        loaded: dict[str, Any] = {
            arguments.model: AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
        }
    else:
        loaded = {shape: random_llama(shape) for shape in arguments.shapes}
    checks, timings = [], []
    for name, model in loaded.items():
        bench = Workbench(name, model.to(arguments.device), arguments.tokens)
        checks.append(bench.check())
        full = torch.full_like(bench.spread, arguments.tokens)
        timings += [bench.time(*workload, arguments.repeats) for workload in (("full", full), ("spread", bench.spread))]
    if arguments.json:
        rows = [{**asdict(timing), "ratio": timing.ratio, "wall_ratio": timing.wall_ratio} for timing in timings]
        json.dump({"checks": [asdict(check) for check in checks], "timings": rows}, sys.stdout, indent=2)
        print()
        return
    for check in checks:
        say(
            f"{check.model}: greedy equal in {check.greedy_rows_equal} of {check.greedy_rows} rows "
            f"({check.rows_excused_by_margin} below the float32 margin), "
            f"log-probs within {check.largest_logprob_difference:.1e}"
        )
    print(f"{'model':18}{'lengths':9}{'tokens':>7}{'engine tok/s':>14}{'generate tok/s':>16}{'ratio':>7}{'wall':>7}")
    for timing in timings:
        print(
            f"{timing.model[-17:]:18}{timing.workload:9}{timing.tokens:7}{timing.tokens / timing.engine_cpu_s:14.0f}"
            f"{timing.tokens / timing.generate_cpu_s:16.0f}{timing.ratio:7.2f}{timing.wall_ratio:7.2f}"
        )


if __name__ == "__main__":
    main()
