"""Settings of every test run."""

import atexit
import gc
import os
import shutil
import sys
import tempfile

import pytest
from hypothesis import settings

# The tests' models are too small for two threads, and beside other work threads that wait for one another spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is remembered of plugins is of this run of the tests; its workers share it.
if "GRPO_CACHE_DIR" not in os.environ:
    os.environ["GRPO_CACHE_DIR"] = tempfile.mkdtemp(prefix="grpo-tests-")
    atexit.register(shutil.rmtree, os.environ["GRPO_CACHE_DIR"], ignore_errors=True)

# Times belong to benchmarks: on a busy machine a law is not broken because checking it took long.
settings.register_profile("grpo", settings.default, deadline=None)
settings.load_profile("grpo")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than cores: tests wait for processes that they start. xdist's own variable says otherwise."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


_frozen_modules = 0


def pytest_runtest_setup() -> None:
    """Keep modules and tests, half a million objects, out of the garbage collections that runs make."""
    global _frozen_modules
    if len(sys.modules) >= _frozen_modules + 100:  # at first, and after a test has imported transformers or the like
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
