"""Plays the recorded episodes with tools in Inspect, with our solver and with its own: `tools_inspect.py SPEC FILE`."""

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import eval as inspect_eval
from inspect_ai import score as inspect_score
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate
from inspect_ai.tool import ToolCall

from grpo_sdk.interop.inspect import score, task

SPEC, EPISODES = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
ASKED = {episode["name"]: episode["asked"] for episode in EPISODES}


def says(messages, tools, tool_choice, config):
    """What the model says to a conversation; with its tokens counted, for which inspect would download an encoding."""
    asked = ASKED[messages[0].text.partition(":")[0]]
    turns = sum(message.role == "assistant" for message in messages)
    turn = asked[turns] if turns < len(asked) else {"text": "That is all.", "calls": []}
    output = ModelOutput.from_content("mockllm/model", turn["text"])
    calls = [ToolCall(f"call_{place}", each["name"], each["arguments"]) for place, each in enumerate(turn["calls"])]
    output.choices[0].message.tool_calls = calls or None
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def results(log):
    """What a log holds of each episode."""
    for sample in log.samples:
        scored = sample.scores["score"]
        value = dict(scored.value) if isinstance(scored.value, dict) else {"reward": None}
        told = [message.text for message in sample.messages if message.role == "tool"]
        stored = json.loads(sample.store.get("grpo_episode") or '{"turns": null}')["turns"]
        known = {"value": value.pop("reward"), "parts": value, "why": scored.explanation, "told": told}
        yield sample.id, {**known, "turns": stored}


def played(**solver):
    """The log of an evaluation."""
    model = get_model("mockllm/model", custom_outputs=says)
    (log,) = inspect_eval(task(SPEC), model=model, log_dir=tempfile.mkdtemp(), display="none", **solver)
    assert log.status == "success", log.error
    return log


log = played()
again = inspect_score(log, scorers=score(SPEC), action="overwrite", display="none")
own = played(solver=generate())
logs = {"play": log, "again": again, "own": own}
print(json.dumps({name: dict(results(each)) for name, each in logs.items()}))
