"""The settings of a run, each with its type, limits, default and one line of documentation.

Settings that TRL has are called as in TRL. The reason of a limit that is not obvious is given in `why`, and ends the
error message.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from grpo_core.config.recipes import RECIPES
from grpo_core.config.section import COUNT, Section, VariantArguments, allowed, variant
from grpo_core.config.trainer import TrainerConfig
from grpo_core.profiles.gpu import BUILT_IN as GPU_PROFILES
from grpo_core.profiles.presets import PRESETS
from grpo_sdk.errors import UserError
from grpo_sdk.paths import user_path_text
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.built_in import BUILT_IN
from grpo_sdk.task.row import Split

MAX_WEIGHT = 1e6
"""Largest sum of the curriculum's weights, which are relative."""


class EvalConfig(Section):
    """Held-out evaluation, on the same rows before, during and after training."""

    task: str | None = Field(None, min_length=1)
    """Tasks evaluated beside the trained ones: math.gsm8k, or several with commas."""
    size: int | None = Field(512, ge=1, le=COUNT)
    """Rows per task; null is all of the split."""
    split: Split = "test"
    """Which split is held out."""
    subset_frac: float | None = Field(None, gt=0, le=1)
    """Share of those rows that is taken, the same rows in every run; null takes all."""
    n: int = Field(1, ge=1, le=COUNT)
    """Completions per row; from 2 on, pass@k is reported."""
    temperature: float = Field(0.0, ge=0, le=100)
    """0 is greedy; several completions per row need more."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: keep the likeliest tokens of this mass."""
    at_start: bool = True
    """Evaluate the starting model, as the control."""
    interval_steps: int | None = Field(None, ge=1, le=COUNT)
    """Steps between evaluations; null: only at the start and the end."""
    at_end: bool = True
    """Evaluate the trained model on the same rows."""
    max_completion_length: int | None = Field(None, ge=1, le=COUNT)
    """Longest completion, in tokens; null is trainer.max_completion_length."""
    batch_size: int | None = Field(None, ge=1, le=COUNT)
    """Rows per batch; null is as many as fit into memory. It changes no result but the rounding of surprisal."""
    surprisal: bool = True
    """Measure surprisal and entropy per token; what a server sampled takes one more forward pass."""


class LoraConfig(Section):
    """Low-rank adapters instead of full fine-tuning."""

    enabled: bool = False
    """Train adapters only."""
    r: int = Field(16, ge=1, le=COUNT)
    """Rank."""
    alpha: int = Field(32, ge=1, le=COUNT)
    """Scale: the update is multiplied by alpha / r."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapter's input."""
    target_modules: str | Annotated[tuple[str, ...], Field(strict=False)] = "all-linear"
    """Adapted layers: all-linear, or a list of module names."""
    quantization: Literal["nf4"] | None = None
    """Load the frozen base in 4 bits (QLoRA; needs bitsandbytes); null does not quantize it."""
    double_quantization: bool = True
    """Quantize the scales of the 4-bit blocks, too."""


class ScoringConfig(Section):
    """The worker processes that score completions."""

    executor: Literal["local", "ray"] = "local"
    """Where they run: on this machine, or on the nodes of a Ray cluster (needs the extra ray)."""
    ray_address: str | None = Field(None, min_length=1)
    """host:port of the Ray cluster's head; null is RAY_ADDRESS, or the cluster this machine is part of."""
    workers: int | None = Field(None, ge=1, le=COUNT)
    """Processes, per node with Ray; null is one per CPU, at most 16."""
    tool_workers: int = Field(16, ge=1, le=COUNT)
    """Processes per task that run tools, at most one per episode; they are on this machine also with Ray."""
    timeout_s: float | None = Field(None, gt=0, le=86_400)
    """Seconds per completion and per call of a tool, counted from when its worker starts; null is the task's limit."""
    memory_mib: int = Field(4096, ge=64, le=COUNT)
    """Memory limit of one worker, in MiB of address space."""
    max_abstain_share: float = Field(0.5, ge=0, le=1)
    """A batch with a larger share of unscored completions ends the run, exit code 3."""

    @model_validator(mode="after")
    def _addressed(self) -> ScoringConfig:
        if self.ray_address is not None and self.executor != "ray":
            raise UserError(
                f"scoring.ray_address={self.ray_address} is of use with scoring.executor=ray only. Set both."
            )
        return self


