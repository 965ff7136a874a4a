"""Publishing a run's model: verify, write to a temporary folder, move into place, upload."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from grpo_core.checkpoints import Step
from grpo_core.config import RunConfig, to_yaml
from grpo_core.publish.card import CONFIG_FILE, CardFacts, model_card
from grpo_core.publish.source import Source, read_source
from grpo_core.publish.weights import Form, choose_form, write_model
from grpo_sdk.errors import GrpoError, UserError, first_line
from grpo_sdk.files import disk_full_reason, tree, written_whole
from grpo_sdk.paths import kind_of, user_path

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
        message = str(error.server_message or error).splitlines()[0].replace(get_token() or "\0", "…")
        raise PublishError(f"the hub refused {repo_id} (HTTP {status}): {message}. {stays}") from None
    except errors.HFValidationError as error:
        raise UserError(f"{repo_id!r} is no hub id: {first_line(error)}") from None
    except (httpx2.HTTPError, ConnectionError, TimeoutError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].replace(get_token() or "\0", "…")
        raise PublishError(f"the hub cannot be reached ({reason}). {stays} Try again later.") from None


HUB_PREFIX = "hub:"
"""Prefix of owner/name that selects the hub where a folder `owner` exists."""

FILE_MODE = 0o644
"""Permissions of published files; safetensors writes files that only their owner can read."""


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of a published model.

    Attributes:
        folder: Folder that the model is written to; for the hub, the folder that is uploaded, which stays.
        repo_id: `owner/name` on the hub, or None.
    """

    folder: Path
    repo_id: str | None


@dataclass(frozen=True, slots=True)
class Published:
    """A published model.

    Attributes:
        folder: Folder of the model.
        url: Address of the hub repository, or None.
        form: `full`, `merged` or `adapter`.
        source: The checkpoint and its run.
        bytes: Size of all files.
        compared: How an adapter's files, loaded again, compare with the checkpoint.
    """

    folder: Path
    url: str | None
    form: Form
    source: Source
    bytes: int
    compared: str = ""

    @property
    def step(self) -> int:
        """Optimizer steps that the model was trained for."""
        return self.source.step


def publish(
    run_dir: Path | str,
    target: str,
    *,
    step: Step | Literal["latest"] = "latest",
    merge: bool | None = None,
    private: bool = False,
    force: bool = False,
    facts: CardFacts | None = None,
    api: HfApi | None = None,
) -> Published:
    """Write a checkpoint's model and a model card to a folder, and upload it if `target` is a hub id.

    Args:
        run_dir: Folder of the run.
        target: A folder, or `owner/name` on the Hugging Face hub.
        step: Checkpoint to publish.
        merge: Whether to merge an adapter into its base, which is the default, or to publish it alone.
        private: Create a private hub repository.
        force: Replace a folder, or add a commit to a repository, that is not empty.
        facts: What the card states beyond what the run knows.
        api: Client of the hub; by default one with the token of `hf auth login` or HF_TOKEN.

    Raises:
        UserError: not a run, no such checkpoint, a target that may not be overwritten, unusable facts, or no hub login.
        PublishError: the disk is full, or the hub cannot be reached; what was written stays.
    """
    facts = facts or CardFacts()
    facts.check()
    place = parse_target(target, Path(run_dir))
    check_target(place, Path(run_dir), force=force)
    source = read_source(Path(run_dir), step, None if facts.eval_dir is None else Path(facts.eval_dir))
    form = choose_form(source, merge)
    if form == "adapter" and place.repo_id is not None and (source.base is None or source.base.kind == "folder"):
        raise UserError(
            f"--keep-adapter: the base {source.base_name} is a folder of this machine, so nobody could load the "
            "adapter from the hub. Publish it merged: --merge."
        )
    name = place.repo_id or place.folder.name
    card = model_card(source, form, name=name, facts=facts)
    compared = _write(source, place.folder, form, card)
    url = None
    if place.repo_id is not None:
        url = upload(place.folder, place.repo_id, private=private, force=force, api=api)
    size = sum(status.st_size for status in tree(place.folder)[0].values())
    return Published(place.folder, url, form, source, size, compared)


def parse_target(target: str, run_dir: Path) -> Target:
    """Distinguish a folder from a hub id: as for `--model`, `owner/name` is on the hub, a folder begins with . or /.

    Raises:
        UserError: it is empty, or could be either.
    """
    if not target.strip():
        raise UserError("give a folder (./model) or a hub id (owner/name) to publish to.")
    repo_id = target.removeprefix(HUB_PREFIX)
    is_folder = target.startswith((".", "/", "~")) or "/" not in target
    if repo_id == target and is_folder:
        return Target(user_path(target, "the folder to publish to").resolve(), None)
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise UserError(f"{target!r} is no hub id, which is owner/name; a folder begins with ./ or /: './{target}'.")
    if repo_id == target and Path(target).parent.is_dir():
        raise UserError(
            f"{target!r} could be a folder or a hub id, and there is a folder {str(Path(target).parent)!r} here. "
            f"Write ./{target} for the folder, or {HUB_PREFIX}{target} for the hub."
        )
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # public, but not in its __all__

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"{repo_id!r} is no hub id: {first_line(error)}") from None
    return Target((run_dir / "published" / repo_id.replace("/", "--")).resolve(), repo_id)


def check_target(place: Target, run_dir: Path, *, force: bool) -> None:
    """Refuse a folder that is not empty, before anything is loaded.

    Raises:
        UserError: it is a file, or not empty; with `force`, it contains the run, the working or the home folder.
    """
    folder = place.folder
    if place.repo_id is not None or not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is {kind_of(folder) or 'a broken link'}; give a folder that is new or empty.")
    if not any(folder.iterdir()):
        return
    if not force:
        raise UserError(f"{folder} is not empty, and nothing was written. Choose another one, or replace it: --force.")
    for what, inside in (("the run", run_dir), ("the working folder", Path.cwd()), ("your home", Path.home())):
        if inside.resolve().is_relative_to(folder):
            raise UserError(f"--force would replace {folder}, which holds {what}: {inside}. Choose another folder.")


def _write(source: Source, folder: Path, form: Form, card: str) -> str:
    """Write everything to a temporary folder, then rename it, so that the target is complete or absent."""
    try:
        with written_whole(folder) as partial:
            compared = write_model(source, partial, form)
            config = source.config.model_copy(update={"output_dir": RunConfig().output_dir})  # which is private
            (partial / CONFIG_FILE).write_text(to_yaml(config), encoding="utf-8")
            (partial / "README.md").write_text(card, encoding="utf-8")
            for name in tree(partial)[0]:
                (partial / name).chmod(FILE_MODE)
        return compared
    except Exception as error:  # safetensors, PEFT and the system each raise their own for a full disk
        if reason := disk_full_reason(error):
            raise PublishError(f"cannot write {folder}: {reason}. Nothing was left behind.") from error
        if isinstance(error, OSError):
            raise UserError(f"cannot write {folder}: {error.strerror or error}.") from error
        raise
