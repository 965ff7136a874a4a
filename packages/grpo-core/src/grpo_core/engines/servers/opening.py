"""What opening an engine on a server has in common: checks, a server of the run's own, files, several ranks."""

from __future__ import annotations

import json
import os
import shlex
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from grpo_core.engines.compatibility import max_context
from grpo_core.engines.servers.api import Facts, ServerAPI
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.model import TrainedModel
from grpo_core.engines.servers.process import Launch, ServerProcess
from grpo_core.engines.servers.products import Product
from grpo_core.engines.servers.scratch import ScratchFolder, weights_folder
from grpo_core.engines.servers.weights import AdapterWeights, FileSender, ModelWeights, Sender, Weights
from grpo_sdk.endpoints.base import Processes
from grpo_sdk.errors import EngineError, UserError

TIMEOUT_S = 3600.0
START_TIMEOUT_S = 900.0

UNKNOWN_LENGTH = 2**31
"""Limit of prompt and completion of a server that does not say one."""

NOT_FOUND, INTERNAL_ERROR = 404, 500

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Served(BaseModel):
    """A model of the server."""

    id: str
    max_model_len: int | None = None


class Models(BaseModel):
    """Reply of `/v1/models`."""

    data: list[Served] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is up.

    Attributes:
        api: Makes requests to it.
        sent_by: How weights are sent.
        sender: Sends all weights; None does so by files.
        unties: Whether it has the output layer of a tied model by itself; see `TrainedModel.save`.
        start_s: Seconds that its start took; None where it ran already.
    """

    api: ServerAPI
    sent_by: str = "file"
    sender: Sender | None = None
    unties: bool = False
    start_s: float | None = None

    def description(self, trained: TrainedModel) -> str:
        """One line for the header of a run."""
        started = "" if self.start_s is None else f" of the run's own, up after {self.start_s:.0f} s"
        sent = "the adapter is sent as files" if trained.is_adapter else f"weights are sent by {self.sent_by}"
        room = f"{self.api.facts.max_model_len} tokens of prompt and completion"
        note = f"; {self.api.facts.note}" if self.api.facts.note else ""
        return f"{self.api.client.name}{started}; {sent} after every update; {room}{note}"


def check(product: Product, trained: TrainedModel, *, is_quantized: bool) -> None:
    """Check that a server can have the model.

    Raises:
        UserError: it has an adapter that servers cannot apply, or is quantized.
    """
    trained.check_adapter(product.engine)
    if is_quantized:
        raise UserError(
            f"engine.name={product.engine} is not there for quantized models (lora.quantization): {product.name} would "
            "compute with other weights. Leave the quantization out, or set engine.name=native."
        )


def check_address(url: str | None, has_own_settings: bool) -> None:
    """Check that a server that runs already is given no settings with which one is started.

    Raises:
        UserError: it is.
    """
    if url is not None and has_own_settings:
        raise UserError(
            "engine.args: options, tensor_parallel_size and max_model_len are of a server that is started here, not "
            "of engine.url."
        )


def split_options(options: str, taken: Collection[str]) -> list[str]:
    """The options of a server of the run's own, as a shell splits them.

    Args:
        options: Value of `engine.args.options`.
        taken: Options that the run itself sets and relies on.

    Raises:
        UserError: a quote is not closed, or an option is one of those.
    """
    try:
        split = shlex.split(options)
    except ValueError as error:
        raise UserError(f"engine.args.options={options!r}: {error}.") from None
    for option in (part.partition("=")[0].replace("_", "-") for part in split):
        if option in taken:
            raise UserError(f"engine.args.options: {option} is set by the run; leave it out.")
    return split


def check_up(client: ServerClient) -> None:
    """Check that a server that runs already answers.

    Raises:
        EngineError: it does not.
    """
    if not client.is_up():
        raise EngineError(f"{client.name} does not answer. Is it up, and is engine.url its address?")


def context_length(trained: TrainedModel, max_model_len: int | None, max_batch_tokens: int) -> int:
    """Tokens of prompt and completion that a server of the run's own has room for."""
    return max_model_len or min(max_context(trained.inner) or max_batch_tokens, max_batch_tokens)


