"""A run's rollouts as logs of inspect-ai, one per step and task, for `inspect view` and its data frames.

A log is of one model and one task, so each step has its own, and the list of logs is the curve of learning. The
completions of a row are the epochs of its sample. Written by inspect's own classes; read in inspect-ai 0.3.285.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from grpo_sdk.interop.adapter import requires
from grpo_sdk.interop.rollouts.export import (
    RunFacts,
    StoredMessage,
    answer_messages,
    metric_values,
    part_names,
    prompt_messages,
)
from grpo_sdk.records.rollouts import RolloutRecord
from grpo_sdk.task.spec import label_of

with requires("inspect_ai", "pip install inspect-ai"):
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalSample,
        EvalSpec,
        EvalStats,
        recompute_metrics,
        write_eval_log,
    )
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ModelOutput,
    )
    from inspect_ai.scorer import Score

METRICS = ("inspect_ai/mean", "inspect_ai/stderr")
MAX_SLUG_CHARS = 80


def write_logs(records: Iterable[RolloutRecord], run: RunFacts, folder: Path) -> tuple[int, int]:
    """Write one log per step and task into a folder; returns the numbers of rollouts and of logs.

    Args:
        records: Rollouts, those of one step next to each other.
        run: Facts of the run.
        folder: Existing folder.
    """
    count = files = 0
    for step, of_step in groupby(records, key=lambda record: record.step):
        tasks: dict[str, list[RolloutRecord]] = {}
        for record in of_step:
            tasks.setdefault(record.task, []).append(record)
        for spec, of_task in tasks.items():
            slug = re.sub(r"[^\w.-]+", "-", label_of(spec))[:MAX_SLUG_CHARS]
            write_eval_log(log_of(of_task, run), folder / f"step-{step:06}_{slug}_{_digest(spec)[:8]}.eval")
            count, files = count + len(of_task), files + 1
    return count, files


def log_of(records: Sequence[RolloutRecord], run: RunFacts) -> EvalLog:
    """The log of the rollouts of one step and one task."""
    first, parts = records[0], part_names(records)
    samples = _samples(records, parts)
    # Logs are listed by time, so the steps are a second apart. The times of day are not in the rollouts.
    created = (run.written + timedelta(seconds=first.step)).isoformat()
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            eval_id=_digest(run.name, first.task, first.step),
            run_id=_digest(run.name),
            task_id=_digest(run.name, first.task),
            created=created,
            task=first.task,
            task_version=first.identity or 0,
            task_args={"spec": first.task},
            dataset=EvalDataset(
                name=first.task,
                samples=len({sample.id for sample in samples}),
                sample_ids=list(dict.fromkeys(str(sample.id) for sample in samples)),
            ),
            model=run.model,
            tags=["grpo", f"step {first.step}"],
            config=EvalConfig(epochs=max(sample.epoch for sample in samples)),
            metadata={
                "run": run.name,
                "step": first.step,
                "task": first.task,
                "identity": first.identity,
                "settings": run.settings,
            },
            # Dictionaries, since inspect_ai.log does not export their classes.
            scorers=[
                {
                    "name": "score",
                    "options": {"spec": first.task},
                    "metrics": {"*": [{"name": name} for name in METRICS]},
                }
            ],
        ),
        stats=EvalStats(started_at=created, completed_at=created),
        samples=samples,
    )
    recompute_metrics(log)  # finds the samples' scores by the scorer's name, `inspect score` the scorer by its package
    (scorer,) = log.eval.scorers
    scorer.name = "grpo_sdk/score"
    return log


def _samples(records: Sequence[RolloutRecord], parts: Sequence[str]) -> list[EvalSample]:
    epochs: Counter[str] = Counter()
    samples = []
    for record in records:
        name = record.row_id or record.prompt_id or f"group {record.group}"
        name = f"{name} ({record.role})" if record.role else name
        epochs[name] += 1
        samples.append(_sample(record, name, epochs[name], parts))
    return samples


def _sample(record: RolloutRecord, name: str, epoch: int, parts: Sequence[str]) -> EvalSample:
    prompt, answer = prompt_messages(record), answer_messages(record)
    last = _chat(answer[-1])
    reason = "max_tokens" if record.finish_reason == "length" else "stop"
    return EvalSample(
        id=name,
        epoch=epoch,
        input=[_chat(message) for message in prompt] or orjson.dumps(record.row).decode(),
        target=str(record.row.get("gold") or ""),
        messages=[*map(_chat, [*prompt, *answer[:-1]]), last],
        output=ModelOutput(choices=[ChatCompletionChoice(message=last, stop_reason=reason)]),
        scores={"score": _score(record, answer[-1].content, parts)},
        metadata={
            "row": orjson.dumps(record.row).decode(),
            **record.model_dump(
                mode="json",
                exclude={"row", "prompt", "text", "score", "token_logprobs", "task", "identity"},
                exclude_none=True,
            ),
        },
        turn_count=record.turns,
    )


def _score(record: RolloutRecord, answer: str, parts: Sequence[str]) -> Score:
    score = record.score
    if score.value is None:
        return Score.unscored(
            reason="scoring_failed", answer=answer, explanation=score.why, metadata={"fault": score.fault}
        )
    value = {"reward": score.value, **metric_values(record, parts)}
    return Score(value=value, answer=answer, explanation=score.why)


def _chat(message: StoredMessage) -> ChatMessage:
    kinds: dict[str, Any] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    # `inspect score` scores what is marked as generated.
    source = {"source": "generate"} if message.is_sampled else {}
    return kinds[message.role](content=message.content, **source)


def _digest(*parts: object) -> str:
    return hashlib.sha256(orjson.dumps([str(part) for part in parts])).hexdigest()[:22]
