"""Any task of one turn in NeMo-Gym, as a resources server.

    # resources_servers/grpo/app.py
    from grpo_sdk.interop.nemo_gym import TaskResourcesServer
    if __name__ == "__main__":
        TaskResourcesServer.run_webserver()

    # resources_servers/grpo/configs/grpo.yaml
    grpo: {resources_servers: {grpo: {entrypoint: app.py, domain: math, task: math.gsm8k}}}

`grpo_sdk.interop.nemo_gym.write_rows("math.gsm8k", "train.jsonl")` writes the rows. A completion that cannot be scored
has `mask_sample` and a class of failure, which leave it out of training and of averages. `grpo serve` serves the same
from an environment of its own, since NeMo-Gym needs Python 3.13.14. Read in nemo-gym 0.7.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from grpo_sdk.interop.adapter import TaskAdapter, requires, shared_adapter, write_jsonl
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.scoring.parts import part_names
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

INSTALL = "pip install 'nemo-gym>=0.7' with Python 3.13.14 or newer, or score by grpo serve, which needs neither"

with requires("nemo_gym", INSTALL, oldest="0.7"):  # an older one takes what could not be scored for a reward of 0
    from nemo_gym.base_resources_server import (
        BaseMultiRewardVerifyResponse,
        BaseResourcesServerConfig,
        BaseVerifyRequest,
        ReverifyMode,
        SimpleResourcesServer,
    )

FAILURE_CLASS = "verification_failed"
"""Class of the failures of a reward."""


class TaskServerConfig(BaseResourcesServerConfig):
    """Configuration of the server.

    Attributes:
        task: Spec of the task: `math.gsm8k`.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS
    task: str


class TaskVerifyRequest(BaseVerifyRequest):
    """A response to a row.

    Attributes:
        row: The row as JSON.
        instance_config: What NeMo-Gym knows of the rollout.
    """

    row: str
    instance_config: dict[str, Any] | None = None


class TaskVerifyResponse(TaskVerifyRequest, BaseMultiRewardVerifyResponse):
    """The score.

    Attributes:
        valid: 1 if the response holds an answer.
        solved: 1 if it is right.
        why: Reason of the score, in one line.
        mask_sample: Whether it cannot be scored; the reward says nothing then.
        failure_kind: Kind of the failure, where it cannot be scored.
        failure_reason: Its reason.
        failure_class: Sends the row to NeMo-Gym's file of failures.
    """

    valid: float
    solved: float
    why: str
    mask_sample: bool
    failure_kind: str | None = None
    failure_reason: str | None = None
    failure_class: str | None = Field(default=None, serialization_alias="_ng_failure_class")

    @model_serializer(mode="wrap")
    def _without_class(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """NeMo-Gym takes whatever has a class of failure, also none, for a failure."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if value is not None or "failure_class" not in name}


class TaskResourcesServer(SimpleResourcesServer):
    """Verifies responses by the score of a task."""

    config: TaskServerConfig

    async def verify(self, body: TaskVerifyRequest) -> TaskVerifyResponse:
        """Score the last message of a response.

        Raises:
            DataError: the row does not fit the task.
            UserError: NeMo-Gym cannot train the task.
        """
        adapter = shared_adapter(self.config.task, "NeMo-Gym")
        (score,) = await adapter.ascore([_text_of(body)], [body.row])
        answer = body.model_dump() | verdict(adapter, score, body.instance_config)
        verified: TaskVerifyResponse = TaskVerifyResponse.model_validate(answer)
        return verified


def verdict(adapter: TaskAdapter, score: Score, instance_config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a response says of a score.

    Args:
        adapter: The task.
        score: The score.
        instance_config: That of the request.
    """
    parts = {name: score.parts.get(name, 0.0) for name in part_names(adapter.task)}
    known = {"valid": float(score.valid), "solved": float(score.solved), "why": score.why, "reward_components": parts}
    if score.value is not None:
        return {**known, "reward": score.value, "mask_sample": False}
    return {
        **known,
        "reward": 0.0,
        "mask_sample": True,
        "instance_config": {**(instance_config or {}), "mask_sample": True},
        "failure_kind": f"grpo:{score.fault}",
        "failure_reason": score.why,
        "failure_class": FAILURE_CLASS,
    }


def write_rows(task: AnyTask, path: str | Path) -> None:
    """Write the rows of a task as the JSONL that NeMo-Gym reads.

    Args:
        task: The task.
        path: The file.

    Raises:
        UserError: NeMo-Gym cannot train the task.
    """
    with TaskAdapter(task, "NeMo-Gym") as adapter:
        write_jsonl(adapter, _record, path)


def _record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    return {"responses_create_params": {"input": adapter.first_messages(row)}, "row": row.model_dump_json()}


def _text_of(body: TaskVerifyRequest) -> str:
    """Text of the last message; empty where there is none, as after reasoning that never ended."""
    messages = [item for item in body.response.output if item.type == "message"]
    return "".join(part.text for part in messages[-1].content if part.type == "output_text") if messages else ""
