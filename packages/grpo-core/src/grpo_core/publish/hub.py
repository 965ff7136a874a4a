"""Uploading a folder to the Hugging Face hub. Errors take one line and never contain the token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_core.errors import GrpoError, UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB_FILES = frozenset({".gitattributes", "README.md"})
"""Files that an empty repository made on the website contains."""


class PublishError(GrpoError, RuntimeError):
    """The model could not be written or uploaded for a reason outside the user's control."""


def upload(folder: Path, repo_id: str, *, private: bool, force: bool, api: HfApi | None = None) -> str:
    """Create a repository and upload a folder to it as one commit.

    Args:
        folder: Folder to upload.
        repo_id: `owner/name`.
        private: Create the repository as private; an existing one keeps its visibility.
        force: Add a commit to a repository that already holds files; its history keeps them.
        api: Client of the hub; by default one with the token of `hf auth login` or HF_TOKEN.

    Returns:
        Address of the repository.

    Raises:
        UserError: there is no token, it may not write there, or the repository is not empty.
        PublishError: the hub cannot be reached or refuses the upload.
    """
    from huggingface_hub import HfApi

    client = api or HfApi(library_name="grpo-core")
    with _one_line(folder, repo_id):
        client.whoami()
        url = client.create_repo(repo_id, private=private, exist_ok=True)
        files = set(client.list_repo_files(repo_id))
        if files - HUB_FILES and not force:
            raise UserError(
                f"{repo_id} on the hub holds {len(files)} files already: nothing was uploaded. Choose another name, or "
                f"add a commit to it with --force. The model is in {folder}."
            )
        message = f"grpo publish: {folder.name}"
        client.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
    return str(url)


@contextlib.contextmanager
def _one_line(folder: Path, repo_id: str) -> Iterator[None]:
    import httpx2
    from huggingface_hub import errors, get_token

    """Turn the hub client's errors into one line that says where the model is."""
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
        message = _without(get_token(), str(error.server_message or error).splitlines()[0])
        raise PublishError(f"the hub refused {repo_id} (HTTP {status}): {message}. {stays}") from None
    except errors.HFValidationError as error:
        raise UserError(f"{repo_id!r} is no hub id: {str(error).splitlines()[0]}") from None
    except (httpx2.HTTPError, ConnectionError, TimeoutError) as error:
        reason = _without(get_token(), (str(error) or type(error).__name__).splitlines()[0])
        raise PublishError(f"the hub cannot be reached ({reason}). {stays} Try again later.") from None


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "…") if token else text
