"""What a package index shows of a package: its description rendered, links that lead somewhere, known classifiers."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from readme_renderer import markdown  # type: ignore[import-untyped]  # it ships no types

PACKAGES = sorted((Path(__file__).parents[1] / "packages").iterdir())

LICENCES = {
    "Apache-2.0": ("Apache License", "Version 2.0, January 2004"),
    "GPL-3.0-or-later": ("GNU GENERAL PUBLIC LICENSE", "Version 3, 29 June 2007"),
}
"""SPDX expression -> first lines of the licence."""

OWN = re.compile(r"https://pypi\.org/project/grpo-[a-z-]+/")


def project(package: Path) -> dict[str, Any]:
    data: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    return data


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_an_index_page_says_what_the_package_is(package: Path) -> None:
    facts = project(package)
    assert facts["authors"] and facts["keywords"] and facts["urls"]
    assert facts["license"] and facts["license-files"] == ["LICENSE"]
    assert len(facts["description"]) <= 120
    classifiers = facts["classifiers"]
    assert classifiers == sorted(set(classifiers))
    assert "Typing :: Typed" in classifiers and [*(package / "src").glob("*/py.typed")]
    assert not [each for each in classifiers if each.startswith("License ::")], "license says it, as PEP 639 wants"
    assert {OWN.fullmatch(url) is not None for url in facts["urls"].values()} == {True}
    page = markdown.render((package / "README.md").read_text())
    assert page is not None and "<h1 " in page
    targets = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    lines = [line.strip() for line in (package / "LICENSE").read_text().splitlines() if line.strip()]
    assert tuple(lines[:2]) == LICENCES[facts["license"]]


def test_what_needs_chess_has_its_licence() -> None:
    """python-chess is GPL-3.0-or-later, and so is a package that builds on it."""
    facts = {package.name: project(package) for package in PACKAGES}
    assert [name for name, each in facts.items() if each["license"] != "Apache-2.0"] == ["grpo-tasks-chess"]
    wanting = [
        name for name, each in facts.items() if any(re.match("chess|grpo-tasks-chess", d) for d in each["dependencies"])
    ]
    assert wanting == ["grpo-tasks-chess"]
