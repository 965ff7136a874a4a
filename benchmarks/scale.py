"""Step time, memory and cost of GRPO on many GPUs, predicted from the costs of its phases.

    python benchmarks/scale.py                       models of 0.5B to 32B on 1, 8 and 64 GPUs
    python benchmarks/scale.py --published           beside published step times of NeMo-RL
    python benchmarks/scale.py --ranks               beside a measured step of two processes on this machine
    python benchmarks/scale.py --train-share 0.3 --decode-share 0.5 --json

Every number that is assumed is a field of `Efficiency` or `Device`, and printed. Phases:

    generate   prefill once a group; then iterations of decoding, each as long as reading the weights and the live keys
               and values takes, or the arithmetic, whichever is longer, plus a fixed time. Completions have exponential
               lengths cut at the maximum; slots are filled again as completions end, and the last ones run alone.
    sync       weights from the trainer's shards to the sampler
    forward    log-probs by the policy that sampled, where the trainer recomputes them
    update     forward and backward, 6 N FLOPs a token and attention (8 N with recomputed activations); FSDP gathers
               parameters and reduces gradients under it, so the longer of the two counts; Adam's pass over its state
"""

from __future__ import annotations

import heapq
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

from arguments import command_line, count, natural, positive, say

GB, TERA = 1e9, 1e12


