"""`grpo tasks`: list the installed tasks, or show one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.text import err, format_value, print_json, print_out, quoted, table, visible
from grpo_sdk.errors import DataError, unknown_name
from grpo_sdk.plugins.host import MANY_TASKS, default_host

if TYPE_CHECKING:
    from grpo_sdk.task.bound import BoundTask


MAX_LINE_CHARS = 2000
"""Longest prompt shown on one line: a page of a terminal."""


@click.group(invoke_without_command=True, context_settings=HELP)
@click.option("--plugin", metavar="NAME", help="Only the tasks of this plugin.")
@JSON
@click.pass_context
def tasks(ctx: click.Context, plugin: str | None, as_json: bool) -> None:
    """List the installed tasks; a plugin that does not load is listed with its error."""
    if ctx.invoked_subcommand is not None:
        return

    reports = default_host().reports()
    if plugin is not None:
        if plugin not in (names := [report.name for report in reports]):
            raise unknown_name("plugin", plugin, names)
        reports = [report for report in reports if report.name == plugin]
    installed: list[dict[str, Any]] = [
        {
            "name": name,
            "plugin": report.name,
            "distribution": report.distribution,
            "default_model": task.default_model,
            "description": task.description,
            "options": dict(task.options),
        }
        for report in reports
        for name, task in report.tasks.items()
    ]
    broken: list[dict[str, Any]] = [
        {"plugin": report.name, "distribution": report.distribution, "error": report.error}
        for report in reports
        if report.error
    ]
    conflicts = _conflicts() if plugin is None else []
    if as_json:
        print_json({"tasks": installed, "broken": broken, "conflicts": conflicts})
        return
    listing = table("task", "from", "default model", "what")
    many = {report.name for report in reports if len(report.tasks) > MANY_TASKS} if plugin is None else set()
    for row in installed:
        if row["plugin"] not in many:
            facts = (row["name"], row["distribution"], row["default_model"] or "-", row["description"])
            listing.add_row(*map(visible, facts))
    for report in reports:
        if report.name in many:
            how = f"{len(report.tasks)} tasks: grpo tasks --plugin {report.name}"
            listing.add_row(*map(visible, (f"{report.name}.…", report.distribution, "-", how)))
    for row in broken:
        facts = (row["plugin"], row["distribution"], "-", f"NOT LOADED: {row['error']}")
        listing.add_row(*map(visible, facts), style="red")
    for conflict in conflicts:
        listing.add_row("-", "several", "-", f"CONFLICT: {visible(conflict)}", style="red")
    nothing = (
        "No plugin is installed: pip install grpo-tasks-math."
        if plugin is None
        else f"Plugin {plugin} lists no tasks here; one may still be found by its name: grpo tasks show {plugin}.NAME."
    )
    print_out(listing if installed or broken or conflicts else nothing)
    if broken:
        print_out("", "grpo doctor examines the plugins that were not loaded.")
    if installed:
        print_out("", "grpo tasks show NAME: options and rewards.   grpo sample NAME: rows with gold and score.")


@tasks.command("show")
@click.argument("name", metavar="NAME")
@JSON
def show(name: str, as_json: bool) -> None:
    """Show one task: options, rewards, stop strings, identity, a row with its prompt."""
    from grpo_sdk.display.progress import Waiting
    from grpo_sdk.plugins.tasks import load_task

    with Waiting(err()) as progress, progress.ticking(f"reading {name}"):
        facts = facts_of(load_task(name))
    if as_json:
        print_json(facts)
    else:
        _print_facts(facts)


def _conflicts() -> list[str]:
    """Return the models, variants and commands that two packages provide under one name."""
    from grpo_sdk.cli.group import command_clashes
    from grpo_sdk.plugins import variants as registry

    return [*default_host().conflicts(), *registry.conflicts(), *command_clashes()]


def facts_of(bound: BoundTask) -> dict[str, Any]:
    """Return everything about a task that can be printed; where its data is missing, the reason instead."""
    from grpo_sdk.check.overlap import own_overlap
    from grpo_sdk.plugins.loading import describe, options_of

    plugin = bound.name.partition(".")[0]
    host = default_host()
    facts: dict[str, Any] = {
        "name": bound.name,
        "spec": bound.spec,
        "distribution": host.distribution(plugin) if plugin in host.names else "a file",
        "versions": _versions(bound),
        "description": describe(bound.task),
        "version": bound.task.version,
        "default_model": bound.task.default_model,
        "options": {
            name: {"value": getattr(bound.config, name), "default": default, "type": words}
            for name, (default, words) in options_of(bound.task).items()
        },
        "rewards": [
            {"name": spec.name, "weight": spec.weight, "maximum": spec.maximum, "needs": spec.needs}
            for spec in bound.rewards
        ],
        "group_rewards": [
            {"name": spec.name, "weight": spec.weight, "maximum": spec.maximum} for spec in bound.task.group_specs()
        ],
        "compose": repr(bound.task.compose),
        "stop": list(bound.task.stop),
        "max_completion_length": bound.task.max_completion_length,
        "timeout_s": bound.task.timeout_s,
        "on_timeout": bound.task.on_timeout,
        "opponent": None if bound.opponent is None else bound.opponent.engine,
        "exempt": dict(bound.task.exempt),
        "conditions": dict(bound.conditions),
        **dict.fromkeys(("identity", "ingredients", "rows", "row", "prompt", "also_trained")),
    }
    try:
        row = bound.rows()[0]
        found = {
            "identity": bound.identity,
            "ingredients": dict(bound.ingredients),
            "rows": len(bound.rows()),
            "row": row.model_dump(mode="json"),
            "prompt": bound.prompt(row),
        }
        overlap = own_overlap(bound)
        facts |= {**found, "also_trained": None if overlap is None else overlap.as_json()}
    except DataError as missing:
        facts["unavailable"] = str(missing)
    return facts


def _versions(bound: BoundTask) -> dict[str, str]:
    """Versions of the packages whose code decides a score: grpo-sdk and the plugin's own."""
    from grpo_sdk import __version__

    versions = {"grpo-sdk": __version__}
    if bound.plugin in default_host().names:
        name, _, version = default_host().distribution(bound.plugin).rpartition(" ")
        versions[name or bound.plugin] = version
    return versions


