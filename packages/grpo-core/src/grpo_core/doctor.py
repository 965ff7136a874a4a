"""What `grpo doctor` says of training: the settings, the disk for runs, torch, the device and the profile of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpo_core.config import RunConfig, load_config
from grpo_core.config.hardware import hardware_of
from grpo_core.profiles import accelerator, platforms
from grpo_sdk.doctor import machine
from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.plugins.facts import Diagnosis
from grpo_sdk.plugins.host import default_host


def settings() -> Iterator[Diagnosis]:
    """Diagnose what a run on this machine would choose."""
    config = RunConfig()
    try:
        config = load_config().config
    except GrpoError as error:  # a run would report the same; the rest can still be examined
        yield Diagnosis("configuration", "fail", str(error))
    yield machine.disk(Path(config.output_dir))
    platform = platforms.detect()
    yield Diagnosis("platform", "ok", f"{platform.name}: {platform}")
    try:
        hardware = hardware_of(config, default_host(), accelerator.detect(config.device))
    except UserError as error:
        yield Diagnosis("GPU profile", "fail", str(error))
        return
    if hardware is None:
        yield Diagnosis("GPU profile", "ok", "none: profile=null")
    else:
        profile = f"{hardware.profile.name}: {hardware.why}. {hardware.profile.description}"
        yield Diagnosis("GPU profile", "ok", profile)


def torch_and_device() -> Iterator[Diagnosis]:
    """Diagnose torch, and the device and precision that a run would compute with."""
    import torch

    from grpo_core.policy.device import EMULATED, choose_device, choose_precision

    try:
        config = load_config().config
    except GrpoError:  # `settings` says it
        config = RunConfig()
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    yield Diagnosis("torch", "ok", f"{torch.__version__}, {build}")
    try:
        chosen, why = choose_device(config.device)
    except UserError as error:
        yield Diagnosis("device", "fail", str(error))
        return
    where = str(chosen)
    if chosen.type == "cuda":
        facts = torch.cuda.get_device_properties(chosen)
        where += f" ({facts.name}, {facts.total_memory / 2**30:.1f} GiB; {torch.cuda.device_count()} of them)"
    is_idle = chosen.type == "cpu" and torch.version.cuda is not None and config.device == "auto"
    hint = "; this torch is made for CUDA: is a driver installed (nvidia-smi)?" if is_idle else ""
    yield Diagnosis("device", "ok", f"{where}: {why}{hint}")
    why = choose_precision(config.precision, chosen)[2]
    yield Diagnosis("precision", "warn" if EMULATED in why else "ok", why)
