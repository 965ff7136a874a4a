"""The page of the algorithms, which docs/generate.py writes, has every variant that is registered, with its formula."""

from pathlib import Path

import pytest

from grpo_sdk.plugins import variants as registry

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "algorithms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(registry.BUILT_IN.keys() - {"engine", "judge", "metric", "tracker"}))
def test_every_variant_has_its_place(kind: str) -> None:
    for name in registry.names(kind):
        assert f"\n### `{name}`\n" in PAGE
        if kind != "schedule":
            variant = registry.get(kind, name)
            assert variant.formula and variant.formula in PAGE
            assert variant.source and variant.source in " ".join(PAGE.split())
