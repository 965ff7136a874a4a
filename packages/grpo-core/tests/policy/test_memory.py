"""Freed memory stays with the process while a run needs it again, and goes back to the system at its end."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides for itself")

FAULTS = """
import resource, torch
from pathlib import Path
from grpo_core.policy.memory import keep_freed_memory, release

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(64)]  # 256 MiB
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{call}
faults()
print(faults(), resident_mib())
release()
print(resident_mib())
"""


def measured(call: str, **environment: str) -> tuple[int, float, float]:
    """Page faults of 256 MiB that are taken a second time, and resident MiB before and after `release`."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(call=call)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    faults, before, after = done.stdout.split()
    return int(faults), float(before), float(after)


@needs_glibc
def test_memory_is_kept_until_it_is_released() -> None:
    faults, before, after = measured("keep_freed_memory(torch.device('cpu'))")
    assert faults < 20_000  # of 65,536 pages
    assert before - after > 200


HOLES = """
import resource, torch
from pathlib import Path
from grpo_core.policy.memory import returning_freed_memory

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def parts():
    kept = []
    torch.ones(2**22)  # a freed block raises the size from which on glibc maps
    for _ in range(16):
        wholes = [torch.ones(2**20) for _ in range(4)]  # 16 MiB, of which a quarter is kept
        kept += [whole[: 2**18].clone() for whole in wholes]
    return kept

{block}
    before = resident_mib()
    kept = parts()
    print(resident_mib() - before)
"""


@needs_glibc
def test_wholes_that_parts_are_cut_from_leave_no_holes() -> None:
    # 64 MiB are kept; 16 MiB are whole when the last parts are cut.
    command = [sys.executable, "-c", HOLES.format(block="with returning_freed_memory():")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 75


@needs_glibc
@pytest.mark.parametrize(
    ("call", "environment"),
    [
        ("pass", {}),
        ("keep_freed_memory(torch.device('cuda'))", {}),
        ("keep_freed_memory(torch.device('cpu'))", {"MALLOC_TRIM_THRESHOLD_": "131072"}),
    ],
)
def test_on_an_accelerator_or_with_the_users_own_threshold_nothing_changes(
    call: str, environment: dict[str, str]
) -> None:
    assert measured(call, **environment)[0] > 40_000
