"""What a turn of a conversation costs: keys and values kept, beside prompts read again, alternating in one run.

    python benchmarks/turns.py [--shapes respond agents] [--turns 8] [--repeats 3] [--threads 2] [--json]

Shapes are random Llamas, whose weights cost what trained ones cost: `respond` (8 layers of 576, 2 prompts with 4
conversations each, 32 sampled and 128 following tokens a turn) and `agents` (SmolLM2-135M's, 4 × 4 conversations, 64
and 128). Prompts have 48 tokens. Sides: `kept` (`generate` with conversations), `arriving` (`generate_arriving`, where
each conversation goes on as soon as its turn is over) and `again` (`generate` without conversations).

`floor` is what a turn cannot do without: sampling its tokens behind that context (a batch of that limit less one of a
single token) and one forward of the model's own code over its new tokens with a cache in place. Before timing, greedy
tokens of all sides must be equal, where float32 decides. Times are wall time, the least of the repeats: only ratios
within one run mean something.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counter
from typing import Any

import torch
from arguments import command_line, count
from sampler import byte_tokenizer
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from grpo_core.engines.native import NativeEngine
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

PROMPT_LENGTH = 48
SIDES = ("kept", "arriving", "again")


@dataclass(frozen=True)
class Shape:
    """A model and its conversations.

    Attributes:
        layers: Of a width of 576, as SmolLM2-135M's.
        prompts: Number of prompts.
        group: Conversations of each.
        sampled: Tokens that a turn samples.
        following: Tokens that follow them.
    """

    layers: int
    prompts: int
    group: int
    sampled: int
    following: int


SHAPES = {"respond": Shape(8, 2, 4, 32, 128), "agents": Shape(30, 4, 4, 64, 128)}

_names = counter()


class Queue:
    """Requests that are there, and those of conversations that go on."""

    def __init__(self, requests: list[tuple[int, Request]]) -> None:
        self.requests: list[tuple[int, Request]] = requests
        self.are_open = len(requests)

    def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
        """Those that have come."""
        if not self.are_open:
            return None
        came, self.requests = self.requests, []
        return came


class Workbench:
    """A model and the ways to play conversations with it."""

    def __init__(self, name: str) -> None:
        self.shape, shape = SHAPES[name], SHAPES[name]
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=shape.layers,
            num_attention_heads=9,
            num_key_value_heads=3,
            tie_word_embeddings=True,
            max_position_embeddings=8192,
            eos_token_id=None,
            pad_token_id=0,
        )
        self.model: Any = LlamaForCausalLM(config).train(False)
        self.model.generation_config.eos_token_id = None
        self.engine = NativeEngine(self.model, byte_tokenizer())
        self.rows = shape.prompts * shape.group
        self._generator = torch.Generator().manual_seed(0)
        prompts = [self._tokens(PROMPT_LENGTH) for _ in range(shape.prompts)]
        self.prompts = [prompt for prompt in prompts for _ in range(shape.group)]
        self.following = [[self._tokens(shape.following) for _ in range(self.rows)] for _ in range(64)]

    def _tokens(self, length: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, 49_152, (length,), generator=self._generator).tolist())

    def sampling(self, temperature: float) -> Sampling:
        """That of a turn."""
        return Sampling(temperature=temperature, max_completion_length=self.shape.sampled)

    def play(self, side: str, turns: int, temperature: float = 1.0) -> tuple[list[float], list[list[Completion]]]:
        """Seconds of each turn (of all together where requests arrive) and its completions."""
        names = [None if side == "again" else f"{next(_names)}" for _ in range(self.rows)]
        requests = [
            Request(prompt, SampleKey(0, 0, "", row), conversation=names[row])
            for row, prompt in enumerate(self.prompts)
        ]
        found: list[list[Completion]] = []
        seconds = []
        if side == "arriving":
            start = time.perf_counter()
            found = self._arriving(requests, turns, temperature)
            seconds.append(time.perf_counter() - start)
        for turn in range(turns) if side != "arriving" else ():
            start = time.perf_counter()
            done = dict(self.engine.generate(requests, self.sampling(temperature)))
            seconds.append(time.perf_counter() - start)
            found.append([done[row] for row in range(self.rows)])
            requests = [self._next(request, found[-1][row], turn, row) for row, request in enumerate(requests)]
        self.engine.rest()
        return seconds, found

    def _arriving(self, requests: list[Request], turns: int, temperature: float) -> list[list[Completion]]:
        queue = Queue(list(enumerate(requests)))
        found: dict[int, list[Completion]] = {row: [] for row in range(self.rows)}
        last = dict(enumerate(requests))
        for row, completion in self.engine.generate_arriving(queue, self.sampling(temperature)):
            found[row].append(completion)
            if (turn := len(found[row])) == turns:
                queue.are_open -= 1
                continue
            last[row] = self._next(last[row], completion, turn - 1, row)
            queue.requests.append((row, last[row]))
        return [[found[row][turn] for row in range(self.rows)] for turn in range(turns)]

    def _next(self, request: Request, completion: Completion, turn: int, row: int) -> Request:
        prompt = (*request.prompt_ids, *completion.token_ids, *self.following[turn][row])
        return Request(prompt, SampleKey(0, turn + 1, "", row), conversation=request.conversation)

    def floor(self, turn: int) -> float:
        """Seconds of what a turn, 1 for the first, cannot do without."""
        new = self.shape.sampled + self.shape.following
        context = PROMPT_LENGTH + (turn - 1) * new
        prompts = [self._tokens(context) for _ in range(self.rows)]
        requests = [Request(prompt, SampleKey(0, 0, "", row)) for row, prompt in enumerate(prompts)]
        spent = {}
        for limit in (1 + self.shape.sampled, 1):
            sampling = Sampling(max_completion_length=limit)
            if limit == 1:  # with copies of the weights in either
                requests = [Request(each.prompt_ids, each.key, max_completion_length=1) for each in requests]
                sampling = Sampling(max_completion_length=self.shape.sampled)
            start = time.perf_counter()
            dict(self.engine.generate(requests, sampling))
            spent[limit] = time.perf_counter() - start
        decoding = spent[1 + self.shape.sampled] - spent[1]
        if turn == 1:
            return decoding + spent[1]
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            cache = DynamicCache(config=self.model.config)
            known = context - self.shape.following
            self.model.model(input_ids=ids[:, :known], past_key_values=cache)
            start = time.perf_counter()
            self.model.model(input_ids=ids[:, known:], past_key_values=cache)
            return decoding + time.perf_counter() - start


def check(bench: Workbench) -> None:
    """Compare greedy tokens of the sides' first two turns."""
    tokens = {side: [[c.token_ids for c in turn] for turn in bench.play(side, 2, 0.0)[1]] for side in SIDES}
    rows = [(turn, row) for turn in range(2) for row in range(bench.rows)]
    different = [
        (turn, row) for turn, row in rows for side in SIDES if tokens[side][turn][row] != tokens["again"][turn][row]
    ]
    if len(different) > len(rows) // 4:  # a random model's best logits are close, and a row that differs goes on so
        raise SystemExit(f"the sides disagree in {len(different)} of {len(rows)} rows, so their times say nothing")


