"""Sending the trainer's weights to a server: all of them, or the adapter alone."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor

from grpo_core.engines.servers.api import ServerAPI
from grpo_core.engines.servers.model import TrainedModel
from grpo_sdk.errors import EngineError, UserError


class Sent(NamedTuple):
    """What a server has got.

    Attributes:
        name: Name by which completions are requested.
        version: The server's version of the weights, those under an adapter included; empty before any were sent.
    """

    name: str
    version: str = ""


class Weights(Protocol):
    """Brings the weights of a model to a server."""

    def push(self, version: int, state: Mapping[str, Tensor] | None) -> Sent:
        """Send the weights; called on the first rank.

        Args:
            version: Their version.
            state: Result of `TrainedModel.trained_state`.

        Raises:
            EngineError: the server is gone, or did not take them.
        """


class Sender(Protocol):
    """One way to send all weights."""

    def send(self, state: Mapping[str, Tensor] | None) -> None:
        """Send them; the server's model then has them."""


VERSION_PREFIX = "grpo-"
"""Of the versions that runs give to the weights they send."""


class ModelWeights:
    """Sends all weights.

    Args:
        api: The server.
        sender: Sends the weights, and nothing else.
    """

    def __init__(self, api: ServerAPI, sender: Sender) -> None:
        self._api, self._sender = api, sender
        self._run = uuid.uuid4().hex[:8]

    def push(self, version: int, state: Mapping[str, Tensor] | None) -> Sent:
        """Send the weights, and give them a version that no other run has; they have another one while being sent."""
        sent = Sent(self._api.facts.served, f"{VERSION_PREFIX}{self._run}-{version}")
        begun = f"{sent.version}-begun"
        self._api.number_weights(begun)
        self._sender.send(state)
        self._api.check_version(begun)
        self._api.number_weights(sent.version)
        return sent


class FileSender:
    """Sends weights as safetensors in a folder that both see; in memory, where there is room.

    Args:
        api: The server.
        trained: The model.
        folder: Folder that both see.
        unties: Whether the server has an output layer of its own, which a tied model's embeddings are sent for, too.
    """

    def __init__(self, api: ServerAPI, trained: TrainedModel, folder: Path, *, unties: bool = False) -> None:
        self._api, self._trained, self._folder, self._unties = api, trained, folder, unties

    def send(self, state: Mapping[str, Tensor] | None) -> None:
        """Write the weights, have them read, and remove them."""
        target = self._folder / "weights"
        try:
            self._trained.save(target, state, unties=self._unties)
            self._api.load_weights(target)
        except EngineError as error:
            if error.status is None:
                raise
            raise EngineError(f"{error}. It must see the folder {target}: engine.args.shared_dir.") from None
        finally:
            shutil.rmtree(target, ignore_errors=True)


class AdapterWeights:
    """Sends the adapter alone, under a new name each time, so that nothing cached of another version is reused.

    A server that was restarted does not know the name.

    Args:
        api: The server, with the base model.
        trained: A PEFT model.
        folder: Folder that both see.

    Raises:
        UserError: a run has sent the server other weights than the base model's.
    """

    def __init__(self, api: ServerAPI, trained: TrainedModel, folder: Path) -> None:
        self._api, self._trained, self._folder = api, trained, folder
        self._run, self._loaded = uuid.uuid4().hex[:8], ""
        self._base_version = api.weight_version()
        if self._base_version.startswith(VERSION_PREFIX):
            raise UserError(
                f"{api.client.name} has weights that a run has trained (version {self._base_version!r:.80}), and an "
                "adapter needs those of the base model. Restart the server."
            )

    def push(self, version: int, state: Mapping[str, Tensor] | None) -> Sent:
        """Load the adapter, and unload the one before."""
        name = f"grpo-{self._run}-{version}"
        if name == self._loaded:  # the server forgot it, or woke up
            self._unload()
        path = self._trained.save_adapter(self._folder / name, state)
        try:
            self._api.load_adapter(name, path)
        except EngineError as error:
            if error.status is None:
                raise
            raise EngineError(
                f"{error}. It must see {path} (engine.args.shared_dir), and have been started with "
                f"{self._api.adapter_options}."
            ) from None
        self._unload()
        self._loaded = name
        return Sent(name, self._base_version)

    def _unload(self) -> None:
        if self._loaded:
            self._api.unload_adapter(self._loaded)
            shutil.rmtree(self._folder / self._loaded, ignore_errors=True)  # not before: it may be read again
            self._loaded = ""
