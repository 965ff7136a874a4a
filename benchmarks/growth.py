"""How the cost of a step grows: seconds and peak memory of ours and TRL's against one size at a time, with slopes.

    python benchmarks/growth.py [--sizes prompts group tokens vocabulary model] [--rounds 1] [--steps 2] [--json FILE]

A slope is that of the logarithms, fitted by least squares: 1 means that the cost grows in proportion. It describes the
range that was measured and nothing beyond it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workload import SIDES, Workload, in_turn

MODELS = ((128, 4), (192, 8), (256, 12), (384, 16))
"""(width, layers): 0.9, 4, 10 and 28 M parameters."""

SIZES: dict[str, Sequence[int]] = {
    "prompts": (2, 4, 8, 16),
    "group": (4, 8, 16, 32),
    "tokens": (32, 64, 128, 256),
    "vocabulary": (258, 4096, 16_384, 49_152),
    "model": range(len(MODELS)),
}


def workload(size: str, value: int) -> Workload:
    """The workload of a point of a curve."""
    if size != "model":
        return replace(Workload(), **{size: value})
    width, layers = MODELS[value]
    return replace(Workload(), hidden=width, intermediate=3 * width, layers=layers)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Slope of log y against log x."""
    return statistics.linear_regression([math.log(x) for x in xs], [math.log(y) for y in ys]).slope


def curve(size: str, *, steps: int, rounds: int) -> list[dict[str, float]]:
    """Points of one curve: x, and seconds and MiB of each side."""
    points = []
    for value in SIZES[size]:
        work = workload(size, value)
        results = in_turn(work, steps=steps, rounds=rounds)
        point = {"x": float(work.parameters if size == "model" else value)}
        for side, runs in results.items():
            point[f"{side}_s"] = statistics.median(run.seconds for run in runs)
            point[f"{side}_mib"] = max(run.peak_mib for run in runs)
        points.append(point)
        print(f"{size:11}{point['x']:12.0f}" + "".join(
            f"   {side} {point[f'{side}_s']:.3f} s {point[f'{side}_mib']:5.0f} MiB" for side in SIDES
        ), flush=True)  # fmt: skip
    return points


def main() -> None:
    """Print each curve and its slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file that receives the points")
    options = parser.parse_args()
    curves = {}
    for size in options.sizes:
        points = curves[size] = curve(size, steps=options.steps, rounds=options.rounds)
        xs = [point["x"] for point in points]
        slopes = {name: slope(xs, [point[name] for point in points]) for name in points[0] if name != "x"}
        print(
            f"{size:11}{'slope':>12}" + "".join(f"   {name} {value:.2f}" for name, value in slopes.items()), flush=True
        )
    if options.json:
        options.json.write_text(json.dumps(curves, indent=1) + "\n")


if __name__ == "__main__":
    main()