def measured(name: str, turns: int, repeats: int) -> dict[str, Any]:
    """Times and ratios of one shape."""
    bench = Workbench(name)
    check(bench)
    best: dict[str, list[float]] = {}
    floors = [float("inf")] * 2
    for _ in range(repeats):
        for side in SIDES:
            seconds, _found = bench.play(side, turns)
            best[side] = [min(pair) for pair in zip(seconds, best.get(side, seconds), strict=True)]
        floors = [min(floor, bench.floor(turn)) for floor, turn in zip(floors, (2, turns), strict=True)]
    kept = best["kept"]
    return {
        "shape": name,
        "seconds": best,
        "floor_of_turn_2": floors[0],
        "floor_of_last_turn": floors[1],
        "turn_2_over_floor": kept[1] / floors[0],
        "last_turn_over_floor": kept[-1] / floors[1],
        "last_turn_over_turn_2": kept[-1] / kept[1],
        "again_over_kept": sum(best["again"]) / sum(kept),
        "again_over_arriving": sum(best["again"]) / sum(best["arriving"]),
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """A result as a table."""
    yield f"{result['shape']}: seconds of each turn"
    for side in SIDES:
        seconds = result["seconds"][side]
        yield (
            f"  {side:10}"
            + (" ".join(f"{each:6.2f}" for each in seconds) if len(seconds) > 1 else "")
            + (f"   together {sum(seconds):.2f}")
        )
    for key, value in result.items():
        if isinstance(value, float):
            yield f"  {key.replace('_', ' '):24}{value:6.2f}"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="SHAPE", help=", ".join(SHAPES)
    )
    parser.add_argument("--turns", type=count, default=8, help="of a conversation; at least 2")
    parser.add_argument("--repeats", type=count, default=3, help="of each side; the least time of a turn counts")
    parser.add_argument("--threads", type=count, default=2, help="of torch")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    arguments = parser.parse_args()
    if not 2 <= arguments.turns <= 40:
        parser.error(f"turns={arguments.turns} must be from 2 to 40")
    torch.set_num_threads(arguments.threads)
    results = [measured(shape, arguments.turns, arguments.repeats) for shape in arguments.shapes]
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
        return
    for result in results:
        print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
