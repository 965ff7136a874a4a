"""Prints what inspect's own reader finds in a folder of logs; the environment has inspect-ai and grpo's sources."""

import json
import sys
from pathlib import Path

from inspect_ai.log import list_eval_logs, read_eval_log

from grpo_sdk.interop.rollouts.export import export_rollouts
from grpo_sdk.records.rollouts import read_rollouts

run, folder = map(Path, sys.argv[1:])
export_rollouts(read_rollouts(run), run, "inspect", folder)
logs = [read_eval_log(info) for info in list_eval_logs(str(folder), descending=False)]
found = [
    {
        "task": log.eval.task,
        "model": log.eval.model,
        "identity": log.eval.metadata["identity"],
        "step": log.eval.metadata["step"],
        "scorers": [scorer.name for scorer in log.eval.scorers],
        "means": {score.name: score.metrics["mean"].value for score in log.results.scores},
        "samples": [
            {
                "id": sample.id,
                "epoch": sample.epoch,
                "messages": [[message.role, message.text] for message in sample.messages],
                "generated": [message.text for message in sample.messages if message.source == "generate"],
                "stop": sample.output.stop_reason,
                "value": value if isinstance(value := sample.scores["score"].value, dict) else None,
                "why": sample.scores["score"].explanation,
            }
            for sample in log.samples
        ],
    }
    for log in logs
]
print(json.dumps(found))
