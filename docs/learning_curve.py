"""Draw the learning curve of a run, as the README shows it: `python docs/learning_curve.py RUN [FILE]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 50, 150, 16, 42
"""Margins in pixels."""

WINDOW = 10
"""Steps of the running mean."""

STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}.axis{stroke:#d1d9e0}.raw{stroke:#54aeff;opacity:.4}.mean{stroke:#0969da}"
    ".held{stroke:#bc4c00;fill:#bc4c00}.held-text{fill:#bc4c00}path{fill:none;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#3d444d}.raw{stroke:#388bfd}.mean{stroke:#79c0ff}"
    ".held{stroke:#ffa657;fill:#ffa657}.held-text{fill:#ffa657}}"
)


def rows(file: Path) -> list[dict[str, float]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def curve(solved: Sequence[float], held_out: Sequence[tuple[int, float, float, float]], title: str) -> str:
    """The picture, as SVG.

    Args:
        solved: Share of solved completions in each step, from the first.
        held_out: (step, rate, lower, upper) of the evaluations.
        title: Title, for readers that see no pictures.
    """

    def x(step: float) -> float:
        return LEFT + step / len(solved) * (WIDTH - LEFT - RIGHT)

    def y(rate: float) -> float:
        return TOP + (1 - rate) * (HEIGHT - TOP - BOTTOM)

    def path(values: Sequence[float]) -> str:
        return "M" + "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in enumerate(values, 1))

    means = [sum(solved[max(0, end - WINDOW) : end]) / min(end, WINDOW) for end in range(1, len(solved) + 1)]
    shapes = []
    for rate in (0, 0.25, 0.5, 0.75, 1):
        shapes.append(f'<path class="axis" d="M{LEFT} {y(rate):.1f}H{WIDTH - RIGHT}"/>')
        shapes.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:g}</text>')
    for step in range(0, len(solved) + 1, max(1, len(solved) // 5)):
        shapes.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    shapes.append(f'<text x="{x(len(solved) / 2):.1f}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    shapes.append(f'<path class="raw" d="{path(solved)}"/><path class="mean" d="{path(means)}"/>')
    for step, rate, lower, upper in held_out:
        shapes.append(f'<path class="held" d="M{x(step):.1f} {y(lower):.1f}V{y(upper):.1f}"/>')
        shapes.append(f'<circle class="held" cx="{x(step):.1f}" cy="{y(rate):.1f}" r="4"/>')
        below = 28 if step < len(solved) else -6  # beside the curve, which begins here
        label = f'x="{x(step) + 9:.1f}" y="{y(rate) + below:.1f}"'
        shapes.append(f'<text class="held-text" {label}>held out {rate:.2f}</text>')
    shapes.append(f'<text x="{x(len(solved)) + 9:.1f}" y="{y(means[-1]) + 22:.1f}">sampled {means[-1]:.2f}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(shapes) + "\n</svg>\n"
    )


def main(run: Path, file: Path) -> None:
    """Draw the curve of a run's folder into a file."""
    solved = [row["solved_rate"] for row in rows(run / "logs" / "train_log.jsonl")]
    evaluations = []
    for row in rows(run / "logs" / "evaluations.jsonl"):
        (rate,) = (key for key in row if key.startswith("eval/") and key.endswith("/solved_rate"))
        task = rate.removesuffix("/solved_rate")
        evaluations.append((int(row["step"]), row[rate], row[f"{task}/ci_low"], row[f"{task}/ci_high"]))
    file.write_text(curve(solved, evaluations, f"Share of solved completions in {len(solved)} steps"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(*sys.argv[2:3] or ("docs/images/learning-curve.svg",)))
