"""The functions that a configuration names, looked up once, before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core.config import TrainerConfig
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.variant import Aggregation
from grpo_sdk.plugins.variants import BoundVariant


@dataclass(frozen=True, slots=True)
class KlPlacement:
    """Where the KL against the reference goes; decided here alone.

    Attributes:
        in_loss: It is a penalty of the loss.
        by_ratio: The penalty is multiplied by ρ = π/π_old. ρ·k3 has the gradient of KL(π‖π_ref), also when the sample
            is old (algorithms.md, "KL").
        before_update: It is computed once before the update, to be taken off the reward, or only to be measured.
        is_full: It is that of whole distributions, for which the policy's and the reference's states are held together.
    """

    in_loss: bool
    by_ratio: bool
    before_update: bool
    is_full: bool

    @classmethod
    def of(cls, config: TrainerConfig) -> KlPlacement:
        """The placement that a configuration asks for."""
        is_penalty, in_reward, is_full = config.beta > 0, config.kl_placement == "reward", config.kl == "full"
        in_loss = is_penalty and not in_reward
        return cls(
            in_loss=in_loss,
            by_ratio=in_loss and config.kl_placement == "ratio_loss" and not is_full,
            before_update=(is_penalty and in_reward) or (config.kl_metric and not in_loss),
            is_full=is_full,
        )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The section `trainer` with the functions that it names.

    Attributes:
        config: The section, resolved.
        loss: Policy loss.
        aggregation: How the loss weights tokens.
        baseline: Turns rewards into advantages.
        kl: KL estimator.
        kl_placement: Where the KL goes.
        kl_controller: Changes the weight of the KL penalty.
        entropy_controller: Changes the weight of the entropy bonus.
        schedule: Learning rate schedule.
    """

    config: TrainerConfig
    loss: BoundVariant
    aggregation: Aggregation
    baseline: BoundVariant
    kl: BoundVariant
    kl_placement: KlPlacement
    kl_controller: BoundVariant
    entropy_controller: BoundVariant
    schedule: BoundVariant

    @classmethod
    def of(cls, config: TrainerConfig) -> Algorithm:
        """Look up what a configuration names.

        Raises:
            UserError: an argument of a variant does not exist, is missing, or has a wrong type or value; or neither the
                loss nor the configuration says how tokens are aggregated.
            PluginError: a variant cannot be imported.
        """
        settings = {"loss": {"epsilon": config.epsilon, "epsilon_high": config.epsilon_high}}
        bound = {
            variant.kind: registry.bind(
                variant.kind, variant.name, variant.arguments, variant.section, settings.get(variant.kind)
            )
            for variant in config.variants
        }
        aggregation = config.aggregation or bound["loss"].facts.aggregation
        if aggregation is None:
            raise UserError(
                f"trainer.loss_type={config.loss_type}: the loss does not say how tokens are aggregated; set "
                "trainer.aggregation, or register it as Variant(…, aggregation=…)."
            )
        return cls(
            config,
            loss=bound["loss"],
            aggregation=aggregation,
            baseline=bound["advantage"],
            kl=bound["kl"],
            kl_placement=KlPlacement.of(config),
            kl_controller=bound["kl_controller"],
            entropy_controller=bound["entropy_controller"],
            schedule=bound["schedule"],
        )
