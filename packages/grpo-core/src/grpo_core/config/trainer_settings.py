"""The settings of the section `trainer` by theme; `TrainerConfig` combines them, so every key is under `trainer.`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_core.config.section import COUNT, Section, VariantArguments, allowed, variant, why

Denominator = Literal["constant", "token_mean", "sequence_mean", "sequence_sum", "group_max", "token_sum"]


class RolloutSettings(Section):
    """Sampling of completions, and which of them are kept."""

    num_generations: int = Field(8, ge=1, le=COUNT)
    """Completions G sampled per prompt: one group."""
    prompts_per_step: int = Field(8, ge=1, le=COUNT)
    """Prompts whose groups are generated at once, summed over all ranks."""
    train_size: int | None = Field(None, ge=1, le=COUNT)
    """Training rows of each task, the first ones: no more are read; null: all."""
    max_prompt_length: int = Field(512, ge=1, le=COUNT)
    """Longest prompt, in tokens."""
    overlong_prompts: Literal["drop", "truncate"] = "drop"
    """A longer prompt is dropped and counted, or loses its first tokens."""
    max_gold_length: int | None = Field(None, ge=1, le=COUNT)
    """Rows with a longer gold, in tokens, are dropped and counted; null keeps all."""
    max_completion_length: int = Field(
        256, ge=1, le=COUNT, json_schema_extra=why("a completion of 0 tokens has nothing to score or train")
    )
    """Longest completion, in tokens; also the constant length in Dr. GRPO's denominator."""
    temperature: float = Field(
        1.0,
        gt=0,
        le=100,
        json_schema_extra=why(
            "greedy completions of one prompt are all equal, so every advantage is 0 (evaluation is greedy by "
            "eval.temperature)"
        ),
    )
    """Sampling temperature; log-probs of trainer, old policy and reference use it too."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: keep the likeliest tokens of this mass."""
    top_k: int = Field(0, ge=0, le=COUNT)
    """Keep the k likeliest tokens; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Drop tokens below this share of the likeliest one's mass."""
    mask_truncated_completions: bool = False
    """Leave completions that reach max_completion_length out of the loss."""
    soft_overlong_buffer: int | None = Field(None, ge=1, le=COUNT)
    """Last tokens of the limit in which the reward falls linearly by 1; null is off."""
    dynamic_sampling: bool = False
    """Replace groups whose rewards hardly differ, so that every group contributes a gradient."""
    dynamic_sampling_attempts: int = Field(10, ge=1, le=COUNT)
    """Times a batch's missing groups are drawn again; then it is taken as it is, and logged."""
    dynamic_sampling_min_std: float = Field(0.0, ge=0, le=1e6)
    """A group is kept if its rewards' standard deviation (ddof 0) is above this."""


class LossSettings(Section):
    """The loss per token and its aggregation."""

    loss_type: str = Field("dr_grpo", json_schema_extra=variant("loss"))
    """Loss."""
    loss_args: VariantArguments = Field(default_factory=dict)
    """Arguments of the loss."""
    aggregation: Denominator | None = None
    """Denominator of the sum over tokens; null depends on the loss."""
    count_empty_rows: bool = True
    """A completion without a token in the loss counts in the number of completions."""
    epsilon: float = Field(0.2, gt=0, le=1000)
    """Clip of the probability ratio: not below 1 - epsilon; unless set, the loss's own."""
    epsilon_high: float | None = Field(None, gt=0, le=1000)
    """Clip of the ratio upwards: not above 1 + epsilon_high; null depends on the loss."""
    num_iterations: int = Field(1, ge=1, le=COUNT)
    """Passes (mu) over each generated batch."""
    steps_per_generation: int = Field(1, ge=1, le=COUNT)
    """Optimizer steps that one generated batch is split into; divides prompts_per_step."""
    schedule: Literal["arrival", "rounds"] = "arrival"
    """Episodes with tools go on as soon as their tools answer (arrival), or turn by turn, bit for bit (rounds)."""
    off_policy_steps: int = Field(0, ge=0, le=1)
    """1 samples the next batch while this one trains, with weights that are one step older; 0 in turn."""
    rollout_correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = "none"
    """Weight for the mismatch of sampler and trainer: truncated, or masked out of bounds. Unless set, it is
    token_truncate with a server, off_policy_steps=1 or engine.args.dtype=bfloat16."""
    rollout_correction_max: float | None = Field(2.0, gt=0, le=1e6)
    """Upper bound of that weight; null is unbounded."""
    rollout_correction_min: float | None = Field(None, gt=0, le=1e6)
    """Lower bound of that weight; null has none."""
    off_policy_mask_threshold: float | None = Field(None, gt=0, le=1e6)
    """Leave out rows of negative advantage that the policy left by more nats per token; null is off."""
    top_entropy_quantile: float = Field(1.0, gt=0, le=1)
    """Share of tokens, those of highest entropy, that count in the policy loss."""


