"""A run's rollouts as traces of verifiers: `traces.jsonl`, one episode a line, in the classes of verifiers itself.

An episode is one completion with one trace; those that the advantages compare share their group. Read in verifiers
0.4.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from grpo_sdk.interop.adapter import requires
from grpo_sdk.interop.rollouts.export import RunFacts, answer_messages, metric_values, part_names, prompt_messages
from grpo_sdk.records.rollouts import RolloutRecord

with requires("verifiers", "pip install verifiers"):
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.dialects import parse_message
    from verifiers.v1.episode import EnvInfo, GroupInfo, TrainRunInfo, TrainWorkInfo, WireEpisode
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, Timing, TraceTask, WireTrace
    from verifiers.v1.utils.trace_store import write_episode


def write_logs(records: Iterable[RolloutRecord], run: RunFacts, folder: Path) -> tuple[int, int]:
    """Write the rollouts into a folder; returns the numbers of rollouts and of files.

    Args:
        records: Rollouts, those of one step next to each other.
        run: Facts of the run.
        folder: Existing folder.
    """
    count = 0
    for _, group in groupby(records, key=lambda record: record.step):
        of_step = list(group)
        by_task: dict[str, list[RolloutRecord]] = defaultdict(list)
        for record in of_step:
            by_task[record.task].append(record)
        parts = {task: part_names(of_task) for task, of_task in by_task.items()}
        for record in of_step:
            write_episode(folder, episode_of(record, run, parts[record.task], count))
            count += 1
    return count, int(count > 0)


def episode_of(record: RolloutRecord, run: RunFacts, parts: Iterable[str], place: int) -> WireEpisode:
    """A rollout as an episode.

    Args:
        record: The rollout.
        run: Facts of the run.
        parts: Names of its task's rewards.
        place: Place among the exported rollouts, which names it.
    """
    name = f"{run.name}-{record.step}-{place}"
    trace = _trace(record, run, parts, name)
    return WireEpisode(
        id=name,
        env=EnvInfo(id="grpo-verifiers", name=record.task),
        task=trace.task,
        group=GroupInfo(id=f"{run.name}-{record.step}-{record.group}"),
        run=TrainRunInfo(id=run.name, name=run.name, work=TrainWorkInfo(step=record.step)),
        ok=trace.ok,
        is_timeout=trace.is_timeout,
        errors=trace.errors,
        traces=[trace],
    )


def _trace(record: RolloutRecord, run: RunFacts, parts: Iterable[str], name: str) -> WireTrace:
    score, nodes = record.score, _nodes(record, run)
    is_scored = score.value is not None
    return WireTrace(
        id=name,
        task=TraceTask[WireTaskData](type="GrpoTask", data=_task_data(record), key=f"{record.task}/{record.row_id}"),
        agent=AgentInfo[WireAgentConfig](config=WireAgentConfig(model=run.model), name=record.role or "agent"),
        nodes=nodes,
        calls=[
            ModelCall(node=place, model=run.model, finish_reason=_finish_reason(record, place == len(nodes) - 1))
            for place, node in enumerate(nodes)
            if node.sampled
        ],
        rewards={"reward": Reward(score=score.value) if is_scored else None},
        metrics=metric_values(record, parts) if is_scored else dict.fromkeys(("solved", "valid", *parts)),
        info={
            "why": score.why,
            "identity": record.identity,
            **record.model_dump(
                mode="json",
                exclude={"row", "prompt", "text", "score", "token_logprobs", "identity"},
                exclude_none=True,
            ),
        },
        is_completed=True,
        ok=is_scored,
        stop_condition="agent_completed" if is_scored else "task_error",
        is_timeout=score.fault == "timeout",
        errors=[] if is_scored else [Error(type="TaskError", message=f"not scored: {score.why}")],
        timing=Timing(start=run.written.timestamp()),
    )


def _nodes(record: RolloutRecord, run: RunFacts) -> list[MessageNode]:
    messages = [*prompt_messages(record), *answer_messages(record)]
    return [
        MessageNode(
            parent=place - 1 if place else None,
            message=parse_message({"role": message.role, "content": message.content}),
            sampled=message.is_sampled,
            timestamp=run.written.timestamp(),
        )
        for place, message in enumerate(messages)
    ]


def _finish_reason(record: RolloutRecord, is_last: bool) -> str | None:
    """Of several turns, which one was truncated is not stored."""
    return record.finish_reason if record.turns == 1 or (is_last and record.finish_reason == "stop") else None


def _task_data(record: RolloutRecord) -> WireTaskData:
    prompt: Any = record.prompt
    if isinstance(prompt, tuple):
        prompt = [parse_message(dict(message)) for message in prompt]
    row = orjson.dumps(record.row).decode()
    return WireTaskData(id=record.row_id, name=record.row_id, prompt=prompt, spec=record.task, row=row)
