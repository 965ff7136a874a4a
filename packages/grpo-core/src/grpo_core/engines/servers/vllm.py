"""Opens vLLM: a server of the run's own, or one that runs already."""

from __future__ import annotations

import json
import shlex
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from grpo_core.engines.compatibility import max_context
from grpo_core.engines.servers.api import Facts, SleepLevel, VLLMServer
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.engine import SINCE, ServerEngine
from grpo_core.engines.servers.model import MAX_ADAPTER_RANK, Gather, TrainedModel
from grpo_core.engines.servers.process import ServerProcess
from grpo_core.engines.servers.scratch import ScratchFolder, weights_folder
from grpo_core.engines.servers.weights import AdapterWeights, ModelWeights, Weights, by_files, directly
from grpo_sdk.endpoints.base import ONE_PROCESS, Processes, Sampling
from grpo_sdk.errors import EngineError, UserError

LogprobsMode = Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
Transfer = Literal["auto", "file", "ipc", "nccl"]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]

TIMEOUT_S = 3600.0
START_TIMEOUT_S = 900.0

UNKNOWN_LENGTH = 2**31
"""Limit of prompt and completion of a server that does not say one."""

NOT_FOUND, INTERNAL_ERROR = 404, 500

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
    timeout_s: Seconds = TIMEOUT_S,
    start_timeout_s: Seconds = START_TIMEOUT_S,
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
        UserError: vLLM is not installed or cannot apply the adapter, or a setting does not fit; on every rank.
        EngineError: the server does not start or does not answer; on every rank.
    """
    trained = TrainedModel(model, tokenizer, gather)
    _check(trained, sampling, transfer, is_quantized=is_quantized)
    if url is not None and (options or max_model_len or tensor_parallel_size > 1):
        raise UserError(
            "engine.args: options, tensor_parallel_size and max_model_len are of a server that is started here, not "
            "of engine.url."
        )
    own = _OwnServer(
        trained, max_batch_tokens, precision, sampling, transfer, sleep, max_model_len, tensor_parallel_size, options
    )
    with ExitStack() as opened:
        state = trained.base_state() if url is None else None  # every rank takes part
        first: list[ServerEngine] = []

        def lead() -> str:
            """Start or find the server, on the first rank."""
            if url is None:
                server = own.start(state, opened, timeout_s, start_timeout_s)
            else:
                server = _running(ServerClient(url, timeout_s=timeout_s), trained, transfer, sleep)
            _check_running(server.api, sampling)
            engine = ServerEngine(server.api, server.weights(trained, shared_dir, opened), trained, processes)
            engine.description = server.description(trained)
            first.append(engine)
            return json.dumps([engine.client.url, engine.client.uds, asdict(server.api.facts)])

        address, uds, facts = json.loads(processes.lead(lead))
        if first:
            engine = first[0]
        else:
            client = ServerClient(address, uds=uds, timeout_s=timeout_s)
            engine = ServerEngine(VLLMServer(client, Facts(**facts)), None, trained, processes)
        processes.together(lambda: _reach(engine.client, is_own=url is None))
        engine.keep(opened.pop_all())
        return engine


def _check(trained: TrainedModel, sampling: Sampling | None, transfer: Transfer, *, is_quantized: bool) -> None:
    trained.check_adapter()
    if is_quantized:
        raise UserError(
            "engine.name=vllm is not there for quantized models (lora.quantization): vLLM would compute with other "
            "weights. Leave the quantization out, or set engine.name=native."
        )
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


def _reach(client: ServerClient, *, is_own: bool) -> bytes:
    """Check that this rank reaches the server, too."""
    if not client.is_up():
        where = (
            "it was started by the first rank, on another machine: name one that all reach by engine.url"
            if is_own
            else "every rank samples from it"
        )
        raise EngineError(f"{client.name} does not answer on {socket.gethostname()}; {where}.")
    return b""


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that is up.

    Attributes:
        api: Makes requests to it.
        sent_by: How weights are sent.
        unties: Whether it has the output layer of a tied model by itself; see `TrainedModel.save`.
        start_s: Seconds that its start took; None where it ran already.
    """

    api: VLLMServer
    sent_by: Transfer
    unties: bool
    start_s: float | None = None

    def description(self, trained: TrainedModel) -> str:
        """One line for the header of a run."""
        started = "" if self.start_s is None else f" of the run's own, up after {self.start_s:.0f} s"
        sent = "the adapter is sent as files" if trained.is_adapter else f"weights are sent by {self.sent_by}"
        room = f"{self.api.facts.max_model_len} tokens of prompt and completion"
        return f"{self.api.client.name}{started}; {sent} after every update; {room}"

    def weights(self, trained: TrainedModel, shared_dir: str | None, opened: ExitStack) -> Weights:
        """What sends the weights."""
        if self.sent_by in ("ipc", "nccl") and not trained.is_adapter:
            if trained.device.type != "cuda":
                raise UserError(
                    f"engine.args.transfer={self.sent_by} sends from an NVIDIA GPU; the model is on {trained.device}."
                )
            return ModelWeights(self.api, directly(self.api.client, trained.model, self.sent_by))
        if shared_dir is None:
            scratch = weights_folder(trained.nbytes)
        else:
            try:
                scratch = ScratchFolder("grpo-weights-", Path(shared_dir))
            except OSError as error:
                raise UserError(f"engine.args.shared_dir={shared_dir}: {error.strerror}.") from None
        opened.callback(scratch.close)
        if trained.is_adapter:
            return AdapterWeights(self.api, trained, scratch.path)
        return ModelWeights(self.api, by_files(self.api, trained, scratch.path, unties=self.unties))


