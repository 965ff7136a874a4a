import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ears import Ears
from growing_run import GrowingRun

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.config.keys import keys
from grpo_core.tracking.diagnosis import GONE_STEPS
from grpo_core.tracking.monitor import Monitor
from grpo_core.tracking.observe import kl_target
from grpo_sdk.callbacks import Callbacks, RunInfo, StepRecord

HEALTHY: Mapping[str, float] = {
    "reward": 0.5,
    "solved_rate": 0.5,
    "abstained": 0,
    "task/math.a/abstained": 0,
    "task/math.a/reward": 0.5,
    "task/math.a/valid_rate": 0.1,
    "frac_reward_zero_std": 0.5,
    "grad_norm": 0.1,
    "kl/k3": 0.25,
    "entropy": 1.0,
    "completions/truncated_frac": 0.25,
    "clip_ratio/region": 0.2,
    "sampler_mismatch": 1e-2,
    "skipped_updates": 0,
}
"""At the limits, which are still healthy: KL 5 x 0.05."""


def monitored(trainer: TrainerConfig | None = None, **options: Any) -> tuple[Monitor, list[str]]:
    """A monitor, and what it says."""
    ears = Ears()
    return Monitor(RunConfig(trainer=trainer or TrainerConfig()), Callbacks([ears]), **options), ears.said


def warnings(steps: Sequence[Mapping[str, float]], **options: Any) -> list[str]:
    """What a monitor says over steps that differ from healthy ones as given."""
    monitor, said = monitored(TrainerConfig(**options))
    for step, changed in enumerate(steps, start=1):
        monitor.on_step(StepRecord(step, {**HEALTHY, **changed}))
    return said