def _print_facts(facts: dict[str, Any]) -> None:
    import orjson

    options = table("option", "value", "default", "type")
    for name, option in facts["options"].items():
        options.add_row(
            name, visible(format_value(option["value"])), visible(format_value(option["default"])), option["type"]
        )
    rewards = table("reward", "weight", "maximum", "needs")
    for part in facts["rewards"]:
        rewards.add_row(part["name"], f"{part['weight']:g}", f"{part['maximum']:g}", part["needs"] or "-")
    for part in facts["group_rewards"]:
        rewards.add_row(part["name"], f"{part['weight']:g}", f"{part['maximum']:g}", "all answers to a prompt")
    rest = table("", "")
    length = f"{facts['max_completion_length']} tokens" if facts["max_completion_length"] else "limited by the trainer"
    rest.add_row("default model", facts["default_model"] or "-")
    rest.add_row("stop", " ".join(repr(stop) for stop in facts["stop"]) or "-")
    otherwise = "wrong" if facts["on_timeout"] == "fail" else "not scored"
    rest.add_row("completion", f"{length}, scored within {facts['timeout_s']:g} s, otherwise {otherwise}")
    if facts["opponent"]:
        rest.add_row("opponent", facts["opponent"])
    for name, text in facts["conditions"].items():
        rest.add_row(visible(name), visible(text))
    for check, reason in facts["exempt"].items():
        rest.add_row("exempt", visible(f"{check}: {reason}"))
    if facts["row"] is None:
        rest.add_row("no row", visible(facts["unavailable"]))
    else:
        rows = f"{facts['rows']} rows of split {facts['options']['split']['value']}"
        rest.add_row("identity", f"{facts['identity']} ({rows})")
        parts = "   ".join(f"{name} {hashed}" for name, hashed in facts["ingredients"].items())
        rest.add_row("made of", f"{parts}   task version {facts['version']}")
        rest.add_row("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
        if overlap := facts["also_trained"]:
            rest.add_row("test rows", f"{overlap['of']}, of which {overlap['n']} are training rows, too")
        rest.add_row("row", visible(orjson.dumps(facts["row"]).decode()))
        rest.add_row("prompt", readable(facts["prompt"]))
    heading = Text(f"{facts['name']}   {facts['distribution']}   task version {facts['version']}", style="bold")
    print_out(heading, visible(facts["description"]), "", options, "", rewards, "", rest)


def readable(prompt: Any) -> str:
    """Format a prompt: one line in quotes, several lines unchanged, chat messages with their roles.

    Unprintable characters are escaped; the quotes show leading and trailing spaces.
    """
    from grpo_sdk.task.row import said  # pydantic, which `grpo --help` does without

    if not isinstance(prompt, str):
        return "\n".join(f"{visible(message['role'])}: {readable(said(message))}" for message in prompt)
    if "\n" not in prompt:
        return quoted(prompt, MAX_LINE_CHARS)
    return "\n".join(visible(line) for line in prompt.split("\n"))
