"""A reward of a plugin as TRL calls it, beside TRL and without grpo-core."""

import json
import sys
from pathlib import Path

import trl

from grpo_sdk.interop.trl import dataset, reward_funcs

batch = json.loads(Path(sys.argv[1]).read_text())
(function,) = reward_funcs(batch[0]["task"], workers=1)
rows = dataset(batch[0]["task"])
columns = {name: [rows[0][name]] * len(batch) for name in rows.column_names if name not in ("prompt", "row")}
columns |= {"row": [sample["row"] for sample in batch], "prompts": [rows[0]["prompt"]] * len(batch)}
values = function(completions=[sample["completion"] for sample in batch], **columns)
print(json.dumps({"version": trl.__version__, "answers": [{"value": value} for value in values]}))
