"""A release: one command for version and changelog, and packages that fit one another afterwards."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from wheels import ROOT, call

import grpo_sdk

VERSIONED = ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", "packages/grpo-sdk/src/grpo_sdk/__init__.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the files that a release changes."""
    for file in (*map(ROOT.joinpath, VERSIONED), *ROOT.glob("packages/*/pyproject.toml")):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for command in ("init -q", "config user.name n", "config user.email e@example.org", "add -A", "commit -qm first"):
        call("git", *command.split(), cwd=tmp_path)
    return tmp_path


def bump(folder: Path, part: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    return call(str(Path(sys.executable).parent / "bump-my-version"), "bump", part, cwd=folder, check=check)


def requirements(folder: Path) -> dict[str, tuple[str, list[Requirement]]]:
    """Package -> its version, and what it requires of ours."""
    found = {}
    for file in sorted(folder.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text())["project"]
        wanted = [Requirement(each) for each in project["dependencies"]]
        found[project["name"]] = (project["version"], [each for each in wanted if each.name.startswith("grpo-")])
    return found


def test_the_packages_have_one_version_and_need_an_sdk_that_is_compatible() -> None:
    packages = requirements(ROOT)
    assert {version for version, _ in packages.values()} == {grpo_sdk.__version__}
    version = Version(grpo_sdk.__version__)
    following = [f"{version.major}.{version.minor}.{version.micro + 1}", f"{version.major}.{version.minor + 1}.0"]
    for name, (_, ours) in packages.items():
        assert [each.name for each in ours] == ([] if name == "grpo-sdk" else ["grpo-sdk"])
        for each in ours:
            assert [each.specifier.contains(other) for other in (str(version), *following)] == [True, True, False]


@pytest.mark.release
@pytest.mark.parametrize(("part", "position"), [("patch", 2), ("minor", 1), ("major", 0)])
def test_one_command_sets_every_version_and_the_changelog(repository: Path, part: str, position: int) -> None:
    old = Version(grpo_sdk.__version__).release
    version = ".".join(map(str, (*old[:position], old[position] + 1, *(0 for _ in old[position + 1 :]))))
    before = (repository / "CHANGELOG.md").read_text()
    bump(repository, part)

    for name, (found, ours) in requirements(repository).items():
        assert found == version, name
        assert [str(each.specifier) for each in ours] == ([] if name == "grpo-sdk" else [f"~={version}"])
    assert f'\n__version__ = "{version}"\n' in (repository / VERSIONED[3]).read_text()
    root = tomllib.loads((repository / "pyproject.toml").read_text())
    assert root["project"]["version"] == root["tool"]["bumpversion"]["current_version"] == version
    assert re.search(
        rf"^version: {version}\ndate-released: [\d-]{{10}}\n$", (repository / "CITATION.cff").read_text(), re.M
    )
    after = (repository / "CHANGELOG.md").read_text()
    assert re.sub(rf"\n## {version}, [\d-]{{10}}\n", "", after, count=1) == before
    assert call("git", "tag", cwd=repository).stdout == f"v{version}\n"
    assert call("git", "status", "--porcelain", cwd=repository).stdout == ""


@pytest.mark.release
def test_a_tree_with_changes_is_not_released(repository: Path) -> None:
    (repository / "CHANGELOG.md").write_text("## Unreleased\n")
    done = bump(repository, "patch", check=False)

    assert done.returncode != 0 and "not clean" in done.stderr + done.stdout
    assert requirements(repository) == requirements(ROOT)


@pytest.mark.release
@pytest.mark.network
def test_the_citation_is_valid() -> None:
    call("uvx", "--from", "cffconvert", "cffconvert", "--validate", cwd=ROOT)
