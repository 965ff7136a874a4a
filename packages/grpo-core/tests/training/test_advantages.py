"""What baselines are given beside the rewards: every reward function of each completion's own task, with its weight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from small_policies import collated, rollout, turn

from grpo_core.config import TrainerConfig
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import Snapshot
from grpo_sdk import BoundTask, Row, Score, Task, group_reward, load_task, reward
from grpo_sdk.plugins import variants as registry

GDPO = TrainerConfig(baseline="gdpo", scale_rewards="none", advantage_args={"epsilon": 0.0})


def task(name: str, *rewards: Callable[..., object]) -> BoundTask:
    return load_task(Task(name, lambda: [Row(id="x")], lambda row: "x", lambda text: text, rewards, row=Row))


def weighing(**weights: float) -> list[Callable[..., object]]:
    """A reward function of each name with its weight."""
    functions = []
    for name, weight in weights.items():

        def function(answer: str) -> float:
            return 1.0

        function.__name__ = name
        functions.append(reward(weight)(function))
    return functions


def advantages(
    tasks: Mapping[str, BoundTask], rows: Sequence[tuple[str, Mapping[str, float] | None]], size: int = 2,
    config: TrainerConfig = GDPO,
) -> list[float]:  # fmt: skip
    """Advantages of (label, parts) of each completion, in groups of a size; None is not scored."""
    rollouts = []
    for number, (label, parts) in enumerate(rows):
        score = Score(None) if parts is None else Score(0.0, parts=dict(parts))
        rollouts.append(replace(rollout(turn((3,), (1, 2)), group=number // size), spec=label, score=score))
    estimator = AdvantageEstimator(Algorithm.of(config), tasks)
    values = [torch.nan if parts is None else parts.get("right", 0.0) for _, parts in rows]
    rewards = torch.tensor(values, dtype=torch.float64)
    labels = [label for label, _ in rows]
    made: list[float] = estimator(collated(*rollouts), Snapshot(), rollouts, rewards, labels, beta=0.0)[0].tolist()
    return made


A = 0.5**0.5
"""z of the larger of two numbers; of a group alone in its batch also the advantage of the better completion."""


def test_gdpo_sees_penalties_and_group_rewards_but_no_facts() -> None:
    @group_reward(0.2)
    def rare(answers: Sequence[str]) -> list[float]:
        return [0.0] * len(answers)

    @reward(0.5, maximum=0.0)
    def too_long(answer: str) -> float:
        return 0.0

    both_right = {"right": 1.0}
    for penalty, parts in (
        (weighing(long=-0.5), ({"long": 1.0}, {"long": 0.0})),
        ([too_long], ({"too_long": -1.0}, {"too_long": 0.0})),
        ([rare], ({"rare": 0.0}, {"rare": 1.0})),
    ):
        of = task("t", *weighing(right=1.0), *penalty)
        made = advantages({"t": of}, [("t", both_right | part) for part in parts])
        assert made == pytest.approx([-A, A]), penalty
    fact = task("t", *weighing(right=1.0, tokens=0.0))
    assert advantages({"t": fact}, [("t", both_right | {"tokens": number}) for number in (1.0, 9.0)]) == [0, 0]


def test_each_task_of_a_mixture_has_the_weights_of_its_own() -> None:
    tasks = {"a": task("a", *weighing(form=0.25, right=0.75)), "b": task("b", *weighing(right=0.25, form=0.75))}
    rows = [{"form": 1.0, "right": 0.0}, {"form": 0.0, "right": 1.0}]
    made = advantages(tasks, [*(("a", row) for row in rows), *(("b", row) for row in rows)])
    # Σ w·z = ∓A/2 in a and ±A/2 in b; the squares sum to 0.5 over 3 rows: std √(1/6), A/2 / √(1/6) = √0.75
    assert made == pytest.approx([-(0.75**0.5), 0.75**0.5, 0.75**0.5, -(0.75**0.5)])


def test_a_fact_of_one_task_may_be_a_reward_of_another() -> None:
    tasks = {"a": task("a", *weighing(right=1.0, form=0.0)), "b": task("b", *weighing(form=1.0))}
    apart = [{"right": 1.0, "form": 0.0}, {"right": 1.0, "form": 1.0}]
    made = advantages(tasks, [*(("a", row) for row in apart), *(("b", {"form": row["form"]}) for row in apart)])
    # z of b's group is ∓A, its squares sum to 1 over 3 rows: std √(1/3), A / √(1/3) = √1.5
    assert made == pytest.approx([0, 0, -(1.5**0.5), 1.5**0.5])


def test_what_is_not_scored_has_no_part() -> None:
    rows = [("t", {"right": 0.0}), ("t", {"right": 1.0}), ("t", None), ("t", {"right": 1.0})]
    assert advantages({"t": task("t", *weighing(right=1.0))}, rows)[2:] == [0, 0]


@pytest.mark.parametrize("baseline", sorted({*registry.names("advantage")} - {"remax", "value"}))
def test_every_baseline_tells_the_completions_of_a_batch_apart(baseline: str) -> None:
    rows = [("t", {"right": float(number % 6 == 0)}) for number in range(12)]
    tasks = {"t": task("t", *weighing(right=1.0))}
    made = advantages(tasks, rows, size=6, config=TrainerConfig(baseline=baseline, scale_rewards="none"))
    found = torch.tensor(made)  # of each completion, or of each of its tokens
    assert found.isfinite().all() and len(found.unique()) > 1
