"""`grpo new`: write an installable plugin with a task to begin with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from grpo_sdk.cli.new_project import KINDS, Kind, Project, check_name, check_new, write
from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.data import DatasetConfig, read_records
from grpo_sdk.display.invocation import command
from grpo_sdk.display.lines import fold
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, visible
from grpo_sdk.distributions import TRAINER, version_of
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.tasks.columns import check_texts, guess_columns
from grpo_sdk.tasks.verifiers import VERIFIERS

SHOWN_RECORDS = 1000
"""Records from which columns and verifier are guessed."""

GOLD_ROWS = 4
"""Rows of a data set that are looked at for golds."""

GYM_PLUGIN, GYM_PACKAGE = "reasoning_gym", "grpo-tasks-gym"

EXAMPLES = """\b
Examples:
  grpo new my-task
  grpo new trivia --from-jsonl questions.jsonl
  grpo new trivia --from-jsonl rows.jsonl --fields question:text,answer:label
  grpo new counters --game
  grpo new desk --tools
  grpo new legs --from-reasoning-gym leg_counting
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("name", metavar="NAME")
@click.option(
    "--from-jsonl", "source", metavar="FILE", help="Begin with the questions of a file (.jsonl, .csv, .parquet)."
)
@click.option("--fields", metavar="FIELD:COLUMN,…", help="Columns of the file, if they cannot be guessed.")
@click.option("--verifier", type=click.Choice(list(VERIFIERS)), help="How its answers are compared; guessed from them.")
@click.option("--from-reasoning-gym", "dataset", metavar="NAME", help="Begin with a data set of reasoning-gym.")
@click.option("--game", is_flag=True, help="Begin with a two-player game.")
@click.option("--multi-turn", is_flag=True, help="Begin with a task that responds and lets the model try again.")
@click.option("--tools", is_flag=True, help="Begin with a task whose episodes call tools.")
@JSON
def new(
    name: str,
    source: str | None,
    fields: str | None,
    verifier: str | None,
    dataset: str | None,
    game: bool,
    multi_turn: bool,
    tools: bool,
    as_json: bool,
) -> None:
    """Write a plugin into the new folder NAME: a task, tests, a README, ready to install, check and train.

    Without an option it begins with a small task that a new model learns in minutes without a GPU.
    """
    kind = _kind(source, dataset, game, multi_turn, tools)
    if source is None and (fields or verifier):
        raise UserError("--fields and --verifier are about the file of --from-jsonl, which is missing.")
    check_name(name)
    folder = Path(name)
    check_new(folder)
    if dataset is not None:
        _check_dataset(dataset)
    with Waiting(err()) as display, display.ticking(f"reading {source or dataset or 'templates'}"):
        project, rows, notes = _project(name, kind, source, fields, verifier, dataset)
    files: dict[str, str | bytes] = dict(project.files())
    if rows is not None:
        files[f"src/{project.module}/rows.jsonl"] = rows
    write(folder, files)
    if as_json:
        print_json({"folder": name, "task": project.full_name, "files": sorted(files), "notes": dict(notes)})
        return
    _print(project, sorted(files), notes)


def _kind(source: str | None, dataset: str | None, game: bool, multi_turn: bool, tools: bool) -> Kind:
    given: dict[Kind, bool] = {
        "rows": source is not None,
        "gym": dataset is not None,
        "game": game,
        "turns": multi_turn,
        "tools": tools,
    }
    chosen = [kind for kind, is_given in given.items() if is_given]
    if len(chosen) > 1:
        named = " and ".join(KINDS[kind].option for kind in chosen)
        raise UserError(f"{named}: give one of them; a plugin can get more later.")
    return chosen[0] if chosen else "task"


def _check_dataset(dataset: str) -> None:
    """Refuse a data set that the installed plugin does not have."""
    host = default_host()
    if GYM_PLUGIN not in host.names:
        raise UserError(f"--from-reasoning-gym needs {GYM_PACKAGE}: pip install {GYM_PACKAGE}.")
    names = [task.removeprefix(f"{GYM_PLUGIN}.") for task in host.tasks(GYM_PLUGIN)]
    if dataset not in names:
        raise UserError(
            f"reasoning-gym has no data set {dataset!r}.{near_match(dataset, names)} "
            f"grpo tasks --plugin {GYM_PLUGIN} lists them."
        )


def _has_golds(dataset: str) -> bool:
    """Whether rows of a data set have golds, from which `grpo run --quick` makes a model."""
    return any(row.gold is not None for row in load_task(f"{GYM_PLUGIN}.{dataset}", size=GOLD_ROWS).rows())


def _project(
    name: str, kind: Kind, source: str | None, fields: str | None, verifier: str | None, dataset: str | None
) -> tuple[Project, bytes | None, list[tuple[str, str]]]:
    """The project, the rows of its file, and labelled lines about what was guessed."""
    if dataset is not None:
        return Project(name, kind, {"dataset": dataset}, (GYM_PACKAGE,), _has_golds(dataset)), None, []
    if source is None:
        return Project(name, kind), None, []

    try:
        given = DatasetConfig.model_validate_strings({"fields": fields}).fields if fields else {}
    except ValueError:
        raise UserError(
            f"--fields {fields!r}: write FIELD:COLUMN, separated by commas: question:text,answer:label."
        ) from None
    placed = list(read_records(source))
    records = [record for _, record in placed]
    if not records:
        raise UserError(f"{source} has no records: nothing to begin with.")
    columns = guess_columns(records[:SHOWN_RECORDS], source, given, verifier)
    check_texts(placed, columns)
    load_task(  # names what is wrong with a row, or which package is missing, before anything is written
        "core.qa", path=source, fields=",".join(f"{field}:{column}" for field, column in columns.fields.items()),
        verifier=columns.verifier, template=columns.template,
    ).rows()  # fmt: skip
    package = VERIFIERS[columns.verifier].package
    values = {
        "fields": repr(dict(columns.fields)).replace("'", '"'),
        "verifier": columns.verifier,
        "template": columns.template,
    }
    notes = [
        ("fields", ", ".join(f"{field} from column {column}" for field, column in columns.fields.items())),
        ("verifier", f"{columns.verifier}: {columns.reason}"),
        ("rows", f"{len(records)} of {source}"),
    ]
    rows = b"".join(orjson.dumps(record, default=str) + b"\n" for record in records)
    return Project(name, kind, values, (package,) if package else ()), rows, notes


def _print(project: Project, files: Sequence[str], notes: Sequence[tuple[str, str]]) -> None:
    def line(label: str, *segments: Any) -> None:
        click.echo(visible(fold(label, segments, None)))

    line("wrote", f"{project.name}: {', '.join(files)}")
    for label, text in notes:
        line(label, text)
    install = f"{'uv' if shutil.which('uv') else 'python -m'} pip install -e './{project.name}"
    line("next", f"{install}[dev]'")
    line("next", command("check", project.full_name, "--fuzz", "200"))
    line("next", f"pytest {project.name}")
    if not (version_of(TRAINER) and version_of("trl")):
        line("next", f"{install}[train]'  # grpo-core, which the last command needs")
    line("next", command(*project.training))
