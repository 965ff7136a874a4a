"""What algorithms learn from the same tokens: held-out rates of GRPO's relatives, and of TRL, on one task and model.

    python benchmarks/learning.py [--task math.arithmetic] [--model tiny] [--algorithms dr_grpo grpo … trl_dr_grpo]
        [--seeds 0,1,2] [--steps 200] [--updates 4] [--rates 1] [--jobs 2] [--out FOLDER] [--json FILE] [--svg FILE]

An algorithm is what defines its recipe (`grpo run --recipe`): loss, aggregation, baseline, scaling, clip bounds and
dynamic sampling. All else is equal: model, learning rate and its schedule, 32 prompts of 8 completions a step,
optimizer steps of a batch, no KL term, seeds, held-out rows. `trl_NAME` is TRL's trainer with that loss. With several
--rates, a run of its own on the validation rows chooses each algorithm's multiple of the model's learning rate.

Rates are compared at equal sampled tokens, groups that dynamic sampling rejected included (with the mean length of the
others): those of the run that sampled fewest. Between evaluations a curve is a straight line. ± is the 95% interval of
a mean over seeds by Student's t; the difference is paired by seed with the first algorithm.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

from arguments import command_line, count, natural, new_file, positive, several

ALGORITHMS = ("dr_grpo", "grpo", "dapo", "rloo", "gspo", "cispo", "reinforce_pp", "trl_dr_grpo")
TRL = "trl_"

CLIP = ("trainer.epsilon", "trainer.epsilon_high", "trainer.dynamic_sampling_attempts")
"""Settings of a recipe that belong to its algorithm beside those that define it."""

PROMPTS, GROUP = 32, 8
EVALUATIONS = 8
"""Held-out evaluations of a run, beside the one before it."""

TUNING_SEED = 1000
"""Seed of the runs that choose a learning rate; none of those that are compared."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training.

    Attributes:
        algorithm: Name of a recipe, after `trl_` for TRL's trainer.
        seed: Seed of the run.
        rate: Multiple of the model's learning rate.
        split: Split of the rows that are evaluated.
        steps: Batches.
        updates: Optimizer steps of a batch.
        rows: Rows that are evaluated.
        task: Task spec.
        model: Model that each run starts from.
        folder: Folder of the runs.
    """

    algorithm: str
    seed: int
    rate: float
    split: str
    steps: int
    updates: int
    rows: int
    task: str
    model: str
    folder: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The held-out rate of a training over the tokens that it sampled; `points` are (tokens, rate)."""

    algorithm: str
    seed: int
    rate: float
    points: tuple[tuple[float, float], ...]
    seconds: float
    run: str

    @property
    def tokens(self) -> float:
        """Tokens sampled in all."""
        return self.points[-1][0]

    def at(self, tokens: float) -> float:
        """The rate at a number of tokens, between two evaluations on the line between them."""
        for (left, low), (right, high) in pairwise(self.points):
            if tokens <= right:
                return low + (high - low) * (tokens - left) / (right - left)
        return self.points[-1][1]


def settings_of(algorithm: str) -> dict[str, Any]:
    """The settings that make an algorithm, by dotted key."""
    from grpo_core.config.recipes import recipe

    chosen = recipe(algorithm.removeprefix(TRL))
    options = {key: chosen.options[key] for key in (*chosen.defining, *CLIP) if key in chosen.options}
    options.pop("trainer.kl_placement", None)  # of a KL term that is left out
    return options | ({"trainer.backend": "trl"} if algorithm.startswith(TRL) else {})


