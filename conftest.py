"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

# Times belong to benchmarks: on a busy machine a law is not broken because checking it took long.
settings.register_profile("grpo", settings.default, deadline=None)
settings.load_profile("grpo")
