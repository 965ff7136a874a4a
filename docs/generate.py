"""Write the reference pages that are read off the code: `python docs/generate.py`, with `--check` to compare only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from grpo_core.cli.group import COMMANDS, load_command
from grpo_core.cli.main import grpo
from grpo_core.config.keys import Key, keys, sections
from grpo_core.config.layers import shown
from grpo_core.config.models import RunConfig
from grpo_core.config.sources import RESERVED_ENVIRONMENT
from grpo_core.errors import ExitCode

REFERENCE = Path(__file__).parent / "reference"

HELP_WIDTH = 100
"""Columns of the help texts, whatever terminal this runs in."""

CONFIG_INTRODUCTION = """\
# Configuration

Written by `docs/generate.py` from `grpo_core/config/models.py`; change it there.

A setting is a dotted key. It can be given in five places, and the first one wins:

1. the command line: `grpo run trainer.learning_rate=5e-6`, or an option such as `--max-steps 100`;
2. the environment: `GRPO_TRAINER__LEARNING_RATE=5e-6` (the key in capitals, `__` for the dot; `GRPO_SEED=1`);
3. a file `.env` in the working folder, with the same names;
4. a YAML file: `grpo run --config run.yaml`;
5. the values recommended for an embedded model.

`grpo run --show-config` prints every setting with where it came from; `--json` makes that parseable. A run writes its
resolved settings to `config.yaml` in its folder, and `grpo run --config …/config.yaml` repeats it. A name that does not
exist and a value that does not fit are refused, with the near match, before a model is loaded.

```yaml
task: math.arithmetic:2,math.echo:1
seed: 1
trainer:
  num_generations: 16
  learning_rate: 5e-6
  lr_scheduler_type: cosine
lora:
  enabled: true
```

Values are read as YAML 1.2: `1e-6` is a number, `true` and `false` are the only booleans, `null` leaves a setting open.
Of `trainer.max_steps` and `trainer.num_train_epochs`, and of `trainer.warmup_steps` and `trainer.warmup_ratio`, one is
given; where both are, the one from the higher place wins. A variant's own arguments are keys under `trainer.loss_args`,
`trainer.kl_args` and `trainer.advantage_args`: `trainer.advantage_args.alpha=0.05`.
"""

CLI_INTRODUCTION = """\
# Command line

Written by `docs/generate.py` from the commands' own help; change it there. `grpo-run` is `grpo run`.

Results go to stdout, progress to stderr; `--json` leaves JSON alone on stdout. In a pipe, progress is one plain line
per logged step, without control codes. `NO_COLOR=1` switches colours off, `GRPO_DEBUG=1` shows an error's traceback.
"""

EXIT_CODES = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "the run failed",
    ExitCode.USER_MISTAKE: "a mistake in what was asked for; one line says which",
    ExitCode.ABSTENTION_LIMIT: "too many completions could not be scored",
    ExitCode.INTERRUPTED: "interrupted; what was done is saved",
}


def config_page() -> str:
    """The page of every setting."""
    groups = {"": [key for key in keys().values() if not key.section]}
    groups |= {section: [key for key in keys().values() if key.section == section] for section in sections()}
    parts = [CONFIG_INTRODUCTION]
    for section, members in groups.items():
        title = f"`{section}`: {RunConfig.model_fields[section].description}" if section else "The run"
        parts.append(f"## {title.rstrip('.')}\n\n{_table(('Setting', 'Default', 'Allowed', ''), map(_row, members))}")
    reserved = ((f"`{name}`", meaning) for name, meaning in RESERVED_ENVIRONMENT.items())
    parts.append(f"## Environment variables that are no settings\n\n{_table(('Variable', ''), reserved)}")
    return "\n".join(parts)


def cli_page() -> str:
    """The page of every command."""
    codes = ((str(int(code)), meaning) for code, meaning in EXIT_CODES.items())
    parts = [CLI_INTRODUCTION, f"## Exit codes\n\n{_table(('Code', 'Meaning'), codes)}"]
    # The options of `grpo` itself, so that a command's help is what a user sees.
    settings = {**grpo.context_settings, "terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    context = click.Context(grpo, info_name="grpo", **settings)
    for name in COMMANDS:
        parts += _help_of(load_command(name), name, context)
    return "\n".join(parts)


def pages() -> Mapping[Path, str]:
    """Every generated page by its path."""
    return {REFERENCE / "config.md": config_page(), REFERENCE / "cli.md": cli_page()}


def main(arguments: Iterable[str]) -> int:
    """Write the pages, or compare them; 1 if one is not current."""
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(REFERENCE.parent.parent)} is not current: run python docs/generate.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
            print(f"wrote {path.relative_to(REFERENCE.parent.parent)}")
    return int(bool(stale) and "--check" in arguments)


def _help_of(command: click.Command, name: str, parent: click.Context) -> list[str]:
    context = click.Context(command, parent=parent, info_name=name)
    found = [f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            subcommand = command.get_command(context, inner)
            assert subcommand is not None
            found += _help_of(subcommand, inner, context)
    return found


def _row(key: Key) -> tuple[str, ...]:
    allowed = key.allowed + (f"; {key.why}" if key.why else "")
    return (f"`{key.name}`", f"`{shown(key.default)}`", allowed, key.description)


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