def curve_of(job: Job) -> Curve:
    """Train, and read the curve from the run's logs."""
    from grpo_core import train
    from grpo_core.config import RunConfig, resolve
    from grpo_sdk.records.jsonl import read_jsonl

    start = resolve(RunConfig(task=job.task, model=job.model)).config.trainer.learning_rate
    assert start is not None, "the configuration is resolved"
    begun = time.perf_counter()
    result = train(
        job.task,
        model=job.model,
        seed=job.seed,
        output_dir=f"{job.folder}/{job.algorithm}_{job.seed}_{job.rate:g}_{job.split}",
        progress=False,
        **{
            "eval.size": job.rows, "eval.split": job.split, "eval.interval_steps": max(1, job.steps // EVALUATIONS),
            "trainer.max_steps": job.steps, "trainer.prompts_per_step": PROMPTS, "trainer.num_generations": GROUP,
            "trainer.steps_per_generation": job.updates, "trainer.beta": 0.0, "trainer.entropy_coef": 0.0,
            "trainer.learning_rate": start * job.rate, "trainer.lr_scheduler_type": "constant",
            "trainer.warmup_steps": 10, "trainer.log_completions": 0, **settings_of(job.algorithm),
        },
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    logs = (result.run_dir / "logs" / name for name in ("train_log.jsonl", "evaluations.jsonl"))
    points = points_of(*([record for _, record in read_jsonl(log)] for log in logs))
    return Curve(job.algorithm, job.seed, job.rate, points, seconds, str(result.run_dir))


def points_of(
    log: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]
) -> tuple[tuple[float, float], ...]:
    """(tokens sampled until then, solved rate) of each evaluation, by step."""
    sampled, total = {0: 0.0}, 0.0
    for line in log:
        groups = PROMPTS + line.get("dynamic_sampling/rejected", 0.0)
        total += line["completions/mean_length"] * GROUP * groups
        sampled[line["step"]] = total
    rates = {}
    for line in evaluations:
        (rate,) = (value for name, value in line.items() if name.endswith("/solved_rate"))
        rates[sampled[line["step"]]] = rate  # a step that is evaluated twice keeps the later one
    return tuple(sorted(rates.items()))


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95% interval by Student's t; infinite for one value."""
    from scipy.stats import t

    if len(values) < 2:
        return values[0], math.inf
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), float(half)


def chosen_rates(jobs: Sequence[Job], curves: Sequence[Curve]) -> dict[str, float]:
    """The multiple of the learning rate with the best rate on the validation rows, for each algorithm."""
    best: dict[str, tuple[float, float]] = {}
    for job, curve in zip(jobs, curves, strict=True):
        found = (curve.points[-1][1], job.rate)
        best[job.algorithm] = max(best.get(job.algorithm, found), found)
    return {algorithm: rate for algorithm, (_, rate) in best.items()}


def table_of(curves: Sequence[Curve]) -> list[str]:
    """The comparison as a Markdown table."""
    by_name: dict[str, list[Curve]] = {}
    for curve in curves:
        by_name.setdefault(curve.algorithm, []).append(curve)
    tokens = min(curve.tokens for curve in curves)
    first = [curve.at(tokens) for curve in next(iter(by_name.values()))]
    lines = [
        f"At {tokens / 1e3:.0f} thousand sampled tokens:",
        "",
        "| algorithm | learning rate | each seed | mean | sd | difference | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in by_name.items():
        rates = [curve.at(tokens) for curve in own]
        mean, half = spread(rates)
        difference, width = spread([rate - other for rate, other in zip(rates, first, strict=True)])
        deviation = f"{statistics.stdev(rates):.3f}" if len(rates) > 1 else "–"
        change = (
            "–" if rates is first or own[0].algorithm == curves[0].algorithm else f"{difference:+.3f} ± {width:.3f}"
        )
        seeds = ", ".join(f"{rate:.3f}" for rate in rates)
        minutes = statistics.mean(curve.seconds for curve in own) / 60
        cells = (name, f"×{own[0].rate:g}", seeds, f"{mean:.3f} ± {half:.3f}", deviation, change, f"{minutes:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def picture_of(curves: Sequence[Curve], task: str) -> str:
    """The curves as SVG: the mean over seeds, and a band from the lowest seed to the highest."""
    import vl_convert

    values = []
    tokens = min(curve.tokens for curve in curves)
    for name in dict.fromkeys(curve.algorithm for curve in curves):
        for part in range(41):
            rates = [curve.at(tokens * part / 40) for curve in curves if curve.algorithm == name]
            point = {
                "tokens": tokens * part / 40,
                "rate": statistics.mean(rates),
                "low": min(rates),
                "high": max(rates),
            }
            values.append({"algorithm": name, **point})
    x = {"field": "tokens", "type": "quantitative", "title": "sampled tokens"}
    color = {"field": "algorithm", "type": "nominal", "sort": None}
    y = {"type": "quantitative", "title": f"held-out solved rate, {task}", "scale": {"zero": False}}
    specification = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 620, "height": 360, "data": {"values": values},
        "config": {"background": "white", "legend": {"symbolOpacity": 1}},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.12},
             "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color}},
            {"mark": {"type": "line"}, "encoding": {"x": x, "y": {**y, "field": "rate"}, "color": color}},
        ],
    }  # fmt: skip
    svg: str = vl_convert.vegalite_to_svg(specification)
    return svg


