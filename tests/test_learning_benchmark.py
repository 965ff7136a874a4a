"""The comparison of benchmarks/learning.py."""

from types import ModuleType

import pytest
from benchmark_scripts import load_script


@pytest.fixture(scope="module")
def learning() -> ModuleType:
    return load_script("learning")


def test_tokens_of_rejected_groups_count(learning: ModuleType) -> None:
    log = [
        {"step": 1, "completions/mean_length": 4.0, "dynamic_sampling/rejected": 32.0},
        {"step": 2, "completions/mean_length": 5.0},
    ]
    evaluations = [{"step": 0, "eval/tasks.a/solved_rate": 0.25}, {"step": 2, "eval/tasks.a/solved_rate": 0.5}]
    assert learning.points_of(log, evaluations) == ((0.0, 0.25), (4.0 * 8 * 64 + 5.0 * 8 * 32, 0.5))


def test_rates_are_compared_at_the_tokens_of_the_shortest_run(learning: ModuleType) -> None:
    points = [
        ("dr_grpo", ((0, 0.2), (1000, 0.4))),
        ("dr_grpo", ((0, 0.2), (1000, 0.6))),
        ("dapo", ((0, 0.2), (2000, 0.8))),
        ("dapo", ((0, 0.2), (500, 0.5), (2000, 0.8))),
    ]
    curves = [learning.Curve(name, seed % 2, 1.0, each, 60.0, "") for seed, (name, each) in enumerate(points)]
    first, second = learning.table_of(curves)[4:]
    assert first.split(" | ")[2:6] == ["0.400, 0.600", "0.500 ± 1.271", "0.141", "–"]
    assert second.split(" | ")[2:6] == ["0.500, 0.600", "0.550 ± 0.635", "0.071", "+0.050 ± 0.635"]
    assert "dapo" in learning.picture_of(curves, "a task")