class AdvantageSettings(Section):
    """Baselines, scaling of advantages, and the value head."""

    baseline: str = Field("group_mean", json_schema_extra=variant("advantage"))
    """Baseline that rewards are compared with."""
    advantage_args: VariantArguments = Field(default_factory=dict)
    """Arguments of the baseline."""
    scale_rewards: Literal["none", "group", "batch"] | None = None
    """Divide advantages by the rewards' deviation in the group or batch; null depends on the loss."""
    std_epsilon: float = Field(1e-4, gt=0, le=1)
    """Added to that deviation."""
    std_ddof: int = Field(1, ge=0, le=1, json_schema_extra=allowed("0 (of the population) or 1 (Bessel's)"))
    """Degrees of freedom subtracted in that deviation."""
    value_head: bool = False
    """Train a value head on the policy's last hidden state."""
    value_loss_coef: float = Field(0.1, ge=0, le=1000)
    """Weight of the value loss."""
    value_clip: float | None = Field(0.2, gt=0, le=1e6)
    """Values may move this far from the old ones before their loss is clipped; null is off."""
    value_learning_rate: float | None = Field(None, ge=0, le=10)
    """Peak learning rate of the value head; null is learning_rate."""
    use_gae: bool = False
    """Use gae_lambda with baseline=value; false means 1: the return minus the value. Needs value_head."""
    gae_bootstrap: bool = False
    """Whether GAE takes the value of the last state in place of the reward of a rollout that the length limit ended,
    which then is not punished for it; by default the limit is part of the task."""
    gae_gamma: float = Field(1.0, ge=0, le=1)
    """GAE's discount."""
    turn_gamma: float = Field(1.0, ge=0, le=1)
    """Discount of a return per trained turn that comes later."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """GAE's weight of long returns: 1 is the whole return."""


class PenaltySettings(Section):
    """KL penalty against the starting policy, and entropy bonus."""

    beta: float = Field(0.0, ge=0, le=1000)
    """Weight of the KL penalty against the starting policy; 0 loads no reference."""
    kl: str = Field("k3", json_schema_extra=variant("kl"))
    """Estimator of that KL."""
    kl_args: VariantArguments = Field(default_factory=dict)
    """Arguments of the KL estimator."""
    kl_placement: Literal["ratio_loss", "loss", "reward"] = "ratio_loss"
    """In the loss times the probability ratio, in the loss, or subtracted from each reward."""
    kl_metric: bool = False
    """Measure the KL at beta 0 too; loads the reference."""
    kl_controller: str = Field("constant", json_schema_extra=variant("kl_controller"))
    """How beta follows the measured KL."""
    kl_controller_args: VariantArguments = Field(default_factory=dict)
    """Arguments of the KL controller."""
    kl_warmup_steps: int = Field(0, ge=0, le=COUNT)
    """Optimizer steps in which beta rises linearly from 0."""
    ref_model_sync_steps: int | None = Field(None, ge=1, le=COUNT)
    """Steps after which the reference of the KL moves to the policy, again and again; null: it stays the starting
    policy."""
    ref_model_mixup_alpha: float = Field(0.6, gt=0, le=1)
    """How far it moves: alpha times the policy's weights plus 1 - alpha times its own."""
    entropy_coef: float = Field(0.0, ge=0, le=1000)
    """Weight of the entropy bonus, of the full vocabulary."""
    entropy_controller: str = Field("constant", json_schema_extra=variant("entropy_controller"))
    """How entropy_coef follows the measured entropy."""
    entropy_controller_args: VariantArguments = Field(default_factory=dict)
    """Arguments of the entropy controller."""


