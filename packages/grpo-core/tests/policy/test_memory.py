"""Freed memory stays with the process while a run needs it again, and goes back to the system at its end."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grpo_core.algorithms.cpu_matmul import has_onednn
from grpo_core.policy import memory_meter
from grpo_core.policy.memory import keep_freed_memory
from grpo_core.policy.memory_meter import MIB, CudaMeter, ProcessMeter, peak_memory_mib

PROGRAM = Path(__file__).with_name("programs") / "host_memory.py"


@pytest.fixture(scope="module")
def measured() -> dict[str, list[float]]:
    """What is measured outside of this process, whose other tests have left memory behind."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another C library decides for itself")
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_memory_is_kept_until_it_is_released_and_wholes_leave_no_holes(measured: dict[str, list[float]]) -> None:
    faults, before, after = measured["freed"]
    assert faults < 20_000  # of 65,536 pages
    assert before - after > 200
    assert measured["parts"][0] < 75  # 64 MiB are kept, and 16 MiB are whole when the last parts are cut


@pytest.mark.skipif(not has_onednn(), reason="this torch or processor does not use oneDNN here")
def test_batches_of_many_lengths_do_not_fill_the_memory_with_kernels(measured: dict[str, list[float]]) -> None:
    assert measured["many_lengths"][0] < 400, "765 with caches of 1024 shapes"


def test_a_process_peak_is_that_since_the_reset_and_the_whole_one_stays(measured: dict[str, list[float]]) -> None:
    before, with_block, after, highest, limit = measured["peaks"]
    assert with_block - before > 0.9 * 120
    assert after < with_block - 0.5 * 120
    assert highest >= 0.99 * with_block  # the kernel counts in batches
    assert limit > with_block


def test_on_an_accelerator_and_with_the_users_own_threshold_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.policy.memory.ctypes.CDLL", pytest.fail)
    keep_freed_memory(torch.device("cuda"))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    keep_freed_memory(torch.device("cpu"))


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
