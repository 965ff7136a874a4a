"""Tools for any model: described in the prompt, called as JSON between marks, answered between marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from grpo_sdk.chat.encode import MARK, encode_prompt, encode_text, text_behind
from grpo_sdk.chat.json_calls import CLOSE, OPEN, read_json_calls
from grpo_sdk.task.marks import thinking_marks
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.tools.calls import Reading
from grpo_sdk.task.tools.tool import Tool

INSTRUCTIONS = """\
You can call tools. A call is a JSON object with the tool's name and its arguments:
<tool_call>{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}</tool_call>
Its result follows in the next message, in <tool_result> and </tool_result>. The tools, as JSON Schema:
"""


class Sampled(Protocol):
    """What is read of a completion; see `grpo_sdk.endpoints.completion.Completion`."""

    @property
    def token_ids(self) -> tuple[int, ...]: ...  # noqa: D102 - see the class
    @property
    def text(self) -> str: ...  # noqa: D102 - see the class
    @property
    def finish_reason(self) -> Literal["stop", "length"]: ...  # noqa: D102 - see the class


class TextForm:
    """The text form: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` and `<tool_result>…</tool_result>`.

    A prompt that is text stays as its author wrote it; a completion ends at `</tool_call>`, and the result follows on a
    line of its own. In chat, a system message, or the first of the user where the template drops those of the system,
    describes the tools; results are a message of the user.

    Args:
        tokenizer: Tokenizer of the model.
        tools: What can be called.
        prompt: A prompt of the task.
        why: Reason why this form was chosen.

    Attributes:
        name: Its name, as the header of a run has it.
        why: Reason why it was chosen.
        stop: Strings that end a completion.
    """

    name = "text"

    def __init__(self, tokenizer: Any, tools: Sequence[Tool], prompt: Prompt, why: str) -> None:
        self._tokenizer, self._is_chat, self.why = tokenizer, not isinstance(prompt, str), why
        self.stop = () if self._is_chat else (CLOSE,)
        self._tools = tools
        self._role = "system" if self._is_chat and _shows_system(tokenizer) else "user"
        self._thinking_ids = {
            token_id: token.content
            for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items()
            if token.special and thinking_marks(token.content)
        }

    def first(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of the first prompt, in which the tools are described."""
        chat = prompt if isinstance(prompt, str) else in_text_form(prompt, self._tools, self._role)
        return encode_prompt(self._tokenizer, chat)

    def read(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        """What a completion says: a malformed call is one with a problem."""
        text = self._with_thinking_marks(completion) if self._thinking_ids else completion.text
        is_cut = completion.finish_reason == "length"
        return read_json_calls(text, is_thinking=opens_thinking(self._tokenizer, prompt_ids), is_cut=is_cut)

    def following(
        self, prompt_ids: Sequence[int], completion: Sampled, messages: Sequence[Message], new: int
    ) -> tuple[int, ...]:
        """Tokens of the next prompt: those so far as they were sampled, and those of new messages.

        Args:
            prompt_ids: The last prompt.
            completion: The policy's answer to it.
            messages: The whole conversation, the answer and the new messages included.
            new: How many of them are new: results of the answer's calls, in their order, perhaps a message of the user.
        """
        before, behind = messages[: len(messages) - new - 1], messages[len(messages) - new :]
        if self._is_chat:
            answered = in_text_form(before, self._tools, self._role)
            added = text_behind(self._tokenizer, completion.token_ids, answered, in_text_form(behind))
        else:
            said = (_result(each) if each["role"] == "tool" else each["content"] for each in behind)
            added = "".join(said).replace("</tool_result>\n\n<tool_result>", "</tool_result>\n<tool_result>")
        return (*prompt_ids, *completion.token_ids, *encode_text(self._tokenizer, added))

    def _with_thinking_marks(self, completion: Sampled) -> str:
        """The text with the marks of thinking that are special tokens, which the completion's lacks."""
        pieces: list[str] = []
        run: list[int] = []
        for token in (*completion.token_ids, None):
            if token is not None and token not in self._thinking_ids:
                run.append(token)
                continue
            pieces.append(self._tokenizer.decode(run, skip_special_tokens=True))
            pieces.append("" if token is None else self._thinking_ids[token])
            run = []
        return "".join(pieces)


def in_text_form(messages: Sequence[Message], tools: Sequence[Tool] = (), role: str = "system") -> tuple[Message, ...]:
    """Messages of system, user and assistant alone, with calls and results as text.

    Args:
        messages: A conversation, or what follows one.
        tools: What can be called, of which the beginning of one tells.
        role: Whose message does: `system`, or the user's first one.
    """
    made: list[Message] = []
    for message in messages:
        said, content = message["role"], message["content"]
        if said == "tool":
            said, content = "user", _result(message).strip("\n")
        for call in message.get("tool_calls", ()):
            written = {key: call["function"][key] for key in ("name", "arguments")}
            content = f"{content}\n{OPEN}{json.dumps(written, ensure_ascii=False)}{CLOSE}".lstrip("\n")
        if said == "user" and made and made[-1]["role"] == "user":
            content = f"{made.pop()['content']}\n{content}"
        made.append(Message(role=said, content=content))
    if not tools:
        return tuple(made)
    told = INSTRUCTIONS + "\n".join(json.dumps(tool.spec, ensure_ascii=False) for tool in tools)
    at = next((at for at, each in enumerate(made) if each["role"] == role), None)
    if at is None:
        made.insert(0, Message(role=role, content=told))
    else:
        parts = [made[at]["content"], told]
        made[at] = Message(role=role, content="\n\n".join(parts if role == "system" else reversed(parts)))
    return tuple(made)


def opens_thinking(tokenizer: Any, prompt_ids: Sequence[int]) -> bool:
    """Whether a prompt ends with a mark that begins thinking."""
    text = tokenizer.decode(list(prompt_ids[-16:]), skip_special_tokens=False).rstrip()
    marks = thinking_marks(text)
    return bool(marks) and marks[-1][1] == len(text) and not marks[-1][2]


def _result(message: Message) -> str:
    return f"\n<tool_result>{message['content']}</tool_result>\n"


def _shows_system(tokenizer: Any) -> bool:
    """Whether the chat template shows a message of the system."""
    from jinja2.exceptions import TemplateError

    messages = [Message(role="system", content=MARK), Message(role="user", content="?")]
    try:
        return MARK in tokenizer.apply_chat_template(messages, tokenize=False)
    except TemplateError:  # as Gemma's, which refuse one
        return False
