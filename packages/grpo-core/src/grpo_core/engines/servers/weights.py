"""Sending the trainer's weights to a server: all of them, or the adapter alone."""

from __future__ import annotations

import base64
import pickle
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel
from torch import Tensor

from grpo_core.engines.servers.api import VLLMServer
from grpo_core.engines.servers.client import ServerClient
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
    """Brings the weights of a model to a server: all of them, or those of its adapter."""

    def push(self, version: int, state: Mapping[str, Tensor] | None) -> Sent:
        """Send the weights; called on the first rank.

        Args:
            version: Their version.
            state: Result of `TrainedModel.trained_state`.

        Raises:
            EngineError: the server is gone, or did not take them.
        """


Send = Callable[[Mapping[str, Tensor] | None], None]
"""Sends all weights, given the result of `TrainedModel.trained_state`; the server's model then has them."""

VERSION_PREFIX = "grpo-"
"""Of the versions that runs give to the weights they send."""


class ModelWeights:
    """Sends all weights.

    Args:
        api: The server.
        send: Sends the weights, and nothing else.
    """

    def __init__(self, api: VLLMServer, send: Send) -> None:
        self._api, self._send = api, send
        self._run = uuid.uuid4().hex[:8]

    def push(self, version: int, state: Mapping[str, Tensor] | None) -> Sent:
        """Send the weights, and give them a version that no other run has; they have another one while being sent."""
        sent = Sent(self._api.facts.served, f"{VERSION_PREFIX}{self._run}-{version}")
        begun = f"{sent.version}-begun"
        self._api.number_weights(begun)
        self._send(state)
        self._api.check_version(begun)
        self._api.number_weights(sent.version)
        return sent


def by_files(api: VLLMServer, trained: TrainedModel, folder: Path, *, unties: bool) -> Send:
    """Sends weights as safetensors in a folder that both see, which are removed once they are read.

    Args:
        api: The server.
        trained: The model.
        folder: Folder that both see; in memory, where there is room.
        unties: Whether the server has an output layer of its own, which a tied model's embeddings are sent for, too.
    """
    target = folder / "weights"

    def send(state: Mapping[str, Tensor] | None) -> None:
        try:
            trained.save(target, state, unties=unties)
            api.load_weights(target)
        except EngineError as error:
            if error.status is None:
                raise
            raise EngineError(f"{error}. It must see the folder {target}: engine.args.shared_dir.") from None
        finally:
            shutil.rmtree(target, ignore_errors=True)

    return send


def directly(client: ServerClient, model: Any, backend: Literal["ipc", "nccl"]) -> Send:
    """Sends weights straight from the accelerator's memory, by vLLM's own code for trainers.

    Args:
        client: The server, started with `--weight-transfer-config` of the same backend.
        model: A transformers model, whole on an accelerator.
        backend: How they are sent.

    Raises:
        UserError: vLLM is not in this environment.
    """
    try:
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
        from vllm.utils.network_utils import get_ip, get_open_port
    except ImportError as error:
        raise UserError(
            f"engine.args.transfer={backend} needs vLLM 0.28 or later in this environment, too ({error}). Install it, "
            "or set engine.args.transfer=file."
        ) from None
    if backend == "ipc":
        info: Any = IPCTrainerInitInfo(rank=0, packed=True)
    else:
        workers = client.ask("/get_world_size", _WorldSize).world_size
        host = urlsplit(client.url).hostname
        address = "127.0.0.1" if host in ("localhost", "127.0.0.1") else get_ip()
        info = NCCLTrainerInitInfo(address, get_open_port(), workers + 1, rank=0)
    engine = WeightTransferTrainerFactory.trainer_init(info, client=Control(client), source=ModuleSource(model))
    return lambda state: engine.send_weights()


class _WorldSize(BaseModel):
    world_size: int


class Control:
    """The requests with which vLLM's trainer side steers a server (its `VLLMWeightSyncClient` protocol)."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Begin with a sender."""
        self._client.post("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        """Begin an update."""
        self._client.post("/start_weight_update")

    def update_weights(self, update_info: Mapping[str, Any] | list[Mapping[str, Any]]) -> None:
        """Have the server receive a part of the weights."""
        infos = update_info if isinstance(update_info, list) else [update_info]
        sent = [_as_json(info) for info in infos]
        self._client.post("/update_weights", {"update_info": sent if isinstance(update_info, list) else sent[0]})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End an update."""
        self._client.post("/finish_weight_update", {} if weight_version is None else {"weight_version": weight_version})


def _as_json(info: Mapping[str, Any]) -> dict[str, Any]:
    """An update as JSON; handles of CUDA IPC travel as a pickle of ours, in the field that vLLM has for it."""
    fields = dict(info)
    handles = fields.pop("ipc_handles", None)
    if handles is not None:
        fields["ipc_handles_pickled"] = base64.b64encode(pickle.dumps(handles)).decode()
    return fields


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

    def __init__(self, api: VLLMServer, trained: TrainedModel, folder: Path) -> None:
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
                f"{error}. It must see {path} (engine.args.shared_dir), and have been started with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
            ) from None
        self._unload()
        self._loaded = name
        return Sent(name, self._base_version)

    def _unload(self) -> None:
        if self._loaded:
            self._api.unload_adapter(self._loaded)
            shutil.rmtree(self._folder / self._loaded, ignore_errors=True)  # not before: it may be read again
            self._loaded = ""
