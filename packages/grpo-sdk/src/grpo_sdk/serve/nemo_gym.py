"""NeMo-Gym's resources server: `/verify`, and what it asks of a server without sessions.

    request   {"responses_create_params": …, "response": {"output": […]}, "row": row id or row, …}
    answer    the request with `reward`, `reward_components`, `mask_sample`, `failure_kind` and `failure_reason`

Read in nemo-gym 0.7.0, `nemo_gym/base_resources_server.py`. A completion that cannot be scored has `mask_sample`, which
leaves it out of training and of averages, and the marks with which its own judges fail.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.scoring.parts import all_parts
from grpo_sdk.serve.errors import abstention_of, bad_request
from grpo_sdk.serve.scoring import Sample, Service
from grpo_sdk.serve.tasks import ServedTask

FAILURE_CLASS = "verification_failed"
"""Sends a row to NeMo-Gym's file of failures."""


async def verify(service: Service, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """Score the response of a request."""
    task.check_single_completion("NeMo-Gym")
    for name in ("responses_create_params", "response"):
        if not isinstance(body.get(name), dict):
            raise bad_request(f"{name!r} is an object in NeMo-Gym's protocol.")
    row = await service.row(task, _row_of(body))
    text = service.completion(task, _text_of(body["response"]))
    (score,) = await service.score(task, [Sample(text, row)])
    answer = {**body, "valid": float(score.valid), "solved": float(score.solved), "why": score.why}
    if score.value is not None:
        parts = dict(all_parts(task.task, score))
        return {**answer, "reward": score.value, "reward_components": parts, "mask_sample": False}
    instance = body.get("instance_config")
    return {
        **answer,
        "reward": 0.0,
        "reward_components": dict.fromkeys(all_parts(task.task, score), 0.0),
        "mask_sample": True,
        "failure_kind": f"grpo:{score.fault or 'infrastructure'}",
        "failure_reason": abstention_of(score),
        # Readers of NeMo-Gym before mask_sample was a field of its own.
        "instance_config": {**(instance if isinstance(instance, dict) else {}), "mask_sample": True},
        "_ng_failure_class": FAILURE_CLASS,
    }


async def seed_session(service: Service, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """Begin a session, of which nothing is kept."""
    return _session(body)


async def close_session(service: Service, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """End a session, of which nothing was kept."""
    return _session(body)


def _session(body: dict[str, Any]) -> dict[str, Any]:
    name = body.get("resources_session_id")
    return {"resources_session_id": name} if isinstance(name, str) else {}


def _row_of(body: dict[str, Any]) -> Any:
    """The row: a field of its own, or in the metadata, of which NeMo-Gym has two kinds."""
    for place in (body, body.get("verifier_metadata"), body["responses_create_params"].get("metadata")):
        if isinstance(place, dict) and place.get("row") is not None:
            return place["row"]
    raise bad_request("no 'row': give its id, or the whole row, in each line of the JSONL.")


def _text_of(response: dict[str, Any]) -> str:
    """Text of the last message by the assistant; empty where there is none, as after reasoning that never ended."""
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise bad_request("'response.output' is a list of objects in NeMo-Gym's protocol.")
    messages = [
        item for item in output if item.get("type") == "message" and item.get("role", "assistant") == "assistant"
    ]
    if not messages:
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    blocks = [block for block in content or () if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block.get("text", "") for block in blocks if block.get("type") == "output_text"]
    if not all(isinstance(text, str) for text in texts):
        raise bad_request("the text of a message in 'response.output' is no text.")
    return "".join(texts)