CASES: dict[str, tuple[Mapping[str, float], int, dict[str, Any], str]] = {
    # metrics, logged steps until it is said, settings of the trainer, pattern of what is said
    "equal rewards": (
        *({"frac_reward_zero_std": 0.51}, 5, {}),
        r"51% of the groups have equal rewards for 5 .*temperature .*num_generations \(now 8\).*dynamic_sampling=true",
    ),
    "too easy": (
        *({"frac_reward_zero_std": 0.96, "solved_rate": 0.95}, 5, {}),
        r"too easy \(solved 0\.95\).*curriculum\.enabled=true",
    ),
    "too hard": (
        *({"frac_reward_zero_std": 0.9, "solved_rate": 0.01}, 5, {}),
        r"too hard \(solved 0\.01\).*grpo warm-start",
    ),
    "no gradient": ({"grad_norm": 0.0}, 3, {}, r"gradient is exactly 0 for 3 logged steps.*no token counts"),
    "no gradient, equal rewards": (
        *({"grad_norm": 0.0, "frac_reward_zero_std": 1.0, "solved_rate": 0.0}, 5, {}),
        r"100% of the groups have equal rewards.*the task is too hard",
    ),
    "no gradient, all masked": (
        *({"grad_norm": 0.0, "completions/truncated_frac": 1.0}, 3, {"mask_truncated_completions": True}),
        r"gradient is exactly 0.*truncated and masked: raise trainer\.max_completion_length \(now 256\)",
    ),
    "far away": ({"kl/k3": 0.26}, 3, {}, r"0\.26 nats per token.*5 × 0\.05.*trainer\.beta=0\.05"),
    "far away, constant beta": ({"kl/k3": 0.26}, 3, {"beta": 0.1}, r"raise trainer\.beta \(now 0\.1\).*step_rule"),
    "truncated": (
        *({"completions/truncated_frac": 0.26}, 3, {}),
        r"26% of the completions hit trainer\.max_completion_length=256.*mask_truncated_completions=true",
    ),
    "abstained": (
        *({"abstained": 2, "task/math.a/abstained": 2}, 1, {}),
        r"2 completions could not be scored \(math\.a: 2\).*scoring\.timeout_s",
    ),
    "invalid": ({"task/math.a/valid_rate": 0.09}, 10, {}, r"math\.a: the validator finds an answer in 9% .* for 10"),
    "mismatch": ({"sampler_mismatch": 0.011}, 3, {}, r"disagree by 0\.011 nats.*precision=float32.*token_truncate"),
    "clipped": ({"clip_ratio/region": 0.21}, 5, {}, r"21% of the tokens are clipped for 5 logged steps"),
    "never clipped": (
        *({"clip_ratio/region": 0.0}, 20, {"num_iterations": 2, "steps_per_generation": 2}),
        r"no token is clipped for 20 .* 4 optimizer steps",
    ),
    "skipped": ({"skipped_updates": 1}, 1, {}, r"1 optimizer steps were skipped.*learning_rate \(now 1e-06\).*float32"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_leaves_its_range_is_said_once_after_its_steps_without_one_between(case: str) -> None:
    changed, steps, options, pattern = CASES[case]

    def said(metrics: Sequence[Mapping[str, float]]) -> list[str]:
        return [each for each in warnings(metrics, **options) if re.search(pattern, each)]

    assert not said(([changed] * (steps - 1) + [{}]) * 5)
    (once,) = said([changed] * 30)
    assert once.startswith(f"step {steps}: ")


def test_every_setting_that_a_warning_names_exists() -> None:
    text = " ".join(said for changed, _, options, _ in CASES.values() for said in warnings([changed] * 9, **options))
    named = set(re.findall(r"\b(?:trainer|curriculum|scoring)\.\w+", text))
    assert len(named) > 8
    assert named <= set(keys())


EQUAL = {"frac_reward_zero_std": 1.0, "reward_min": 0.0, "reward_max": 0.0, "grad_norm": 0.0, "solved_rate": 0.0}


def test_what_is_no_alarm() -> None:
    assert not warnings([{}] * 50)
    assert not warnings([{"frac_reward_zero_std": 0.94, "solved_rate": 0.95}] * 30), "mastered"
    alike = [{"frac_reward_zero_std": 0.9}] * 5
    assert warnings(alike) and not warnings(alike, baseline="role", scale_rewards="none"), "no group is compared"
    scaled = [[{"skipped_updates": count, "loss_scale": scale} for count in (1, 2, 3)] for scale in (1.0, 1024.0)]
    assert warnings(scaled[0]) and not warnings(scaled[1]), "a loss scale that is being found"


def test_one_cause_has_one_warning_and_a_number_that_does_not_exist_changes_nothing() -> None:
    (warning,) = warnings([EQUAL] * 9)
    assert "all completions earn the same" in warning
    bad = {"grad_norm": 0.0}
    (said,) = warnings([bad, bad, {"grad_norm": math.nan}, bad])
    assert said.startswith("step 4: the gradient")


def test_entropy_collapses_against_its_own_start_unless_the_task_is_solved() -> None:
    start = [{"entropy": 1.0}] * 3
    low = {"entropy": 0.09, "solved_rate": 0.3}
    (said,) = warnings([*start, *[low] * 5])
    assert re.search(r"step 8: the entropy has fallen to 0\.09 nats.*trainer\.entropy_coef=0\.001", said)
    assert not warnings([*start, *[{**low, "solved_rate": 0.95}] * 9]), "sure because it is right"
    assert not warnings([*start, *[{"entropy": 0.11}] * 9]), "above a tenth of its start"
    assert not warnings([{"entropy": 0.05}] * 20), "it began so"


def test_the_target_is_that_of_the_controller() -> None:
    assert kl_target("constant", {}) == 0.05
    assert kl_target("step_rule", {}) == 0.01, "its default"
    assert kl_target("step_rule", {"target": 0.2}) == 0.2
    steered = TrainerConfig(beta=0.1, kl_controller="step_rule", kl_controller_args={"target": 0.2})
    monitor, said = monitored(steered, kl_target=0.2)
    for step, kl in enumerate([0.9] * 5 + [1.1] * 3, start=1):
        monitor.on_step(StepRecord(step, {**HEALTHY, "kl/k3": kl}))
    assert len(said) == 1 and said[0].startswith("step 8: ") and "the controller step_rule cannot hold it" in said[0]


def test_a_resumed_run_does_not_report_what_was_counted_before(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train_log.jsonl").write_text('{"step":4,"skipped_updates":2.0}\n')
    monitor, said = monitored()
    monitor.on_run_start(RunInfo(tmp_path, {}, (), 9))
    monitor.on_step(StepRecord(5, {**HEALTHY, "skipped_updates": 2}))
    assert said == []
    monitor.on_step(StepRecord(6, {**HEALTHY, "skipped_updates": 3}))
    assert said == [], "as without the interruption: the warning was given at step 4"
    for step in range(7, 7 + GONE_STEPS):
        monitor.on_step(StepRecord(step, {**HEALTHY, "skipped_updates": 3}))
    monitor.on_step(StepRecord(30, {**HEALTHY, "skipped_updates": 4}))
    assert len(said) == 1


def test_a_held_out_rate_falls_from_the_best_one_that_was_not_abandoned(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run_1")
    run.event("evaluation", step=30, task="math.a", result={"ci_low": 0.8, "ci_high": 0.9})
    run.event("start", step=10, total_steps=40)
    for step in range(1, 11):
        run.append("train_log.jsonl", {"step": step, "task/math.a/reward": step / 20 + step % 2 / 100})
    monitor, said = monitored()
    monitor.on_run_start(RunInfo(run.path, {}, (), 40, step=10))
    for step in range(11, 21):
        monitor.on_step(StepRecord(step, {**HEALTHY, "task/math.a/reward": step / 20 + step % 2 / 100}))
        if step % 5 == 0:
            monitor.on_evaluation("math.a", "interval", {"solved_rate": 0.5, "ci_low": 0.4, "ci_high": 0.6})
    assert said == []
    monitor.on_evaluation("math.a", "interval", {"solved_rate": 0.2, "ci_low": 0.1, "ci_high": 0.3})
    assert len(said) == 1 and "the held-out solved rate has fallen from 0.50" in said[0]


def test_a_gradient_far_above_those_before_is_said() -> None:
    usual = [{"grad_norm": 0.1}, {"grad_norm": 0.12}] * 10
    (said,) = warnings([*usual, {"grad_norm": 2.6}])
    assert "22 times the median" in said
    assert not warnings([*usual, {"grad_norm": 1.9}])


def test_what_was_gone_is_said_again_and_later_each_time() -> None:
    bad, good = [{"completions/truncated_frac": 1.0}] * 3, [{}] * GONE_STEPS
    assert len(warnings([*bad, *good[1:], *bad])) == 1, "not gone for long enough"
    assert len(warnings([*bad, *good, *bad])) == 2
    assert len(warnings([*bad, *good, *bad, *good, *bad])) == 2, "the second time it has to be gone for longer"
    assert len(warnings([*bad, *good, *bad, *good, *good, *bad])) == 3
