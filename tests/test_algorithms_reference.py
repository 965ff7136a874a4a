"""The page of the algorithms names every variant with its formula."""

import re
import typing
from pathlib import Path

import pytest

from grpo_core.algorithms.aggregation import Aggregation
from grpo_core.config.recipes import RECIPES
from grpo_sdk.plugins import variants as registry

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
