"""GPU profiles: which settings suit which accelerator, as data, and the one that fits this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpo_core.errors import UnknownNameError, unknown_name
from grpo_core.plugins.gpu_profile import GpuProfile
from grpo_core.plugins.host import PluginHost, default_host
from grpo_core.profiles.accelerator import Accelerator

LENGTHS = ((0.0, 256), (6.0, 384), (12.0, 512))
"""rl_coding_games' own: 256 tokens for 3B on a V100 of 16 GB (5 GiB per 10^9), 384 for 1.5B there, 512 above."""

_ADA = ("8.6", "8.7", "8.9", "12.0", "12.1")

_ALL = (
    GpuProfile(
        "v100", "Tesla V100, 16 or 32 GB: no bfloat16",
        capabilities=("7.0", "7.2"), min_memory_gib=14, max_memory_gib=34, memory_gib=15.8, precision="float16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=16384,
    ),
    GpuProfile(
        "t4", "Tesla T4 and other Turing GPUs: no bfloat16, slow memory",
        capabilities=("7.5",), min_memory_gib=10, max_memory_gib=17, memory_gib=14.6, name_contains=("T4",),
        precision="float16", completion_lengths=LENGTHS, max_micro_batch_tokens=8192,
    ),
    GpuProfile(
        "consumer_16", "GeForce, RTX and laptop GPUs of 10 to 17 GB (RTX 4080, 5080, A4000)",
        capabilities=_ADA, min_memory_gib=9, max_memory_gib=18, memory_gib=15.7, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=16384,
    ),
    GpuProfile(
        "consumer_24", "GPUs of 20 to 32 GB (RTX 3090, 4090, 5090, A10, L4)",
        capabilities=_ADA, min_memory_gib=18, max_memory_gib=34, memory_gib=23.5, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=16384,
    ),
    GpuProfile(
        "workstation_48", "GPUs of 40 to 96 GB (A40, A6000, L40S, RTX PRO 6000)",
        capabilities=_ADA, min_memory_gib=34, max_memory_gib=100, memory_gib=44.4, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=32768,
    ),
    GpuProfile(
        "a100", "A100, 40 or 80 GB, and A30",
        capabilities=("8.0",), min_memory_gib=20, max_memory_gib=90, memory_gib=79.3, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=65536,
    ),
    GpuProfile(
        "h100", "H100, 80 to 96 GB",
        capabilities=("9.0",), min_memory_gib=60, max_memory_gib=100, memory_gib=79.2, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=65536,
    ),
    GpuProfile(
        "h200", "H200, 141 GB, and GH200",
        capabilities=("9.0",), min_memory_gib=100, memory_gib=139.8, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=131072,
    ),
    GpuProfile(
        "b200", "B200 and B300, 180 to 288 GB",
        capabilities=("10.0", "10.3"), min_memory_gib=100, memory_gib=178.4, precision="bfloat16",
        completion_lengths=LENGTHS, max_micro_batch_tokens=131072,
    ),
    GpuProfile(
        "mi200", "AMD MI210, MI250 and MI250X: 64 GB for each device",
        backend="rocm", capabilities=("gfx90a",), min_memory_gib=50, max_memory_gib=100, memory_gib=63.9,
        precision="bfloat16", completion_lengths=LENGTHS, max_micro_batch_tokens=65536,
    ),
    GpuProfile(
        "mi300", "AMD MI300A, MI300X, MI325X, MI350X and MI355X, 128 to 288 GB",
        backend="rocm", capabilities=("gfx942", "gfx950"), min_memory_gib=100, memory_gib=191.9,
        precision="bfloat16", completion_lengths=LENGTHS, max_micro_batch_tokens=131072,
    ),
    GpuProfile(
        "apple", "Apple silicon, unified memory",
        backend="mps", memory_gib=11.2, precision="float32", completion_lengths=LENGTHS, max_micro_batch_tokens=8192,
    ),
    GpuProfile("cpu", "No accelerator: every default stands", backend="cpu"),
)  # fmt: skip

UNKNOWN = GpuProfile(
    "unknown", "An accelerator that fits no profile: precision by its capability, sizes by its memory",
    completion_lengths=LENGTHS, max_micro_batch_tokens=16384,
)  # fmt: skip

BUILT_IN: Mapping[str, GpuProfile] = MappingProxyType({profile.name: profile for profile in (*_ALL, UNKNOWN)})
"""The profiles of grpo-core by name."""


def profiles(host: PluginHost | None = None) -> dict[str, GpuProfile]:
    """Every profile by name; a plugin's stands in for a built-in one of its name."""
    return {**BUILT_IN, **(host or default_host()).profiles()}


def named(name: str, host: PluginHost | None = None) -> GpuProfile:
    """A profile by name.

    Raises:
        UnknownNameError: there is none; says the near match, and which plugins are broken.
        PluginError: two plugins give it.
    """
    host = host or default_host()
    if (profile := host.profile(name) or BUILT_IN.get(name)) is None:
        raise UnknownNameError(f"{unknown_name('profile', name, ['auto', *profiles(host)])}{host.not_loaded()}")
    return profile


def matching(accelerator: Accelerator, candidates: Iterable[GpuProfile]) -> tuple[GpuProfile, str]:
    """The profile that fits an accelerator.

    Capability and memory decide. A name is a hint only: it chooses among several that fit, a plugin's before ours.

    Returns:
        (profile, the reason); `UNKNOWN` where none fits.
    """
    fitting = [profile for profile in candidates if fits(profile, accelerator)]
    hinted = [
        profile for profile in fitting
        if any(part.lower() in accelerator.name.lower() for part in profile.name_contains)
    ]  # fmt: skip
    chosen = next(iter([*reversed(hinted), *reversed(fitting)]), None)
    if chosen is None:
        return UNKNOWN, f"{accelerator} fits no profile"
    return chosen, str(accelerator)


def fits(profile: GpuProfile, accelerator: Accelerator) -> bool:
    """Whether backend, capability and memory are those of a profile."""
    if profile.backend != accelerator.backend or profile is UNKNOWN:
        return False
    if profile.capabilities and accelerator.capability not in profile.capabilities:
        return False
    memory, highest = accelerator.memory_gib, profile.max_memory_gib
    return memory >= profile.min_memory_gib and (highest is None or memory < highest)
