"""The files of a dataset's repository, as they were written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import orjson

from grpo_sdk.errors import DataError
from grpo_sdk.hub.network import offline_reason

Chosen = TypeVar("Chosen")

_URL = re.compile(r"hf://datasets/([^@]+)@([^/]+)/(.+)")

_PARQUET = "refs/convert/parquet"
"""Branch of a dataset's repository with its rows in parquet, which the hub keeps."""

_PART = re.compile(r"-\d{5}-of-(\d{5})")
"""In the name of a file that is one of several."""

_COMMON = ("name", "version", "data_dir", "data_files", "description")
"""Settings of every builder of `datasets`, which do not change how a file is read."""


def data_files(repository: str, config: str | None, split: str) -> dict[str, Path] | None:
    """Find the files of a split by the rules of `datasets`, and download those that are not in the hub's cache.

    What the hub says of the files is kept, so that without it a part of them is not taken for all.

    Args:
        repository: owner/name.
        config: Name of the configuration, if there are several.
        split: Name of the split.

    Returns:
        Address of each file -> where it is, in order (nowhere, for one of another server); None where only `datasets`
        can read them, or has them.

    Raises:
        DataError: the repository has no such split.
        Exception: as `datasets` and huggingface_hub raise them for each kind of network and name trouble.
    """
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    listing = Path(constants.HF_HOME, "grpo", f"{repository}@{config or ''}.json".replace("/", "--"))
    is_offline = bool(offline_reason())
    if is_offline and listing.is_file():
        splits = orjson.loads(listing.read_bytes())
    elif is_offline:
        try:
            splits = _files_by_split(snapshot_download(repository, repo_type="dataset", local_files_only=True), config)
        except DataError:
            raise
        except (FileNotFoundError, ValueError):  # no snapshot, a part of one, one without data, or no such config
            return None
    else:
        splits = _files_by_split(repository, config)
        with suppress(OSError):  # a cache that this user may only read
            listing.parent.mkdir(parents=True, exist_ok=True)
            listing.write_bytes(orjson.dumps(splits))
    if splits is None:
        return None
    if split not in splits:
        raise DataError(f"it has no such split, but {', '.join(splits)}")
    get = partial(hf_hub_download, repo_type="dataset", local_files_only=is_offline)
    found = {address: _URL.fullmatch(address) for address in splits[split]}
    return {
        address: Path(get(url[1], url[3], revision=unquote(url[2])) if url else address)
        for address, url in found.items()
    }


def _files_by_split(source: str, config: str | None) -> dict[str, list[str]] | None:
    """The addresses of the files of each split of a repository or a snapshot; None where `datasets` must read them."""
    try:
        import datasets
    except ModuleNotFoundError:
        return _snapshot_files(source, config) if os.path.isabs(source) else _parquet_files(source, config)
    builder = datasets.load_dataset_builder(source, config)
    plain = type(builder.config)()
    is_plain = replace(builder.config, **{name: getattr(plain, name) for name in _COMMON}) == plain
    if builder.name not in ("csv", "json", "parquet") or not is_plain:  # another separator, names of columns, …
        return None
    return {str(split): list(map(str, files)) for split, files in builder.config.data_files.items()}


def _snapshot_files(folder: str, config: str | None) -> dict[str, list[str]] | None:
    """The files of each split, as a snapshot's card names them; None where it names none, or says how to read them.

    A file that is not there is among them under the name, or the pattern, by which it is missed.
    """
    from huggingface_hub import metadata_load

    card = Path(folder, "README.md")
    configs = ((card.is_file() and metadata_load(card)) or {}).get("configs") or []
    by_name = {each["config_name"]: each for each in configs}
    chosen = _chosen(by_name, config) if by_name else {}
    if "data_files" not in chosen or chosen.keys() - {"config_name", "data_files", "default"}:
        return None
    splits: dict[str, list[str]] = {}
    for part in _listed(chosen["data_files"]):
        split, patterns = (part["split"], part["path"]) if isinstance(part, dict) else ("train", part)
        for pattern in _listed(patterns):
            splits.setdefault(split, []).extend(_matching(Path(folder), pattern))
    return splits


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _matching(folder: Path, pattern: str) -> list[str]:
    """The files of a pattern, with all parts of each; the pattern itself where there is none."""
    files = set()
    for path in folder.glob(pattern) if ".." not in pattern else ():
        parts = _PART.search(path.name)
        for index in range(int(parts[1]) if parts else 1):
            files.add(str(path.with_name(_PART.sub(rf"-{index:05}-of-\1", path.name))))
    return sorted(files) or [str(folder / pattern)]


def _parquet_files(repository: str, config: str | None) -> dict[str, list[str]]:
    """The addresses of the files of each split, as the hub has them in parquet."""
    from huggingface_hub import HfApi

    configs: dict[str, dict[str, list[str]]] = {}
    for name in sorted(HfApi().list_repo_files(repository, repo_type="dataset", revision=_PARQUET)):
        folder, _, rest = name.partition("/")
        if rest.endswith(".parquet"):
            address = f"hf://datasets/{repository}@{_PARQUET.replace('/', '%2F')}/{name}"
            configs.setdefault(folder, {}).setdefault(rest.partition("/")[0], []).append(address)
    return _chosen(configs, config)


def _chosen(configs: Mapping[str, Chosen], config: str | None) -> Chosen:
    """The configuration of a name, or the only one, or that which is called "default"."""
    name = config or (next(iter(configs)) if len(configs) == 1 else "default")
    if name not in configs:
        there = ", ".join(configs) or "none whose files can be read: pip install datasets"
        raise DataError(f"it has no configuration {name!r}, but {there}")
    return configs[name]
