#!/usr/bin/env bash
# What: mistral-common puts the list of tools (v3 and v7) and the system prompt (v3) in front of the last user
#   message, so the tokens of a conversation aren't the beginning of those one turn later.
# Versions: mistral-common==1.13.1, sentencepiece==0.2.3
# Expected: system prompt and tools stand at the beginning, and a conversation grows at its end, as in most
#   templates, so that turns can be trained in one sequence and prefixes can be cached.
# Seen: v3, one turn: `<s>[AVAILABLE_TOOLS]...[INST] a[/INST]`; two turns: `<s>[INST] a[/INST] b</s>[AVAILABLE_TOOLS]
#   ...[INST] c[/INST]`; v3's system prompt moves in the same way, v7's stays, but v7's tools move.
# Matters: log-probabilities of turns that were sampled one by one can't be computed in one pass over the whole
#   conversation, and each turn misses the cache.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv mistral-common==1.13.1 sentencepiece==0.2.3
run <<'PYTHON'
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, Tool
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

TOOL = Tool(function=Function(name="f", description="d", parameters={"type": "object", "properties": {}}))


def is_prefix(tokenizer, system, tools):
    one = [SystemMessage(content="sys")] * system + [UserMessage(content="a")]
    two = [*one, AssistantMessage(content="b"), UserMessage(content="c")]
    short, long = (
        tokenizer.encode_chat_completion(ChatCompletionRequest(messages=turns, tools=tools)) for turns in (one, two)
    )
    print(short.text, "|", long.text)
    return long.tokens[: len(short.tokens)] == short.tokens


v3, v7 = MistralTokenizer.v3(), MistralTokenizer.v7()
CASES = (
    ("v3", v3, False, None, True),
    ("v3, system", v3, True, None, False),
    ("v3, tools", v3, False, [TOOL], False),
    ("v7, system", v7, True, None, True),
    ("v7, tools", v7, True, [TOOL], False),
)
for name, tokenizer, system, tools, wanted in CASES:
    seen = is_prefix(tokenizer, system, tools)
    print(name, "prefix:", seen)
    assert seen is wanted, f"{name}: a prefix is {seen} now"
PYTHON
