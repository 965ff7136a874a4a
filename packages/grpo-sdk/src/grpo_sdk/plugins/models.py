"""Resolves the name of a model before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_sdk.errors import UserError, near_match
from grpo_sdk.hub.cache import check_repository
from grpo_sdk.plugins.host import PluginHost, default_host

ADAPTER_FILE = "adapter_config.json"
"""Names a PEFT adapter's base model, among its settings."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Source of a model.

    Attributes:
        kind: `embedded`, `folder`, `adapter` (a folder with an adapter alone, which names its base), `gguf` or `hub`.
        name: What the user wrote.
        location: A folder, a file or a hub id.
        why: The reason, for the run's header.
    """

    kind: Literal["embedded", "folder", "adapter", "gguf", "hub"]
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
        if not (path / "config.json").is_file() and (path / ADAPTER_FILE).is_file():
            return ModelSource("adapter", name, str(path.resolve()), f"an adapter on {adapter_base(path)}")
        if not (path / "config.json").is_file():
            found = "it has no config.json" if path.is_dir() else "there is no such folder"
            raise UserError(
                f"--model {name}: {found}; a local model is a folder with config.json, weights and tokenizer."
                f"{_model_within(path)}"
            )
        return ModelSource("folder", name, str(path.resolve()), "a local folder")
    host = host or default_host()
    if "/" not in name and (model := host.model(name)) is not None:
        return ModelSource("embedded", name, model.path, model.description)
    if name.count("/") == 1 and all(name.split("/")):
        check_hub_id(name, "--model")
        return ModelSource("hub", name, name, "a hub id")
    if path.is_dir():
        raise UserError(f"no model {name!r}, but there is a folder of that name: write ./{name}.")
    embedded = host.models()
    raise UserError(
        f"no model {name!r}.{near_match(name, embedded)} Embedded: {', '.join(sorted(embedded)) or '(none)'}. "
        "A hub id has an owner (Qwen/Qwen2.5-0.5B-Instruct), a local folder begins with ./ or /, "
        f"a GGUF file ends in .gguf.{host.not_loaded()}"
    )


def _model_within(path: Path) -> str:
    """A hint where a run or a checkpoint was given: the folder of its newest model."""
    within = [*path.glob("model/config.json"), *path.glob("training_state/*/model/config.json")]
    if not within:
        return ""
    return f" This one holds a model: {max(within, key=lambda file: file.stat().st_mtime).parent}."


def check_hub_id(name: str, what: str) -> None:
    """Check how an id of the Hugging Face hub is written.

    Args:
        name: The id.
        what: Name of its option, for the message.

    Raises:
        UserError: the hub has no such ids.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # public, by a re-export of theirs

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        reason = str(error).partition(": '")[0].rstrip(".")  # which ends with the name again
        raise UserError(f"{what} {name[:100]!r} is no hub id: {reason}.") from None


def check_model(name: str, adapter: str | None = None) -> None:
    """Check that a model can be found: embedded, on this machine, or on the hub. No torch is imported.

    Args:
        name: Embedded name, local folder, GGUF file or hub id.
        adapter: Folder or hub id of a PEFT adapter to put on it.

    Raises:
        UserError: as for `model_source`; without a network, a hub id that is not in the cache; with one, a hub id that
            the hub does not have; or a folder without an adapter.
    """
    source = model_source(base_model(name))
    if source.kind == "hub":
        check_repository(source.location)
    if adapter is not None:
        check_adapter(adapter)


def check_adapter(adapter: str) -> None:
    """Check that an adapter can be found: a folder, or a hub id.

    Raises:
        UserError: it is neither.
    """
    path = Path(adapter).expanduser()
    if adapter.startswith((".", "/", "~")):
        if not (path / ADAPTER_FILE).is_file():
            raise UserError(f"--adapter {adapter}: a PEFT adapter is a folder with {ADAPTER_FILE}; none is there.")
    elif adapter.count("/") == 1 and all(adapter.split("/")):
        check_hub_id(adapter, "--adapter")
    else:
        hint = f"there is a folder of that name: write ./{adapter}" if path.is_dir() else "there is no such adapter"
        raise UserError(f"--adapter {adapter}: {hint}. A hub id is owner/name, a local folder begins with ./ or /.")


def adapter_base(folder: Path | str) -> str:
    """The model that an adapter was trained on, as its folder names it.

    Raises:
        UserError: the folder's `adapter_config.json` is missing, damaged or names none.
    """
    base = adapter_settings(folder).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        path = Path(folder) / ADAPTER_FILE
        raise UserError(f"{path} does not name the adapter's base model: give it by --model, the adapter by --adapter.")
    return base


def adapter_settings(folder: Path | str) -> dict[str, Any]:
    """What an adapter's folder says of it.

    Raises:
        UserError: the folder's `adapter_config.json` is missing or damaged.
    """
    path = Path(folder) / ADAPTER_FILE
    try:
        settings = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UserError(f"{path}: the adapter's settings cannot be read: {error}.") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path}: the adapter's settings are not a JSON object.")
    return settings


def base_model(name: str) -> str:
    """Name of a model without its adapter: the base of a folder with an adapter alone, else the name.

    Raises:
        UserError: as for `model_source`.
    """
    source = model_source(name)
    return adapter_base(source.location) if source.kind == "adapter" else name