def algorithm(name: str) -> str:
    """A name that `settings_of` knows."""
    from grpo_sdk.errors import UserError

    try:
        settings_of(name)
    except (UserError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"{name!r} is not a recipe, or trl_ and a recipe: {error}") from None
    return name


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("--task", default="math.arithmetic", help="task (math.arithmetic)")
    parser.add_argument("--model", default="tiny", help="model to train (tiny)")
    parser.add_argument("--algorithms", nargs="+", type=algorithm, default=list(ALGORITHMS), metavar="NAME",
                        help=f"recipes, or trl_ and a recipe ({' '.join(ALGORITHMS)})")  # fmt: skip
    parser.add_argument("--seeds", type=several(natural), default="0,1,2", help="seeds, separated by commas")
    parser.add_argument(
        "--rates",
        type=several(positive),
        default="1",
        help="multiples of the model's learning rate, separated by commas",
    )
    parser.add_argument("--steps", type=count, default=200, help="batches of a run")
    parser.add_argument("--updates", type=count, default=4, help="optimizer steps of a batch")
    parser.add_argument("--rows", type=count, default=512, help="held-out rows")
    parser.add_argument("--jobs", type=count, default=1, help="runs at a time, each with one thread")
    parser.add_argument("--out", metavar="FOLDER", help="folder that keeps the runs")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="file that receives the curves")
    parser.add_argument("--svg", type=new_file, metavar="FILE", help="file that receives the picture")
    return parser.parse_args(arguments)


def main() -> int:
    """Run everything and print the table."""
    options = options_of()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that train
    rates = options.rates
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(
        options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:  # fmt: skip

        def job(algorithm: str, seed: int, rate: float, split: str) -> Job:
            return Job(
                algorithm, seed, rate, split, options.steps, options.updates, options.rows, options.task,
                options.model, options.out or scratch,
            )  # fmt: skip

        def trained(jobs: Sequence[Job]) -> list[Curve]:
            curves = []
            for curve in pool.map(curve_of, jobs):
                curves.append(curve)
                print(
                    f"{len(curves)}/{len(jobs)}  {curve.algorithm} seed {curve.seed} ×{curve.rate:g}: "
                    f"{curve.points[0][1]:.3f} -> {curve.points[-1][1]:.3f}, {curve.tokens:.0f} tokens, "
                    f"{curve.seconds:.0f} s", file=sys.stderr, flush=True,
                )  # fmt: skip
            return curves

        chosen = dict.fromkeys(options.algorithms, rates[0])
        if len(rates) > 1:
            tuning = [job(name, TUNING_SEED, rate, "validation") for name in options.algorithms for rate in rates]
            chosen = chosen_rates(tuning, trained(tuning))
        held_out = [job(name, seed, chosen[name], "test") for name in options.algorithms for seed in options.seeds]
        curves = trained(held_out)
    if options.json:
        options.json.write_text(json.dumps([asdict(curve) for curve in curves], indent=1) + "\n")
    if options.svg:
        options.svg.write_text(picture_of(curves, options.task))
    print("\n".join(table_of(curves)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
