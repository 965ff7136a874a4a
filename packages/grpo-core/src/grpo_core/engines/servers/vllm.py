"""Opens vLLM: a server of the run's own, or one that runs already."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from grpo_core.engines.servers import opening
from grpo_core.engines.servers.api import Facts, SleepLevel
from grpo_core.engines.servers.client import Empty, ServerClient
from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.model import MAX_ADAPTER_RANK, Gather, TrainedModel
from grpo_core.engines.servers.opening import Count, Models, Seconds, Server
from grpo_core.engines.servers.products import VLLM
from grpo_core.engines.servers.vllm_api import LAUNCH, VLLMServer
from grpo_sdk.endpoints.base import ONE_PROCESS, Processes, Sampling
from grpo_sdk.errors import EngineError, UserError

LogprobsMode = Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
Transfer = Literal["auto", "file", "ipc", "nccl"]

ADAPTER_RANKS = (8, 16, 32, 64, 128, 256, 320, MAX_ADAPTER_RANK)
"""Values that vLLM takes for `--max-lora-rank`."""

CACHE_SLACK = 1.1
"""Memory for keys and values beyond what the tokens need: vLLM keeps them in blocks, and one block empty."""

START_SERVER = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"
"""How a server is started whose weights can be updated; `docs/how-to/servers.md` has the rest."""

WEIGHTS_SLACK = 1.5
"""Memory that a server needs for the weights and what it computes with them, in sizes of the weights."""

MAX_SHARE = 0.95
"""Of a GPU's memory that a server may be given."""

TAKEN = frozenset({"--model", "--uds", "--host", "--port", "--api-key", "--logprobs-mode"})
"""Options that the run sets and relies on."""

UNTIED = '{"tie_word_embeddings": false}'


def open_vllm(
    model: Any,
    tokenizer: Any,
    *,
    max_batch_tokens: int,
    precision: str,
    sampling: Sampling | None = None,
    is_quantized: bool = False,
    processes: Processes = ONE_PROCESS,
    gather: Gather | None = None,
    url: str | None = None,
    transfer: Transfer = "auto",
    shared_dir: str | None = None,
    sleep: bool | None = None,
    max_model_len: Count | None = None,
    tensor_parallel_size: Count = 1,
    options: str = "",
    timeout_s: Seconds = opening.TIMEOUT_S,
    start_timeout_s: Seconds = opening.START_TIMEOUT_S,
) -> ServerEngine:
    """vLLM, in a server of the run's own or at `engine.url`; sends it the weights after every update.

    Args:
        model: The model in training, with an adapter or without.
        tokenizer: Its tokenizer.
        max_batch_tokens: Tokens of keys and values that a server of the run's own has room for.
        precision: Floating-point type in which such a server computes.
        sampling: How completions are sampled that are trained on; None where none are.
        is_quantized: Whether the base of the adapter is quantized.
        processes: The ranks of the run, which share the server.
        gather: Makes the weights whole where the ranks share the model.
        url: Address of a server that runs already; None starts one.
        transfer: How weights are sent: `file`, `ipc` (one accelerator), `nccl`, or what fits best.
        shared_dir: Folder that a server elsewhere sees, too, for files of weights.
        sleep: Whether the server's memory is freed while the model trains; None does so for its own on an accelerator.
        max_model_len: Tokens of prompt and completion together; None is the model's context or `max_batch_tokens`.
        tensor_parallel_size: Accelerators of the run's own server.
        options: More options of `vllm serve` for it, as on a command line.
        timeout_s: Limit of one completion.
        start_timeout_s: Limit of the start of a server.

    Raises:
        UserError: vLLM is not installed or cannot apply the adapter, or a setting does not fit.
        EngineError: the server does not start or does not answer.
    """
    trained = TrainedModel(model, tokenizer, gather)
    _check(trained, sampling, transfer, is_quantized=is_quantized)
    choices = _Choices(trained, transfer, sleep, max_model_len, tensor_parallel_size, options)
    opening.check_address(url, bool(options or max_model_len) or tensor_parallel_size > 1)

    def find(state: Mapping[str, Any] | None, opened: ExitStack) -> Server:
        if url is not None:
            running = _running(ServerClient(VLLM, url, timeout_s=timeout_s), trained, transfer, sleep)
            return _checked(running, sampling)
        arguments, limits = choices.arguments(max_batch_tokens, precision, sampling), (timeout_s, start_timeout_s)
        return _checked(choices.start(state, opened, arguments, sampling, limits), sampling)

    return opening.open_server(
        VLLMServer, trained, processes, find, is_own=url is None, shared_dir=shared_dir, timeout_s=timeout_s
    )


def adapter_rank(trained: TrainedModel) -> int:
    """The least `--max-lora-rank` that holds a model's adapter."""
    return next(size for size in ADAPTER_RANKS if size >= trained.adapter_rank)


