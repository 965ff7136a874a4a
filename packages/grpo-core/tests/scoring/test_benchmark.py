from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[4] / "benchmarks" / "scoring.py"


@pytest.mark.skipif(not BENCHMARK.exists(), reason="benchmarks are only in the repository")
def test_the_benchmark_measures_every_way() -> None:
    short = ["--samples", "8", "--rounds", "1", "--workers", "1", "--hangs", "2"]
    command = [sys.executable, str(BENCHMARK), "--json", *short]
    report = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    ways = {(result["way"], result["work_us"]) for result in report["results"]}
    assert ways == {(way, us) for way in ("in process", "Scorer", "ProcessPoolExecutor") for us in (0, 1000)}
    assert all(result["samples_per_s"] > 0 for result in report["results"])
    assert report["score_after_deadline"]["median_s"] > 0 and report["score_after_deadline"]["hangs"] == 2
