"""Uploading a folder to the Hugging Face hub; errors are one line, and the token is in none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_core.errors import UserError
from grpo_core.publish.errors import PublishError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LEFT_BY_THE_HUB = frozenset({".gitattributes", "README.md"})
"""What a repository holds that was made on the website and never filled."""


def upload(folder: Path, repo_id: str, *, private: bool, force: bool, api: HfApi | None = None) -> str:
    """Make a repository and upload a folder into it as one commit.

    Args:
        folder: What goes there.
        repo_id: `owner/name`.
        private: Only its owner sees it; of an existing repository this is not changed.
        force: Add a commit to a repository that holds files already; its history keeps them.
        api: The hub's client; by default one with the token of `hf auth login` or HF_TOKEN.

    Returns:
        The repository's address.

    Raises:
        UserError: no token, no right to write there, or a repository that is not empty.
        PublishError: the hub cannot be reached or refuses.
    """
    from huggingface_hub import HfApi

    client = api or HfApi(library_name="grpo-core")
    with _one_line(folder, repo_id):
        client.whoami()
        made = client.create_repo(repo_id, private=private, exist_ok=True)
        there = set(client.list_repo_files(repo_id))
        if there - LEFT_BY_THE_HUB and not force:
            raise UserError(
                f"{repo_id} on the hub holds {len(there)} files already: nothing was uploaded. Choose another name, or "
                f"add a commit to it with --force. The model is in {folder}."
            )
        message = f"grpo publish: {folder.name}"
        client.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
    return str(made)


@contextlib.contextmanager
def _one_line(folder: Path, repo_id: str) -> Iterator[None]:
    import httpx2
    from huggingface_hub import errors, get_token

    stays = f"The model is complete in {folder}."
    try:
        yield
    except errors.LocalTokenNotFoundError:
        raise UserError(f"no Hugging Face login: run 'hf auth login', or set HF_TOKEN. {stays}") from None
    except errors.OfflineModeIsEnabled:
        raise UserError(f"nothing was uploaded: HF_HUB_OFFLINE=1 forbids the network. {stays}") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status == 401:
            raise UserError(f"the hub does not accept this token: run 'hf auth login' again. {stays}") from None
        if status == 403:
            raise UserError(f"this token may not write to {repo_id}: it needs the right to. {stays}") from None
        said = _without(get_token(), str(error.server_message or error).splitlines()[0])
        raise PublishError(f"the hub refused {repo_id} (HTTP {status}): {said}. {stays}") from None
    except errors.HFValidationError as error:
        raise UserError(f"{repo_id!r} is no hub id: {str(error).splitlines()[0]}") from None
    except (httpx2.HTTPError, ConnectionError, TimeoutError) as error:
        reason = _without(get_token(), (str(error) or type(error).__name__).splitlines()[0])
        raise PublishError(f"the hub cannot be reached ({reason}). {stays} Try again later.") from None


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "…") if token else text