@dataclass(frozen=True)
class Model:
    """Shape of a dense decoder; `parameters` counts embeddings, as do the FLOPs of the output layer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool = False

    @property
    def parameters(self) -> float:
        """Of the whole model."""
        attention = self.hidden * self.head_size * 2 * (self.heads + self.kv_heads)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return float(self.layers * (attention + 3 * self.hidden * self.intermediate) + embeddings)

    @property
    def kv_bytes(self) -> float:
        """Of a token, in bfloat16."""
        return 4.0 * self.layers * self.kv_heads * self.head_size

    def flops(self, tokens: float, length: float) -> float:
        """Of a forward pass over sequences of a length; causal attention."""
        return tokens * (2 * self.parameters + 2 * self.layers * self.heads * self.head_size * length)


MODELS = (
    Model("Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151_936, tied=True),
    Model("Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, 151_936, tied=True),
    Model("Qwen2.5-7B", 28, 3584, 28, 4, 128, 18_944, 152_064),
    Model("Qwen2.5-32B", 64, 5120, 40, 8, 128, 27_648, 152_064),
)
LLAMA_8B = Model("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14_336, 128_256)
QWEN3_32B = Model("Qwen3-32B", 64, 5120, 64, 8, 128, 25_600, 151_936)


@dataclass(frozen=True)
class Device:
    """An accelerator by its data sheet; rates in units per second, `dollars` an hour."""

    name: str = "H100 SXM"
    flops: float = 989 * TERA
    bandwidth: float = 3350 * GB
    memory: float = 80 * GB
    link: float = 450 * GB
    network: float = 50 * GB
    a_node: int = 8
    dollars: float = 2.5

    def wire(self, devices: int) -> float:
        """Bytes per second and device between devices."""
        return self.link if devices <= self.a_node else self.network


@dataclass(frozen=True)
class Efficiency:
    """Assumed shares of what the data sheet allows, and fixed times in seconds."""

    train_share: float = 0.4
    prefill_share: float = 0.5
    decode_share: float = 0.6
    wire_share: float = 0.7
    iteration_s: float = 0.005
    switch_s: float = 2.0
    recompute: bool = True


@dataclass(frozen=True)
class Work:
    """What a step does; lengths in tokens.

    Attributes:
        forwards: Forward passes over the completions beside the update's: 0 for strictly on-policy runs of grpo-core.
    """

    prompts: int = 128
    group: int = 8
    prompt: float = 200
    completion: float = 800
    most: int = 2048
    forwards: int = 0

    @property
    def samples(self) -> int:
        """Completions of a step."""
        return self.prompts * self.group

    @property
    def tokens(self) -> float:
        """Tokens that the update reads, without sharing prompts."""
        return self.samples * (self.prompt + self.completion)

    def lengths(self, count: int) -> list[int]:
        """Lengths of completions whose mean is `completion`, in the order in which they begin."""
        low, high = 1.0, 1e9  # of the exponential's scale; the cut lowers its mean
        while high - low > 1e-3 * low:
            scale = math.sqrt(low * high)
            low, high = (scale, high) if scale * -math.expm1(-self.most / scale) < self.completion else (low, scale)
        drawn = [min(self.most, math.ceil(-low * math.log1p(-(i + 0.5) / count))) for i in range(count)]
        random.Random(0).shuffle(drawn)
        return drawn


@dataclass(frozen=True)
class Layout:
    """How GPUs are used: all for both phases in turn, or `samplers` of them for sampling alone."""

    gpus: int
    samplers: int = 0
    overlap: bool = False

    def __str__(self) -> str:
        if not self.samplers:
            return f"{self.gpus} colocated"
        return f"{self.samplers}:{self.gpus - self.samplers}{' overlap' if self.overlap else ''}"


@dataclass(frozen=True)
class Prediction:
    """Seconds of the phases of a step, and bytes on a GPU of each side."""

    generate: float
    sync: float
    forward: float
    update: float
    step: float
    trainer_bytes: float
    sampler_bytes: float


MICRO_TOKENS = 16_384
"""Tokens of a forward and backward pass of a GPU."""


def predict(
    model: Model, work: Work, layout: Layout, device: Device | None = None, share: Efficiency | None = None
) -> Prediction | None:
    """Predict a step; None where it does not fit into memory."""
    device, share = device or Device(), share or Efficiency()
    trainers = layout.gpus - layout.samplers
    samplers = layout.samplers or layout.gpus
    state = 16 * model.parameters / trainers + 2 * model.parameters / model.layers * 2
    activations = MICRO_TOKENS * model.hidden * 2 * (model.layers + 40)
    if state + activations > 0.95 * device.memory:
        return None
    resident = 0.0 if layout.samplers else state  # the sampler sleeps in a trainer's place, and the other way round
    tensor = next((size for size in (1, 2, 4, 8) if _kv_tokens(model, device, size, resident) > 64 * work.most), None)
    if tensor is None or tensor > samplers:
        return None
    generate, kv_bytes = _generate(model, work, device, share, samplers // tensor, tensor, resident)
    sync = 2 * model.parameters / (device.wire(layout.gpus) * share.wire_share) if layout.gpus > 1 else 0.0
    sync += 0.0 if layout.samplers else share.switch_s
    rate = trainers * device.flops * share.train_share
    length = work.prompt + work.completion
    once = model.flops(work.tokens, length)
    forward = work.forwards * once / rate
    update = max((4 if share.recompute else 3) * once / rate, _wire(model, work, device, share, trainers))
    update += 24 * model.parameters / trainers / (device.bandwidth * share.decode_share)
    train = forward + update
    step = sync + (max(generate, train) if layout.overlap else generate + train)
    return Prediction(
        generate, sync, forward, update, step, state + activations, resident + 2 * model.parameters / tensor + kv_bytes
    )


def _kv_tokens(model: Model, device: Device, tensor: int, resident: float) -> float:
    """Tokens whose keys and values fit beside the weights of a sampler over `tensor` GPUs."""
    return (0.9 * device.memory - resident - 2 * model.parameters / tensor) * tensor / model.kv_bytes


def _generate(
    model: Model, work: Work, device: Device, share: Efficiency, replicas: int, tensor: int, resident: float
) -> tuple[float, float]:
    """Seconds of sampling, and the most bytes of keys and values of a GPU."""
    lengths = work.lengths(math.ceil(work.samples / replicas))
    slots = min(1024, int(_kv_tokens(model, device, tensor, resident) / (work.prompt + work.completion)))
    rate, reading = device.flops * share.prefill_share * tensor, device.bandwidth * share.decode_share * tensor
    seconds = model.flops(work.prompt * len(lengths) / work.group, work.prompt) / rate
    queue, live, clock, most = iter(lengths), [], 0, 0
    for length in queue:
        heapq.heappush(live, length)
        if len(live) == slots:
            break
    while live:
        most = max(most, len(live))
        end = heapq.heappop(live)
        context = len(live) + 1, work.prompt + min(work.completion, clock) / 2
        read = 2 * model.parameters + model.kv_bytes * context[0] * context[1]
        compute = model.flops(context[0], context[1])
        seconds += (end - clock) * (max(read / reading, compute / rate) + share.iteration_s)
        clock = end
        if (length := next(queue, None)) is not None:
            heapq.heappush(live, clock + length)
    return seconds, most * (work.prompt + work.completion) * model.kv_bytes / tensor


def _wire(model: Model, work: Work, device: Device, share: Efficiency, trainers: int) -> float:
    """Seconds in which FSDP gathers parameters twice and reduces gradients once for each pass."""
    if trainers == 1:
        return 0.0
    passes = math.ceil(work.tokens / trainers / MICRO_TOKENS)
    return passes * 6 * model.parameters * (trainers - 1) / trainers / (device.wire(trainers) * share.wire_share)


def layouts() -> Iterator[Layout]:
    """The layouts of the table."""
    yield Layout(1)
    for gpus in (8, 64):
        yield Layout(gpus)
        yield from (Layout(gpus, samplers, overlap=True) for samplers in (gpus // 4, gpus // 2, 3 * gpus // 4))


PUBLISHED = (
    (LLAMA_8B, Work(32, 64, 100, 960, 4000, forwards=1), Layout(16), 97.7),
    (LLAMA_8B, Work(32, 64, 100, 1029, 4000, forwards=1), Layout(16, 8, overlap=True), 74.6),
    (QWEN3_32B, Work(32, 64, 100, 3106, 4000, forwards=1), Layout(32), 393.0),
    (QWEN3_32B, Work(32, 64, 100, 3107, 4000, forwards=1), Layout(64, 32, overlap=True), 215.0),
)
"""Dense models of NeMo-RL 0.4's performance summary (docs/about/performance-summary.md of its repository), on H100s.

