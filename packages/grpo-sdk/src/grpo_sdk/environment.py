"""Environment variables, of the process and of a .env file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.paths import kind_of
from grpo_sdk.records.yaml_text import text_of

PREFIX = "GRPO_"

RESERVED_ENVIRONMENT: Mapping[str, str] = {
    "GRPO_CACHE_DIR": "Folder for caches, as of what plugins provide; by default that of the platform.",
    "GRPO_CHESS_ENGINE": "UCI engine of the chess tasks.",
    "GRPO_DEBUG": "1 shows the traceback of an error.",
    "GRPO_KILLABLE_WORKER": "Set by a scoring worker for itself; not for users.",
    "GRPO_LOG_DIR": "Folder in which training_runs is created, if output_dir is not set.",
    "GRPO_PLUGINS": "Comma-separated names of the only plugins to load.",
    "GRPO_SANDBOX_ALLOW_WEAK": "1 lets the code tasks run programs with resource limits alone.",
    "GRPO_SANDBOX_LEVEL": "Level of the code tasks' sandbox (L3, L2, L1), instead of the best one available.",
    "GRPO_SANDBOX_TOKEN": "Token for the server of `GRPO_SANDBOX_URL`.",
    "GRPO_SANDBOX_URL": "Server that runs the code tasks' programs, instead of this machine.",
    "GRPO_SHARED_DATA": "Folder of real data sets that some tests read.",
}
"""Environment variables that are not settings -> description."""


def read_dotenv(path: Path | str | None) -> dict[str, str]:
    """Read the variables of a .env file; none if there is no such file.

    Raises:
        UserError: it is not a file, cannot be read, is not UTF-8 text, or has a line that is not NAME=value or that
            repeats a name.
    """
    if path is None or (kind := kind_of(Path(path))) in ("", "a folder"):  # a virtual environment may have this name
        return {}
    if kind != "a file":
        raise UserError(f"{path} is {kind}, and settings are read from a file: rename or remove it.")
    from dotenv.parser import parse_stream

    variables: dict[str, str] = {}
    lines: dict[str, int] = {}
    # Not dotenv_values, which skips lines that it cannot parse and takes the last value of a repeated name.
    for binding in parse_stream(io.StringIO(text_of(Path(path), str(path)))):
        where, name = f"{path}:{binding.original.line}", binding.key
        if binding.error:
            raise UserError(f"{where}: not NAME=value: {format_value(binding.original.string.strip())}")
        if name is None:
            continue  # a comment, or nothing
        if binding.value is None or "\0" in binding.value:
            raise UserError(f"{where}: {name} has no value: write {name}=value.")
        if name in variables:
            raise UserError(f"{where}: {name} is given twice, first in line {lines[name]}.")
        variables[name], lines[name] = binding.value, binding.original.line
    return variables
