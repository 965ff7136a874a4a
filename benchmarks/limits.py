"""The share of the CPU's arithmetic that each phase of a GRPO step reaches.

    python benchmarks/limits.py [--shape smollm2] [--tokens 48] … [--steps 2] [--threads 2] [--json]

The limit of a phase is the time that its matrix products alone take, in the same process and with the same number of
threads, at the fastest that torch's two libraries (MKL, oneDNN; weights packed beforehand) multiply these very shapes:
one product for each linear layer and token batch, the output layer included; attention, norms and everything else count
as nothing. Sampling feeds one token of each completion at a time; the backward pass multiplies twice, and makes the
logits again. The limit of the optimizer is the time of reading and writing its numbers once.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from arguments import command_line, count
from torch import Tensor
from workload import Workload, add_arguments, make_model, run_ours, workload_of

from grpo_core.training.optimizer import PolicyOptimizer

PROMPT = 48
PHASES = ("generate", "forward", "backward", "optimizer")


def best(run: Callable[[], object], seconds: float = 0.4) -> float:
    """Least seconds of a call, of at least three."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def products(work: Workload) -> list[tuple[int, int]]:
    """(inputs, outputs) of each linear layer, the output layer last."""
    width = work.hidden // work.heads * work.kv_heads
    layer = [
        (work.hidden, work.hidden), (work.hidden, width), (work.hidden, width), (work.hidden, work.hidden),
        (work.hidden, work.intermediate), (work.hidden, work.intermediate), (work.intermediate, work.hidden),
    ]  # fmt: skip
    return layer * work.layers + [(work.hidden, work.vocabulary)]


class Limits:
    """Seconds of bare products of one workload's shapes."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self._shapes = products(work)
        self._weights = [torch.randn(outputs, inputs) for inputs, outputs in self._shapes]

    def generate(self) -> float:
        """Every token's products, one token of each completion at a time, and the prompts' once."""
        work = self._work
        rows = work.prompts * work.group
        return work.tokens * self._all(rows, self._multiply) + self._all(work.prompts * PROMPT, self._multiply, head=0)

    def forward(self) -> float:
        """The products of packed prompts and completions, and the output layer's of completions."""
        return self._all(self._packed(), self._multiply, head=self._completions())

    def backward(self) -> float:
        """Gradients of inputs and of weights, and the logits again."""
        twice = self._all(self._packed(), self._gradients, head=self._completions())
        return twice + self._all(0, self._multiply, head=self._completions())

    def optimizer(self) -> float:
        """AdamW reads a weight, its gradient and two moments, and writes all but the gradient: 7 numbers."""
        numbers = torch.empty(2**26)
        other = torch.empty_like(numbers)
        per_number = best(lambda: other.copy_(numbers)) / (2 * numbers.numel())
        return 7 * self._work.parameters * per_number

    def _completions(self) -> int:
        return self._work.prompts * self._work.group * self._work.tokens

    def _packed(self) -> int:
        return self._work.prompts * (PROMPT + self._work.group * (self._work.tokens - 1))

    def _all(self, rows: int, time_of: Callable[[int, Tensor], float], head: int | None = None) -> float:
        """Seconds of every layer at some rows, and of the output layer at its own; equal shapes are timed once."""
        layers = self._weights[: 7 if rows else 0]
        seconds = self._work.layers * sum(time_of(rows, weight) for weight in layers)
        head = rows if head is None else head
        return seconds + (time_of(head, self._weights[-1]) if head else 0.0)

    def _multiply(self, rows: int, weight: Tensor) -> float:
        x = torch.randn(rows, weight.shape[1])
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        return min(best(lambda: F.linear(x, weight), 0.1), best(lambda: onednn(x, packed), 0.1))

    def _gradients(self, rows: int, weight: Tensor) -> float:
        x, grad = torch.randn(rows, weight.shape[1]), torch.randn(rows, weight.shape[0])
        of_input = min(best(lambda: grad @ weight, 0.1), best(lambda: onednn(grad, weight.t()), 0.1))
        of_weight = min(best(lambda: grad.t() @ x, 0.1), best(lambda: onednn(grad.t(), x.t()), 0.1))
        return of_input + of_weight


def onednn(x: Tensor, weight: Tensor) -> Tensor:
    """X Wᵀ by oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return product


class PhaseClock:
    """Adds up the seconds of backward passes and optimizer steps of our trainer, by wrapping them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []  # one for each optimizer step
        self._backward = 0.0

    def install(self) -> None:
        """Wrap `PolicyOptimizer` for the rest of this process."""
        backward, step = PolicyOptimizer.backward, PolicyOptimizer.step

        def timed_backward(optimizer: PolicyOptimizer, loss: Tensor) -> None:
            start = time.perf_counter()
            backward(optimizer, loss)
            self._backward += time.perf_counter() - start

        def timed_step(optimizer: PolicyOptimizer, *, is_finite: bool) -> tuple[float, bool]:
            start = time.perf_counter()
            result = step(optimizer, is_finite=is_finite)
            self.steps.append({"backward": self._backward, "optimizer": time.perf_counter() - start})
            self._backward = 0.0
            return result

        PolicyOptimizer.backward, PolicyOptimizer.step = timed_backward, timed_step  # type: ignore[method-assign]


def phases(work: Workload, steps: int) -> dict[str, float]:
    """Median seconds of each phase of our trainer's steps, the first not counted."""
    clock = PhaseClock()
    clock.install()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch:
        make_model(Path(folder), work)
        metrics = run_ours(Path(folder), work, steps + 1, Path(scratch))
    counted = [
        {"generate": step["generate_s"], "forward": step["update_s"] - sum(own.values()), **own}
        for step, own in zip(metrics[1:], clock.steps[1:], strict=True)
    ]
    return {phase: statistics.median(step[phase] for step in counted) for phase in PHASES}


def main() -> None:
    """Print each phase's seconds, its limit and the share of the limit that it reaches."""
    parser = command_line(__doc__)
    add_arguments(parser)
    parser.add_argument("--steps", type=count, default=2, help="steps counted (2)")
    parser.add_argument("--threads", type=count, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    work = workload_of(parser, options)
    if (work.device, work.precision) != ("cpu", "float32"):
        parser.error("the limits are products in float32 on a CPU: leave --device and --precision out")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # a small model would take one thread
    torch.set_num_threads(options.threads)
    seconds = phases(work, options.steps)
    torch.set_num_threads(options.threads)
    limits = Limits(work)
    limit = {phase: getattr(limits, phase)() for phase in PHASES}
    table = {
        phase: {"seconds": seconds[phase], "limit": limit[phase], "share": limit[phase] / seconds[phase]}
        for phase in PHASES
    }
    total = {name: sum(row[name] for row in table.values()) for name in ("seconds", "limit")}
    table["step"] = {**total, "share": total["limit"] / total["seconds"]}
    if options.json:
        print(json.dumps({"workload": asdict(work), "threads": options.threads, "phases": table}))
        return
    print(f"{work.parameters / 1e6:.1f} M parameters, {work.precision}, {options.threads} thread(s)")
    print(f"{'phase':12}{'seconds':>9}{'limit':>9}{'share':>8}")
    for phase, row in table.items():
        print(f"{phase:12}{row['seconds']:9.3f}{row['limit']:9.3f}{row['share']:8.2f}")


if __name__ == "__main__":
    main()
