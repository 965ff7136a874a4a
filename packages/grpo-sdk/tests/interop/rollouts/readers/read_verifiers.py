"""Prints what verifiers' own reader finds in an exported folder; the environment has verifiers and grpo's sources."""

import json
import sys
from pathlib import Path

from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes

from grpo_sdk.interop.rollouts.export import export_rollouts
from grpo_sdk.records.rollouts import read_rollouts

run, folder = map(Path, sys.argv[1:])
export_rollouts(read_rollouts(run), run, "verifiers", folder)
found = [
    {
        "env": episode.env.name,
        "group": episode.group.id,
        "step": episode.run.work.step,
        "ok": episode.ok,
        "errors": [error.message for error in episode.errors],
        "task": [trace.task.data.spec, trace.task.data.id, trace.task.data.prompt is not None],
        "agent": [trace.agent.name, trace.agent.config.model],
        "messages": [[message.role, message.content] for message in trace.messages],
        "turns": trace.num_turns,
        "truncated": trace.is_truncated,
        "timeout": trace.is_timeout,
        "reward": reward and reward.value,
        "metrics": trace.metrics,
    }
    for episode in read_episodes(folder, WireTrace)
    for trace in episode.traces
    for reward in trace.rewards.values()
]
print(json.dumps(found))
