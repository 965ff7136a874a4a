#!/usr/bin/env bash
# What: openai-harmony tells gpt-oss that an argument is of the type "any" where its schema says anyOf, which is what
#   pydantic and MCP servers write for an optional argument.
# Versions: openai-harmony==0.0.8, pydantic==2.14.3, tml-renderers==0.2.1 (ships the vocabulary)
# Expected: anyOf of integer and null is "number | null", as oneOf of them and ["integer", "null"] are unions; and the
#   values of an enum are shown whatever their type.
# Seen: `limit: int | None = None` of a pydantic model is "limit?: any" and `unit: Literal["km", "mi"] | None` "unit?: any";
#   with oneOf for anyOf they are unions. An enum of numbers is "number", without its values.
# Matters: tools in gpt-oss's prompt: the allowed values and types of each optional argument are hidden, calls with wrong
#   ones fail, and the policy is trained on that prompt.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv openai-harmony==0.0.8 pydantic==2.14.3
# Only its vocabulary is read.
"$work/venv/bin/python" -m pip install --quiet --no-deps tml-renderers==0.2.1 || exit 75
run <<'PYTHON'
import json
import os
import sysconfig
from pathlib import Path
from typing import Literal

os.environ.setdefault("TIKTOKEN_ENCODINGS_BASE", str(Path(sysconfig.get_path("purelib"), "tml_renderers", "data")))

from openai_harmony import DeveloperContent, HarmonyEncodingName, Message, Role, ToolDescription, load_harmony_encoding
from pydantic import BaseModel


class Distance(BaseModel):
    unit: Literal["km", "mi"]
    limit: int | None = None
    to: Literal["km", "mi"] | None = None
    digits: Literal[1, 2, 3] = 1


harmony = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def shown(schema):
    tools = DeveloperContent.new().with_function_tools([ToolDescription.new("distance", "A distance.", parameters=schema)])
    text = harmony.decode(harmony.render(Message.from_role_and_content(Role.DEVELOPER, tools)))
    lines = [line.strip() for line in text.splitlines()]
    return lines[lines.index("type distance = (_: {") + 1 : lines.index("}) => any;")]


schema = Distance.model_json_schema()
with_any = shown(schema)
with_one = shown(json.loads(json.dumps(schema).replace("anyOf", "oneOf")))
print("anyOf:", with_any)
print("oneOf:", with_one)
assert 'unit: "km" | "mi",' in with_any
assert any(line.startswith("limit?: any") for line in with_any), "an optional integer is shown in another way now"
assert any(line.startswith("to?: any") for line in with_any), "an optional word is shown in another way now"
assert any(line.startswith("digits?: number") for line in with_any) and "2" not in "".join(with_any)
assert "| number" in with_one and '| "km" | "mi"' in with_one, "oneOf is shown in another way now"
PYTHON
