"""What a policy does in a turn of an episode, as OpenEnv's clients send it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from grpo_sdk.chat.json_calls import judged, read_call, read_json_calls
from grpo_sdk.task.tools.calls import Reading
from grpo_sdk.task.turns import TurnState, results_of


class TurnAction(BaseModel):
    """A completion, or in a task with tools a call by itself.

    Attributes:
        type: `text` is a completion, `call_tool` a call by itself, which is a turn; `list_tools` is none.
        text: The completion.
        calls: Calls of the completion, in OpenAI's form; None where they are in its text, as JSON between `<tool_call>`
            and `</tool_call>`.
        tool_name: The tool of a call by itself.
        arguments: Its arguments.
    """

    type: Literal["text", "call_tool", "list_tools"] = "text"
    text: str = ""
    calls: list[dict[str, Any]] | None = None
    tool_name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_what_it_is(self) -> Self:
        missing = {"text": "text", "call_tool": "tool_name"}.get(self.type)
        if missing and missing not in self.model_fields_set:
            raise ValueError(f"{missing!r} is missing")
        return self

    def reading(self, text: str) -> Reading:
        """What a turn with tools says, given the completion without end tokens and what follows a stop string."""
        if self.type == "call_tool":
            return Reading("", calls=(judged(self.tool_name, self.arguments),))
        if self.calls is None:
            return read_json_calls(text, is_thinking=False, is_cut=False)
        return Reading(text, calls=tuple(read_call(each) for each in self.calls))

    def result(self, state: TurnState) -> dict[str, Any]:
        """What OpenEnv says of a call by itself: its result, or the error of a broken tool; nothing of a completion.

        Args:
            state: What followed it.
        """
        if self.type != "call_tool":
            return {}
        if state.fault:
            kind = "timeout" if state.fault == "timeout" else "execution_error"
            return {"tool_name": self.tool_name, "result": None, "error": {"error_type": kind, "message": state.why}}
        (message,) = results_of(state, [self.tool_name])
        return {"tool_name": self.tool_name, "result": message["content"], "error": None}
