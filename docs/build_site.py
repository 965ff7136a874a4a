"""Build the documentation site: `python docs/build_site.py`, with `--serve` to look at it while you write.

The site has the folders of the repository, so that a link leads to the same page on both. Its navigation is
docs/README.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

FILES = (
    "*.md", "LICENSE", "CITATION.cff", "docs/**/*.md", "docs/**/*.svg", "docs/**/*.png", "docs/*.css",
    "packages/*/README.md", "examples/**/*",
)  # fmt: skip
"""What the site holds, relative to the root of the repository."""

INDEX = ROOT / "docs" / "README.md"


def navigation() -> list[dict[str, Any]]:
    """The headings and the items `* [title](page)` of docs/README.md, as Zensical's `nav`."""
    nav: list[dict[str, Any]] = [{"Home": "README.md"}, {"Documentation": "docs/README.md"}]
    section = group = nav
    for line in INDEX.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"(##|###) (.+)", line):
            inside: list[dict[str, Any]] = []
            (nav if heading[1] == "##" else section).append({heading[2]: inside})
            group = inside
            section = inside if heading[1] == "##" else section
        elif item := re.match(r"\* \[(.+?)\]\(([^)]+)\)", line):
            group.append({item[1]: os.path.normpath(Path("docs") / item[2])})
    return nav


def prepare(folder: Path) -> Path:
    """Link the pages into `folder`, and write the configuration there.

    Args:
        folder: Replaced if it exists.

    Returns:
        The configuration file, in the format of MkDocs, of which JSON is a part.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for file in (path for pattern in FILES for path in ROOT.glob(pattern)):
        if file.is_file() and "__pycache__" not in file.parts:
            page = folder / "pages" / file.relative_to(ROOT)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.symlink_to(file)
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))["project"]
    config |= {"docs_dir": "pages", "site_dir": "html", "nav": navigation()}
    config["plugins"]["mkdocstrings"]["handlers"]["python"]["paths"] = sorted(map(str, ROOT.glob("packages/*/src")))
    file = folder / "mkdocs.yml"
    file.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return file


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into `folder / "html"`, with warnings as errors.

    Returns:
        The finished process, stderr in its stdout.
    """
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(prepare(folder))]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main(arguments: list[str]) -> int:
    """Build the site, or serve it; the exit code."""
    folder = ROOT / "build" / "site"
    if "--serve" in arguments:
        return subprocess.call([sys.executable, "-m", "zensical", "serve", "--config-file", str(prepare(folder))])
    built = build(folder)
    print(built.stdout, end="")
    if built.returncode == 0:
        print(f"open {os.path.relpath(folder / 'html' / 'index.html')}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
