#!/usr/bin/env bash
# What: openai-harmony's render_conversation_for_training drops all analysis that stands before the last final answer,
#   that answer's own too, so that the example shows an answer without any thought.
# Versions: openai-harmony==0.0.8, tml-renderers==0.2.1 (ships the vocabulary)
# Expected: thoughts of earlier turns are dropped, as they are when the model is asked; those of the last turn, which are
#   to be trained, stay.
# Seen: user, analysis, final gives "…<|start|>assistant<|channel|>final<|message|>four<|return|>" and no analysis; with a
#   tool call between two pieces of analysis both are gone. With RenderConversationConfig(auto_drop_analysis=False)
#   all are kept, also those of turns before.
# Matters: supervised examples of gpt-oss in its own package's "for training" form teach it to answer and to call tools
#   without thinking.
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

from openai_harmony import Author, Conversation, HarmonyEncodingName, Message, RenderConversationConfig, Role
from openai_harmony import load_harmony_encoding

harmony = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def said(channel, text):
    return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)


question = Message.from_role_and_content(Role.USER, "2 + 2?")
call = said("commentary", "{}").with_recipient("functions.f").with_content_type("<|constrain|>json")
result = Message.from_author_and_content(Author.new(Role.TOOL, "functions.f"), "4").with_channel("commentary")
result = result.with_recipient("assistant")
CHATS = {
    "one turn": [question, said("analysis", "THOUGHT"), said("final", "four")],
    "with a tool": [question, said("analysis", "THOUGHT"), call, result, said("analysis", "THOUGHT"), said("final", "four")],
}
for name, messages in CHATS.items():
    chat = Conversation.from_messages(messages)
    text = harmony.decode(harmony.render_conversation_for_training(chat))
    kept = harmony.decode(harmony.render_conversation_for_training(chat, RenderConversationConfig(auto_drop_analysis=False)))
    print(f"{name}: {text}")
    assert text.endswith("<|channel|>final<|message|>four<|return|>")
    assert "THOUGHT" not in text and "analysis" not in text, f"{name}: the analysis is kept now"
    assert kept.count("<|channel|>analysis<|message|>THOUGHT<|end|>") == sum(m.channel == "analysis" for m in messages)
PYTHON
