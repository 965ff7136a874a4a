"""Settings of every test run."""

from __future__ import annotations

import os

from hypothesis import settings

# The tests' models are too small for two threads, and beside other work threads that wait for one another spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Times belong to benchmarks: on a busy machine a law is not broken because checking it took long.
settings.register_profile("grpo", settings.default, deadline=None)
settings.load_profile("grpo")