class OptimizerSettings(Section):
    """AdamW, its schedule, the length of the run, and the forward passes of a step."""

    learning_rate: float = Field(1e-6, ge=0, le=10)
    """Peak learning rate of AdamW; unless set, it follows from the model's size."""
    lr_scheduler_type: str = Field("constant", json_schema_extra=variant("schedule"))
    """Learning rate after warm-up."""
    warmup_steps: int = Field(0, ge=0, le=COUNT)
    """Optimizer steps of linear warm-up."""
    warmup_ratio: float | None = Field(None, ge=0, lt=1)
    """Warm-up as a share of all steps, or of max_minutes alone; in place of warmup_steps."""
    weight_decay: float = Field(0.0, ge=0, le=100)
    """AdamW's decoupled weight decay."""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's decay of the gradient's mean."""
    adam_beta2: float = Field(0.999, ge=0, lt=1)
    """AdamW's decay of the squared gradient's mean."""
    adam_epsilon: float = Field(1e-8, gt=0, le=1)
    """AdamW's term that keeps its denominator above 0."""
    max_grad_norm: float = Field(1.0, gt=0, le=1e9)
    """Global gradient norm is clipped to this."""
    max_steps: int | None = Field(None, ge=1, le=COUNT)
    """Steps, each one generated batch; in place of num_train_epochs."""
    num_train_epochs: float | None = Field(None, gt=0, le=1e6)
    """Passes over the task's rows; null is 1, unless max_steps or max_minutes is given."""
    max_minutes: float | None = Field(None, gt=0, le=1e7)
    """Wall-clock limit, in minutes; the run then ends as at its last step."""
    micro_batch_size: Annotated[int, Field(ge=1, le=COUNT)] | Literal["auto"] | None = Field(
        None, json_schema_extra=allowed("a whole number, 1 or more and at most 10^9, auto, or null")
    )
    """Completions per forward pass; null fills each one up to micro_batch_tokens, auto tries on the model how many fit
    micro_batch_memory."""
    micro_batch_memory: float = Field(0.8, gt=0, le=1)
    """Share of the memory that micro_batch_size=auto may use."""
    micro_batch_prompts: int | None = Field(None, ge=1, le=COUNT)
    """Prompts with all their completions per forward pass, as drawn, in place of micro_batch_size."""
    micro_batch_tokens: int = Field(8192, ge=1, le=COUNT)
    """Padded tokens per forward pass where neither of the two is given; a longer row goes alone."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory."""
    sharding: Literal["none", "full", "hybrid"] = "none"
    """With several processes: each holds the whole model; full: its part of weights, gradients, optimizer; hybrid: its
    part among the processes of a node, and every node holds all parts."""
    shard_size: int | None = Field(None, ge=1, le=COUNT)
    """Processes that share one copy of the weights where sharding is hybrid; null: those of a node."""
    cpu_offload: bool = False
    """With sharding, keep weights, gradients and optimizer in host memory; a layer is on the GPU only while it runs."""
    ddp_timeout: float = Field(1800.0, gt=0, le=1e7)
    """Seconds that a process waits for the others, before the run ends; scoring and saving count, too."""


class CheckpointSettings(Section):
    """Checkpoints during a run, and reasons to stop it early."""

    save_every: int | None = Field(None, ge=1, le=COUNT)
    """Save a checkpoint every so many steps; null: see save_minutes."""
    save_minutes: float | None = Field(10.0, gt=0, le=1e6)
    """Without save_every, save a checkpoint after so many minutes, in place of the one before, until the end. Large
    ones come less often, so that they take 2% of the time. null: save only at the end."""
    keep_last: int | None = Field(None, ge=1, le=COUNT)
    """Checkpoints kept, the newest ones; null keeps all. The last and the best always stay."""
    keep_best: bool = False
    """Save, and never prune, the step with the best held-out solved rate; needs eval.interval_steps."""
    early_stop_patience: int | None = Field(None, ge=1, le=COUNT)
    """End the run after so many interval evaluations without a better solved rate; null: never."""
    stop_after: int | None = Field(None, ge=1, le=COUNT)
    """Stop after so many steps of this call, saved, as after a signal; grpo resume continues."""


class ProbeSettings(Section):
    """Logging and measurements besides training."""

    logging_steps: int = Field(1, ge=1, le=COUNT)
    """Log every so many steps."""
    log_completions: int = Field(3, ge=0, le=COUNT)
    """Completions of one prompt shown per logged step."""
    gradient_noise_scale: bool = False
    """Measure the gradient noise scale from the step's own passes; needs micro_batch_prompts."""
    gns_probe_steps: int | None = Field(None, ge=1, le=COUNT)
    """Measure it also from two batches of different size, every so many steps; null is off."""
    gns_probe_prompts: int = Field(8, ge=1, le=COUNT)
    """Prompts in the smaller batch of that probe; the larger one is the step's."""
    entropy_probe_steps: int | None = Field(None, ge=1, le=COUNT)
    """Predict the step's change of entropy every so many steps; null is off."""


class BackendSettings(Section):
    """Which trainer takes the optimizer steps."""

    backend: Literal["native", "trl"] = "native"
    """Trainer of the optimizer steps: ours, or TRL's GRPOTrainer (needs the extra trl)."""
    backend_args: VariantArguments = Field(default_factory=dict)
    """Further arguments of TRL's GRPOConfig, those that are no setting here: deepspeed=ds.json."""
