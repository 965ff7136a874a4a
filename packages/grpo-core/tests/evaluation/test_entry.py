from collections.abc import Mapping, Sequence

import pytest
from evaluation_runs import evaluation_of

from grpo_core.evaluation.entry import entry_of
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.plan import EvaluationPlan
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk import Row, Score, Task, load_task, reward


@reward()
def seat(row):
    return 0.0


def metrics(scores: Sequence[Score]) -> Mapping[str, float]:
    mine = [score for score in scores if score.parts["seat"] == 1.0]
    lost = sum(score.value == -1.0 for score in mine)
    return {"play/lost": lost, **({"play/loss_rate": lost / len(mine)} if mine else {})}


TASK = load_task(
    Task("play", lambda config: [Row(id="1")], lambda row: "", lambda text: text, (seat,), row=Row, metrics=metrics)
)
HELD = HeldOutTask(TASK, EvaluationPlan(settings=EvaluationSettings()), TASK.rows())


def own_metrics(scores: Sequence[Score]) -> dict[str, float]:
    return dict(entry_of(evaluation_of(scores), HELD, "play", None)["metrics"])


def test_a_rate_of_zero_is_not_certain() -> None:
    found = own_metrics([Score(1.0, {"seat": 1.0})] * 20 + [Score(-1.0, {"seat": 0.0})] * 20)
    # Wilson's upper end for 0 of 20: z²/(n + z²) = 3.8415 / 23.8415 = 0.1611. The rows of the other seat do not count.
    assert found["play/loss_rate"] == 0.0
    assert (found["play/loss_rate_ci_low"], found["play/loss_rate_ci_high"]) == (0.0, pytest.approx(0.1611, abs=1e-4))


def test_a_count_keeps_the_bootstrap() -> None:
    found = own_metrics([Score(-1.0, {"seat": 1.0})] * 10 + [Score(1.0, {"seat": 1.0})] * 10)
    # Binomial with n = 20, p = 1/2: its 2.5% and 97.5% quantiles are 6 and 14.
    ends = [found[f"play/lost{end}"] for end in ("", "_ci_low", "_ci_high")]
    assert ends == [10.0, pytest.approx(6, abs=1), pytest.approx(14, abs=1)]
