"""What `grpo run --quick` could gain by another learning rate, and what more fine-tuning gains in place of GRPO.

    python benchmarks/quick.py [--task SPEC …] [--seeds 0] [--factors 0.3,1,3] [--steps 200] [--json]

For each task and seed a new model is fine-tuned on golds as `--quick` does it. From this start it is trained with GRPO
at multiples of the recorded learning rate, and, as a control, fine-tuned further for about as long as the training at
that rate took. Each ends with the held-out difference over the start, greedy, with its 95% paired interval.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arguments import command_line, count, natural, positive, several

from grpo_core import evaluate, train, warm_start
from grpo_core.cli.quick import ENOUGH, STEPS, WARM_STEPS

EXAMPLES = Path(__file__).parents[1] / "examples"
TASKS = (
    f"{EXAMPLES}/rhyme/rhyme.py:couplet",
    f"{EXAMPLES}/tasks/units.py:convert?size=6000",
    f"{EXAMPLES}/tasks/pattern.py:match?size=6000",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One training from a start: its held-out solved rate, and the difference over the start on the same rows."""

    task: str
    seed: int
    training: str
    steps: int
    initial: float
    final: float
    difference: float
    low: float
    high: float
    seconds: float

    @classmethod
    def of(cls, result: dict[str, Any], initial: float, **named: Any) -> Outcome:
        """From the numbers of an evaluation with a difference."""
        keys = ("solved_rate", "delta", "delta_ci_low", "delta_ci_high")
        final, difference, low, high = (result[key] for key in keys)
        return cls(initial=initial, final=final, difference=difference, low=low, high=high, **named)

    def line(self) -> str:
        """The outcome as a row of a Markdown table."""
        change = f"{self.difference:+.2f} [{self.low:.2f}, {self.high:.2f}]"
        start = f"| {self.task} | {self.seed} | {self.training} | {self.steps}"
        return f"{start} | {self.initial:.2f} | {self.final:.2f} | {change} | {self.seconds / 60:.1f} |"


def end_if(interrupted: bool) -> None:
    """End with a training that the user stopped: it returns as if it were done.

    Raises:
        SystemExit: it was stopped, by Ctrl-C or SIGTERM.
    """
    if interrupted:
        raise SystemExit(130)


def outcomes(task: str, seed: int, factors: list[float], steps: int, scratch: Path) -> Iterator[Outcome]:
    """Every training from one start."""
    start = scratch / "start"
    begun = time.perf_counter()
    record = warm_start(task, start, preset="tiny", max_steps=WARM_STEPS, until=ENOUGH, seed=seed, progress=False)
    end_if(record["interrupted"])
    seconds_per_step = (time.perf_counter() - begun) / record["steps"]
    rate = record["recommended"]["trainer.learning_rate"]
    minutes: dict[float, float] = {}
    initial = 0.0
    for factor in factors:
        begun = time.perf_counter()
        run = train(
            task, model=str(start), seed=seed, max_steps=steps, learning_rate=rate * factor, progress=False,
            output_dir=str(scratch / f"rate_{factor:g}"),
        )  # fmt: skip
        end_if(run.interrupted)
        minutes[factor] = time.perf_counter() - begun
        ((name, phases),) = run.summary["tasks"].items()
        initial = phases["initial"]["solved_rate"]
        named = {"task": name, "seed": seed, "training": f"GRPO at {rate * factor:.1e}", "steps": steps}
        yield Outcome.of(phases["final"], initial, **named, seconds=minutes[factor])
    longer = max(1, round(minutes[min(factors, key=lambda factor: abs(factor - 1))] / seconds_per_step))
    begun = time.perf_counter()
    further = scratch / "further"
    record = warm_start(task, further, model=str(start), max_steps=longer, seed=seed + 1, progress=False)
    end_if(record["interrupted"])
    took = time.perf_counter() - begun
    ((name, result),) = evaluate(task, str(further), base=str(start), progress=False).items()
    named = {"task": name, "seed": seed, "training": "more fine-tuning", "steps": longer}
    yield Outcome.of(result, initial, **named, seconds=took)


def main() -> int:
    """Print a row for each training as it ends, or all of them as JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--task", action="append", help="Task; repeatable. By default three of examples/.")
    parser.add_argument("--seeds", type=several(natural), default="0", help="Seeds, separated by commas.")
    parser.add_argument(
        "--factors",
        type=several(positive),
        default="0.3,1,3",
        help="Multiples of the recorded rate, separated by commas.",
    )
    parser.add_argument("--steps", type=count, default=STEPS, help="Steps of each training with GRPO.")
    parser.add_argument("--json", action="store_true", help="Print the outcomes as JSON.")
    options = parser.parse_args()
    every = []
    if not options.json:
        print("| task | seed | training | steps | initial | final | difference | minutes |")
        print("|---|---|---|---|---|---|---|---|")
    for task in options.task or TASKS:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as scratch:
                for outcome in outcomes(task, seed, options.factors, options.steps, Path(scratch)):
                    every.append(outcome)
                    if not options.json:
                        print(outcome.line(), flush=True)
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in every], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
