"""Every value of a run, once: type, limits, default and one line of documentation.

TRL's words for what TRL has. A limit that is not obvious says why in `why`; it ends the error line.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grpo_core import registry
from grpo_core.config import checks
from grpo_core.task import Split

Scalar = bool | int | float | str | None
"""What a variant's own argument may be; its function's annotation says which."""

VariantArguments = dict[str, Scalar]


def _why(reason: str) -> dict[str, Any]:
    return {"why": reason}


def _allowed(words: str) -> dict[str, Any]:
    return {"allowed": words}


def _variant(kind: str) -> dict[str, Any]:
    return _allowed(f"{', '.join(registry.BUILT_IN[kind])}, or one that a plugin registers")


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


class TrainerConfig(Section):
    """The algorithm and its optimizer."""

    num_generations: int = Field(8, ge=1, description="Completions G sampled per prompt: one group.")
    prompts_per_step: int = Field(
        8, ge=1, description="Prompts whose groups are generated at once, summed over all ranks."
    )
    max_prompt_length: int = Field(512, ge=1, description="Longest prompt, in tokens.")
    overlong_prompts: Literal["drop", "truncate"] = Field(
        "drop", description="A longer prompt is dropped and counted, or loses its first tokens."
    )
    max_gold_length: int | None = Field(
        None, ge=1, description="Rows with a longer gold, in tokens, are dropped and counted; null keeps all."
    )
    max_completion_length: int = Field(
        256,
        ge=1,
        description="Longest completion, in tokens; also the constant length in Dr. GRPO's denominator.",
        json_schema_extra=_why("a completion of 0 tokens has nothing to score or train"),
    )
    temperature: float = Field(
        1.0,
        gt=0,
        description="Sampling temperature; log-probs of trainer, old policy and reference use it too.",
        json_schema_extra=_why(
            "greedy completions of one prompt are all equal, so every advantage is 0 (evaluation is greedy by "
            "eval.temperature)"
        ),
    )
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling: keep the likeliest tokens of this mass.")
    top_k: int = Field(0, ge=0, description="Keep the k likeliest tokens; 0 keeps all.")
    min_p: float = Field(0.0, ge=0, lt=1, description="Drop tokens below this share of the likeliest one's mass.")
    epsilon: float = Field(0.2, gt=0, description="Clip of the probability ratio: not below 1 - epsilon.")
    epsilon_high: float | None = Field(
        None, gt=0, description="Clip of the ratio upwards: not above 1 + epsilon_high; null is epsilon."
    )
    num_iterations: int = Field(1, ge=1, description="Passes (mu) over each generated batch.")
    steps_per_generation: int = Field(
        1, ge=1, description="Optimizer steps that one generated batch is split into; divides prompts_per_step."
    )
    beta: float = Field(
        0.0, ge=0, description="Weight of the KL penalty against the starting policy; 0 loads no reference."
    )
    kl: str = Field("k3", description="Estimator of that KL.", json_schema_extra=_variant("kl"))
    kl_args: VariantArguments = Field(default_factory=dict, description="Arguments of the KL estimator.")
    loss_type: str = Field("dr_grpo", description="Loss.", json_schema_extra=_variant("loss"))
    loss_args: VariantArguments = Field(default_factory=dict, description="Arguments of the loss.")
    baseline: str = Field(
        "group_mean", description="What a reward is compared with.", json_schema_extra=_variant("advantage")
    )
    advantage_args: VariantArguments = Field(default_factory=dict, description="Arguments of the baseline.")
    scale_rewards: Literal["none", "group", "batch"] | None = Field(
        None,
        description="Divide advantages by the rewards' deviation in the group or batch; null goes by the loss.",
    )
    mask_truncated_completions: bool = Field(
        False, description="Leave completions out of the loss that hit max_completion_length."
    )
    soft_overlong_buffer: int | None = Field(
        None, ge=1, description="Last tokens of the limit in which the reward falls linearly by 1; null is off."
    )
    learning_rate: float = Field(1e-6, ge=0, description="Peak learning rate of AdamW.")
    lr_scheduler_type: str = Field(
        "constant", description="Learning rate after warm-up.", json_schema_extra=_variant("schedule")
    )
    warmup_steps: int = Field(0, ge=0, description="Optimizer steps of linear warm-up.")
    warmup_ratio: float | None = Field(
        None, ge=0, lt=1, description="Warm-up as a share of all steps, in place of warmup_steps."
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay.")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's decay of the gradient's mean.")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's decay of the squared gradient's mean.")
    adam_epsilon: float = Field(1e-8, gt=0, description="AdamW's term that keeps its denominator above 0.")
    max_grad_norm: float = Field(1.0, gt=0, description="Global gradient norm is clipped to this.")
    max_steps: int | None = Field(
        None, ge=1, description="Steps, each one generated batch; in place of num_train_epochs."
    )
    num_train_epochs: float | None = Field(
        None, gt=0, description="Passes over the task's rows; null is 1, unless max_steps or max_minutes is given."
    )
    max_minutes: float | None = Field(
        None, gt=0, description="Wall-clock limit, in minutes; the run then ends as at its last step."
    )
    micro_batch_size: int | None = Field(
        None, ge=1, description="Completions per forward pass; null fills each one up to micro_batch_tokens."
    )
    micro_batch_tokens: int = Field(
        8192,
        ge=1,
        description="Padded tokens per forward pass where micro_batch_size is null; a longer row goes alone.",
    )
    gradient_checkpointing: bool = Field(False, description="Recompute activations in the backward pass: less memory.")
    logging_steps: int = Field(1, ge=1, description="Log every so many steps.")
    log_completions: int = Field(3, ge=0, description="Completions of one prompt shown per logged step.")

    @property
    def upper_epsilon(self) -> float:
        """`epsilon_high`, which is `epsilon` where it is null."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    @property
    def rows_per_step(self) -> int:
        """Completions in one optimizer step, over all ranks."""
        return self.prompts_per_step * self.num_generations // self.steps_per_generation

    @model_validator(mode="after")
    def _consistent(self) -> TrainerConfig:
        checks.check_trainer(self)
        return self


