#!/usr/bin/env bash
# What: openai-harmony reads the content type of a final answer as its recipient, so an answer in JSON is a message to a
#   tool of the name "<|constrain|>json", or "json".
# Versions: openai-harmony==0.0.8, tml-renderers==0.2.1 (ships the vocabulary)
# Expected: recipients are written "to=NAME"; what begins with <|constrain|> is the content type, as it is behind a
#   recipient, and as the package itself writes it.
# Seen: the rendered answer "<|channel|>final <|constrain|>json<|message|>{…}" comes back with recipient "<|constrain|>json"
#   and content_type None; behind "to=functions.f" it is the content type.
# Matters: chats with structured output read again from tokens: an agent that runs each message with a recipient looks
#   for a tool "<|constrain|>json", and one that reads the answer only where there is no recipient finds none.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv openai-harmony==0.0.8
# Only its vocabulary is read.
"$work/venv/bin/python" -m pip install --quiet --no-deps tml-renderers==0.2.1 || exit 75
run <<'PYTHON'
import os
import sysconfig
from pathlib import Path

os.environ.setdefault("TIKTOKEN_ENCODINGS_BASE", str(Path(sysconfig.get_path("purelib"), "tml_renderers", "data")))

from openai_harmony import HarmonyEncodingName, Message, load_harmony_encoding

harmony = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
ANSWER = {"role": "assistant", "channel": "final", "content": '{"a": 1}'}
CALL = {"role": "assistant", "channel": "commentary", "recipient": "functions.f", "content": '{"a": 1}'}
CASES = (
    (CALL, "<|constrain|>json", ("functions.f", "<|constrain|>json")),
    (ANSWER, "<|constrain|>json", ("<|constrain|>json", None)),
    (ANSWER, "json", ("json", None)),
)
for fields, kind, wanted in CASES:
    tokens = harmony.render(Message.from_dict({**fields, "content_type": kind}))
    (read,) = harmony.parse_messages_from_completion_tokens(tokens, None)
    print(f"{harmony.decode(tokens)}\n   is read with recipient {read.recipient} and type {read.content_type}")
    assert (read.recipient, read.content_type) == wanted, "it is read in another way now"
PYTHON
