"""Configurations, and what is said of wrong ones, without this process's environment and folder."""

from pathlib import Path
from typing import Any

import pytest

from grpo_core.config import LoadedConfig, ResolvedConfig, load_config, resolve
from grpo_sdk.errors import UserError


def load(cli: dict[str, Any] | None = None, **more: Any) -> LoadedConfig:
    """Load what is given on the command line, or in `environ`, `dotenv_path` and `config_file`."""
    return load_config(cli or {}, **{"environ": {}, "dotenv_path": Path("no-such-folder/.env"), **more})


def refusal(cli: dict[str, Any] | None = None, **more: Any) -> str:
    """The line with which it is refused."""
    with pytest.raises(UserError) as caught:
        load(cli, **more)
    assert "\n" not in str(caught.value), "an error is one line"
    return str(caught.value)


def resolved(cli: dict[str, Any], **more: Any) -> ResolvedConfig:
    """Load and resolve, with a model that recommends nothing unless another is given."""
    loaded = load({"model": "owner/model", **cli}, **more)
    return resolve(loaded.config, loaded.sources)


def write(path: Path, text: str) -> Path:
    """Write a file of settings."""
    path.write_text(text, encoding="utf-8")
    return path
