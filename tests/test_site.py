"""The documentation site builds without a warning, every link in it leads somewhere, and it lists every page."""

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from documentation_pages import ROOT
from html_pages import Page

sys.path.insert(0, str(ROOT / "docs"))
import build_site
import python_api

import grpo_sdk

PAGES = sorted(
    str(path.relative_to(ROOT)) for pattern in build_site.FILES for path in ROOT.glob(pattern) if path.suffix == ".md"
)


def titles(nav: object) -> list[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    inside = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(inside, type({}.values()) | list)
    return [page for each in inside for page in titles(each)]


def github_anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"\[(.*?)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


@pytest.mark.parametrize("page", PAGES)
def test_links_and_anchors_lead_somewhere_on_github(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for file, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), f"{page} links to {file}, which is not there"
        if anchor:
            assert anchor in github_anchors(target), f"{page} links to {file}#{anchor}, a heading that is not there"


def test_the_navigation_lists_every_page_once() -> None:
    listed = titles(build_site.navigation())
    assert sorted(listed) == PAGES, "docs/README.md is the navigation: list the page there"


@pytest.mark.site
def test_the_site_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    built = build_site.build(tmp_path)
    assert built.returncode == 0 and "No issues found" in built.stdout, built.stdout

    root = (tmp_path / "html").resolve()
    pages = {path.resolve(): Page(path) for path in root.rglob("*.html")}
    assert len(pages) == len(PAGES) + 1  # and 404.html
    api = {
        module: pages[root / "docs" / "reference" / "python" / module / "index.html"] for module in python_api.MODULES
    }
    for module in python_api.MODULES:
        for name, member in python_api.names(module):
            place, known = python_api.home(member)
            assert f"{place}.{known}" in api[place].anchors, f"{module}.{name} is on no page"
    for path, page in pages.items():
        name = path.relative_to(root)
        for link in page.links:
            if (target := page.target(link, root)) is None:
                continue
            file, anchor = target
            assert file.is_file(), f"{name} links to {link}, which is not there"
            if anchor and file in pages:
                assert anchor in pages[file].anchors, f"{name} links to {link}: no such anchor"
        for resource in page.loads:
            resolved = page.target(resource, root)
            assert resolved is not None, f"{name} loads {resource} from another host"
            assert resolved[0].is_file(), f"{name} loads {resource}, which is not there"
        for paragraph in page.paragraphs:
            assert not re.search(r"^(\* |\| ?-{3}|```)", paragraph, re.MULTILINE), f"{name} shows Markdown: {paragraph}"


@pytest.mark.parametrize("module", python_api.MODULES)
def test_public_names_are_documented_with_their_parameters(module: str) -> None:
    for name, member in python_api.names(module):
        assert member.docstring, f"{module}.{name} has no docstring"
        assert not python_api.undocumented(member), f"{module}.{name} has parameters that its docstring leaves out"


def test_the_api_has_what_can_be_imported() -> None:
    for module in python_api.MODULES:
        imported = importlib.import_module(module)
        listed = [name for name, _ in python_api.names(module)]
        named = set(getattr(imported, "__all__", listed)) - (set(grpo_sdk.__all__) if module == "grpo_core" else set())
        assert listed == sorted(named) and all(hasattr(imported, name) for name in listed)