2,048 completions a step, sequences of the average length published, 4,096 tokens at most. Its page tells neither the
length of the prompts nor how GPUs are divided one step off-policy: 100 tokens and halves are assumed here.
"""


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns, the first to the left and the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print(" ".join((row[0].ljust(widths[0]), *cells)))


def table(work: Work, device: Device, share: Efficiency) -> list[dict[str, object]]:
    """Predictions for every model and layout."""
    rows: list[dict[str, object]] = []
    for model in MODELS:
        for layout in layouts():
            done = predict(model, work, layout, device, share)
            row: dict[str, object] = {"model": model.name, "layout": str(layout), "fits": done is not None}
            if done is not None:
                dollars = 1000 * done.step * layout.gpus * device.dollars / 3600
                row |= {**asdict(done), "dollars_per_1000_steps": dollars}
            rows.append(row)
    return rows


def published(share: Efficiency) -> list[dict[str, object]]:
    """Predictions beside published step times; the ratio is predicted over published."""
    rows: list[dict[str, object]] = []
    for model, work, layout, seconds in PUBLISHED:
        done = predict(model, work, layout, share=share)
        assert done is not None
        rows.append(
            {
                "model": model.name,
                "layout": str(layout),
                "published_s": seconds,
                "ratio": done.step / seconds,
                **asdict(done),
            }
        )
    return rows


def main() -> None:
    """Print a table."""
    parser = command_line(__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--published", action="store_true", help="beside published step times")
    kind.add_argument("--ranks", action="store_true", help="beside a measured step of two processes")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    for part in (*fields(Efficiency), *fields(Work), *fields(Device)):
        if part.name != "name" and part.name != "recompute":
            kind_of = natural if part.name == "forwards" else count if isinstance(part.default, int) else positive
            option = f"--{part.name.replace('_', '-')}"
            parser.add_argument(option, type=kind_of, default=part.default, metavar="N", help=f"({part.default:g})")
    options = parser.parse_args()
    chosen = vars(options)
    share, work, device = (
        replace(default, **{part.name: chosen[part.name] for part in fields(default) if part.name in chosen})
        for default in (Efficiency(), Work(), Device())
    )
    if options.ranks:
        from scale_ranks import compare

        compare(as_json=options.json)
        return
    rows = published(share) if options.published else table(work, device, share)
    if options.json:
        json.dump({"share": asdict(share), "work": asdict(work), "device": asdict(device), "rows": rows}, sys.stdout)
        return
    say(f"{device.name}: {', '.join(f'{name} {value}' for name, value in asdict(share).items())}")
    if not options.published:
        say(f"a step: {', '.join(f'{name} {value}' for name, value in asdict(work).items())}")
    last = ("published", "ratio") if options.published else ("GB", "$/1000 steps")
    print_table(
        ("model", "GPUs", "generate", "sync", "forward", "update", "step s", *last),
        [_cells(row) for row in rows],
    )


def _cells(row: dict[str, object]) -> list[str]:
    if not row.get("step"):
        return [str(row["model"]), str(row["layout"]), *["-"] * 6, "does not fit"]
    number = {name: value for name, value in row.items() if isinstance(value, float)}
    cells = [str(row["model"]), str(row["layout"])]
    cells += [f"{number[name]:.1f}" for name in ("generate", "sync", "forward", "update", "step")]
    if "published_s" in number:
        return [*cells, f"{number['published_s']:.1f}", f"{number['ratio']:.2f}"]
    most = max(number["trainer_bytes"], number["sampler_bytes"])
    return [*cells, f"{most / GB:.0f}", f"{number['dollars_per_1000_steps']:.0f}"]


if __name__ == "__main__":
    main()
