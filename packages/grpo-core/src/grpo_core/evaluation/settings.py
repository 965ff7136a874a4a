"""Settings of an evaluation: its rows, its completions and how they are sampled; and how a model is set up for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from grpo_core.config import EngineConfig, LoraConfig, ScoringConfig
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Split


class _Open(Enum):
    OPEN = "left open"


OPEN: Final = _Open.OPEN
"""A value that was not given: that of the task holds, else our default. None is a value: all rows."""

Open = Literal[_Open.OPEN]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """Settings that decide the numbers of an evaluation, and how it is computed.

    Attributes:
        size: Rows per task; None is all of the split.
        split: Split of the rows.
        subset_frac: Share of the rows to evaluate, always the same ones; None is all.
        n: Completions a row.
        temperature: 0 is greedy.
        top_p: Nucleus sampling.
        max_completion_length: Tokens per completion; a task may need fewer.
        seed: Seed of sampling above temperature 0, and of the resampling of a task's own metrics.
        batch_size: Rows answered at once; None is as many as the memory holds. Only surprisal rounds with it.
        surprisal: Also measure surprisal and entropy per token; what a server sampled takes one more forward pass.
    """

    size: int | None = 512
    split: Split = "test"
    subset_frac: float | None = None
    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_completion_length: int = 256
    seed: int = 0
    batch_size: int | None = None
    surprisal: bool = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UserError(f"eval.n={self.n}: at least one completion a row is needed.")
        if self.n > 1 and self.temperature == 0:
            raise UserError(
                f"eval.n={self.n} at temperature 0: greedy completions of one row are all equal. "
                "Set eval.temperature=0.7, or eval.n=1."
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise UserError(f"eval.batch_size={self.batch_size}: at least one row at once is needed.")

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of an engine."""
        return Sampling(
            temperature=self.temperature, top_p=self.top_p, max_completion_length=self.max_completion_length
        )

    @property
    def folder(self) -> str:
        """Name of the results folder: `temp0.7_p1.0_r8`."""
        return f"temp{float(self.temperature)}_p{float(self.top_p)}_r{self.n}"

    def deciding(self) -> dict[str, Any]:
        """The settings that decide the numbers; two evaluations that differ in one cannot be compared."""
        return {name: value for name, value in asdict(self).items() if name not in ("batch_size", "surprisal")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options with which a model and the scorers are set up.

    Attributes:
        device: Device of the model.
        precision: Floating-point type of the model's products.
        engine: Engine that samples the completions; on an accelerator its free memory decides the tokens held at once.
        scoring: The scorers' worker processes.
        lora: Quantization of the base model, where the run's was quantized.
    """

    device: str = "auto"
    precision: str = "auto"
    engine: EngineConfig = field(default_factory=EngineConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    lora: LoraConfig | None = None
