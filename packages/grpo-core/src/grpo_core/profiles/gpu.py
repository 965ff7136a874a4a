"""GPU profiles: which settings suit which accelerator, as data, and the one that fits this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpo_core.profiles.accelerator import Accelerator
from grpo_sdk.errors import UnknownNameError, unknown_name
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.host import PluginHost, default_host

_ADA = ("8.6", "8.7", "8.9", "12.0", "12.1")

UNKNOWN = GpuProfile(
    "unknown", "An accelerator that fits no profile: precision by its capability, sizes by its memory",
    max_micro_batch_tokens=16384,
)  # fmt: skip

_ALL = (
    # name, description, backend, capabilities, GiB from, below, of the usual one, precision, tokens in a pass
    GpuProfile("v100", "Tesla V100, 16 or 32 GB: no bfloat16", "cuda", ("7.0", "7.2"), 14, 34, 15.8, "float16", 16384),
    GpuProfile("t4", "Tesla T4 and other Turing GPUs: no bfloat16, slow memory",
               "cuda", ("7.5",), 10, 17, 14.6, "float16", 8192),
    GpuProfile("consumer_16", "GeForce, RTX and laptop GPUs of 10 to 17 GB (RTX 4080, 5080, A4000)",
               "cuda", _ADA, 9, 18, 15.7, "bfloat16", 16384),
    GpuProfile("consumer_24", "GPUs of 20 to 32 GB (RTX 3090, 4090, 5090, A10, L4)",
               "cuda", _ADA, 18, 34, 23.5, "bfloat16", 16384),
    GpuProfile("workstation_48", "GPUs of 40 to 96 GB (A40, A6000, L40S, RTX PRO 6000)",
               "cuda", _ADA, 34, 100, 44.4, "bfloat16", 32768),
    GpuProfile("a100", "A100, 40 or 80 GB, and A30", "cuda", ("8.0",), 20, 90, 79.3, "bfloat16", 65536),
    GpuProfile("h100", "H100, 80 to 96 GB", "cuda", ("9.0",), 60, 100, 79.2, "bfloat16", 65536),
    GpuProfile("h200", "H200, 141 GB, and GH200", "cuda", ("9.0",), 100, None, 139.8, "bfloat16", 131072),
    GpuProfile("b200", "B200 and B300, 180 to 288 GB", "cuda", ("10.0", "10.3"), 100, None, 178.4, "bfloat16", 131072),
    GpuProfile("mi200", "AMD MI210, MI250 and MI250X: 64 GB for each device",
               "rocm", ("gfx90a",), 50, 100, 63.9, "bfloat16", 65536),
    GpuProfile("mi300", "AMD MI300A, MI300X, MI325X, MI350X and MI355X, 128 to 288 GB",
               "rocm", ("gfx942", "gfx950"), 100, None, 191.9, "bfloat16", 131072),
    GpuProfile("apple", "Apple silicon, unified memory", "mps", (), 0, None, 11.2, "float32", 8192),
    GpuProfile("cpu", "No accelerator: every default stands", "cpu"),
    UNKNOWN,
)  # fmt: skip

BUILT_IN: Mapping[str, GpuProfile] = MappingProxyType({profile.name: profile for profile in _ALL})
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

    Capability and memory decide, never the name; of several that fit the last, so a plugin's before ours.

    Returns:
        (profile, the reason); `UNKNOWN` where none fits.
    """
    fitting = [profile for profile in candidates if fits(profile, accelerator)]
    if not fitting:
        return UNKNOWN, f"{accelerator} fits no profile"
    return fitting[-1], str(accelerator)


def fits(profile: GpuProfile, accelerator: Accelerator) -> bool:
    """Whether backend, capability and memory are those of a profile."""
    if profile.backend != accelerator.backend or profile is UNKNOWN:
        return False
    if profile.capabilities and accelerator.capability not in profile.capabilities:
        return False
    memory, highest = accelerator.memory_gib, profile.max_memory_gib
    return memory >= profile.min_memory_gib and (highest is None or memory < highest)
