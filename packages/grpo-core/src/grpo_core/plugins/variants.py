"""Algorithm variants by kind and name; names and facts are known without importing any of them.

A variant is a plain function in its own module; its keyword-only parameters are its configuration. Built-in ones are
rows of `built_in.py`, plugins add theirs through the hook `grpo_variants`, a script through `register`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from grpo_core.algorithms.variant import FACTS, Variant
from grpo_core.errors import PluginError, UserError, near_match, unknown_name
from grpo_core.plugins import host
from grpo_core.plugins.built_in import BUILT_IN as BUILT_IN

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

_registered: dict[str, dict[str, Variant]] = {}


def register(kind: str, name: str, variant: Variant | str) -> None:
    """Register a variant from a script or notebook.

    Args:
        kind: `advantage`, `entropy_controller`, `kl`, `kl_controller`, `loss`, `schedule` or `tracker`.
        name: What the configuration will call it.
        variant: The variant, or its "module:function".

    Raises:
        UserError: the name is taken (both are named), or the target is not "module:function".
    """
    _check_kind(kind)
    variant = _as_variant(variant)
    target = variant.target
    module, colon, function = target.partition(":")
    if not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UserError(f"{kind} {name!r}: {target!r} must be 'module:function'.")
    taken = _known(kind).get(name)
    if taken is not None and taken.target != target:
        raise UserError(f"{kind} {name!r} is registered as {taken.target} and as {target}; choose another name.")
    _registered.setdefault(kind, {})[name] = variant


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
    _find(kind, name)


def get(kind: str, name: str) -> Variant:
    """A variant's facts. Nothing is imported unless it was registered as a plain "module:function".

    Raises:
        UnknownNameError: as for `check`.
        PluginError: as for `resolve`.
    """
    variant = _find(kind, name)
    if variant != Variant(variant.target) or name in BUILT_IN[kind]:
        return variant
    function = resolve(kind, name)
    return replace(variant, **{fact: getattr(function, fact) for fact in FACTS if hasattr(function, fact)})


def resolve(kind: str, name: str) -> Callable[..., Any]:
    """A variant's function, with the variant's own defaults.

    Raises:
        UnknownNameError: as for `check`.
        PluginError: its module cannot be imported or has no such function.
    """
    variant = _find(kind, name)
    try:
        function = host.resolve(variant.target)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{kind} {name!r}: cannot import {variant.target}: {error}") from error
    if not variant.presets:
        return function
    preset = partial(function, **variant.presets)
    preset.__doc__ = function.__doc__
    return preset


def group_free_baselines() -> tuple[str, ...]:
    """Baselines that work with one completion per prompt, sorted."""
    return tuple(name for name in names("advantage") if not get("advantage", name).needs_group)


def parameters(kind: str, name: str) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a variant's function, by name.

    Raises:
        PluginError: it cannot be imported, or its annotations cannot be read.
    """
    function = resolve(kind, name)
    try:
        every = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        where = _find(kind, name).target
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
    return {key: getattr(checked, key) for key in own}


def _check_kind(kind: str) -> None:
    if kind not in BUILT_IN:
        raise unknown_name("kind of variant", kind, BUILT_IN)


def _known(kind: str) -> dict[str, Variant]:
    """Every name of a kind, with plugins imported to ask them; built-in names never import one."""
    known = dict(BUILT_IN[kind])
    for source in (host.default_host().variants(kind), _registered.get(kind, {})):
        for name, given in source.items():
            variant = _as_variant(given)
            if name in known and known[name].target != variant.target:
                both = f"{known[name].target} and {variant.target}"
                raise PluginError(f"{kind} {name!r} is given by {both}; rename or uninstall one.")
            known[name] = variant
    return known


_PPO_CLIP_OF_0_1 = {
    f"grpo_core.algorithms.losses:{name}": BUILT_IN["loss"][name]
    for name in ("bnpo", "dapo", "dr_grpo", "grpo", "rloo")
}
"""Functions of version 0.1 that are rows over `ppo_clip` now; a plugin may have registered them under its own name."""


def _as_variant(given: Variant | str) -> Variant:
    if isinstance(given, Variant):
        return given
    return _PPO_CLIP_OF_0_1.get(given) or Variant(given)


def _find(kind: str, name: str) -> Variant:
    _check_kind(kind)
    if name in BUILT_IN[kind] and name not in _registered.get(kind, {}):
        return BUILT_IN[kind][name]
    known = _known(kind)
    if name not in known:
        raise unknown_name(kind, name, known)
    return known[name]