class CurriculumConfig(Section):
    """Selection of prompts by how often they were solved."""

    enabled: bool = False
    """Draw prompts by their pass rate instead of in shuffled order."""
    ema_alpha: float = Field(0.05, gt=0, le=1)
    """Weight of the newest group in a prompt's pass rate."""
    boundaries: Annotated[tuple[float, float], Field(strict=False)] = (0.2, 0.8)
    """Pass rates below the first are hard, above the second easy, else normal."""
    weights: Annotated[tuple[float, float, float], Field(strict=False)] = (1.0, 1.0, 1.0)
    """Shares of hard, normal and easy prompts in a batch."""
    ladder_threshold: float = Field(0.9, gt=0, le=1)
    """Held-out solved rate at which a ladder task advances to its next rung."""
    ladder_eval_steps: int = Field(10, ge=1, le=COUNT)
    """Steps between held-out evaluations of a ladder's rung."""
    ladder_eval_size: int = Field(64, ge=32, le=COUNT)
    """Held-out rows of the rung that such an evaluation takes."""

    @model_validator(mode="after")
    def _consistent(self) -> CurriculumConfig:
        low, high = self.boundaries
        if not 0 <= low < high <= 1:
            raise UserError(
                f"curriculum.boundaries=[{low:g}, {high:g}]: they are pass rates with 0 <= first < second <= 1 "
                "(default [0.2, 0.8])."
            )
        if min(self.weights) < 0 or not 0 < sum(self.weights) <= MAX_WEIGHT:
            listed = ", ".join(f"{weight:g}" for weight in self.weights)
            raise UserError(
                f"curriculum.weights=[{listed}]: shares of hard, normal and easy prompts, none below 0 and at least "
                f"one above it, together at most {MAX_WEIGHT:g} (default [1, 1, 1])."
            )
        return self


