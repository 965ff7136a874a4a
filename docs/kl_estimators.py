"""The page of the KL estimators: its numbers and its picture, computed with the functions that a run uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from markdown_tables import table
from torch import Tensor

from grpo_sdk.plugins import variants

TEMPLATE = Path(__file__).parent / "templates" / "kl-estimators.md.in"

SAMPLED = ("k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys")
"""Estimators from the log-probs of the sampled token alone."""

VOCABULARY = 64
SHIFTS = {"near": 0.1, "middle": 0.5, "far": 1.5}
"""Name of a policy -> how far its logits are from the reference's, as a standard deviation."""

WIDTH, HEIGHT, MARGIN = 640, 360, 40
LARGEST = 2.0
"""Of |d| and of a value in the picture."""

COLOURS = {"k1": "#d1242f", "k2": "#9a6700", "k3": "#0969da", "abs": "#6e7781", "fkl": "#8250df", "fkl_k3": "#1a7f37"}

STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}line{stroke:#8c959f}path{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
)


def policies(shift: float) -> tuple[Tensor, Tensor]:
    """Logits of a policy, which need a gradient, and log-probs of its reference: fixed waves, no random numbers."""
    places = torch.arange(VOCABULARY, dtype=torch.float64)
    reference = 2 * torch.cos(places)
    policy = reference + shift * math.sqrt(2) * torch.sin(1.7 * places)
    return policy.requires_grad_(), reference.log_softmax(-1)


def divergences(logp: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
    """KL(policy‖reference) and KL(reference‖policy)."""
    return (logp.exp() * (logp - ref)).sum(), (ref.exp() * (ref - logp)).sum()


def expectations(name: str, shift: float) -> tuple[float, float, Tensor]:
    """Mean, standard deviation and expected gradient in the loss of an estimator, over all tokens."""
    logits, ref = policies(shift)
    logp = logits.log_softmax(-1)
    values = estimator(name)(logp[None], ref[None])[0]
    weight = logp.detach().exp()  # the token is sampled: its probability has no gradient
    mean = (weight * values).sum()
    deviation = (weight * (values - mean).square()).sum().sqrt()
    return float(mean.detach()), float(deviation.detach()), torch.autograd.grad(mean, logits)[0]


def estimator(name: str) -> Callable[..., Tensor]:
    """The registered function."""
    return variants.resolve("kl", name)


def cosine(one: Tensor, other: Tensor) -> str:
    """The cosine of two gradients; – where the first is 0."""
    return "–" if one.norm() < 1e-12 else f"{float(torch.cosine_similarity(one, other, dim=0)):.2f}"


def kl_page() -> str:
    """The page."""
    values, gradients = [], []
    for name in SAMPLED:
        cells = [expectations(name, shift) for shift in SHIFTS.values()]
        values.append((f"`{name}`", *(f"{mean:.4f} ± {deviation:.3f}" for mean, deviation, _ in cells)))
        logits, ref = policies(SHIFTS["middle"])
        reverse, forward = divergences(logits.log_softmax(-1), ref)
        to_reverse = torch.autograd.grad(reverse, logits, retain_graph=True)[0]
        to_forward = torch.autograd.grad(forward, logits)[0]
        gradient = cells[list(SHIFTS).index("middle")][2]
        size = float(gradient.norm() / to_reverse.norm())
        gradients.append((f"`{name}`", f"{size:.2f}", cosine(gradient, to_reverse), cosine(gradient, to_forward)))
    exact = []
    for shift in SHIFTS.values():
        logits, ref = policies(shift)
        exact.append([float(each.detach()) for each in divergences(logits.log_softmax(-1), ref)])
    for place, name in enumerate(("KL(π‖π_ref)", "KL(π_ref‖π)")):
        values.append((name, *(f"{pair[place]:.4f}" for pair in exact)))
    text = TEMPLATE.read_text(encoding="utf-8")
    parts = {
        "values": table(("estimator", *SHIFTS), values),
        "gradients": table(("estimator", "size", "cosine with ∇KL(π‖π_ref)", "cosine with ∇KL(π_ref‖π)"), gradients),
    }
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part.rstrip("\n"))
    return text


def kl_picture() -> str:
    """The value of each estimator over d = log π − log π_ref of the sampled token."""
    inner, middle = WIDTH - 2 * MARGIN, HEIGHT / 2
    shapes = [
        f'<line x1="{MARGIN}" y1="{middle}" x2="{WIDTH - MARGIN}" y2="{middle}"/>',
        f'<line x1="{WIDTH / 2}" y1="{MARGIN / 2}" x2="{WIDTH / 2}" y2="{HEIGHT - MARGIN / 2}"/>',
        f'<text x="{WIDTH - MARGIN - 8}" y="{middle + 18}">d</text>',
        f'<text x="{MARGIN}" y="{middle + 18}">−{LARGEST:g}</text>',
    ]
    d = torch.linspace(-LARGEST, LARGEST, 161, dtype=torch.float64)
    scale = (middle - MARGIN / 2) / LARGEST
    for place, (name, colour) in enumerate(COLOURS.items()):
        values = estimator(name)(d[None], torch.zeros_like(d)[None])[0]
        points = [
            f"{MARGIN + inner * (x + LARGEST) / (2 * LARGEST):.1f},{middle - scale * y:.1f}"
            for x, y in zip(d.tolist(), values.tolist(), strict=True)
            if abs(y) <= LARGEST
        ]
        shapes.append(f'<path stroke="{colour}" d="M{" L".join(points)}"/>')
        shapes.append(f'<text x="{WIDTH / 2 + 60}" y="{HEIGHT - 120 + 18 * place}" style="fill:{colour}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f"<title>Values of the KL estimators of a sampled token</title>\n<style>{STYLE}</style>\n"
        + "\n".join(shapes)
        + "\n</svg>\n"
    )