@dataclass(frozen=True, slots=True)
class _Choices:
    """Settings of a server of the run's own; see `open_vllm`."""

    trained: TrainedModel
    transfer: Transfer
    sleep: bool | None
    max_model_len: int | None
    tensor_parallel_size: int
    options: str

    @property
    def unties(self) -> bool:
        """Whether the server has the output layer by itself: on a CPU, where all weights are trained.

        On a CPU vLLM (0.32) packs the output layer's weights when it loads them. Those of a tied model are never
        loaded again by name, so that an update would leave the packed ones as they were.
        """
        return self.trained.device.type == "cpu" and not self.trained.is_adapter

    @property
    def sent_by(self) -> Transfer:
        """How weights are sent."""
        if self.transfer == "nccl":
            raise UserError("engine.args.transfer=nccl is between cards of two servers: it needs engine.url.")
        if self.transfer == "auto":
            is_on_one_gpu = self.trained.device.type == "cuda" and self.tensor_parallel_size == 1
            is_whole = self.trained.gather is None
            return "ipc" if is_on_one_gpu and is_whole and not self.trained.is_adapter else "file"
        return self.transfer

    @property
    def sleeps(self) -> bool:
        """Whether the server's memory is freed while the model trains."""
        return bool(self.trained.device.type == "cuda" if self.sleep is None else self.sleep)

    def arguments(self, max_batch_tokens: int, precision: str, sampling: Sampling | None) -> list[str]:
        """Options of `vllm serve`."""
        device = self.trained.device
        length = opening.context_length(self.trained, self.max_model_len, max_batch_tokens)
        arguments = ["--dtype", precision, "--max-model-len", str(length)]
        arguments += ["--generation-config", "vllm", "--disable-uvicorn-access-log"]
        arguments += ["--logprobs-mode", _logprobs_mode(sampling)]
        cache_bytes = self._cache_bytes(max(length, max_batch_tokens), precision)
        arguments += ["--kv-cache-memory-bytes", str(cache_bytes)]
        if self.tensor_parallel_size > 1:
            arguments += ["--tensor-parallel-size", str(self.tensor_parallel_size)]
        if device.type == "cpu":
            arguments.append("--enforce-eager")  # compiling takes minutes, and gains little there
        elif device.type == "cuda":  # of which vLLM asks for 0.9 to be free, whatever it needs
            weights = WEIGHTS_SLACK * self.trained.nbytes
            share = (weights / self.tensor_parallel_size + cache_bytes) / torch.cuda.mem_get_info(device)[1]
            arguments += ["--gpu-memory-utilization", f"{min(share, MAX_SHARE):.3f}"]
        if self.trained.is_adapter:
            arguments += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(adapter_rank(self.trained))]
        if self.sleeps:
            arguments.append("--enable-sleep-mode")
        if self.sent_by == "ipc":
            arguments += ["--weight-transfer-config", '{"backend":"ipc"}']
        return [*arguments, *opening.split_options(self.options, TAKEN)]

    def start(
        self,
        state: Mapping[str, Any] | None,
        opened: ExitStack,
        arguments: Sequence[str],
        sampling: Sampling | None,
        timeouts_s: tuple[float, float],
    ) -> Server:
        """Start the server, and wait until it is up; see `opening.start`."""
        client, start_s = opening.start(
            LAUNCH, self.trained, state, arguments, opened, unties=self.unties, timeouts_s=timeouts_s
        )
        served = client.get("/v1/models", Models).data[0]
        level = _sleep_level(self.trained, self.sleeps)
        length = served.max_model_len or opening.UNKNOWN_LENGTH
        api = VLLMServer(client, Facts(served.id, length, level, _logprobs_mode(sampling)))
        return Server(api, self.sent_by, _sender(client, self.trained, self.sent_by), self.unties, start_s)

    def _cache_bytes(self, tokens: int, precision: str) -> int:
        """Memory on each accelerator for the keys and values of some tokens."""
        config = self.trained.inner.config.get_text_config(decoder=True)
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        token_bytes = 2 * config.num_hidden_layers * heads * head * getattr(torch, precision).itemsize
        return int(CACHE_SLACK * tokens * token_bytes / self.tensor_parallel_size)


def _sleep_level(trained: TrainedModel, sleeps: bool | None) -> SleepLevel:
    """Full weights are sent again after every update; those under an adapter have to be kept."""
    return 0 if not sleeps else 1 if trained.is_adapter else 2


def _check(trained: TrainedModel, sampling: Sampling | None, transfer: Transfer, *, is_quantized: bool) -> None:
    opening.check(VLLM, trained, is_quantized=is_quantized)
    if sampling is not None and sampling.filtered and sampling.temperature not in (0, 1):
        raise UserError(
            f"engine.name=vllm with trainer.temperature={sampling.temperature} and top_k, top_p or min_p: vLLM says "
            "log-probs before the temperature or after the filters, and training needs those between. Take "
            "temperature=1, or no filters, or engine.name=native."
        )
    if trained.gather is not None and transfer in ("ipc", "nccl"):
        raise UserError(
            f"engine.args.transfer={transfer} sends a model that is whole on one GPU, and trainer.sharding shares "
            "it among processes. Use engine.args.transfer=file."
        )