class TrackingConfig(Section):
    """Trackers, metrics and the contents of the run's own logs."""

    trackers: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), json_schema_extra=allowed(f"a list of {', '.join(sorted(BUILT_IN['tracker']))}, or a plugin's")
    )
    """Trackers beside the run's own JSONL, each an extra of grpo-core."""
    metrics: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), json_schema_extra=allowed("a list of names that plugins register")
    )
    """Metrics of plugins, logged with each step."""
    project: str | None = Field(None, min_length=1)
    """Project in trackers; null is WANDB_PROJECT, or grpo."""
    run_name: str | None = Field(None, min_length=1)
    """Name in trackers; null is that of the run's folder."""
    wandb_mode: Literal["online", "offline", "disabled"] | None = None
    """Mode of W&B; null is WANDB_MODE, or online with a key and a network, else offline."""
    reference_names: bool = False
    """Log metrics in trackers also under their names in the reference systems."""
    token_logprobs: bool = False
    """Write each token's log-prob to logs/rollouts.jsonl."""
    monitor: bool = True
    """Warn, once each, about metrics that leave their healthy range."""

    @field_validator("trackers", "metrics", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Accept `tensorboard,wandb`, as on a command line."""
        return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value

    @field_validator("trackers", "metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for name in names:
            registry.check("tracker" if info.field_name == "trackers" else "metric", name)
            if names.count(name) > 1:
                raise UserError(f"tracking.{info.field_name}: {name} is given twice.")
        return names


class EngineConfig(Section):
    """The sampling engine."""

    name: str = Field("native", json_schema_extra=variant("engine"))
    """Engine that samples the completions."""
    max_batch_tokens: int = Field(65536, ge=1, le=COUNT)
    """Most tokens cached at once while sampling; never changes what is sampled."""
    gather_weights: bool = False
    """With trainer.sharding, gather the whole model while sampling: faster, if it fits."""
    url: str | None = Field(None, min_length=1)
    """Server that samples, http://host:port; null starts one (vllm)."""
    args: VariantArguments = Field(default_factory=dict)
    """Arguments of the engine."""
    fallback: str | None = Field(None, json_schema_extra=variant("engine"))
    """Engine that samples if this one cannot be started; null ends the run."""

    @field_validator("name", "fallback")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name == "sglang" and name not in registry.names("engine"):
            raise UserError(
                "SGLang is not supported: it was never run against a real server. Sample with engine.name=vllm, which "
                "takes engine.url too."
            )
        if name is not None:
            registry.check("engine", name)
        return name

    @model_validator(mode="after")
    def _takes_arguments(self) -> EngineConfig:
        registry.check_argument_names("engine", self.name, self.args, "engine.args")
        if self.url is not None and "url" in self.args:
            raise UserError("engine.args.url is engine.url; give it once.")
        if self.fallback is not None and self.name in ("native", self.fallback):
            raise UserError(
                f"engine.fallback={self.fallback} has no effect with engine.name={self.name}: leave it out, or name an "
                "engine that may fail to start, as vllm."
            )
        if self.url is not None and self.name == "native":
            raise UserError(
                "engine.url has no effect: engine.name=native samples in this process. Set engine.name=vllm."
            )
        return self


class RunConfig(Section):
    """Settings of a training run; every one has a default."""

    task: str = Field("math.arithmetic", min_length=1)
    """Task or mixture: math.gsm8k?size=100, or a.b:2,c.d:1."""
    model: str | None = Field(None, min_length=1)
    """Embedded name, hub id, folder (./x) or .gguf; null is the task's default."""
    recipe: str | None = Field(None, json_schema_extra=allowed(f"{', '.join(RECIPES)}, or null"))
    """Settings of a paper or system, by name; those that define the recipe cannot be changed."""
    preset: str | None = Field(None, json_schema_extra=allowed(f"{', '.join(PRESETS)}, or null"))
    """Sizes of a run, by name: rows, epochs, rate, batch; goes with any recipe."""
    profile: str | None = Field(
        "auto",
        min_length=1,
        json_schema_extra=allowed(f"auto, {', '.join(GPU_PROFILES)}, one that a plugin brings, or null"),
    )
    """GPU profile: sizes that fit the accelerator; auto takes the one that it matches, null none."""
    offline: bool | None = None
    """Use only what the hub's cache has; null asks once whether the hub can be reached."""
    adapter: str | None = Field(None, min_length=1)
    """Folder of a PEFT adapter to start from."""
    seed: int = Field(0, ge=0, lt=2**63, json_schema_extra=allowed("a whole number from 0 to 2^63 - 1"))
    """Seed of the order of prompts and of every sampled token."""
    output_dir: str = Field("training_runs", min_length=1)
    """Folder that receives run_… folders."""
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda|cuda:\d{1,3}|mps)$",
        json_schema_extra=allowed("auto, cpu, cuda, cuda:N or mps"),
    )
    """Device of the model; auto takes an accelerator if there is one."""
    precision: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    """Floating-point type; bfloat16 and float16 are mixed with float32. auto depends on the device."""
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    """The algorithm and its optimizer."""
    eval: EvalConfig = Field(default_factory=EvalConfig)
    """Held-out evaluation."""
    lora: LoraConfig = Field(default_factory=LoraConfig)
    """Low-rank adapters."""
    scoring: ScoringConfig = Field(default_factory=ScoringConfig)
    """Worker processes that score."""
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig)
    """Selection of prompts."""
    engine: EngineConfig = Field(default_factory=EngineConfig)
    """The sampling engine."""
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
    """Trackers and logs."""

    @field_validator("output_dir", "adapter")
    @classmethod
    def _home(cls, path: str | None, info: ValidationInfo) -> str | None:
        """Expand `~`, which no shell has expanded in a file or after `--output-dir=`."""
        return None if path is None else user_path_text(path, str(info.field_name))

    @model_validator(mode="after")
    def _evaluated(self) -> RunConfig:
        if self.eval.interval_steps is None:
            for name in ("keep_best", "early_stop_patience"):
                if value := getattr(self.trainer, name):
                    raise UserError(
                        f"trainer.{name}={str(value).lower()} goes by the held-out rate during training, and nothing "
                        "is evaluated then. Set eval.interval_steps, as in 20."
                    )
        return self

    @model_validator(mode="after")
    def _quantizable(self) -> RunConfig:
        kind = self.lora.quantization
        if kind is None:
            return self
        if not self.lora.enabled and self.adapter is None:
            raise UserError(
                f"lora.quantization={kind} freezes the model in 4 bits, and nothing would be trained. Set "
                "lora.enabled=true, or leave it out."
            )
        if self.trainer.is_sharded:
            raise UserError(
                f"lora.quantization={kind} with trainer.sharding={self.trainer.sharding}: FSDP2 shards and gathers "
                "plain floating-point weights, not packed ones. Use trainer.sharding=none: a base in 4 bits is an "
                "eighth of float32, and each process holds it whole; or leave lora.quantization out."
            )
        if self.precision == "float64":
            raise UserError(
                f"lora.quantization={kind} with precision=float64: bitsandbytes computes with 4-bit weights in "
                "float32, bfloat16 or float16. Use one of these."
            )
        if self.model is not None and self.model.endswith(".gguf"):
            raise UserError(
                f"lora.quantization={kind}: --model {self.model} is quantized in its own way, to which this cannot be "
                "added. Give the model that it was made of, or leave lora.quantization out."
            )
        return self
