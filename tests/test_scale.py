"""Predictions of benchmarks/scale.py."""

from dataclasses import replace
from types import ModuleType

import pytest
from benchmark_scripts import load_script


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return load_script("scale")


def test_parameters_are_those_of_the_model_cards(scale: ModuleType) -> None:
    billions = [model.parameters / 1e9 for model in (*scale.MODELS, scale.LLAMA_8B, scale.QWEN3_32B)]
    assert billions == pytest.approx([0.49, 1.54, 7.61, 32.5, 8.03, 32.8], rel=0.01)


def test_published_step_times_are_predicted_within_a_quarter(scale: ModuleType) -> None:
    ratios = [row["ratio"] for row in scale.published(scale.Efficiency())]
    assert len(ratios) == 4 and all(0.75 < ratio < 1.25 for ratio in ratios)


def test_lengths_have_their_mean_and_limit(scale: ModuleType) -> None:
    lengths = scale.Work().lengths(4096)
    assert sum(lengths) / len(lengths) == pytest.approx(800, rel=0.01) and max(lengths) == 2048


def test_a_step_grows_with_its_work_and_shrinks_with_gpus(scale: ModuleType) -> None:
    model, work = scale.MODELS[1], scale.Work()

    def step(work: object, layout: object) -> float:
        return float(scale.predict(model, work, layout).step)

    eight = scale.Layout(8)
    assert step(work, scale.Layout(1)) > step(work, eight) > step(work, scale.Layout(64))
    assert step(replace(work, prompts=256), eight) > step(work, eight)
    assert step(replace(work, completion=1200), eight) > step(work, eight)
    assert step(replace(work, forwards=1), eight) > step(work, eight)
    assert step(work, scale.Layout(8, 4, overlap=True)) < step(work, scale.Layout(8, 4))


def test_what_does_not_fit_is_not_predicted(scale: ModuleType) -> None:
    assert scale.predict(scale.MODELS[3], scale.Work(), scale.Layout(8)) is None
    rows = scale.table(scale.Work(), scale.Device(memory=8e9), scale.Efficiency())
    assert any(not row["fits"] for row in rows) and any(row["fits"] for row in rows)
