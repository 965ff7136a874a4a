"""The models that judge, as a task names them: plain values, without a connection or a key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

from grpo_sdk.errors import UserError
from grpo_sdk.killable.secrets import withhold

if TYPE_CHECKING:
    from grpo_sdk.endpoints.openai import OpenAIEngine

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """Settings that every judge's model has.

    Attributes:
        temperature: Sampling temperature of a verdict.
        max_tokens: Longest verdict, with its reason.
        timeout_s: Limit of one attempt, from connecting to the last byte; waiting for a limit does not count.
        concurrency: Requests in flight, of all processes of this machine together.
        requests_per_minute: Limit of all processes of this machine together; None is none.
        tokens_per_minute: The same, of tokens in prompts and verdicts.
        max_requests: Requests of this process after which the judge abstains; None is no bound.
        max_cost: Cost in this process after which the judge abstains, in the unit of the prices.
        input_price: Price of a million tokens in prompts.
        output_price: Price of a million tokens in verdicts.
        cache: Whether verdicts are kept on disk and used again.
    """

    temperature: Amount = 0.0
    max_tokens: PositiveInt = 512
    timeout_s: AboveZero = 60.0
    concurrency: PositiveInt = 8
    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None
    max_requests: PositiveInt | None = None
    max_cost: AboveZero | None = None
    input_price: Amount | None = None
    output_price: Amount | None = None
    cache: bool = True

    @property
    def secrets(self) -> tuple[str, ...]:
        """Environment variables that worker processes do not get: the one of the key, if there is one."""
        variable = getattr(self, "api_key_env", None)
        return () if variable is None else (variable,)

    def check_limits(self) -> None:
        """Check the settings, and withhold the secrets from workers.

        Raises:
            UserError: one is of the wrong type or out of range; names it.
        """
        hints = get_type_hints(type(self), include_extras=True)
        for each in fields(self):
            value = getattr(self, each.name)
            try:
                TypeAdapter(hints[each.name]).validate_python(value, strict=True)
            except ValidationError as error:
                what = error.errors(include_url=False)[0]["msg"]
                shown = "" if each.name == "api_key_env" else f"={value!r:.60}"  # which might be a key
                raise UserError(f"a judge's {each.name}{shown}: {what}.") from None
        for variable in self.secrets:
            if not _VARIABLE.fullmatch(variable):
                raise UserError(
                    "a judge's api_key_env is the name of an environment variable in capitals, as OPENAI_API_KEY, "
                    "which holds the key: never the key itself."
                )
            withhold(variable)
        if self.max_cost is not None and self.input_price is None and self.output_price is None:
            raise UserError(
                f"a judge's max_cost={self.max_cost} needs input_price and output_price, per million tokens."
            )
        verdict = self.max_tokens * (self.output_price or 0.0) / 1e6
        if self.max_cost is not None and verdict > self.max_cost:
            raise UserError(
                f"a judge's max_cost={self.max_cost:g} is below what one verdict of max_tokens={self.max_tokens} may "
                f"cost, {verdict:g}: none could be asked for."
            )


@dataclass(frozen=True, slots=True)
class Endpoint(ModelLimits):
    """A model at an OpenAI-compatible endpoint (OpenAI, vLLM, llama.cpp, Ollama, SGLang …).

    Attributes:
        url: Everything before `/chat/completions`, e.g. `http://localhost:8000/v1`.
        model: Name of the model at the endpoint.
        api_key_env: Environment variable that holds the key, if one is needed. Worker processes do not get it.
        max_retries: Repetitions of a request that may succeed yet, with growing pauses.

    Raises:
        UserError: the URL is no plain http(s) address, or a number is out of range.
    """

    backend: ClassVar[str] = "endpoint"
    """Registered name of what asks it."""

    url: str
    model: str
    api_key_env: str = field(default="OPENAI_API_KEY", kw_only=True)
    max_retries: int = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        self.check_limits()
        self.client()

    def client(self) -> OpenAIEngine:
        """A client for it."""
        from grpo_sdk.endpoints.openai import OpenAIEngine  # brings httpx

        return OpenAIEngine(
            self.url,
            self.model,
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            max_retries=self.max_retries,
            api_key_env=self.api_key_env,
        )

    @property
    def address(self) -> str:
        """The model with its place, for messages."""
        return f"{self.model} at {self.url}"

    def meaning(self) -> tuple[object, ...]:
        """What decides its verdicts: the model and the sampling, not the address."""
        return "endpoint", self.model, self.temperature, self.max_tokens


@dataclass(frozen=True, slots=True)
class LocalModel(ModelLimits):
    """A model of this machine, in one process of its own.

    Attributes:
        model: Embedded name, local folder or hub id.
        device: Its device; `auto` takes an accelerator if there is one.
        batch_size: Requests that are answered at once.
    """

    backend: ClassVar[str] = "local"
    """Registered name of what asks it."""

    model: str
    device: str = field(default="auto", kw_only=True)
    batch_size: PositiveInt = field(default=8, kw_only=True)
    timeout_s: AboveZero = field(default=120.0, kw_only=True)
    concurrency: PositiveInt = field(default=32, kw_only=True)

    def __post_init__(self) -> None:
        self.check_limits()

    @property
    def address(self) -> str:
        """The model with its place, for messages."""
        return f"{self.model} in a process of its own"

    def files(self) -> tuple[object, ...]:
        """Place, sizes and times of a local model's files, which may be trained anew under one name; else empty."""
        if not self.model.startswith((".", "/", "~")) and not self.model.endswith(".gguf"):
            return ()
        path = Path(self.model).expanduser().resolve()
        patterns = ("*.safetensors", "config.json", "tokenizer*", "adapter_config.json")
        found = [path] if path.is_file() else sorted({file for each in patterns for file in path.glob(each)})
        facts = [(file.name, status.st_size, status.st_mtime_ns) for file in found for status in [file.stat()]]
        return str(path), *facts

    def meaning(self) -> tuple[object, ...]:
        """What decides its verdicts."""
        return "local", self.model, self.temperature, self.max_tokens


@dataclass(frozen=True, slots=True)
class ClassifierModel(LocalModel):
    """A sequence classifier or reward model of transformers, in one process of its own.

    Attributes:
        label: Label whose probability is the value; None for a model of one output.
    """

    backend: ClassVar[str] = "classifier"
    """Registered name of what asks it."""

    label: str | None = field(default=None, kw_only=True)

    def meaning(self) -> tuple[object, ...]:
        """What decides its verdicts."""
        return "classifier", self.model, self.label, self.max_tokens


@dataclass(frozen=True, slots=True)
class CustomModel(ModelLimits):
    """A model behind a backend of a plugin, registered with the hook `grpo_variants` as kind `judge`.

    Attributes:
        name: Registered name of the backend.
        model: Name of the model there.
        options: Plain values for the backend.
        api_key_env: Environment variable that holds a key, which worker processes do not get.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    api_key_env: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.check_limits()
        try:
            json.dumps(self.options)
        except (TypeError, ValueError) as error:
            raise UserError(f"judge backend {self.name!r}: options must be plain JSON values: {error}.") from None

    @property
    def backend(self) -> str:
        """Registered name of what asks it."""
        return self.name

    @property
    def address(self) -> str:
        """The model with its place, for messages."""
        return f"{self.model} by {self.name}"

    def meaning(self) -> tuple[object, ...]:
        """What decides its verdicts."""
        options = json.dumps(self.options, sort_keys=True)
        return self.name, self.model, self.temperature, self.max_tokens, options
