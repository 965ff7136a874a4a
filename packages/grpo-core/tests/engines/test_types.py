import subprocess
import sys

import pytest

from grpo_core.engines.completion import Completion
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.row import Row
from grpo_core.task.score import Score

COMPLETION = Completion((5, 6), (-0.1, -0.2), "ab", "stop", policy_version=3)
TURN = Turn((1, 2), COMPLETION)
ROW = Row(id="a")


def test_a_completion_has_a_logprob_for_every_token() -> None:
    with pytest.raises(ValueError, match="2 token_ids but 1 logprobs"):
        Completion((5, 6), (-0.1,), "ab", "stop", 0)


@pytest.mark.parametrize(
    ("score", "status"),
    [(None, "unscored"), (Score(None, fault="timeout"), "abstained"), (Score(0.0), "scored")],
)
def test_the_status_of_a_rollout_is_that_of_its_score(score: Score | None, status: str) -> None:
    statuses = ["unscored", "abstained", "scored"]
    assert Rollout("math.echo", ROW, 0, "", (TURN,), score, status).status == status  # type: ignore[arg-type]  # a literal
    for other in set(statuses) - {status}:
        with pytest.raises(ValueError, match=f"status '{other}' does not fit .* '{status}'"):
            Rollout("math.echo", ROW, 0, "", (TURN,), score, other)  # type: ignore[arg-type]  # wrong values are the point


def test_requests_and_rollouts_need_no_torch() -> None:
    code = "import sys, grpo_core.engines.base, grpo_core.rollouts.rollout; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
