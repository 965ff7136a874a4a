"""Algorithm variants by kind and name, as "module:function": names are known without importing any of them.

A variant is a plain function in its own module; its keyword-only parameters are its configuration. Built-in ones are
declared below, plugins add theirs through the hook `grpo_variants`, a script through `register`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from grpo_core import plugins
from grpo_core.errors import PluginError, UserError, near_match, unknown_name

MAX_ARGUMENT = 1e18
"""Largest size of a number among a variant's arguments: it fits into 64 bits, and its square into float32."""

_ALGORITHMS = "grpo_core.algorithms"


def _in(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Name -> target, of variants that live in one module; `renamed` are those whose function has another name."""
    functions = {**{name: name for name in names}, **renamed}
    return {name: f"{_ALGORITHMS}.{module}:{function}" for name, function in functions.items()}


BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "advantage": {
        **_in("advantages.baselines", "group_mean", "leave_one_out", "batch_mean", "ema", "adaptive"),
        **_in("advantages.baselines", "adaptive_shrink", "role", "remax", "opo", "gpg"),
        **_in("advantages.normalised", "maxrl", "pass_at_k", "pass_at_k_best", "bnpo", "gdpo"),
        **_in("advantages.per_token", "reinforce_pp", "reinforce_pp_baseline", "value"),
    },
    "entropy_controller": _in("controllers", "constant", adaptive="adaptive_entropy"),
    "kl": _in("kl", "k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys", full="linear_full_kl"),
    "kl_controller": _in("controllers", "constant", "proportional", "ppo_rule", "step_rule"),
    "loss": {
        **_in("losses", "grpo", "dr_grpo", "dapo", "bnpo", "rloo", "reinforce", "gpg", "cispo", "sapo", "dro", "dppo"),
        **_in("sequence_losses", "gspo", "gspo_token", "gmpo", "luspo", "vespo", "seq_ppo"),
    },
    "schedule": {
        "constant": "grpo_core.training.schedules:constant",
        "cosine": "grpo_core.training.schedules:cosine",
        "none": "grpo_core.training.schedules:none",
    },
    "tracker": {
        "tensorboard": "grpo_core.tracking.tensorboard:tensorboard",
        "trackio": "grpo_core.tracking.trackio:trackio",
        "wandb": "grpo_core.tracking.wandb:wandb",
    },
}
"""Kind -> name -> where it is."""

_NEEDS_NO_GROUP = frozenset({"adaptive_shrink", "batch_mean", "ema", "reinforce_pp", "remax", "role", "value"})
"""Built-in baselines whose `needs_group` is False, known before torch is imported; a test holds it to the functions."""

_SCALES_ITSELF = frozenset(
    {"bnpo", "gdpo", "gpg", "maxrl", "pass_at_k", "pass_at_k_best", "reinforce_pp", "reinforce_pp_baseline", "value"}
)
"""Built-in baselines whose `scales_itself` is True, known as those above."""

_PROVIDED: Mapping[str, frozenset[str]] = {
    "advantage": frozenset(
        {
            "greedy_rewards",
            "keys",
            "lengths",
            "mask",
            "part_weights",
            "reward_parts",
            "roles",
            "state",
            "token_penalties",
            "values",
        }
    ),
    "kl": frozenset(
        {"bias", "chunk", "hidden", "ref_bias", "ref_hidden", "ref_weight", "softcap", "temperature", "weight"}
    ),
}
"""Keyword-only parameters that are no settings: what the trainer passes to a variant that names them."""

_registered: dict[str, dict[str, str]] = {}


def register(kind: str, name: str, target: str) -> None:
    """Register a variant from a script or notebook.

    Args:
        kind: `advantage`, `entropy_controller`, `kl`, `kl_controller`, `loss`, `schedule` or `tracker`.
        name: What the configuration will call it.
        target: "module:function".

    Raises:
        UserError: the name is taken (both are named), or the target is not "module:function".
    """
    _check_kind(kind)
    module, colon, function = target.partition(":")
    if not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UserError(f"{kind} {name!r}: {target!r} must be 'module:function'.")
    taken = _known(kind).get(name)
    if taken is not None and taken != target:
        raise UserError(f"{kind} {name!r} is registered as {taken} and as {target}; choose another name.")
    _registered.setdefault(kind, {})[name] = target


def unregister(kind: str, name: str) -> None:
    """Forget a variant that `register` added."""
    _registered.get(kind, {}).pop(name, None)


def names(kind: str) -> tuple[str, ...]:
    """Every registered name of a kind, sorted."""
    _check_kind(kind)
    return tuple(sorted(_known(kind)))


def check(kind: str, name: str) -> None:
    """Check that a name exists, importing neither it nor torch.

    Raises:
        UnknownNameError: it does not; says what does and the near match.
    """
    _target(kind, name)


def resolve(kind: str, name: str) -> Callable[..., Any]:
    """Import a variant.

    Raises:
        UnknownNameError: as for `check`.
        PluginError: its module cannot be imported or has no such function.
    """
    target = _target(kind, name)
    try:
        return plugins.resolve(target)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{kind} {name!r}: cannot import {target}: {error}") from error


def needs_group(name: str) -> bool:
    """Whether a baseline compares within a group, so that a group of one leaves nothing to learn from.

    A baseline that does not say (attribute `needs_group` of its function) is taken to need one.
    """
    check("advantage", name)
    if name in BUILT_IN["advantage"]:
        return name not in _NEEDS_NO_GROUP
    return bool(getattr(resolve("advantage", name), "needs_group", True))


def scales_itself(name: str) -> bool:
    """Whether a baseline normalises its advantages, so that dividing them by a deviation would do it twice.

    A baseline that does not say (attribute `scales_itself` of its function) is taken not to.
    """
    check("advantage", name)
    if name in BUILT_IN["advantage"]:
        return name in _SCALES_ITSELF
    return bool(getattr(resolve("advantage", name), "scales_itself", False))


def group_free_baselines() -> tuple[str, ...]:
    """Baselines that work with one completion per prompt, sorted."""
    return tuple(name for name in names("advantage") if not needs_group(name))


def parameters(kind: str, name: str) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a variant's function, by name.

    Raises:
        PluginError: it cannot be imported, or its annotations cannot be read.
    """
    function = resolve(kind, name)
    try:
        every = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        where = _target(kind, name)
        raise PluginError(f"{kind} {name!r}: the annotations of {where} cannot be read: {error}") from error
    return {key: each for key, each in every.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def arguments(kind: str, name: str) -> dict[str, inspect.Parameter]:
    """A variant's own arguments: its keyword-only parameters, less those that are no settings."""
    provided = _PROVIDED.get(kind, frozenset())
    return {key: each for key, each in parameters(kind, name).items() if key not in provided}


def validate_arguments(kind: str, name: str, given: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Check the arguments given to a variant against its signature, and fill in its defaults.

    Args:
        kind: The variant's kind.
        name: Its name.
        given: Argument -> value.
        section: What the user calls them, for messages: `trainer.loss_args`.

    Raises:
        UserError: an argument that does not exist, is missing, or has a wrong type.
    """
    own = arguments(kind, name)
    for argument in given:
        if argument not in own:
            listed = ", ".join(sorted(own)) or "(none)"
            raise UserError(
                f"{section}.{argument}: the {kind} {name} has no argument {argument!r}."
                f"{near_match(argument, own)} Its arguments: {listed}"
            )
    fields: dict[str, Any] = {
        key: (
            Any if each.annotation is each.empty else each.annotation,
            ... if each.default is each.empty else each.default,
        )
        for key, each in own.items()
    }
    model = create_model(
        f"{name}_arguments", __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields
    )
    try:
        checked = model.model_validate(dict(given))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        shown = "nothing" if problem["type"] == "missing" else repr(problem["input"])
        raise UserError(f"{section}.{place}: {problem['msg']} (given {shown}), by the {kind} {name}.") from None
    for key in given:
        value = getattr(checked, key)
        if isinstance(value, int | float) and abs(value) > MAX_ARGUMENT:
            raise UserError(f"{section}.{key}: a number is at most {MAX_ARGUMENT:g} in size, by the {kind} {name}.")
    return {key: getattr(checked, key) for key in own}


def _check_kind(kind: str) -> None:
    if kind not in BUILT_IN:
        raise unknown_name("kind of variant", kind, BUILT_IN)


def _known(kind: str) -> dict[str, str]:
    """Every name of a kind, and where it is as far as that is known; no plugin is imported."""
    return {**plugins.default_host().variants(kind), **_registered.get(kind, {}), **BUILT_IN[kind]}


def conflicts() -> list[str]:
    """Names that a plugin gives although they are taken; the plugin's is not used."""
    return [
        f"{kind} {name!r} is given by {known[name]} and {target}; rename or uninstall one."
        for kind in BUILT_IN
        for known in (_known(kind),)
        for name, target in plugins.default_host().variants(kind).items()
        if known[name] != target
    ]


def _target(kind: str, name: str) -> str:
    _check_kind(kind)
    target = BUILT_IN[kind].get(name) or _registered.get(kind, {}).get(name)
    target = target or plugins.default_host().variant(kind, name)
    if target is None:
        raise unknown_name(kind, name, _known(kind))
    return target
