"""Reads a pickle of a task's functions and its environment from stdin, and writes the tools' forms as JSON."""

import json
import sys

from grpo_sdk.plugins.task_pickles import loads
from grpo_sdk.task.tools.tool import tools_of

made = tools_of(*loads(sys.stdin.read()))
assert made[0].validated({"amount": "3", "unit": "km", "place": {"x": 1}})["place"].x == 1
json.dump([each.spec for each in made], sys.stdout)
