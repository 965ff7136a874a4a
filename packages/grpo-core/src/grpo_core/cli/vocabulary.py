"""The words that a shell completes: commands, tasks, models, settings; stored, and made anew when they change."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

FORMAT = 2

FILES, FOLDERS = ("FILE", "PATH"), ("DIR", "FOLDER", "[DIR]", "[FOLDER]")
"""Words for files and folders in the help of commands."""

KINDS = {
    "TASK": "task",
    "[TASK]": "task",
    "SPEC": "task",
    "MODEL": "model",
    "RUN": "run",
    "[RUN|DIR]": "run",
    "RUN...": "run",
    "[RUN] URL": "run",
    "TASK|all": "task",
    "TASK|PLUGIN|FILE|all": "task",
    "MODEL|TASK...": "task",
    "[KEY=VALUE]...": "setting",
    "[OPTIONS OF GRPO RUN]...": "setting",
    "[FILE|FOLDER] [KEY=A,B,C]...": "setting|file",
    "DIR|HUB_ID": "folder",
    "[SHELL]": "=bash,zsh,fish",
}
"""Word for an argument in the help -> what it may be."""

NAMED = {"recipe": "recipe", "preset": "preset", "plugin": "plugin", "profiles name": "profile"}
"""Option, or command and argument -> kind, where the help says NAME."""


def vocabulary(program: Callable[[], click.Command]) -> dict[str, Any]:
    """Return the stored words, made anew where an installed package or the code of the commands has changed.

    Args:
        program: Returns the command whose words they are; called where they are made.
    """
    path, stamp = _path(), _stamp()
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError):
        stored = None
    if isinstance(stored, dict) and stored.get("stamp") == stamp:
        return stored
    with open(os.devnull, "w", encoding="utf-8") as null, redirect_stdout(null), redirect_stderr(null):
        words = {"stamp": stamp, **_collect(program())}
    words["stamp"] = _stamp()  # looking at the plugins writes what is remembered of them
    with suppress(OSError):
        _store(path, words)
    return words


def _path() -> Path:
    from grpo_core.plugins.folders import cache_folder

    environment = hashlib.blake2b(f"{sys.prefix}\n{sys.version}".encode("utf-8", "surrogatepass"), digest_size=8)
    return cache_folder() / "completion" / f"{environment.hexdigest()}.json"


def _stamp() -> list[Any]:
    """What the words depend on: installed packages, remembered plugins, the code of the commands."""
    from grpo_core.plugins.folders import cache_folder

    folders = [sysconfig.get_path("purelib"), str(cache_folder() / "plugins"), os.path.dirname(__file__)]
    changed = []
    for folder in folders:
        with suppress(OSError):
            changed.append(os.stat(folder).st_mtime_ns)
    return [FORMAT, os.environ.get("GRPO_PLUGINS", ""), *changed]


def _store(path: Path, words: dict[str, Any]) -> None:
    from grpo_core.checkpoints.files import replace_file  # most completions find the words stored

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(words).encode())


def _collect(program: click.Command) -> dict[str, Any]:
    from grpo_core.config.keys import choices, keys
    from grpo_core.config.recipes import RECIPES
    from grpo_core.plugins import variants
    from grpo_core.plugins.host import default_host
    from grpo_core.profiles.gpu import BUILT_IN
    from grpo_core.profiles.presets import PRESETS

    commands: dict[str, Any] = {}
    _add(program, "", commands)
    host = default_host()
    settings: dict[str, list[str]] = {}
    for key in keys().values():
        words = list(choices(key.annotation)) or (["true", "false"] if key.annotation is bool else [])
        settings[key.name] = list(map(str, words))
    for name, kind in VARIANTS.items():
        settings[name] = sorted(variants.names(kind))
    names = {
        "task": [name for report in host.reports() for name in report.tasks],
        "model": sorted(host.models()),
        "plugin": list(host.names),
        "recipe": list(RECIPES),
        "preset": list(PRESETS),
        "profile": sorted({*BUILT_IN, *host.profiles()}),
    }
    return {"commands": commands, "names": names, "settings": settings}


VARIANTS = {
    "trainer.loss_type": "loss",
    "trainer.baseline": "advantage",
    "trainer.kl": "kl",
    "trainer.kl_controller": "kl_controller",
    "trainer.entropy_controller": "entropy_controller",
}
"""Setting -> kind of the variants that it names."""


def _add(command: click.Command, path: str, commands: dict[str, Any]) -> None:
    """Describe a command and those in it."""
    import click

    from grpo_core.cli.options import HELP
    from grpo_core.errors import GrpoError

    context = click.Context(command, info_name=path or "grpo", help_option_names=HELP["help_option_names"])
    parameters = command.get_params(context)
    commands[path] = {
        "options": {
            name: _kind(option, path) if not option.is_flag and not option.count else ""
            for option in parameters
            if isinstance(option, click.Option) and not option.hidden
            for name in (*option.opts, *option.secondary_opts)
        },
        "arguments": [_kind(each, path) for each in parameters if isinstance(each, click.Argument)],
        "commands": [],
    }
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        commands[path]["commands"] = names
        for name in names:
            with suppress(GrpoError):  # a command of a broken plugin, which has a name and no options
                inner = command.get_command(context, name)
                if inner is not None:
                    _add(inner, f"{path} {name}".strip(), commands)


def _kind(parameter: click.Parameter, path: str) -> str:
    """The kind of a parameter's values; `value` is one that cannot be listed."""
    import click

    if isinstance(parameter.type, click.Choice):
        return f"={','.join(map(str, parameter.type.choices))}"
    word = parameter.metavar or ""
    for name in (parameter.name or "", f"{path} {parameter.name}"):
        if word in ("", "NAME") and name in NAMED:
            return NAMED[name]
    if word in KINDS:
        return KINDS[word]
    if word in FOLDERS:
        return "folder"
    is_choice = "|" in word and word.replace("|", "").replace("-", "").islower()
    return f"={word.replace('|', ',')}" if is_choice else "file" if word in FILES else "value"