@dataclass(frozen=True, slots=True)
class _OwnServer:
    """Settings of a server of the run's own; see `open_vllm`."""

    trained: TrainedModel
    max_batch_tokens: int
    precision: str
    sampling: Sampling | None
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

    @property
    def logprobs_mode(self) -> LogprobsMode:
        """Which log-probs it returns: see `VLLMServer.knows_logprobs`."""
        return "raw_logprobs" if self.sampling is not None and self.sampling.temperature == 1 else "processed_logprobs"

    def arguments(self) -> list[str]:
        """Options of `vllm serve`."""
        device, most = self.trained.device, self.max_batch_tokens
        length = self.max_model_len or min(max_context(self.trained.inner) or most, most)
        arguments = ["--dtype", self.precision, "--max-model-len", str(length)]
        arguments += ["--generation-config", "vllm", "--disable-uvicorn-access-log"]
        arguments += ["--logprobs-mode", self.logprobs_mode]
        cache_bytes = self._cache_bytes(max(length, most))
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
            arguments += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(_lora_rank(self.trained))]
        if self.sleeps:
            arguments.append("--enable-sleep-mode")
        if self.sent_by == "ipc":
            arguments += ["--weight-transfer-config", '{"backend":"ipc"}']
        return [*arguments, *self._more_options()]

    def start(
        self, state: Mapping[str, Tensor] | None, opened: ExitStack, timeout_s: float, start_timeout_s: float
    ) -> _Server:
        """Start the server on the model as it is now, without its adapter, and wait until it is up.

        Args:
            state: Result of `TrainedModel.base_state`.
            opened: Ends the server.
            timeout_s: Limit of one completion.
            start_timeout_s: Limit of the start.
        """
        arguments, began = self.arguments(), time.monotonic()
        with closing(weights_folder(self.trained.nbytes)) as scratch:
            self.trained.save(scratch.path, state, unties=self.unties)
            self.trained.tokenizer.save_pretrained(scratch.path)
            gpu = None if "--tensor-parallel-size" in arguments else self.trained.device.index
            server = ServerProcess(scratch.path, arguments, gpu=gpu, timeout_s=timeout_s)
            opened.callback(server.close)
            server.wait_until_up(start_timeout_s)
        start_s = time.monotonic() - began
        facts = _facts(server.client, self.trained, self.sleeps, self.logprobs_mode)
        return _Server(VLLMServer(server.client, facts), self.sent_by, self.unties, start_s)

    def _more_options(self) -> list[str]:
        """The user's options, as a shell splits them."""
        try:
            split = shlex.split(self.options)
        except ValueError as error:
            raise UserError(f"engine.args.options={self.options!r}: {error}.") from None
        for option in (part.partition("=")[0].replace("_", "-") for part in split):
            if option in TAKEN:
                raise UserError(f"engine.args.options: {option} is set by the run; leave it out.")
        return split

    def _cache_bytes(self, tokens: int) -> int:
        """Memory on each accelerator for the keys and values of some tokens."""
        config = self.trained.inner.config.get_text_config(decoder=True)
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        token_bytes = 2 * config.num_hidden_layers * heads * head * getattr(torch, self.precision).itemsize
        return int(CACHE_SLACK * tokens * token_bytes / self.tensor_parallel_size)


def _lora_rank(trained: TrainedModel) -> int:
    """The least `--max-lora-rank` that holds a model's adapter."""
    return next(size for size in ADAPTER_RANKS if size >= trained.adapter_rank)


class _Served(BaseModel):
    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    data: list[_Served] = Field(min_length=1)


def _facts(client: ServerClient, trained: TrainedModel, sleeps: bool | None, logprobs_mode: LogprobsMode) -> Facts:
    """What is known of a server, with what it says of its model."""
    served = client.ask("/v1/models", _Models).data[0]
    # Full weights are sent again after every update; those under an adapter have to be kept.
    level: SleepLevel = 0 if not sleeps else 1 if trained.is_adapter else 2
    return Facts(served.id, served.max_model_len or UNKNOWN_LENGTH, level, logprobs_mode)


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
        return client.ask("/server_info?config_format=json", _ServerInfo).vllm_config
    except EngineError as error:
        if error.status == INTERNAL_ERROR:  # seen in an environment without pip, where uv was not found
            raise UserError(
                f"{error} To answer, vLLM (0.32) lists its packages with pip, or with uv in an environment of uv's: "
                "install pip beside vLLM, or put uv on the server's PATH, and start it again."
            ) from None
        if error.status != NOT_FOUND:
            raise
        raise UserError(
            f"{client.name} takes no weights, since its development endpoints are off. Start it so: {START_SERVER}"
        ) from None


def _running(client: ServerClient, trained: TrainedModel, transfer: Transfer, sleep: bool | None) -> _Server:
    """A server that runs already, by what it says of itself."""
    if not client.is_up():
        raise EngineError(f"{client.name} does not answer. Is it up, and is engine.url its address?")
    config = _config_of(client)
    if trained.is_adapter and config.lora_config is None:
        rank = _lora_rank(trained)
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
    facts = _facts(client, trained, sleep, config.of_model.logprobs_mode)
    return _Server(VLLMServer(client, facts), sender, unties)


def _check_running(api: VLLMServer, sampling: Sampling | None) -> None:
    if sampling is not None and not api.knows_logprobs(sampling):
        raise UserError(
            f"the server's --logprobs-mode {api.facts.logprobs_mode} does not say the log-probs of "
            f"temperature={sampling.temperature} with these filters. Start it with processed_logprobs and leave top_k, "
            "top_p and min_p out, or with raw_logprobs and take trainer.temperature=1."
        )
    try:
        api.weight_version()
    except EngineError as error:
        if error.status != NOT_FOUND:
            raise
        raise UserError(
            f"{api.client.name} does not number its weights: it is older than vLLM {SINCE}. Update it."
        ) from None
