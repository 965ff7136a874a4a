"""The files of a dataset's repository, as they were written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson

from grpo_core.errors import DataError
from grpo_core.hub.network import offline_reason

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
        Name of a file in the repository -> where it is, in order; None where only `datasets` knows the rows.

    Raises:
        DataError: the repository has no such split.
        Exception: as `datasets` and huggingface_hub raise them for each kind of network and name trouble.
    """
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    listing = Path(constants.HF_HOME, "grpo", f"{repository}@{config or ''}.json".replace("/", "--"))
    is_offline = bool(offline_reason())
    if not is_offline:
        found = _files_by_split(repository, config)
        with suppress(OSError):  # a cache that this user may only read
            listing.parent.mkdir(parents=True, exist_ok=True)
            listing.write_bytes(orjson.dumps(found))
    elif listing.is_file():
        found = orjson.loads(listing.read_bytes())
    else:
        try:
            found = _files_by_split(snapshot_download(repository, repo_type="dataset", local_files_only=True), config)
        except (FileNotFoundError, ValueError):  # no snapshot, a part of one, one without data, or no such config
            return None
    if found is None:
        return None
    revision, files = found
    if split not in files:
        raise DataError(f"it has no such split, but {', '.join(files)}")
    return {
        file: Path(
            hf_hub_download(repository, file, repo_type="dataset", revision=revision, local_files_only=is_offline)
        )
        for file in files[split]
    }


def _files_by_split(source: str, config: str | None) -> tuple[str, dict[str, list[str]]] | None:
    """The revision of a repository or a snapshot, and the files of each split; None where `datasets` has to read them."""
    import datasets

    builder = datasets.load_dataset_builder(source, config)
    plain, base = type(builder.config)(), f"{builder.base_path}/"
    if builder.name not in ("csv", "json", "parquet"):
        return None
    if replace(builder.config, **{name: getattr(plain, name) for name in _COMMON}) != plain:
        return None  # another separator, names of columns, a field of a JSON file
    splits = {str(split): list(map(str, files)) for split, files in builder.config.data_files.items()}
    if not all(file.startswith(base) for files in splits.values() for file in files):
        return None  # of another repository or server
    revision = Path(base).name.partition("@")[2] or Path(base).name
    return revision, {split: [file.removeprefix(base) for file in files] for split, files in splits.items()}
