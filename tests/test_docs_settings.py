"""Every setting, environment variable and option of ours that a page or an example names exists."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import click
import pytest

from grpo_core.config.keys import environment_name, find, keys, sections
from grpo_sdk.cli.group import COMMANDS, load_command
from grpo_sdk.cli.main import grpo
from grpo_sdk.errors import UnknownNameError
from grpo_sdk.plugins.host import default_host

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "packages/*/README.md", "examples/**/*.md", "examples/**/*.yaml")
    for page in ROOT.glob(pattern)
)

NO_SETTINGS = {
    "trainer.py": "a file",
    "trainer.use_v1": "a setting of verl",
    "trainer.num_generatoins": "troubleshooting shows what a misspelt one does",
    "trainer.num_generation": "the first run shows what a misspelt one does",
}
"""What looks like a setting and is none -> why."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(rf"(?<![\w./-])((?:{'|'.join(sections())})\.[a-z]\w*(?:\.\w+)*)(?![\w(/])")
_VARIABLE = re.compile(r"\bGRPO_[A-Z]+__[A-Z0-9_]+\b")
_OURS = re.compile(r"([$] |!)?([A-Z_]+=\S+ )*(ssh -t \w+ )?(uv run )?(grpo-run|grpo)(?= |$)(?: ([a-z][a-z-]*))?")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def code(page: str) -> Iterator[str]:
    """The blocks of a page, and what stands between backticks; of another file, all lines. Python runs elsewhere."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if not page.endswith(".md"):
        yield from text.splitlines()
        return
    if page.startswith("docs/migrate/"):
        text = re.sub(r"^\| .*? \|", "|", text, flags=re.MULTILINE)  # the first column is another library's
    for language, block in _BLOCK.findall(text):
        if language != "python":
            yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _BLOCK.sub("", text))


def unknown_settings(lines: Iterator[str]) -> list[str]:
    unknown = []
    for name in (name for line in lines for name in _SETTING.findall(line) if name not in NO_SETTINGS):
        try:
            find(name, "")
        except UnknownNameError:
            unknown.append(name)
    return unknown


@cache
def options() -> frozenset[str]:
    """Of every command of ours, also of plugins, and of what `python FILE` and `python -m` run here."""
    host = default_host()
    commands = [grpo, *(load_command(name) for name in COMMANDS)]
    for plugin_command in host.commands():
        module, _, name = (host.command(plugin_command) or "").partition(":")
        commands.append(getattr(__import__(module, fromlist=[name]), name))
    found = {"--help", "--version"}
    for script in (*ROOT.glob("benchmarks/*.py"), *ROOT.glob("packages/*/src/**/__main__.py")):
        found |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', script.read_text(encoding="utf-8")))
    while commands:
        command = commands.pop()
        commands += command.commands.values() if isinstance(command, click.Group) else []
        for parameter in command.params:
            found |= {*parameter.opts, *parameter.secondary_opts}
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    """Settings, variables, commands of ours, and options: those between backticks and those of commands of ours."""
    lines = list(code(page))
    ours = [line for line in lines if _OURS.match(line) or line.startswith("--")]
    called = {match[6] for line in ours if (match := _OURS.match(line)) and match[5] == "grpo" and match[6]}
    variables = {name for line in lines for name in _VARIABLE.findall(line)} - {"GRPO_SECTION__KEY"}
    assert unknown_settings(iter(lines)) == []
    assert variables - {environment_name(key) for key in keys()} == set()
    named = {option for line in ours for option in _OPTION.findall(line)}
    assert named - options() - {*chain(*OTHERS.values())} == set()
    assert called - {*COMMANDS, *default_host().commands()} == set()


OTHERS = {
    "config.md, which names an alias": ("--ckpt",),
    "docker and podman": ("--privileged", "--security-opt"),
    "inspect eval": ("--solver",),
    "llama.cpp": ("--jinja",),
    "ms-swift, with more behind an underscore": ("--external", "--multi"),
    "open-instruct, likewise": ("--verification",),
    "OpenRLHF, with more behind a dot": ("--data", "--reward", "--train"),
    "ray start": ("--num-cpus",),
    "sky launch": ("--secret",),
    "slime": (
        *("--apply-chat-template", "--custom-generate-function-path", "--custom-reward-post-process-path"),
        *("--custom-rm-path", "--group-rm", "--input-key", "--label-key", "--metadata-key"),
    ),
    "verifiers": ("--env",),
    "vLLM": (
        *("--enable-auto-tool-choice", "--enable-lora", "--hf-overrides", "--max-lora-rank", "--tool-call-parser"),
        "--weight-transfer-config",
    ),
    "zensical and mkdocs": ("--strict",),
}
"""Whose -> options that are no command's of ours."""


def test_a_setting_that_does_not_exist_is_found() -> None:
    lines = ["also trainer.length_bucketing=false, `lora.r=8`", "trainer.py", "x.trainer.nothing", "eval.sise=3"]
    assert unknown_settings(iter(lines)) == ["trainer.length_bucketing", "eval.sise"]


def test_every_exception_is_needed() -> None:
    lines = [line for page in PAGES for line in code(page)]
    for name in chain(NO_SETTINGS, *OTHERS.values()):
        assert any(name in line for line in lines), f"{name} stands nowhere: delete it"
