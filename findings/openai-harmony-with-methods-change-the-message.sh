#!/usr/bin/env bash
# What: openai-harmony's with_channel, with_recipient and with_content_type change the message that they are called on and
#   return it, so that two messages made from one are the same object.
# Versions: openai-harmony==0.0.8
# Expected: with_… returns a changed copy, as such methods of pathlib and of the Rust original (which takes the value) do.
# Seen: of base, thought = base.with_channel("analysis") and answer = base.with_channel("final"), all three are one message of
#   the channel "final"; so it is for with_instructions of DeveloperContent and with_reasoning_effort of SystemContent.
# Matters: chats and rollouts built from a shared message or system prompt: each variant carries the last one's channel,
#   recipient or effort, and the earlier ones change after they were stored.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv openai-harmony==0.0.8
run <<'PYTHON'
from openai_harmony import DeveloperContent, Message, ReasoningEffort, Role, SystemContent

base = Message.from_role_and_content(Role.ASSISTANT, "four")
thought = base.with_channel("analysis")
answer = base.with_channel("final")
print("channels:", base.channel, thought.channel, answer.channel)
assert thought is base and answer is base, "with_channel copies now"
assert thought.channel == "final"
call = base.with_recipient("functions.f").with_content_type("<|constrain|>json")
print("recipient and type of the answer:", answer.recipient, answer.content_type)
assert call is answer and answer.recipient == "functions.f"

system = SystemContent.new()
low, high = (system.with_reasoning_effort(effort) for effort in (ReasoningEffort.LOW, ReasoningEffort.HIGH))
print("efforts:", low.reasoning_effort.value, high.reasoning_effort.value)
assert low is high and low.reasoning_effort is ReasoningEffort.HIGH, "with_reasoning_effort copies now"

developer = DeveloperContent.new()
kind, short = developer.with_instructions("Be kind."), developer.with_instructions("Be short.")
print("instructions:", kind.instructions, short.instructions)
assert kind is short, "with_instructions copies now"
PYTHON
