"""The page of the algorithms names every variant with its formula, and what it says of KL gradients is so."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from grpo_core.algorithms.aggregation import Aggregation
from grpo_core.config.recipes import RECIPES
from grpo_core.plugins import variants as registry

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "algorithms.md"
HEADINGS = {
    "loss": "Losses",
    "advantage": "Advantages",
    "kl": "KL",
    "kl_controller": "KL controllers",
    "entropy_controller": "Entropy controllers",
    "schedule": "Learning-rate schedules",
}


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def test_every_kind_of_algorithm_has_a_heading() -> None:
    others = {"engine", "judge", "metric", "tracker"}  # are no algorithms
    assert set(HEADINGS) == set(registry.BUILT_IN) - others


@pytest.mark.parametrize("kind", HEADINGS)
def test_every_variant_has_its_place(kind: str) -> None:
    text = section(HEADINGS[kind])
    assert re.findall(r"^### `(\w+)`$", text, re.MULTILINE) == list(registry.names(kind))
    for name in registry.names(kind):
        mine = re.search(rf"^### `{name}`\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)[1]
        if kind != "schedule":
            variant = registry.get(kind, name)
            assert variant.formula and variant.formula in mine
            assert variant.source and variant.source in " ".join(mine.split())
        for option in registry.arguments(kind, name):
            assert f"`{option}`" in mine


def test_every_aggregation_and_recipe_has_its_row() -> None:
    assert re.findall(r"^\| `(\w+)`", section("Aggregation"), re.MULTILINE) == list(typing.get_args(Aggregation))
    assert re.findall(r"^\| `(\w+)`", section("Recipes"), re.MULTILINE) == list(RECIPES)


def gradient_table() -> dict[tuple[str, str], str]:
    """(estimator, placement) -> the gradient that the page promises."""
    rows = re.findall(r"^\| `(k\d)` \| (.*?) \| (.*?) \| (.*?) \|$", section("KL"), re.MULTILINE)
    placements = ("ratio_loss", "loss", "reward")
    return {(name, place): cell for name, *cells in rows for place, cell in zip(placements, cells, strict=True)}


@pytest.mark.parametrize(
    ("estimator", "placement"), [(k, p) for k in ("k1", "k2", "k3") for p in ("ratio_loss", "loss", "reward")]
)
def test_the_kl_gradients_are_those_of_the_table(estimator: str, placement: str) -> None:
    # One token of four, every one of them weighed by its probability: expectations are exact.
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-0.5, 0.2, 0.4, -0.3], dtype=torch.float64).log_softmax(-1)
    logp = logits.log_softmax(-1)
    p = logp.detach().exp()

    def gradient(value: Tensor) -> Tensor:
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    penalty = registry.resolve("kl", estimator)(logp, ref)
    ratio = (logp - logp.detach()).exp()
    terms = {"ratio_loss": ratio * penalty, "loss": penalty, "reward": penalty.detach() * logp}
    measured = gradient((p * terms[placement]).sum())

    meaning = {
        "∇KL(π‖π_ref)": gradient((logp.exp() * (logp - ref)).sum()),
        "∇KL(π_ref‖π)": gradient((ref.exp() * (ref - logp)).sum()),
        "∇E[d²/2]": gradient((logp.exp() * (logp - ref) ** 2 / 2).sum()),
        "0": torch.zeros(4, dtype=torch.float64),
    }
    first, *others = re.split(r"[:,]", gradient_table()[estimator, placement])[0].split(" − ")
    promised = meaning[first] - sum(meaning[other] for other in others)
    torch.testing.assert_close(measured, promised, rtol=1e-12, atol=1e-14)
