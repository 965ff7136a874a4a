"""GPU profiles as plugins give them: plain data, checked when it is made. No pydantic, no pluggy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from grpo_sdk.errors import UserError, near_match

Backend = Literal["cuda", "rocm", "mps", "cpu"]

Precision = Literal["auto", "float32", "bfloat16", "float16", "float64"]

RESERVED = ("auto", "null", "none")
"""What `profile=` says otherwise."""

MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 64, 200

MAX_GIB, MAX_TOKENS = 2**20, 2**31
"""Beyond any accelerator and any pass."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_CAPABILITIES = {"cuda": re.compile(r"\d{1,2}\.\d"), "rocm": re.compile(r"gfx[0-9a-f]{3,5}")}
"""How a backend writes what a device can do."""


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """Settings for a kind of accelerator, below everything that the user, a recipe or a model says.

    It applies where backend, compute capability and memory fit; among several that do, a plugin's comes before ours.

    Attributes:
        name: What `profile=` calls it.
        description: One line for `grpo profiles`.
        backend: `cuda`, `rocm`, `mps` or `cpu`.
        capabilities: CUDA compute capabilities, such as `8.6`, or architectures of ROCm, such as `gfx942`; empty for
            any.
        min_memory_gib: Least memory, as the driver reports it.
        max_memory_gib: Memory that is already too much; None is no bound.
        memory_gib: Memory that is counted with where the profile is named on another machine.
        precision: The setting `precision`.
        max_micro_batch_tokens: Largest `trainer.micro_batch_tokens`, from which on a pass gets no faster; 0 where
            nothing is sized to the memory.

    Raises:
        UserError: a value is not allowed.
    """

    name: str
    description: str
    backend: Backend = "cuda"
    capabilities: tuple[str, ...] = ()
    min_memory_gib: float = 0.0
    max_memory_gib: float | None = None
    memory_gib: float = 0.0
    precision: Precision = "auto"
    max_micro_batch_tokens: int = 0

    def __post_init__(self) -> None:
        for field, is_allowed, rule in _rules(self):
            if not is_allowed:
                value = f", {field}={getattr(self, field)!r:.60}" if field != "name" else ""
                raise UserError(f"GpuProfile({self.name!r:.60}{value}): {rule}")


def _rules(profile: GpuProfile) -> Iterator[tuple[str, bool, str]]:
    """(field, whether its value is allowed, what is); a rule may count on those before it."""
    name, description, capabilities = profile.name, profile.description, profile.capabilities
    is_name = isinstance(name, str) and _NAME.fullmatch(name) and len(name) <= MAX_NAME_CHARS and name not in RESERVED
    yield "name", bool(is_name), f"a name has letters, digits, _, . and -, and is none of {', '.join(RESERVED)}."
    is_line = isinstance(description, str) and 0 < len(description) <= MAX_DESCRIPTION_CHARS
    yield "description", is_line, f"must be a text of at most {MAX_DESCRIPTION_CHARS} characters."
    for field, choices in (("backend", get_args(Backend)), ("precision", get_args(Precision))):
        value = getattr(profile, field)
        yield field, value in choices, f"must be {', '.join(choices)}.{near_match(str(value), choices)}"
    are_texts = isinstance(capabilities, tuple) and all(isinstance(each, str) for each in capabilities)
    yield "capabilities", are_texts, 'must be a tuple of texts, as ("…",).'
    pattern = _CAPABILITIES.get(profile.backend)
    are_written = all(pattern is not None and pattern.fullmatch(each) for each in capabilities)
    yield "capabilities", are_written, "on cuda one is written as '9.0', on rocm as 'gfx942'; other backends have none."
    for field in ("min_memory_gib", "memory_gib"):
        yield field, _is_number(getattr(profile, field), MAX_GIB), f"must be a number of GiB from 0 to {MAX_GIB}."
    least, memory, highest = profile.min_memory_gib, profile.memory_gib, profile.max_memory_gib
    is_bound = highest is None or (_is_number(highest, MAX_GIB) and highest > least)
    yield "max_memory_gib", is_bound, f"must be None, or a number of GiB above min_memory_gib={least:g}."
    is_within = not memory or least <= memory < (math.inf if highest is None else highest)
    yield "memory_gib", is_within, "must lie from min_memory_gib on and below max_memory_gib, or be 0."
    tokens = profile.max_micro_batch_tokens
    is_whole = isinstance(tokens, int) and _is_number(tokens, MAX_TOKENS)
    yield "max_micro_batch_tokens", is_whole, "must be a whole number of tokens, or 0."
    sets_nothing = "a profile with backend='cpu' sets nothing; set it in a YAML file and give --config."
    yield "precision", profile.backend != "cpu" or profile.precision == "auto", sets_nothing
    yield "max_micro_batch_tokens", profile.backend != "cpu" or not tokens, sets_nothing  # the same on every machine


def _is_number(value: Any, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= high
