"""Tools as a chat template renders them; calls as it writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Literal

from grpo_sdk.chat.encode import encode_prompt, encode_text
from grpo_sdk.chat.json_calls import CUT_CALL, MAX_CALLS, TOO_MANY_CALLS, judged, read_json_calls
from grpo_sdk.chat.text_form import Sampled, opens_thinking
from grpo_sdk.task.marks import END_TOKENS, strip_end_tokens
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.tools.calls import Reading, ToolCall
from grpo_sdk.task.tools.tool import Tool

Read = Callable[[Sequence[int], Sampled], Reading]
Talk = Sequence[Mapping[str, Any]]

END, BLANKS = "\0", "\0 \t\r\n"
"""What a parser of streams is given at the end, so that it waits for no more of a mark; and what is no text."""
NAME = "look_up_a_word"
SPEC: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["word", "count"],
        },
    },
}
ARGUMENTS = {"word": "a, b", "count": 7}
ASKED = (Message(role="user", content="?"),)
THOUGHT = "a thought"
TEXTS = {"word": "a, b", "count": "7"}
"""The arguments where the family writes no types."""


@dataclass(frozen=True, slots=True)
class _Turn:
    token_ids: tuple[int, ...]
    text: str
    finish_reason: Literal["stop", "length"] = "stop"


class TemplateForm:
    """Tools by the model's chat template, if it renders them; `problem` tries it.

    A completion is read as JSON between `<tool_call>` and `</tool_call>`, else by the tokenizer's response template;
    whichever reads back what the chat template writes.

    Args:
        tokenizer: Tokenizer of the model, with a chat template.
        tools: What can be called.
        passed_over: Reason why no form that goes before this one was chosen.

    Attributes:
        reader: What reads a completion; empty before `problem` found one.
        is_parallel: Whether a turn may have several calls.
    """

    name = "template"
    stop: tuple[str, ...] = ()

    def __init__(self, tokenizer: Any, tools: Sequence[Tool], passed_over: str = "") -> None:
        self._tokenizer, self._specs, self._passed_over = tokenizer, [tool.spec for tool in tools], passed_over
        self._read: Read = self._read_json
        self._are_texts, self._shows_thinking = False, True
        self.reader, self.is_parallel = "", True
        self._call_end = ""  # the special token that ends turns with calls alone

    @property
    def why(self) -> str:
        """Reason for the choice."""
        return f"the chat template renders tools, and {self.reader} reads its calls back; {self._passed_over}"

    def problem(self, prompt: Prompt) -> str:
        """Why the form can't be used, found by rendering; empty where it can."""
        from jinja2.exceptions import TemplateError

        problem = "the chat template drops tools"
        try:
            if NAME not in self._render(ASKED, specs=[SPEC]):
                return problem
            self.first(prompt)
        except (TemplateError, TypeError) as error:  # the latter where a filter of Jinja gets what it doesn't take
            return f"the chat template refuses tools: {error!s:.120}"
        for self.is_parallel in (True, False):
            try:
                problem = self._rendered_problem()
            except (TemplateError, TypeError) as error:
                problem = f"the chat template refuses calls: {error!s:.120}"
            if not problem:
                break
        return problem

    def first(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of the first prompt."""
        return encode_prompt(self._tokenizer, prompt, self._specs)

    def read(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        """What a completion says."""
        try:
            made = self._read(prompt_ids, completion)
        except Exception as error:  # parsers of others raise anything on what a policy may write
            return Reading("", calls=(ToolCall("", None, f"unreadable call: {error!s:.200}"),))
        if len(made.calls) > MAX_CALLS:
            return Reading(made.text, made.thinking, problem=TOO_MANY_CALLS)
        # As of gpt-oss, which writes some headers of calls that its response template doesn't read.
        if not made.calls and self._tokenizer.decode(completion.token_ids[-1:]) == (self._call_end or None):
            return Reading(made.text, made.thinking, (ToolCall("", None, "it ends as a call does, and has none"),))
        return made

    def following(
        self, prompt_ids: Sequence[int], completion: Sampled, messages: Sequence[Message], new: int
    ) -> tuple[int, ...]:
        """Tokens of the next prompt: those so far and what the template writes behind them, or a render of all.

        The latter, where the model's family cannot go on so, doesn't begin with what was sampled. Arguments are those
        of `TextForm`.
        """
        added = self._behind(completion, messages, new)
        if added is None:
            return tuple(encode_text(self._tokenizer, self._render(as_talk(messages))))
        return (*prompt_ids, *completion.token_ids, *encode_text(self._tokenizer, added))

    def _render(self, talk: Talk, *, specs: Any = None, is_asked: bool = True) -> str:
        rendered: str = self._tokenizer.apply_chat_template(
            list(talk), tools=specs or self._specs, tokenize=False, add_generation_prompt=is_asked
        )
        return rendered

    def _behind(self, completion: Sampled, messages: Sequence[Message], new: int) -> str | None:
        """What the template writes behind a completion; None where it changes what came before."""
        talk = as_talk(messages)
        answered = len(talk) - new - 1
        unused = (mark for at in count() if (mark := f"mark{at}mark") not in str(messages))
        mark, thought = next(unused), next(unused)
        answer: dict[str, Any] = {"role": "assistant", "content": mark}
        if calls := talk[answered].get("tool_calls"):  # without the text, which may move behind the results
            call = {**calls[-1], "function": {**calls[-1]["function"], "arguments": {"word": mark}}}
            answer |= {"content": "", "tool_calls": [*calls[:-1], call]}
        has_thought = self._shows_thinking and bool(talk[answered].get("reasoning_content"))
        if has_thought:
            answer |= {"reasoning_content": thought, "thinking": thought}
        rendered = self._render([*talk[:answered], answer, *talk[answered + 1 :]])
        before = self._render(talk[:answered], is_asked=False)
        behind = rendered.partition(mark)[2]
        if not behind or not rendered.startswith(before) or (has_thought and thought not in rendered):
            return None
        last = completion.token_ids[-1:]
        if last and last[0] in self._tokenizer.all_special_ids:
            _, end, following = behind.partition(self._tokenizer.convert_ids_to_tokens(last[0]))
            if end:
                return following
        _, end, following = behind.partition(self._tokenizer.eos_token)
        return end + following if end else None

    def _rendered_problem(self) -> str:
        """What a turn with calls, and their results, lack; sets what reads them."""
        calls = [{"type": "function", "function": {"name": NAME, "arguments": ARGUMENTS}}] * (1 + self.is_parallel)
        results = [Message(role="tool", content=f"result{at}", name=NAME) for at in range(len(calls))]
        messages = [*ASKED, Message(role="assistant", content="", tool_calls=calls), *results]
        called = self._render(as_talk(messages[:2]), is_asked=False)
        if called.count(TEXTS["word"]) != len(calls):
            return "the chat template drops calls"
        whole = self._render(as_talk(messages))
        if any(result["content"] not in whole for result in results):
            return "the chat template drops results"
        called_ids, whole_ids = encode_text(self._tokenizer, called), encode_text(self._tokenizer, whole)
        asked_ids = encode_text(self._tokenizer, self._render(ASKED))
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(called_ids, asked_ids, strict=False))
        prompt = [token for token, _ in alike]  # less than was asked where the call's turn begins otherwise
        turn = _until_end(self._tokenizer, called_ids[len(prompt) :])
        if turn[-1] not in self._tokenizer.all_special_ids:  # as of GLM, which ends a turn by beginning the next
            turn += whole_ids[len(called_ids) : len(called_ids) + 1]
        ends = {*self._tokenizer.all_special_ids} - {self._tokenizer.eos_token_id}
        self._call_end = self._tokenizer.decode(turn[-1:]) if turn[-1] in ends else ""
        completion = _Turn(tuple(turn), self._tokenizer.decode(turn, skip_special_tokens=True))
        for name, read in self._readers():
            self.reader, self._read = name, read
            found = self._read(prompt, completion).calls
            self._are_texts = found == (ToolCall(NAME, TEXTS),) * len(calls)
            if self._are_texts or found == (ToolCall(NAME, ARGUMENTS),) * len(calls):
                break
        else:
            return "nothing reads calls as the chat template writes them"
        thought = Message(**messages[1], reasoning_content=THOUGHT)
        # A template that never shows thinking, as that of Qwen2.5, doesn't take it from a model that learned to think.
        self._shows_thinking = THOUGHT in self._render(as_talk([*ASKED, thought, *results]))
        following = self.following(prompt, completion, messages, len(results))
        if following[: len(prompt) + len(turn)] != (*prompt, *turn):
            return "the chat template changes a call when its result follows"
        added = list(following[len(prompt) + len(turn) :])
        if whole_ids[-len(added) :] != added:
            return "the tokens of what follows a call depend on what stands before them"
        return ""

    def _readers(self) -> Iterator[tuple[str, Read]]:
        yield "our reader of JSON", self._read_json
        if getattr(self._tokenizer, "response_template", None):
            yield "the tokenizer's response template", self._read_by_response_template

    def _read_json(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        decoded = self._tokenizer.decode(_until_end(self._tokenizer, completion.token_ids))
        text = strip_end_tokens(decoded, (*END_TOKENS, self._tokenizer.eos_token))
        is_cut = completion.finish_reason == "length"
        return read_json_calls(text, is_thinking=opens_thinking(self._tokenizer, prompt_ids), is_cut=is_cut)

    def _read_by_response_template(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        parser = self._tokenizer.get_response_parser(prefix=self._tokenizer.decode(list(prompt_ids)))
        events = [*parser.initial_events, *parser.feed(self._tokenizer.decode(list(completion.token_ids)))]
        events += parser.feed(END)
        borders = [event for event in events if event["type"] != "region_chunk"]
        is_open = bool(borders) and (borders[-1]["type"], borders[-1]["field"]) == ("region_open", "tool_calls")
        if is_open and completion.finish_reason == "length":
            return Reading("", problem=CUT_CALL)
        events += parser.finalize()[1]
        closed = [(event["field"], event["value"]) for event in events if event["type"] == "region_close"]
        calls = [
            self._judged(each)
            for field, value in closed
            if field == "tool_calls"
            for each in (value if isinstance(value, list) else [value])
        ]
        if is_open:
            calls[-1:] = [ToolCall(calls[-1].name if calls else "", None, "the call has no end")]
        texts = {"content": "", "tool_calls": "", "thinking": ""}
        for field, value in closed:
            texts[field if field in texts else "thinking"] += value if isinstance(value, str) else ""
        content = texts["content"].strip(BLANKS).removesuffix(self._call_end).rstrip(BLANKS)
        return Reading(content, texts["thinking"].strip(BLANKS), tuple(calls))

    def _judged(self, value: Any) -> ToolCall:
        function = value.get("function", value) if isinstance(value, Mapping) else None
        found = function if isinstance(function, Mapping) else {}
        return judged(found.get("name"), found.get("arguments"), are_texts=self._are_texts)


def as_talk(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as chat templates read them: calls have ids, which their results name, and thinking has both names."""
    talk: list[dict[str, Any]] = []
    waiting: list[str] = []
    numbers = count(1)
    for message in messages:
        made: dict[str, Any] = dict(message)
        if calls := message.get("tool_calls"):
            made["tool_calls"] = [
                {**call, "type": "function", "id": f"call{next(numbers):05}"}  # Mistral wants nine letters and digits
                for call in calls
            ]
            waiting = [call["id"] for call in made["tool_calls"]]
        if thinking := message.get("reasoning_content"):
            made["thinking"] = thinking  # as gpt-oss names it
        if message["role"] == "tool" and waiting:
            made["tool_call_id"] = waiting.pop(0)
        talk.append(made)
    return talk


def _until_end(tokenizer: Any, token_ids: Sequence[int]) -> list[int]:
    """Tokens up to the one that ends the turn."""
    ids = list(token_ids)
    return ids[: ids.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in ids else ids