class EvalConfig(Section):
    """Held-out evaluation: the same rows before and after."""

    size: int | None = Field(512, ge=1, description="Rows per task; null is all of the split.")
    split: Split = Field("test", description="Which split is held out.")
    temperature: float = Field(0.0, ge=0, description="0 is greedy; one completion a row.")
    at_start: bool = Field(True, description="Evaluate the starting model: the control of every claim.")
    at_end: bool = Field(True, description="Evaluate the trained model on the same rows.")
    max_completion_length: int | None = Field(
        None, ge=1, description="Longest completion, in tokens; null is trainer.max_completion_length."
    )


class LoraConfig(Section):
    """Low-rank adapters in place of a full fine-tune."""

    enabled: bool = Field(False, description="Train adapters only.")
    r: int = Field(16, ge=1, description="Rank.")
    alpha: int = Field(32, ge=1, description="Scale: the update is multiplied by alpha / r.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    target_modules: str | Annotated[tuple[str, ...], Field(strict=False)] = Field(
        "all-linear", description="Which layers: all-linear, or a list of module names."
    )


class ScoringConfig(Section):
    """The worker processes that score completions."""

    workers: int | None = Field(None, ge=1, description="Processes; null is one per CPU of this process.")
    timeout_s: float | None = Field(
        None, gt=0, description="Seconds per completion from when its worker starts on it; null is the task's."
    )
    memory_mib: int = Field(4096, ge=64, description="Memory limit of one worker, in MiB of address space.")
    max_abstain_share: float = Field(
        0.5, ge=0, le=1, description="A batch with a larger share that could not be scored ends the run, exit code 3."
    )


class CurriculumConfig(Section):
    """Which prompts come next, by how often they were solved."""

    enabled: bool = Field(False, description="Draw prompts by their pass rate in place of shuffled order.")
    ema_alpha: float = Field(0.05, gt=0, le=1, description="Weight of the newest group in a prompt's pass rate.")
    boundaries: Annotated[tuple[float, float], Field(strict=False)] = Field(
        (0.2, 0.8), description="Pass rates below the first are hard, above the second easy, else normal."
    )
    weights: Annotated[tuple[float, float, float], Field(strict=False)] = Field(
        (1.0, 1.0, 1.0), description="Shares of hard, normal and easy prompts in a batch."
    )
    ladder_threshold: float = Field(
        0.9, gt=0, le=1, description="Held-out solved rate at which a ladder task advances to its next rung."
    )
    ladder_eval_steps: int = Field(10, ge=1, description="Steps between held-out evaluations of a ladder's rung.")
    ladder_eval_size: int = Field(64, ge=32, description="Held-out rows of the rung that such an evaluation takes.")

    @model_validator(mode="after")
    def _consistent(self) -> CurriculumConfig:
        checks.check_curriculum(self)
        return self


class EngineConfig(Section):
    """The sampling engine."""

    max_batch_tokens: int = Field(
        65536, ge=1, description="Cached tokens held at once while sampling; never changes what is sampled."
    )


class RunConfig(Section):
    """One training run; every value has a default."""

    task: str = Field(
        "math.arithmetic", min_length=1, description="Task or mixture: math.gsm8k?size=100, or a.b:2,c.d:1."
    )
    model: str | None = Field(
        None, min_length=1, description="Embedded name, hub id, folder (./x) or .gguf; null is the task's default."
    )
    adapter: str | None = Field(None, min_length=1, description="Folder of a PEFT adapter to start from.")
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="Seed of prompts' order and of every sampled token.",
        json_schema_extra=_allowed("a whole number from 0 to 2^63 - 1"),
    )
    output_dir: str = Field("training_runs", min_length=1, description="Folder that receives run_… folders.")
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda|cuda:\d{1,3}|mps)$",
        description="Where the model runs; auto takes an accelerator if there is one.",
        json_schema_extra=_allowed("auto, cpu, cuda, cuda:N or mps"),
    )
    precision: Literal["auto", "float32", "bfloat16", "float16", "float64"] = Field(
        "auto", description="Floating-point type of the weights; auto goes by the device."
    )
    trainer: TrainerConfig = Field(default_factory=TrainerConfig, description="The algorithm and its optimizer.")
    eval: EvalConfig = Field(default_factory=EvalConfig, description="Held-out evaluation.")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="Low-rank adapters.")
    scoring: ScoringConfig = Field(default_factory=ScoringConfig, description="Worker processes that score.")
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig, description="Which prompts come next.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="The sampling engine.")
