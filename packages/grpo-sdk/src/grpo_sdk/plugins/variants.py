"""Algorithm variants by kind and name; names and facts are known without importing any of them.

A variant is a plain function in its own module; its keyword-only parameters are its configuration. Built-in ones are
rows of `built_in.py`, plugins add theirs through the hook `grpo_variants`, a script through `register`.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from grpo_sdk.errors import PluginError, UserError, near_match, unknown_name
from grpo_sdk.plugins import host, loading
from grpo_sdk.plugins.built_in import BUILT_IN as BUILT_IN
from grpo_sdk.plugins.built_in import as_variant
from grpo_sdk.plugins.variant import FACTS, Variant

MAX_ARGUMENT = 1e18
"""Largest size of a number among a variant's arguments: it fits into 64 bits, and its square into float32."""

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
    "engine": frozenset(
        {"gather", "is_quantized", "max_batch_tokens", "precision", "processes", "sampling", "version"}
    ),
    "kl": frozenset(
        {"bias", "chunk", "hidden", "ref_bias", "ref_hidden", "ref_weight", "softcap", "temperature", "weight"}
    ),
}
"""Keyword-only parameters that are no settings: what the trainer passes to a variant that names them."""

_registered: dict[str, dict[str, Variant]] = {}


@dataclass(frozen=True, slots=True)
class BoundVariant:
    """A variant with its arguments.

    Attributes:
        facts: What the registry states of it.
        function: The function, with the variant's own defaults.
        arguments: Every argument of the variant with its value.
        provided: Keyword-only parameters of the function that are no arguments: the trainer passes them.
    """

    facts: Variant
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    provided: frozenset[str]

    def __call__(self, *inputs: Any, **provided: Any) -> Any:
        """Call the function with the variant's arguments."""
        return self.function(*inputs, **provided, **self.arguments)


def register(kind: str, name: str, variant: Variant | str) -> None:
    """Register a variant from a script or notebook.

    Args:
        kind: `advantage`, `engine`, `entropy_controller`, `judge`, `kl`, `kl_controller`, `loss`, `metric`, `schedule`
            or `tracker`.
        name: What the configuration will call it.
        variant: The variant, or its "module:function".

    Raises:
        UserError: the name is taken (both are named), or the target is not "module:function".
    """
    _check_kind(kind)
    variant = as_variant(variant)
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
        function = loading.resolve(variant.target)
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
    _refuse_unknown(kind, name, given, own, section)
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


def check_argument_names(kind: str, name: str, given: Iterable[str], section: str) -> None:
    """Check the names of a variant's arguments by its source, so that neither it nor torch is imported.

    A function that the source does not show as a plain `def` is left to `bind`, which imports it.

    Args:
        kind: The variant's kind.
        name: Its name.
        given: Names of the arguments.
        section: Dotted key of the arguments, for messages.

    Raises:
        UserError: an argument that does not exist.
    """
    given = list(given)
    if not given:
        return
    module, _, function = _find(kind, name).target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8")) if spec and spec.origin else ast.Module([], [])
    except (ImportError, OSError, SyntaxError, ValueError):  # `bind` says what is wrong with it
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            own = {each.arg for each in node.args.kwonlyargs} - _PROVIDED.get(kind, frozenset())
            _refuse_unknown(kind, name, given, own, section)


def _refuse_unknown(kind: str, name: str, given: Iterable[str], own: Collection[str], section: str) -> None:
    for argument in given:
        if argument not in own:
            listed = ", ".join(sorted(own)) or "(none)"
            raise UserError(
                f"{section}.{argument}: the {kind} {name} has no argument {argument!r}."
                f"{near_match(argument, own)} Its arguments: {listed}"
            )


def bind(
    kind: str, name: str, given: Mapping[str, Any], section: str, settings: Mapping[str, Any] | None = None
) -> BoundVariant:
    """Look a variant up and check its arguments.

    Args:
        kind: The variant's kind.
        name: Its name.
        given: Argument -> value.
        section: Dotted key of the arguments, for messages.
        settings: Values of settings that are arguments of some variants; None leaves one at its default.

    Raises:
        UserError: as for `validate_arguments`, or the function's own check refuses an argument.
        PluginError: as for `parameters`.
    """
    own = arguments(kind, name)
    shared = {key: value for key, value in (settings or {}).items() if key in own and value is not None}
    checked = validate_arguments(kind, name, {**shared, **given}, section)
    provided = frozenset(parameters(kind, name)) - own.keys()
    bound = BoundVariant(get(kind, name), resolve(kind, name), checked, provided)
    _check_values(bound, section)
    return bound


def _check_values(bound: BoundVariant, section: str) -> None:
    """Check the arguments as the function says, if it does: see `checked_by`."""
    function = bound.function.func if isinstance(bound.function, partial) else bound.function
    check = getattr(function, "check_arguments", None)
    if check is None:
        return
    try:
        check(**{name: bound.arguments[name] for name in inspect.signature(check).parameters})
    except UserError as error:
        raise UserError(f"{section}.{error}") from None


def _check_kind(kind: str) -> None:
    if kind not in BUILT_IN:
        raise unknown_name("kind of variant", kind, BUILT_IN)


def _known(kind: str) -> dict[str, Variant]:
    """Every name of a kind, with its facts as far as they are known; no plugin is imported."""
    return {**host.default_host().variants(kind), **_registered.get(kind, {}), **BUILT_IN[kind]}


def conflicts() -> list[str]:
    """Names that a plugin gives although they are taken; the plugin's is not used."""
    return [
        f"{kind} {name!r} is given by {known[name].target} and {variant.target}; rename or uninstall one."
        for kind in BUILT_IN
        for known in (_known(kind),)
        for name, variant in host.default_host().variants(kind).items()
        if known[name].target != variant.target
    ]


def _find(kind: str, name: str) -> Variant:
    _check_kind(kind)
    variant = BUILT_IN[kind].get(name) or _registered.get(kind, {}).get(name)
    variant = variant or host.default_host().variant(kind, name)
    if variant is None:
        raise unknown_name(kind, name, _known(kind))
    return variant
