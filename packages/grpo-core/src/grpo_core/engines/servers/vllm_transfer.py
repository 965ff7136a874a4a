"""Sending weights between accelerators with vLLM's own trainer side: CUDA IPC on one card, NCCL between cards."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from torch import Tensor

from grpo_core.engines.servers.client import Empty, ServerClient
from grpo_core.errors import UserError


class DirectSender:
    """Sends all weights of a whole model, straight from the accelerator's memory.

    Args:
        client: The server, started with `--weight-transfer-config` of the same backend.
        model: A transformers model on an accelerator.
        backend: `ipc` or `nccl`.
    """

    def __init__(self, client: ServerClient, model: Any, backend: Literal["ipc", "nccl"]) -> None:
        self._engine = _trainer_side(client, model, backend)

    def send(self, state: Mapping[str, Tensor] | None) -> None:
        """Send the weights, of which the model has all."""
        assert state is None
        self._engine.send_weights()


def _trainer_side(client: ServerClient, model: Any, backend: Literal["ipc", "nccl"]) -> Any:
    """VLLM's engine that sends a model's weights through `backend`."""
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

    class WorldSize(Empty):
        world_size: int

    if backend == "ipc":
        info: Any = IPCTrainerInitInfo(rank=0, packed=True)
    else:
        workers = client.get("/get_world_size", WorldSize).world_size
        host = urlsplit(client.url).hostname
        address = "127.0.0.1" if host in ("localhost", "127.0.0.1") else get_ip()
        info = NCCLTrainerInitInfo(address, get_open_port(), workers + 1, rank=0)
    return WeightTransferTrainerFactory.trainer_init(info, client=Control(client), source=ModuleSource(model))


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
