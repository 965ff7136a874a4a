"""Any task of one turn in open-instruct, as a verifier.

    python -c "from grpo_sdk.interop.open_instruct import dataset; dataset('math.gsm8k').to_json('train.jsonl')"

    # train.py, started by: python train.py --dataset_mixer_list train.jsonl 1.0 --verification_reward 1.0 …
    import runpy
    import grpo_sdk.interop.open_instruct
    runpy.run_module("open_instruct.grpo_fast", run_name="__main__")

The verifier's name is `grpo`; a row's `ground_truth` holds the task and the row, so one data set may mix tasks.
open-instruct cannot leave out a completion: one that cannot be scored raises `UnscoredError`, which ends the run. Read
in open-instruct's sources of August 2026.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.interop.adapter import TaskAdapter, dataset_of, label_of, read_label, requires, shared_adapter
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

with requires("open_instruct", "clone github.com/allenai/open-instruct and install it"):
    from open_instruct.ground_truth_utils import VerificationResult, VerifierConfig, VerifierFunction

VERIFIER = "grpo"
"""Name of the verifier, the column `dataset` of a row."""


def dataset(task: AnyTask) -> Any:
    """The rows of a task as a `datasets.Dataset` with the columns `messages`, `ground_truth` and `dataset`.

    Raises:
        UserError: open-instruct cannot train the task.
    """
    with TaskAdapter(task, "open-instruct") as adapter:
        return dataset_of(adapter, _record)


def _record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    messages = adapter.first_messages(row)
    return {"messages": messages, "ground_truth": label_of(adapter, row), "dataset": VERIFIER}


class TaskVerifier(VerifierFunction):
    """Scores completions of any task; open-instruct finds it when this module is imported.

    Args:
        verifier_config: Not used.
    """

    def __init__(self, verifier_config: VerifierConfig | None = None) -> None:
        super().__init__(VERIFIER, verifier_config=verifier_config, weight=1.0)

    def __call__(
        self,
        tokenized_prediction: list[int],
        prediction: str,
        label: Any,
        query: str | None = None,
        rollout_state: dict[str, Any] | None = None,
    ) -> VerificationResult:
        """Score a completion.

        Raises:
            DataError: the label is not one of `dataset`.
            UnscoredError: the completion cannot be scored.
        """
        adapter, row = _of_label(label)
        return _result(adapter, *adapter.score([prediction], [row]))

    async def async_call(
        self,
        tokenized_prediction: list[int],
        prediction: str,
        label: Any,
        query: str | None = None,
        rollout_state: dict[str, Any] | None = None,
    ) -> VerificationResult:
        """Like a call, without a thread."""
        adapter, row = _of_label(label)
        return _result(adapter, *await adapter.ascore([prediction], [row]))


def _of_label(label: Any) -> tuple[TaskAdapter, str]:
    spec, row = read_label(label, "open-instruct", "grpo_sdk.interop.open_instruct.dataset(TASK)")
    return shared_adapter(spec, "open-instruct"), row


def _result(adapter: TaskAdapter, score: Score) -> VerificationResult:
    return VerificationResult(score=adapter.value(score), reasoning=score.why)
