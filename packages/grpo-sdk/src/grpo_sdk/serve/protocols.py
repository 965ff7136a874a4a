"""The protocols that score one request at a time: our own `/score`, and those of OpenRLHF, slime and NeMo-Gym.

A function takes the task of the path and the body of the request, and returns the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from grpo_sdk.scoring.parts import all_parts, log_values
from grpo_sdk.serve.body import Message, abstention_of, bad_request, check_count, not_scored, parse
from grpo_sdk.serve.tasks import Sample, ServedTask
from grpo_sdk.task.marks import after_prompt
from grpo_sdk.task.score import Score

Handler = Callable[[ServedTask, dict[str, Any]], Awaitable[Any]]

RowReference = str | dict[str, Any]

OPENRLHF_FIELDS = ("query", "prompts", "labels")

FAILURE_CLASS = "verification_failed"
"""Sends a row to NeMo-Gym's file of failures."""


class ScoreRequest(Message):
    """Request of `/score`.

    Attributes:
        task: Name of the task, where the path has none.
        row: Row of all completions: its id, or the whole row as an object or as JSON text.
        rows: Row of each completion, in place of `row`.
        split: Split in which ids are looked up; by default all of them.
        completion: The completion.
        completions: Several completions, in place of `completion`.
        predictions: The opponent's answers to the completion, for a task that has an opponent; a list of them for each
            of several completions.
    """

    task: str | None = None
    row: RowReference | None = None
    rows: list[RowReference] | None = None
    split: str | None = None
    completion: str | None = None
    completions: list[str] | None = None
    predictions: list[str] | list[list[str]] | None = None


async def score(task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """`/score`, our own protocol, which says everything about a score: score one completion or several."""
    request = parse(ScoreRequest, body)
    if (request.completion is None) == (request.completions is None):
        raise bad_request("give either 'completion' or 'completions'.")
    if (request.row is None) == (request.rows is None):
        raise bad_request("give either 'row' or 'rows'.")
    texts = [request.completion] if request.completion is not None else list(request.completions or ())
    check_count(len(texts))
    references = request.rows if request.rows is not None else [request.row] * len(texts)
    if len(references) != len(texts):
        raise bad_request(f"{len(texts)} completions and {len(references)} rows: give one row for each completion.")
    predictions = _predictions(request, len(texts))
    distinct = {_key(reference): reference for reference in references}
    rows = {key: await task.row(reference, request.split) for key, reference in distinct.items()}
    samples = [
        Sample(text, rows[_key(reference)], predicted)
        for text, reference, predicted in zip(texts, references, predictions, strict=True)
    ]
    scores = [as_json(each) for each in await task.score(samples)]
    return scores[0] if request.completion is not None else {"scores": scores}


def as_json(score: Score) -> dict[str, Any]:
    """A score as plain values; `score` is null where `abstained` says why there is none."""
    return {
        "score": score.value,
        "abstained": abstention_of(score),
        "parts": score.parts,
        "valid": score.valid,
        "solved": score.solved,
        "why": score.why,
    }


def _predictions(request: ScoreRequest, count: int) -> list[tuple[str, ...] | None]:
    given = request.predictions
    if given is None:
        return [None] * count
    lists: list[Any] = [given] if request.completion is not None else list(given)
    are_texts = all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in lists)
    if len(lists) != count or not are_texts:
        raise bad_request("'predictions' is a list of texts for each completion.")
    return [tuple(each) for each in lists]


def _key(reference: Any) -> Any:
    """What names a row within a request; an object by its identity, since one without hash cannot be a key."""
    return reference if isinstance(reference, str) else id(reference)


