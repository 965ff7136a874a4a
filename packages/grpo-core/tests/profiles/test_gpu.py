"""Which profile an accelerator gets: capability and memory decide, never the name."""

from typing import Any, get_args

import pytest
import torch

from grpo_core.config import RunConfig
from grpo_core.profiles.accelerator import GIB, Accelerator, Backend, detect, process_count, process_options
from grpo_core.profiles.gpu import BUILT_IN, matching
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.gpu_profile import GpuProfile, Precision

RECORDED: list[tuple[str, Backend, str, float, str]] = [
    # profile, backend, name, GiB that the driver reports, compute capability
    ("v100", "cuda", "Tesla V100-SXM2-16GB", 15.77, "7.0"),
    ("t4", "cuda", "Tesla T4", 14.58, "7.5"),
    ("t4", "cuda", "NVIDIA H100 80GB HBM3", 14.6, "7.5"),  # the name decides nothing
    ("a100", "cuda", "NVIDIA A100-SXM4-40GB", 39.39, "8.0"),
    ("h100", "cuda", "NVIDIA H100 80GB HBM3", 79.10, "9.0"),
    ("h200", "cuda", "NVIDIA H200", 139.72, "9.0"),
    ("b200", "cuda", "NVIDIA B200", 178.35, "10.0"),
    ("consumer_16", "cuda", "NVIDIA GeForce RTX 4080", 15.70, "8.9"),
    ("consumer_24", "cuda", "NVIDIA GeForce RTX 5090", 31.36, "12.0"),
    ("workstation_48", "cuda", "NVIDIA L40S", 44.40, "8.9"),
    ("apple", "mps", "Apple arm", 11.2, ""),
    ("cpu", "cpu", "CPU", 15.5, ""),
    ("unknown", "cuda", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.75, "9.0"),
    ("unknown", "cuda", "GeForce GTX 1080 Ti", 10.9, "6.1"),
    ("mi200", "rocm", "AMD Instinct MI250X/MI250", 63.98, "gfx90a"),
    ("mi300", "rocm", "AMD Instinct MI300X", 191.98, "gfx942"),
    ("mi300", "rocm", "AMD Radeon Graphics", 287.98, "gfx950"),  # MI355X without the driver's table of names
    ("unknown", "rocm", "AMD Instinct MI300X", 23.99, "gfx942"),  # one of 8 partitions
]


@pytest.mark.parametrize(("profile", "backend", "name", "gib", "capability"), RECORDED)
def test_accelerators_get_profiles(profile: str, backend: Backend, name: str, gib: float, capability: str) -> None:
    chosen, why = matching(Accelerator(backend, name, int(gib * GIB), capability), BUILT_IN.values())
    assert chosen.name == profile and f"{gib:.1f} GiB" in why
    assert {each for each, *_ in RECORDED} == set(BUILT_IN), "every profile is matched"
    of_plugin = GpuProfile("t4_fast", "A plugin's", capabilities=("7.5",))  # which comes before ours
    t4 = Accelerator("cuda", "Tesla T4", int(14.6 * GIB), "7.5")
    assert matching(t4, [*BUILT_IN.values(), of_plugin])[0] is of_plugin


def test_without_a_driver_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: False)
    assert detect().backend == "cpu"
    assert detect("cuda:3").backend == "cpu"  # which is refused where the model is loaded


class Device:
    """What torch says of a device: an H200, or with ROCm an MI300X."""

    name, total_memory, major, minor = "a GPU", 196592 * 2**20, 9, 4
    gcnArchName = "gfx942:sramecc+:xnack-"  # torch's name


@pytest.mark.parametrize(("hip", "said", "profile"), [
    (None, "a GPU, 192.0 GiB, compute capability 9.4", "unknown"),
    ("6.4", "a GPU, 192.0 GiB, architecture gfx942", "mi300"),
])  # fmt: skip
def test_with_a_driver_torch_is_asked(monkeypatch: Any, hip: str | None, said: str, profile: str) -> None:
    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Device)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert str(detect("cuda:1")) == said
    assert matching(detect(), BUILT_IN.values())[0].name == profile
    assert detect("cpu").backend == "cpu"


@pytest.mark.parametrize(
    ("size", "node_size", "options"),
    [("1", "1", []), ("4", "4", ["--nproc", "4"]), ("16", "8", ["--nnodes", "2", "--nproc", "8"])],
)
def test_a_command_starts_as_many_processes(monkeypatch: Any, size: str, node_size: str, options: list[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", node_size)
    assert process_options() == options
    for wrong in ("abc", "", "0", "1.5", "²"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(UserError, match="is no number of processes: unset it"):
            process_count()


@pytest.mark.parametrize(("values", "rule"), [
    ({"name": "a b"}, "a name has letters"),
    ({"name": "auto"}, "is none of auto, null, none"),
    ({"description": ""}, "must be a text of at most 200"),
    ({"backend": "cudaa"}, "must be cuda, rocm, mps, cpu. Did you mean 'cuda'?"),
    ({"capabilities": "9.0"}, "must be a tuple of texts"),
    ({"capabilities": ("sm_90",)}, "on cuda one is written as '9.0'"),
    ({"capabilities": ("9.0",), "backend": "mps"}, "other backends have none"),
    ({"min_memory_gib": float("nan")}, "must be a number of GiB"),
    ({"memory_gib": True}, "must be a number of GiB"),
    ({"min_memory_gib": 10, "max_memory_gib": 10}, "above min_memory_gib=10"),
    ({"max_memory_gib": 12, "memory_gib": 12}, "below max_memory_gib"),
    ({"max_micro_batch_tokens": 1.5}, "must be a whole number of tokens"),
    ({"backend": "cpu", "max_micro_batch_tokens": 64}, "sets nothing"),
])  # fmt: skip
def test_a_profile_that_makes_no_sense_is_refused_in_one_line(values: dict[str, Any], rule: str) -> None:
    with pytest.raises(UserError) as refused:
        GpuProfile(**{"name": "slice", "description": "A slice", **values})
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_precisions_of_profiles_are_those_of_the_setting() -> None:
    assert get_args(Precision) == get_args(RunConfig.model_fields["precision"].annotation)
