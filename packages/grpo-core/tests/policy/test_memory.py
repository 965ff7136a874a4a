"""Freed memory stays with the process while a run needs it again, and goes back to the system at its end."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grpo_core.policy import memory_meter
from grpo_core.policy.memory import keep_freed_memory, peak_memory_mib
from grpo_core.policy.memory_meter import MIB, CudaMeter, PhaseMemory, ProcessMeter

PROGRAMS = Path(__file__).with_name("programs")
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides for itself")


def printed(program: str) -> list[float]:
    done = subprocess.run([sys.executable, PROGRAMS / program], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


@needs_glibc
def test_memory_is_kept_until_it_is_released() -> None:
    faults, before, after = printed("freed_memory.py")
    assert faults < 20_000  # of 65,536 pages
    assert before - after > 200


@needs_glibc
def test_wholes_that_parts_are_cut_from_leave_no_holes() -> None:
    assert printed("cut_parts.py")[0] < 75  # 64 MiB are kept, and 16 MiB are whole when the last parts are cut


def test_on_an_accelerator_and_with_the_users_own_threshold_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.policy.memory.ctypes.CDLL", pytest.fail)
    keep_freed_memory(torch.device("cuda"))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    keep_freed_memory(torch.device("cpu"))


# --- peaks


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the peak")
def test_a_process_peak_is_that_since_the_reset_and_the_whole_one_stays() -> None:
    # In a process of its own: what other tests left behind may be freed between two measurements.
    subprocess.run([sys.executable, PROGRAMS / "peaks.py"], check=True, timeout=120)


def test_without_proc_it_is_the_peak_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise OSError("no such file")

    monkeypatch.setattr(memory_meter.Path, "read_text", refuse)
    monkeypatch.setattr(memory_meter.Path, "write_text", refuse)
    meter = ProcessMeter()
    first = meter.peak()
    meter.reset()
    assert meter.peak() >= first > MIB
    assert meter.limit() > MIB


def test_a_cuda_peak_is_kept_over_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"now": 500 * MIB}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peaks["now"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peaks.update(now=100 * MIB))
    device = torch.device("cuda", 7)
    CudaMeter(device).reset()
    assert CudaMeter(device).peak() == 100 * MIB
    assert peak_memory_mib(device) == 500
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 7)
    assert peak_memory_mib(torch.device("cuda")) == 500


class FakeMeter:
    """A meter whose peaks are given."""

    def __init__(self, *peaks: int) -> None:
        self.peaks, self.resets = list(peaks), 0

    def reset(self) -> None:
        self.resets += 1

    def peak(self) -> int:
        return self.peaks.pop(0)

    def limit(self) -> int:
        return 100 * MIB


def test_phases_are_measured_one_by_one() -> None:
    meter = FakeMeter(10 * MIB, 30 * MIB, 20 * MIB, 25 * MIB)
    memory = PhaseMemory(meter)
    for _ in range(2):
        for name in ("generate", "update"):
            with memory.phase(name):
                pass
    assert meter.resets == 4
    assert memory.latest == {"memory/generate_mib": 20, "memory/update_mib": 25}
    assert memory.highest == {"memory/generate_mib": 20, "memory/update_mib": 30}
