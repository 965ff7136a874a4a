"""GPU profiles as plugins give them: plain data, checked when it is made. No pydantic, no pluggy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from grpo_core.errors import UserError, near_match

Backend = Literal["cuda", "rocm", "mps", "cpu"]

Precision = Literal["auto", "float32", "bfloat16", "float16", "float64"]

RESERVED = ("auto", "null", "none")
"""What `profile=` says otherwise."""

MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 64, 200

MAX_GIB, MAX_TOKENS = 2**20, 2**31
"""Beyond any accelerator and any pass."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_CAPABILITIES = {"cuda": (re.compile(r"\d{1,2}\.\d"), "9.0"), "rocm": (re.compile(r"gfx[0-9a-f]{3,5}"), "gfx942")}
"""How a backend writes what a device can do, with an example."""


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """Settings for a kind of accelerator, below everything that the user, a recipe or a model says.

    It applies where backend, compute capability and memory fit; among several that do, the name decides.

    Attributes:
        name: What `profile=` calls it.
        description: One line for `grpo profiles`.
        backend: `cuda`, `rocm`, `mps` or `cpu`.
        capabilities: CUDA compute capabilities, such as `8.6`, or architectures of ROCm, such as `gfx942`; empty for
            any.
        min_memory_gib: Least memory, as the driver reports it.
        max_memory_gib: Memory that is already too much; None is no bound.
        memory_gib: Memory that is counted with where the profile is named on another machine.
        name_contains: Parts of the driver's name that make it this one where several fit, such as `T4`.
        precision: The setting `precision`.
        completion_lengths: (GiB of memory per 10^9 parameters, `trainer.max_completion_length`), ascending: the last
            one that is reached applies.
        memory_share: Share of the memory that a run may need by its estimate.
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
    name_contains: tuple[str, ...] = ()
    precision: Precision = "auto"
    completion_lengths: tuple[tuple[float, int], ...] = ()
    memory_share: float = 0.8
    max_micro_batch_tokens: int = 0

    def __post_init__(self) -> None:
        for name, rule in _broken(self):
            value = f", {name}={getattr(self, name)!r:.60}" if name != "name" else ""
            raise UserError(f"GpuProfile({self.name!r:.60}{value}): {rule}")

    @classmethod
    def from_json(cls, data: Any) -> GpuProfile:
        """Read what `dataclasses.asdict` and JSON have made of a profile.

        Raises:
            ValueError: it is anything else.
        """
        names = {each.name for each in fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            raise ValueError("no facts of a GPU profile")
        lists = {name: _tuple(data[name]) for name in ("capabilities", "name_contains")}
        lengths = tuple(_tuple(pair) for pair in _tuple(data["completion_lengths"]))
        return cls(**data | lists | {"completion_lengths": lengths})


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no list")
    return tuple(value)


def _broken(profile: GpuProfile) -> Iterator[tuple[str, str]]:
    """The fields that are not allowed, with what is."""
    name = profile.name
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS or name in RESERVED:
        yield "name", f"a name has letters, digits, _, . and -, and is none of {', '.join(RESERVED)}."
    if not isinstance(profile.description, str) or not 0 < len(profile.description) <= MAX_DESCRIPTION_CHARS:
        yield "description", f"must be a text of at most {MAX_DESCRIPTION_CHARS} characters."
    for field, choices in (("backend", get_args(Backend)), ("precision", get_args(Precision))):
        value = getattr(profile, field)
        if value not in choices:
            yield field, f"must be {', '.join(choices)}.{near_match(str(value), choices)}"
    for field in ("capabilities", "name_contains"):
        if not _is_texts(getattr(profile, field)):
            yield field, 'must be a tuple of texts, as ("…",).'
    if profile.backend == "cpu":  # whose defaults stand: a run on a CPU is the same on every machine
        for field, nothing in (("precision", "auto"), ("completion_lengths", ()), ("max_micro_batch_tokens", 0)):
            if getattr(profile, field) != nothing:
                yield field, "a profile with backend='cpu' sets nothing; set it in a YAML file and give --config."
    yield from _broken_capabilities(profile)
    yield from _broken_sizes(profile)


def _broken_capabilities(profile: GpuProfile) -> Iterator[tuple[str, str]]:
    if not profile.capabilities or not _is_texts(profile.capabilities):
        return
    if profile.backend not in _CAPABILITIES:
        yield "capabilities", f"backend={profile.backend!r} has none."
        return
    pattern, example = _CAPABILITIES[profile.backend]
    if not all(map(pattern.fullmatch, profile.capabilities)):
        yield "capabilities", f"on {profile.backend} one is written as {example!r}."


def _broken_sizes(profile: GpuProfile) -> Iterator[tuple[str, str]]:
    least, highest, memory = profile.min_memory_gib, profile.max_memory_gib, profile.memory_gib
    for field in ("min_memory_gib", "memory_gib"):
        if not _is_number(getattr(profile, field), 0, MAX_GIB):
            yield field, f"must be a number of GiB from 0 to {MAX_GIB}."
            return
    if highest is not None and not (_is_number(highest, 0, MAX_GIB) and highest > least):
        yield "max_memory_gib", f"must be None, or a number of GiB above min_memory_gib={least:g}."
    elif memory and not (least <= memory and (highest is None or memory < highest)):
        yield "memory_gib", "must lie from min_memory_gib on and below max_memory_gib, or be 0."
    if not _is_number(profile.memory_share, 0, 1) or profile.memory_share == 0:
        yield "memory_share", "must be above 0 and at most 1."
    if not _is_whole(profile.max_micro_batch_tokens, 0):
        yield "max_micro_batch_tokens", "must be a whole number of tokens, or 0."
    if not _are_lengths(profile.completion_lengths):
        yield "completion_lengths", "must be pairs of (GiB per 10^9 parameters, tokens), ascending in GiB."


def _are_lengths(pairs: Any) -> bool:
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return False
    if not all(_is_number(least, 0, MAX_GIB) and _is_whole(tokens, 1) for least, tokens in pairs):
        return False
    steps = [least for least, _ in pairs]
    return steps == sorted(set(steps))


def _is_texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)


def _is_number(value: Any, low: float, high: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and low <= value <= high


def _is_whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= MAX_TOKENS
