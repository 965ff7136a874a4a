"""What the hub's cache on this machine holds."""

from __future__ import annotations

import os
from pathlib import Path

from grpo_sdk.errors import UserError
from grpo_sdk.hub.network import TIMEOUT_S, offline_reason

MAX_LISTED = 8
"""Models of the cache that an error names."""


def cached_file(repository: str, name: str) -> Path | None:
    """A file of a model in the cache, of its newest revision there; None where it is not there."""
    from huggingface_hub import constants, try_to_load_from_cache

    found = try_to_load_from_cache(repository, name, cache_dir=constants.HF_HUB_CACHE)
    return Path(found) if isinstance(found, str) else None


def fetched_config(repository: str) -> Path | None:
    """The config.json of a model, downloaded if need be; None where that cannot be."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    if offline_reason():
        return None
    try:
        return Path(hf_hub_download(repository, "config.json", etag_timeout=TIMEOUT_S))
    except (HfHubHTTPError, OSError, ValueError):  # among them: not in the cache, and no such repository
        return None


def is_cached(repository: str) -> bool:
    """Whether the cache has a model whole: configuration, tokenizer and safetensors."""
    config = cached_file(repository, "config.json")
    if config is None or not any(config.parent.glob("tokenizer*")):
        return False
    return any(config.parent.glob("*.safetensors"))


def has_datasets_of(owner: str) -> bool:
    """Whether a cache holds any dataset of an owner; `datasets`, whose import takes seconds, knows which."""
    from huggingface_hub import constants

    prepared = Path(os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets")
    folders = [*prepared.glob("*___*"), *Path(constants.HF_HUB_CACHE).glob("datasets--*")]
    begins = (f"{owner}___".lower(), f"datasets--{owner}--".lower())
    return any(folder.name.lower().startswith(begins) for folder in folders)


def why_from_cache(repository: str) -> str:
    """Why a model comes from the cache alone; empty where the hub is used.

    Raises:
        UserError: it is not in the cache; says what is.
    """
    reason = offline_reason()
    if not reason or is_cached(repository):
        return reason
    if Path(repository).is_dir():
        raise UserError(f"--model {repository} is an id of the hub; for the folder of that name write ./{repository}.")
    cached = ", ".join(cached_models()[:MAX_LISTED]) or "no model"
    raise UserError(
        f"--model {repository} is not in the hub's cache, and the hub is not used: {reason}. The cache has {cached}. "
        f"Where there is a network: grpo fetch {repository}; or give a local folder: --model ./folder."
    )


def check_repository(repository: str) -> None:
    """Check that a model can be loaded from the hub or its cache, by its config.json alone.

    Raises:
        UserError: it is not in the cache and the hub is not used, or the hub does not have it for this user.
    """
    if why_from_cache(repository) or cached_file(repository, "config.json") is not None:
        return
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

    try:
        hf_hub_download(repository, "config.json", etag_timeout=TIMEOUT_S)
    except GatedRepoError:
        raise UserError(
            f"--model {repository} is gated: accept its terms on the hub, then hf auth login, or set HF_TOKEN."
        ) from None
    except RepositoryNotFoundError:
        raise UserError(
            f"--model {repository}: the hub has no such repository, or it is private (hf auth login, or HF_TOKEN)."
        ) from None
    except EntryNotFoundError:
        raise UserError(f"--model {repository}: the repository has no config.json, so it is not a model.") from None
    except (OSError, ValueError):  # a network that fails meanwhile: loading the model reports it
        return


def cached_models() -> list[str]:
    """Ids of the models that are in the cache whole, the most recently used first."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return []
    recent = sorted(repositories, key=lambda each: -(each.last_accessed or 0.0))
    return [each.repo_id for each in recent if each.repo_type == "model" and is_cached(each.repo_id)]
