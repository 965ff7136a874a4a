"""How the cost of a step grows: seconds and peak memory of ours and TRL's against one size at a time, with slopes.

    python benchmarks/growth.py [--sizes prompts group tokens vocabulary model] [--rounds 1] [--steps 2]
        [--json FILE] [--svg FILE]
    python benchmarks/growth.py --from FILE … [--svg FILE]

A slope is that of the logarithms, fitted by least squares: 1 means that the cost grows in proportion. It describes the
range that was measured and nothing beyond it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from arguments import command_line, count, file, new_file
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


WIDTH, PANEL, MARGIN = 900, 150, 46
"""Pixels: width of the picture, height of a panel, and room for its labels."""

STYLE = (
    "text{font:12px sans-serif;fill:#1f2328}path{fill:none;stroke-width:1.5}.axis{stroke:#d1d9e0}"
    "path.ours{stroke:#0969da}path.trl{stroke:#bc4c00}text.ours{fill:#0969da}text.trl{fill:#bc4c00}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#3d444d}path.ours{stroke:#79c0ff}"
    "path.trl{stroke:#ffa657}text.ours{fill:#79c0ff}text.trl{fill:#ffa657}}"
)


@dataclass(frozen=True)
class Panel:
    """A place in the picture, with logarithmic axes from the first to the last x and the lowest to the highest y."""

    left: float
    top: float
    right: float
    xs: tuple[float, float]
    ys: tuple[float, float]

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + PANEL

    def at(self, x: float, y: float) -> str:
        """The place of a point."""
        across = math.log(x / self.xs[0]) / math.log(self.xs[1] / self.xs[0])
        up = math.log(y / self.ys[0]) / math.log(self.ys[1] / self.ys[0])
        return f"{self.left + across * (self.right - self.left):.1f} {self.bottom - up * PANEL:.1f}"

    def axes(self, title: str, digits: int) -> list[str]:
        """Axes and labels."""
        left, bottom = f"{self.left:.1f}", f"{self.bottom:.1f}"
        heights = zip((self.bottom, self.top + 4), self.ys, strict=True)
        return [
            f'<path class="axis" d="M{left} {self.top}V{bottom}H{self.right:.1f}"/>',
            f'<text x="{left}" y="{self.top - 8}">{title}</text>',
            f'<text x="{left}" y="{self.bottom + 16}">{number(self.xs[0])}</text>',
            f'<text x="{self.right:.1f}" y="{self.bottom + 16}" text-anchor="end">{number(self.xs[1])}</text>',
            *(
                f'<text x="{self.left - 4:.1f}" y="{y}" text-anchor="end">{value:.{digits}f}</text>'
                for y, value in heights
            ),
        ]


def number(x: float) -> str:
    """A size as a label."""
    return f"{x / 1e6:.1f} M" if x >= 1e5 else f"{x:,.0f}"


def picture(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The curves as SVG: a column for each size, seconds above memory."""
    column = WIDTH / len(curves)
    shapes = []
    for row, (unit, name, digits) in enumerate((("s", "seconds", 2), ("mib", "MiB", 0))):
        values = [point[f"{side}_{unit}"] for points in curves.values() for point in points for side in SIDES]
        for index, (size, points) in enumerate(curves.items()):
            left, top = index * column + MARGIN, row * (PANEL + MARGIN) + 24
            xs, ys = (points[0]["x"], points[-1]["x"]), (min(values), max(values))
            panel = Panel(left, top, (index + 1) * column - 10, xs, ys)
            shapes += panel.axes(f"{size}, {name}", digits)
            for side in SIDES:
                path = "L".join(panel.at(point["x"], point[f"{side}_{unit}"]) for point in points)
                shapes.append(f'<path class="{side}" d="M{path}"/>')
    height = 2 * (PANEL + MARGIN) + 28
    for index, (side, name) in enumerate(zip(SIDES, ("grpo", "TRL"), strict=True)):
        shapes.append(f'<text class="{side}" x="{MARGIN + 60 * index}" y="{height - 12}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>Seconds and memory of a step by each size</title>\n<style>{STYLE}</style>\n"
        + "\n".join(shapes) + "\n</svg>\n"
    )  # fmt: skip


def show_slopes(size: str, points: Sequence[Mapping[str, float]]) -> None:
    """Print the slopes of a curve."""
    xs = [point["x"] for point in points]
    slopes = {name: slope(xs, [point[name] for point in points]) for name in points[0] if name != "x"}
    print(f"{size:11}{'slope':>12}" + "".join(f"   {name} {value:.2f}" for name, value in slopes.items()), flush=True)


def measured(text: str) -> dict[str, list[dict[str, float]]]:
    """The curves in a file of `--json`."""
    try:
        curves = json.loads(file(text).read_text())
        return {str(size): [dict(point) for point in points] for size, points in curves.items()}
    except (ValueError, TypeError, AttributeError):
        raise argparse.ArgumentTypeError(f"{text} is not a file that --json wrote") from None


def main() -> None:
    """Print each curve and its slopes."""
    parser = command_line(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), metavar="SIZE", help=", ".join(SIZES))
    parser.add_argument("--steps", type=count, default=2, help="steps counted in each round (2)")
    parser.add_argument("--rounds", type=count, default=1, help="rounds of both sides (1)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="file that receives the points")
    parser.add_argument("--svg", type=new_file, metavar="FILE", help="file that receives the picture")
    parser.add_argument(
        "--from",
        dest="measured",
        type=measured,
        nargs="+",
        metavar="FILE",
        help="files of --json, instead of measuring",
    )
    options = parser.parse_args()
    curves: dict[str, list[dict[str, float]]] = {}
    for curves_of_file in options.measured or ():
        curves |= curves_of_file
    for size in () if options.measured else options.sizes:
        curves[size] = curve(size, steps=options.steps, rounds=options.rounds)
        if options.json:  # a later curve may fail
            options.json.write_text(json.dumps(curves, indent=1) + "\n")
    for size, points in curves.items():
        show_slopes(size, points)
    if options.svg:
        options.svg.write_text(picture(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
