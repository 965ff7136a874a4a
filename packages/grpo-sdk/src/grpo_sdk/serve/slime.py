"""slime's remote reward: `--rm-type remote_rm --rm-url http://host:port/TASK/remote_rm`.

    request   {"prompt": …, "response": completion, "label": row id or row as JSON}
    answer    a number

Read in slime's `slime/rollout/rm_hub/__init__.py`. A completion that cannot be scored is an answer with status 503, on
which slime tries again ten times and then fails: its protocol has no way to leave a sample out.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.serve.errors import AbstentionError
from grpo_sdk.serve.scoring import Sample, Service
from grpo_sdk.serve.tasks import ServedTask


async def remote_rm(service: Service, task: ServedTask, body: dict[str, Any]) -> float:
    """Score the completion of a request."""
    task.check_single_completion("slime")
    row = await service.row(task, body.get("label"))
    (score,) = await service.score(task, [Sample(service.completion(task, body.get("response")), row)])
    if score.value is None:
        raise AbstentionError(score)
    return score.value
