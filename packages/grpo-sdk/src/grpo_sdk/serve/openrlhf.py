"""OpenRLHF's reward server: `--reward.remote_url http://host:port/TASK/get_reward`.

    request   {"query": [prompt + completion, …], "prompts": [prompt, …], "labels": [row id or row as JSON, …]}
    answer    {"rewards": […], "scores": […], "extra_logs": {"solved": […], …}}

Read in OpenRLHF 0.11.2, `openrlhf/utils/agent.py`. A completion that cannot be scored is an answer with status 503, on
which OpenRLHF tries again and then leaves the sample without a reward.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.scoring.parts import log_values
from grpo_sdk.serve.body import check_count
from grpo_sdk.serve.errors import AbstentionError, bad_request
from grpo_sdk.serve.scoring import Sample, Service
from grpo_sdk.serve.tasks import ServedTask

FIELDS = ("query", "prompts", "labels")


async def get_reward(service: Service, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """Score the completions of a request."""
    task.check_single_completion("OpenRLHF")
    queries, prompts, labels = (_texts(body, name) for name in FIELDS)
    check_count(len(queries))
    if not len(queries) == len(prompts) == len(labels):
        raise bad_request(f"{len(queries)} query, {len(prompts)} prompts, {len(labels)} labels: give as many of each.")
    samples = [
        Sample(service.completion(task, _after(prompt, query)), await service.row(task, label))
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    scores = await service.score(task, samples)
    for score in scores:
        if score.abstained:
            raise AbstentionError(score)
    values = [score.value for score in scores]
    logged = [log_values(task.task, score) for score in scores]
    logs = {name: [each[name] for each in logged] for name in logged[0]} if logged else {}
    return {"rewards": values, "scores": values, "extra_logs": logs}


def _texts(body: dict[str, Any], name: str) -> list[str]:
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise bad_request(f"{name!r} is a list of texts in OpenRLHF's protocol.")
    return values


def _after(prompt: str, query: str) -> str:
    """The completion in a query, which may have a token before the prompt, as some tokenizers add."""
    start = query.find(prompt) if prompt else -1
    if start < 0:
        raise bad_request(f"the query {query!r:.60} does not contain its prompt {prompt!r:.60}, so where does it end?")
    return query[start + len(prompt) :]
