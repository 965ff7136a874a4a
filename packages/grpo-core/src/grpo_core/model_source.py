"""Which model a name means, decided before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpo_core.errors import UserError, near_match
from grpo_core.plugins import PluginHost, default_host


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from.

    Attributes:
        kind: `embedded`, `folder`, `gguf` or `hub`.
        name: What the user wrote.
        location: A folder, a file or a hub id.
        why: The reason, for the run's header.
    """

    kind: Literal["embedded", "folder", "gguf", "hub"]
    name: str
    location: str
    why: str


def model_source(name: str, host: PluginHost | None = None) -> ModelSource:
    """Say where `name` would be loaded from, without loading it.

    Raises:
        UserError: it is neither an embedded model, nor a folder or GGUF file that exists, nor a hub id.
    """
    path = Path(name).expanduser()
    if name.endswith(".gguf"):
        if not path.is_file():
            raise UserError(f"--model {name}: there is no such GGUF file.")
        return ModelSource("gguf", name, str(path.resolve()), "a GGUF file, dequantised")
    if name.startswith((".", "/", "~")):
        if not (path / "config.json").is_file():
            found = "it has no config.json" if path.is_dir() else "there is no such folder"
            raise UserError(
                f"--model {name}: {found}; a local model is a folder with config.json, weights and tokenizer."
            )
        return ModelSource("folder", name, str(path.resolve()), "a local folder")
    embedded = (host or default_host()).models()
    if name in embedded:
        return ModelSource("embedded", name, embedded[name].path, embedded[name].description)
    if name.count("/") == 1 and all(name.split("/")):
        return ModelSource("hub", name, name, "a hub id")
    raise UserError(
        f"no model {name!r}.{near_match(name, embedded)} Embedded: {', '.join(sorted(embedded)) or '(none)'}. "
        "A hub id has an owner (Qwen/Qwen2.5-0.5B-Instruct), a local folder begins with ./ or /, "
        "a GGUF file ends in .gguf."
    )