def _logprobs_mode(sampling: Sampling | None) -> LogprobsMode:
    return "raw_logprobs" if sampling is not None and sampling.temperature == 1 else "processed_logprobs"


def _sender(client: ServerClient, trained: TrainedModel, sent_by: Transfer) -> DirectSender | None:
    if trained.is_adapter or sent_by not in ("ipc", "nccl"):
        return None
    device = trained.device
    if device.type != "cuda":
        raise UserError(f"engine.args.transfer={sent_by} sends from an NVIDIA GPU; the model is on {device}.")
    return DirectSender(client, trained.model, "ipc" if sent_by == "ipc" else "nccl")


class _ModelInfo(BaseModel):
    logprobs_mode: LogprobsMode = "raw_logprobs"
    enable_sleep_mode: bool = False
    hf_overrides: dict[str, Any] | str | None = None


class _Device(BaseModel):
    device: str | None = None


class _Transfer(BaseModel):
    backend: str


class _Config(BaseModel):
    of_model: _ModelInfo = Field(alias="model_config")
    device_config: _Device = Field(default_factory=_Device)
    lora_config: dict[str, Any] | None = None
    weight_transfer_config: _Transfer | None = None


class _ServerInfo(BaseModel):
    vllm_config: _Config


def _config_of(client: ServerClient) -> _Config:
    try:
        return client.get("/server_info?config_format=json", _ServerInfo).vllm_config
    except EngineError as error:
        if error.status == opening.INTERNAL_ERROR:  # seen in an environment without pip, where uv was not found
            raise UserError(
                f"{error} To answer, vLLM (0.32) lists its packages with pip, or with uv in an environment of uv's: "
                "install pip beside vLLM, or put uv on the server's PATH, and start it again."
            ) from None
        if error.status != opening.NOT_FOUND:
            raise
        raise UserError(
            f"{client.name} takes no weights, since its development endpoints are off. Start it so: {START_SERVER}"
        ) from None


def _running(client: ServerClient, trained: TrainedModel, transfer: Transfer, sleep: bool | None) -> Server:
    """A server that runs already, by what it says of itself."""
    opening.check_up(client)
    served = client.get("/v1/models", Models).data[0]
    config = _config_of(client)
    if trained.is_adapter and config.lora_config is None:
        rank = adapter_rank(trained)
        raise UserError(f"{client.name} takes no adapters; start it with --enable-lora --max-lora-rank {rank}.")
    if sleep and not config.of_model.enable_sleep_mode:
        raise UserError(f"engine.args.sleep: {client.name} cannot; start it with --enable-sleep-mode.")
    backend = config.weight_transfer_config.backend if config.weight_transfer_config else ""
    sender = transfer
    if transfer == "auto":
        is_direct = backend in ("ipc", "nccl") and trained.gather is None
        sender = "file" if not is_direct else "nccl" if backend == "nccl" else "ipc"
    if sender != "file" and sender != backend and not trained.is_adapter:
        raise UserError(
            f"engine.args.transfer={sender}: {client.name} has {backend or 'no'} weight transfer; start it with "
            f'--weight-transfer-config \'{{"backend":"{sender}"}}\'.'
        )
    overrides = config.of_model.hf_overrides
    unties = isinstance(overrides, dict) and overrides.get("tie_word_embeddings") is False
    if config.device_config.device == "cpu" and trained.is_tied and not (unties or trained.is_adapter):
        raise UserError(
            f"{client.name} is on a CPU, where vLLM keeps a copy of a tied output layer that updates do not reach. "
            f"Start it with --hf-overrides '{UNTIED}'."
        )
    length = served.max_model_len or opening.UNKNOWN_LENGTH
    facts = Facts(served.id, length, _sleep_level(trained, sleep), config.of_model.logprobs_mode)
    return Server(VLLMServer(client, facts), sender, _sender(client, trained, sender), unties)


def _checked(server: Server, sampling: Sampling | None) -> Server:
    api = server.api
    if sampling is not None and not api.knows_logprobs(sampling):
        raise UserError(
            f"the server's --logprobs-mode {api.facts.logprobs_mode} does not say the log-probs of "
            f"temperature={sampling.temperature} with these filters. Start it with processed_logprobs and leave top_k, "
            "top_p and min_p out, or with raw_logprobs and take trainer.temperature=1."
        )
    try:
        api.weight_version()
    except EngineError as error:
        if error.status != opening.NOT_FOUND:
            raise
        raise UserError(
            f"{api.client.name} does not number its weights: it is older than vLLM {VLLM.since}. Update it."
        ) from None
    return server


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
