"""The pages of the Python API: what each public module holds. The signatures and texts are put in by mkdocstrings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import griffe
from markdown_tables import table

ROOT = Path(__file__).parents[1]

MODULES = {
    "grpo_sdk": "what a task author imports",
    "grpo_core": "what a script imports",
    "grpo_sdk.task": "rows, prompts, scores and the task",
    "grpo_sdk.task.game": "turn-based games",
    "grpo_sdk.data": "where rows come from",
    "grpo_sdk.rewards": "building blocks of rewards",
    "grpo_sdk.judges": "rewards that ask a model",
    "grpo_sdk.callbacks": "notifications of a run",
    "grpo_sdk.check": "checks of a task as tests",
    "grpo_sdk.check.fuzz": "a search for weaknesses of a task",
    "grpo_sdk.serve": "a bounded HTTP server",
    "grpo_sdk.errors": "every error",
    "grpo_sdk.interop.trl": "tasks in TRL's trainers",
    "grpo_core.evaluation.trl": "evaluation in TRL's trainers",
    "grpo_tasks_math.verify": "verification of mathematical answers",
    "grpo_tasks_code.sandbox": "programs in a sandbox",
    "grpo_tasks_code.sessions": "tools that run code",
}
"""Public module -> what it is for. A name that several of them have is described with the first."""

INTRODUCTION = """\
# `{module}`: {what}

<!-- Written by docs/generate.py from the docstrings: change them there. -->

The [site](../../../CONTRIBUTING.md#the-documentation) shows each name with its signature, and so does `help()`.
"""

HOOKS = """\
# Hooks

<!-- Written by docs/generate.py from grpo_sdk/plugins/hooks.py: change it there. -->

A plugin is a module that an entry point in the group `grpo` names, in its pyproject.toml:

```toml
[project.entry-points.grpo]
rhyme = "grpo_tasks_rhyme.plugin"
```

Its functions that are marked with `@hookimpl` and have one of the names below are called by `grpo`
([pluggy](https://pluggy.readthedocs.io) calls them). Each hook is optional, and at least one must be there. A name that
is none of these is an error with the nearest one. [The task contract](task-contract.md#plugins) says how plugins are
found, cached and kept apart, and [`grpo new`](../how-to/new-plugin.md) writes one.

```python
from grpo_sdk import Row, Task, hookimpl, reward


@reward()
def exact(answer, row):
    return float(answer == row.gold)


def load(config) -> list[Row]:
    return [Row(id=word, gold=word[::-1]) for word in ("sea", "wind")]


@hookimpl
def grpo_tasks():
    return [Task("reverse", load, lambda row: f"Write {row.id} backwards:", lambda text: text.strip(), (exact,))]
```
"""

SEE = {
    "grpo_tasks": "[Your own task](../tutorial/your-own-task.md) builds one.",
    "grpo_find_task": "Tasks of verifiers are found so: their names depend on what is installed.",
    "grpo_games": "[Games](../how-to/games.md#a-game-of-your-own) has an example.",
    "grpo_models": "`grpo models` lists them; [a warm start](../how-to/warm-start.md) makes one.",
    "grpo_variants": "[Algorithms](algorithms.md#one-of-your-own) has an example.",
    "grpo_profiles": "[GPU profiles](../how-to/hardware.md#gpu-profiles) has an example.",
    "grpo_commands": "`grpo chess` and `grpo games` are such commands. `grpo_sdk.show_progress` shows what one does.",
    "grpo_diagnostics": "[Check the installation](../how-to/doctor.md#findings-of-a-plugin) has an example.",
    "grpo_draw_rollout": "How: [Pictures of your own task](../how-to/report.md#pictures-of-your-own-task).",
}
"""Hook -> where a page shows it in use; a hook without one stops the page: KeyError."""


@cache
def package(name: str) -> griffe.Module:
    """A package with its whole tree, read without importing it."""
    loader = griffe.GriffeLoader(search_paths=sorted(ROOT.glob("packages/*/src")), docstring_parser="google")
    loaded = loader.load(name)
    loader.resolve_aliases(implicit=False, external=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


@cache
def names(module: str) -> list[tuple[str, griffe.Object]]:
    """The public names of a module, with what they stand for."""
    top, _, rest = module.partition(".")
    holder = package(top)[rest] if rest else package(top)
    public = holder.exports or [name for name, each in holder.members.items() if name[0] != "_" and not each.is_alias]
    members = ((str(name), holder.members[str(name)]) for name in sorted(map(str, public)))
    return [(name, each.final_target if isinstance(each, griffe.Alias) else each) for name, each in members]


def home(member: griffe.Object) -> tuple[str, str]:
    """The first public module that has an object, and its name there."""
    return next((m, name) for m in MODULES for name, each in names(m) if each.path == member.path)


def undocumented(member: griffe.Object) -> set[str]:
    """The parameters of a function or a class that its docstring, or that of a base, does not describe."""
    described, parameters = set(), []
    holders = [member, *member.mro()] if isinstance(member, griffe.Class) else [member]
    for section in (each for holder in holders if holder.docstring for each in holder.docstring.parse("google")):
        if section.kind in (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes):
            described |= {item.name.lstrip("*") for item in section.value}
    if isinstance(member, griffe.Function | griffe.Class):
        parameters = [each.name for each in member.parameters if each.name not in ("self", "cls")]
    return {name for name in parameters if not name.startswith("_")} - described


def hooks_page() -> str:
    """The page of the hooks, from their specifications."""
    specifications = package("grpo_sdk")["plugins.hooks.Hooks"]
    parts = [HOOKS]
    for name, hook in specifications.members.items():
        if name.startswith("grpo_") and isinstance(hook, griffe.Function) and hook.docstring:
            inside = ", ".join(f"{each.name}: {each.annotation}" for each in hook.parameters if each.name != "self")
            parts.append(f"## `{name}`\n\n```text\n{name}({inside}) -> {hook.returns}\n```\n")
            for section in hook.docstring.parse("google"):
                if section.kind is griffe.DocstringSectionKind.text:
                    parts.append(f"{section.value}\n")
                elif section.kind is griffe.DocstringSectionKind.parameters:
                    parts += [f"`{item.name}`: {item.description}\n" for item in section.value]
                elif section.kind is griffe.DocstringSectionKind.raises:
                    parts += [f"Raises `{item.annotation}`: {item.description}\n" for item in section.value]
            parts.append(f"{SEE[name]}\n")
    return "\n".join(parts)


def pages(folder: Path) -> Mapping[Path, str]:
    """Every page of the API by its path."""
    return {folder / f"{module}.md": _page(module) for module in MODULES}


def _page(module: str) -> str:
    rows, directives = [], []
    for name, member in names(module):
        place, known = home(member)
        summary = member.docstring.value.split("\n\n")[0].replace("\n", " ") if member.docstring else ""
        rows.append((f"`{name}`", summary if place == module else f"[`{place}.{known}`]({place}.md)"))
        if place == module:
            directives.append(f"::: {module}.{name}\n")
    return "\n".join([INTRODUCTION.format(module=module, what=MODULES[module]), table(("name", ""), rows), *directives])
