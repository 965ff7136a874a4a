"""Facts about an algorithm variant that are known without importing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

Aggregation = Literal["constant", "token_mean", "sequence_mean", "sequence_sum", "group_max", "token_sum"]
Clipped = Literal["token", "sequence_product", "sequence_mean"]


@dataclass(frozen=True, slots=True)
class Variant:
    """An algorithm variant: where its function is, and the facts that configuration checks and pages need.

    Attributes:
        target: "module:function". The function's keyword-only parameters are the variant's arguments.
        summary: One line; by default the first line of the function's docstring.
        formula: Formula that it computes.
        source: Paper or code that defines it.
        aggregation: Loss: how tokens are weighted; see `grpo_core.algorithms.aggregation`.
        clips: Loss: whose ratio leaves the gradient outside of 1 − ε and 1 + ε_high: the token's, or the completion's
            (product of its tokens' ratios, or their geometric mean). None: it has no such clip.
        zero_without_advantage: Loss: value and gradient are 0 for a completion whose advantages are all 0, so that its
            forward and backward pass are skipped where no penalty needs them.
        epsilon: Loss: default of `trainer.epsilon`, where it is not the setting's own.
        epsilon_high: Loss: the same for `trainer.epsilon_high`.
        clip_why: Loss: the reason for these.
        scale_rewards: Loss: default of `trainer.scale_rewards`.
        scale_why: Loss: the reason for it.
        needs_group: Baseline: alone in its group, a completion has nothing to be compared with and gets advantage 0.
        per_token: Baseline: the advantages are [N, T], not [N].
        scales_itself: Baseline: they are normalised already, so that dividing by a deviation would do it twice.
        takes_penalties: Baseline: a penalty on the reward, for KL or length, lowers the advantage of its completion.
        penalties_why: Baseline: the reason where it does not, after "the baseline NAME".
        has_own_numerics: Engine: its log-probs are not the trainer's, so that `trainer.rollout_correction` is on by
            default.
    """

    target: str
    summary: str = field(default="", kw_only=True)
    formula: str = field(default="", kw_only=True)
    source: str = field(default="", kw_only=True)
    aggregation: Aggregation | None = field(default=None, kw_only=True)
    clips: Clipped | None = field(default=None, kw_only=True)
    zero_without_advantage: bool = field(default=False, kw_only=True)
    epsilon: float | None = field(default=None, kw_only=True)
    epsilon_high: float | None = field(default=None, kw_only=True)
    clip_why: str = field(default="", kw_only=True)
    scale_rewards: Literal["none", "group", "batch"] = field(default="none", kw_only=True)
    scale_why: str = field(default="", kw_only=True)
    needs_group: bool = field(default=True, kw_only=True)
    per_token: bool = field(default=False, kw_only=True)
    scales_itself: bool = field(default=False, kw_only=True)
    takes_penalties: bool = field(default=True, kw_only=True)
    penalties_why: str = field(default="does not see the size of the reward", kw_only=True)
    has_own_numerics: bool = field(default=False, kw_only=True)

    @property
    def presets(self) -> Mapping[str, Any]:
        """Arguments whose default is the variant's own, not the function's."""
        clip = {"epsilon": self.epsilon, "epsilon_high": self.epsilon_high}
        return {name: value for name, value in clip.items() if value is not None}


FACTS = (
    "formula", "source", "aggregation", "clips", "zero_without_advantage", "needs_group", "per_token", "scales_itself",
    "takes_penalties", "has_own_numerics",
)  # fmt: skip
"""Facts that a function may state as attributes of its own, for a variant registered as a plain "module:function"."""


def checked_by(check: Callable[..., None]) -> Callable[[Function], Function]:
    """Mark a variant's function with a check of its arguments, which is made before a model is loaded.

    Args:
        check: Takes some arguments of the function by name. It raises a `UserError` whose message begins with an
            argument, to which the section is added: `k=0 …` becomes `trainer.advantage_args.k=0 …`.
    """

    def mark(function: Function) -> Function:
        function.check_arguments = check  # type: ignore[attr-defined] # a function takes any attribute
        return function

    return mark