async def get_reward(task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """OpenRLHF's reward server: `--reward.remote_url http://host:port/TASK/get_reward`.

        request   {"query": [prompt + completion, …], "prompts": [prompt, …], "labels": [row id or row as JSON, …]}
        answer    {"rewards": […], "scores": […], "extra_logs": {"solved": […], …}}

    Read in OpenRLHF 0.11.2, `openrlhf/utils/agent.py`. A completion that cannot be scored is an answer with status 503,
    on which OpenRLHF tries again and then leaves the sample without a reward.
    """
    task.check_single_completion("OpenRLHF")
    queries, prompts, labels = (_texts(body, name) for name in OPENRLHF_FIELDS)
    check_count(len(queries))
    if not len(queries) == len(prompts) == len(labels):
        raise bad_request(f"{len(queries)} query, {len(prompts)} prompts, {len(labels)} labels: give as many of each.")
    samples = [
        Sample(task.completion(after_prompt(prompt, query)), await task.row(label))
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    scores = await task.score(samples)
    for each in scores:
        if each.abstained:
            raise not_scored(each)
    values = [each.value for each in scores]
    logged = [log_values(task.task, each) for each in scores]
    return {
        "rewards": values,
        "scores": values,
        "extra_logs": {name: [each[name] for each in logged] for name in logged[0]},
    }


def _texts(body: dict[str, Any], name: str) -> list[str]:
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise bad_request(f"{name!r} is a list of texts in OpenRLHF's protocol.")
    return values


async def remote_rm(task: ServedTask, body: dict[str, Any]) -> float:
    """Slime's remote reward: `--rm-type remote_rm --rm-url http://host:port/TASK/remote_rm`.

        request   {"prompt": …, "response": completion, "label": row id or row as JSON}
        answer    a number

    Read in slime's `slime/rollout/rm_hub/__init__.py`. A completion that cannot be scored is an answer with status 503,
    on which slime tries again ten times and then fails: its protocol has no way to leave a sample out.
    """
    task.check_single_completion("slime")
    row = await task.row(body.get("label"))
    (scored,) = await task.score([Sample(task.completion(body.get("response")), row)])
    if scored.value is None:
        raise not_scored(scored)
    return scored.value


async def verify(task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """NeMo-Gym's resources server.

        request   {"responses_create_params": …, "response": {"output": […]}, "row": row id or row, …}
        answer    the request with `reward`, `reward_components`, `mask_sample`, `failure_kind` and `failure_reason`

    Read in nemo-gym 0.7.0, `nemo_gym/base_resources_server.py`. A completion that cannot be scored has `mask_sample`,
    which leaves it out of training and of averages, and the marks with which its own judges fail.
    """
    task.check_single_completion("NeMo-Gym")
    for name in ("responses_create_params", "response"):
        if not isinstance(body.get(name), dict):
            raise bad_request(f"{name!r} is an object in NeMo-Gym's protocol.")
    row = await task.row(_nemo_row(body))
    (scored,) = await task.score([Sample(task.completion(_nemo_text(body["response"])), row)])
    parts = all_parts(task.task, scored)
    answer = {**body, "valid": float(scored.valid), "solved": float(scored.solved), "why": scored.why}
    if scored.value is not None:
        return {**answer, "reward": scored.value, "reward_components": parts, "mask_sample": False}
    instance = body.get("instance_config")
    return {
        **answer,
        "reward": 0.0,
        "reward_components": dict.fromkeys(parts, 0.0),
        "mask_sample": True,
        "failure_kind": f"grpo:{scored.fault or 'infrastructure'}",
        "failure_reason": abstention_of(scored),
        # Readers of NeMo-Gym before mask_sample was a field of its own.
        "instance_config": {**(instance if isinstance(instance, dict) else {}), "mask_sample": True},
        "_ng_failure_class": FAILURE_CLASS,
    }


async def session(task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """NeMo-Gym's begin and end of a session, of which nothing is kept."""
    name = body.get("resources_session_id")
    return {"resources_session_id": name} if isinstance(name, str) else {}


def _nemo_row(body: dict[str, Any]) -> Any:
    """The row: a field of its own, or in the metadata, of which NeMo-Gym has two kinds."""
    for place in (body, body.get("verifier_metadata"), body["responses_create_params"].get("metadata")):
        if isinstance(place, dict) and place.get("row") is not None:
            return place["row"]
    raise bad_request("no 'row': give its id, or the whole row, in each line of the JSONL.")


def _nemo_text(response: dict[str, Any]) -> str:
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
    blocks = [{"type": "output_text", "text": content}] if isinstance(content, str) else content or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise bad_request("the content of a message in 'response.output' is a text or a list of objects.")
    texts = [block.get("text") for block in blocks if block.get("type") != "refusal"]
    if not all(isinstance(text, str) for text in texts):
        raise bad_request("the text of a message in 'response.output' is no text.")
    return "".join(texts)


POSTED: Mapping[str, Handler] = {
    "score": score,
    "get_reward": get_reward,
    "remote_rm": remote_rm,
    "verify": verify,
    "seed_session": session,
    "close_session": session,
}
"""Name of a path -> what answers POST requests to it; those of OpenEnv come beside."""
