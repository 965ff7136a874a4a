"""The functions that a configuration names, looked up once, before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core.config import TrainerConfig
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.variant import Aggregation
from grpo_sdk.plugins.variants import BoundVariant


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The section `trainer` with the functions that it names.

    Attributes:
        config: The section, resolved.
        loss: Policy loss.
        aggregation: How the loss weights tokens.
        baseline: Turns rewards into advantages.
        kl: KL estimator.
        kl_controller: Changes the weight of the KL penalty.
        entropy_controller: Changes the weight of the entropy bonus.
        schedule: Learning rate schedule.
    """

    config: TrainerConfig
    loss: BoundVariant
    aggregation: Aggregation
    baseline: BoundVariant
    kl: BoundVariant
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
            kl_controller=bound["kl_controller"],
            entropy_controller=bound["entropy_controller"],
            schedule=bound["schedule"],
        )
