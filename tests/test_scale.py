"""Predictions of benchmarks/scale.py."""

from benchmark_scripts import load_script


def test_published_step_times_are_predicted_within_a_quarter() -> None:
    scale = load_script("scale")
    ratios = [row["ratio"] for row in scale.published(scale.Efficiency())]
    assert len(ratios) == 4 and all(0.75 < ratio < 1.25 for ratio in ratios)


def test_what_does_not_fit_is_not_predicted() -> None:
    scale = load_script("scale")
    rows = scale.table(scale.Work(), scale.Device(memory=8e9), scale.Efficiency())
    assert any(not row["fits"] for row in rows) and any(row["fits"] for row in rows)
