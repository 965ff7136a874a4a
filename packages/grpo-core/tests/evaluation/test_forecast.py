"""A forecast counts what groups of a size would teach, says how sure it is, and agrees with the run that follows."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import replayed_tasks
import small_games
from evaluation_runs import evaluation_of
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import train
from grpo_core.cli.forecast_text import advice
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.evaluation.forecast import Times, forecast, mixture_forecast, no_signal
from grpo_core.evaluation.results import Evaluation
from grpo_core.training.forecasting import run_forecast
from grpo_sdk import Row, Score, load_task
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.cli.main import main

TIMES = Times(sampling=0.5, update=0.5, measured=1)


def evaluation(rewards: Sequence[Sequence[float | None]], difficulties: Sequence[float] = ()) -> Evaluation:
    flat = [reward for row in rewards for reward in row]
    scores = [Score(None, fault="reward") if each is None else Score(each, {}, True, each == 1) for each in flat]
    return evaluation_of(scores, len(rewards[0]), difficulties, temperature=1.0, split="train")


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=7), st.integers(2, 5))
def test_no_signal_is_the_share_of_all_groups_that_are_equal(rewards: list[float], generations: int) -> None:
    groups = list(itertools.combinations(rewards, generations))
    if not groups:
        assert math.isnan(no_signal(rewards, generations))
    else:
        assert no_signal(rewards, generations) == pytest.approx(sum(len(set(g)) == 1 for g in groups) / len(groups))


def test_shares_rates_and_the_histogram() -> None:
    result = forecast(evaluation([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]), 4, TIMES)
    assert result.histogram == (1, 0, 1, 1, 0, 0, 1)
    assert result.solved.value == pytest.approx(7 / 16)
    by_size = {size.generations: size for size in result.sizes}
    # Of the C(4, 2) = 6 pairs, 3 are equal with one solved, and 2 with two.
    assert by_size[2].no_signal.value == pytest.approx((1 + 1 + 3 / 6 + 2 / 6) / 4)
    assert by_size[4].no_signal.value == 0.5
    assert by_size[4].pass_at.value == 0.75
    # A group of 4 takes 4 s; half of them teach something.
    assert by_size[4].useful_per_hour.value == pytest.approx(3600 / 4 / 2)
    assert by_size[4].useful_per_hour.low < by_size[4].useful_per_hour.value < by_size[4].useful_per_hour.high
    result = forecast(evaluation([[None, 1, 0], [None, None, None], [None, 1, 1]]), 2, TIMES)
    assert (result.abstained, result.sizes[0].no_signal.n, result.solved.value) == (5, 2, 0.75), "what was not scored"


def test_the_sides_of_an_episode_are_one_observation() -> None:
    sides = evaluation([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 0], [0, 0, 0, 1]])
    rows = [Row(id=name) for name in ("a", "a", "b", "b")]
    result = forecast(replace(sides, rows=rows), 4, TIMES)
    assert (result.prompts, result.solved.n, result.sizes[0].no_signal.n) == (4, 2, 2)
    assert result.solved.value == 0.5


def test_a_mixture_is_the_weighted_mean_of_its_tasks() -> None:
    quick, slow = Times(sampling=0.5, update=0.5, measured=1), Times(sampling=2.0, update=1.0, measured=1)
    easy = forecast(evaluation([[1, 1, 1, 1], [1, 0, 0, 0]]), 4, quick)
    hard = forecast(evaluation([[0, 0, 0, 0]] * 2), 4, slow)
    mixture = mixture_forecast({"easy": easy, "hard": hard}, {"easy": 3.0, "hard": 1.0})
    assert mixture.shares == {"easy": 0.75, "hard": 0.25}
    assert mixture.solved.value == pytest.approx(0.75 * easy.solved.value)
    assert mixture.own_size.no_signal.value == pytest.approx(0.75 * 0.5 + 0.25)
    assert mixture.own_size.no_signal.low < mixture.own_size.no_signal.value < mixture.own_size.no_signal.high
    # A group of 4 takes 4 · (0.75 · 1 s + 0.25 · 3 s) = 6 s, and 0.375 of them have a signal.
    assert mixture.own_size.useful_per_hour.value == pytest.approx(3600 / 6 * 0.375)
    # Of independent estimates: √Σ (share · distance)², and the upper end of `hard` is at its value.
    above = mixture.own_size.no_signal.high - mixture.own_size.no_signal.value
    assert above == pytest.approx(0.75 * (easy.own_size.no_signal.high - 0.5))


def test_the_recommended_size_is_the_smallest_that_is_good_enough() -> None:
    # Every pair differs with chance 4 / 7 (16 of 28), every larger group surely or nearly so.
    assert forecast(evaluation([[1, 1, 1, 1, 0, 0, 0, 0]] * 20), 8, TIMES).recommended.generations == 4  # type: ignore[union-attr]
    assert forecast(evaluation([[1] * 8] * 20), 8, TIMES).recommended is None


ARITHMETIC = "math.arithmetic?min_difficulty=1&max_difficulty=3"


def test_advice_names_the_difficulties_with_signal() -> None:
    rewards = [[1.0, 1.0, 1.0, 1.0]] * 8 + [[1.0, 0.0, 1.0, 0.0]] * 8 + [[0.0, 0.0, 0.0, 0.0]] * 8
    result = forecast(evaluation(rewards, [1.0] * 8 + [2.0] * 8 + [3.0] * 8), 4, TIMES)
    assert [level.name for level in result.best_levels] == ["2"]
    lines = advice(result, load_task(ARITHMETIC))
    assert "difficulty 2 has the most signal: ?min_difficulty=2&max_difficulty=2" in lines
    assert any("dynamic_sampling" in line for line in lines)  # two thirds of the groups have no signal
    for reward, expected in ((1.0, "too easy (solved 1.00)"), (0.0, "too hard (solved 0.00)")):
        (line,) = advice(forecast(evaluation([[reward] * 4] * 20), 4, TIMES), load_task(ARITHMETIC))
        assert expected in line


@pytest.mark.parametrize(("arguments", "message"), [
    (["math.arithmetic", "--samples", "4"], "the run's groups have 8 completions"),
    (["math.arithmetic,games.tictactoe", "--model", "tiny"], "train it by itself, or against an opponent"),
])  # fmt: skip
def test_mistakes_are_found_at_once(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], message: str) -> None:
    assert main(["forecast", *arguments]) == 2
    assert message in capsys.readouterr().err


COMPARED = f"{Path(replayed_tasks.__file__)}:compared"


@pytest.mark.parametrize(("task", "prompts", "sides"), [
    pytest.param("math.arithmetic:1,math.comparison:1", 4, 1, id="a mixture"),
    pytest.param(COMPARED, 4, 1, id="group rewards"),
    pytest.param(f"{small_games.__file__}:HEAP?size=8", 4, 2, id="a game"),
    pytest.param(f"{small_games.__file__}:HEAP?opponent=base&illegal=random&size=8", 4, 1, id="an opponent"),
])  # fmt: skip
def test_its_samples_are_those_that_the_run_begins_with(tmp_path: Path, task: str, prompts: int, sides: int) -> None:
    """With as many samples as the run's groups have, a forecast computes what the run's first step logs."""
    sizes = {"max_steps": 1, "prompts_per_step": prompts * (task.count(",") + 1), "num_generations": 4}
    config = RunConfig(
        task=task, model="tiny", output_dir=str(tmp_path), eval=EvalConfig(at_start=False, at_end=False),
        trainer=TrainerConfig(max_completion_length=8, temperature=0.7, **sizes), scoring=ScoringConfig(workers=1),
    )  # fmt: skip
    result = run_forecast(config, prompts=prompts, samples=4, callbacks=Callbacks())
    first = orjson.loads((train(config, progress=False).run_dir / "logs" / "train_log.jsonl").read_bytes())
    assert result.own_size.no_signal.value == pytest.approx(first["frac_reward_zero_std"])
    assert result.reward.value == pytest.approx(first["reward"])
    assert result.solved.value == pytest.approx(first["solved_rate"])
    assert all(each.prompts == prompts * sides and each.samples == 4 for each in result.tasks.values())
    assert (result.times.update is not None) == (result.times.measured > 0)


def test_the_command_takes_mixtures_games_and_opponents(capsys: pytest.CaptureFixture[str]) -> None:
    sampled = ["--prompts", "2", "--samples", "4", "--quiet", "--model", "tiny", "trainer.num_generations=4"]
    assert main(["forecast", "math.arithmetic:3,math.comparison", *sampled, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(label, task["share"], task["prompts"], task["samples"]) for label, task in facts["tasks"].items()] == [
        ("math.arithmetic", 0.75, 2, 4), ("math.comparison", 0.25, 2, 4),
    ]  # fmt: skip
    assert [size["generations"] for size in facts["by_generations"]] == [2, 4]
    assert facts["update_s"] > 0 and facts["sampling_s"] > 0
    heap = f"{small_games.__file__}:HEAP?size=8"
    for task, *texts in (
        (heap, "the policy plays all sides, each a group", "4 (run)"),
        (f"math.arithmetic:3,{heap}&opponent=greedy", "here against greedy", "75%"),
    ):
        assert main(["forecast", task, *sampled]) == 0
        out = capsys.readouterr().out
        assert all(text in out for text in texts)