def start(
    launch: Launch,
    trained: TrainedModel,
    state: Mapping[str, Any] | None,
    arguments: Sequence[str],
    resources: ExitStack,
    *,
    unties: bool = False,
    timeouts_s: tuple[float, float],
) -> tuple[ServerClient, float]:
    """Start a server of the run's own on the model as it is now, without its adapter.

    Args:
        launch: How it is started.
        trained: The model.
        state: Result of `TrainedModel.base_state`.
        arguments: Options of the server.
        resources: Ends the server.
        unties: See `TrainedModel.save`.
        timeouts_s: Limit of one completion, and of the start.

    Returns:
        Its client, and the seconds that the start took.
    """
    began = time.monotonic()
    with closing(weights_folder(trained.nbytes)) as scratch:
        folder = scratch.path
        trained.save(folder, state, unties=unties)
        trained.tokenizer.save_pretrained(folder)
        is_alone = "--tensor-parallel-size" not in arguments
        environment = visible_device(trained.device.index, os.environ) if is_alone else {}
        server = ServerProcess(launch, folder, arguments, environment=environment, timeout_s=timeouts_s[0])
        resources.callback(server.close)
        server.wait_until_up(timeouts_s[1])
    return server.client, time.monotonic() - began


def visible_device(index: int | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a server the trainer's accelerator alone; nothing where there is only one or none."""
    if index is None:
        return {}
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[index] if index < len(visible) else str(index)}


def open_server(
    kind: type[ServerAPI],
    trained: TrainedModel,
    processes: Processes,
    find: Callable[[Mapping[str, Any] | None, ExitStack], Server],
    *,
    is_own: bool,
    shared_dir: str | None,
    timeout_s: float,
) -> ServerEngine:
    """Open the engine: the first rank starts or finds the server, and the others join it.

    Args:
        kind: Kind of server.
        trained: The model.
        processes: The ranks.
        find: Starts or finds the server on the first rank, given the result of `TrainedModel.base_state` and what
            ends the server.
        is_own: Whether it is started.
        shared_dir: Folder that a server elsewhere sees, too.
        timeout_s: Limit of one completion.

    Raises:
        UserError: the server does not fit; on every rank.
        EngineError: it does not start or does not answer; on every rank.
    """
    with ExitStack() as opened:
        state = trained.base_state() if is_own else None  # every rank takes part
        own: list[tuple[Server, Weights]] = []

        def lead() -> str:
            server = find(state, opened)
            own.append((server, _weights(server, trained, shared_dir, opened)))
            client = server.api.client
            return json.dumps([client.url, client.uds, client.key, asdict(server.api.facts)])

        url, uds, key, facts = json.loads(processes.lead(lead))
        if own:
            server, weights = own[0]
            engine = ServerEngine(server.api, weights, trained, processes)
            engine.description = server.description(trained)
        else:
            client = ServerClient(kind.product, url, uds=uds, key=key, timeout_s=timeout_s)
            engine = ServerEngine(kind(client, Facts(**facts)), None, trained, processes)
        processes.together(lambda: _reach(engine.client, is_own=is_own))
        engine.keep(opened.pop_all())
        return engine


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


def _weights(server: Server, trained: TrainedModel, shared_dir: str | None, opened: ExitStack) -> Weights:
    """What sends the weights."""
    if server.sender is not None and not trained.is_adapter:
        return ModelWeights(server.api, server.sender)
    if shared_dir is None:
        scratch = weights_folder(trained.nbytes)
    else:
        try:
            scratch = ScratchFolder("grpo-weights-", Path(shared_dir))
        except OSError as error:
            raise UserError(f"engine.args.shared_dir={shared_dir}: {error.strerror}.") from None
    opened.callback(scratch.close)
    if trained.is_adapter:
        return AdapterWeights(server.api, trained, scratch.path)
    return ModelWeights(server.api, FileSender(server.api, trained, scratch.path, unties=server.unties))
