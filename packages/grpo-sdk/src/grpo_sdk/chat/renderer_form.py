"""Tools as the library `renderers` writes and finds them, where it writes what the model's chat template does."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_sdk.chat.encode import encode_text
from grpo_sdk.chat.json_calls import CUT_CALL, judged
from grpo_sdk.chat.template_form import NAME, SPEC, Read, TemplateForm, as_talk
from grpo_sdk.chat.text_form import Sampled, opens_thinking
from grpo_sdk.task.marks import thinking_marks
from grpo_sdk.task.row import Message
from grpo_sdk.task.tools.calls import Reading, ToolCall
from grpo_sdk.task.tools.tool import Tool

UNTRIED = ("", "gpt-oss")
"""The renderer of gpt-oss writes what no chat template does, and downloads a vocabulary."""


def _talk(*messages: Message) -> list[dict[str, Any]]:
    return as_talk(messages)


def _called(content: str = "", thinking: str = "", calls: int = 1, **arguments: Any) -> Message:
    call = {"type": "function", "function": {"name": NAME, "arguments": arguments or {"word": "wörd", "count": 7}}}
    made = Message(role="assistant", content=content, tool_calls=[call] * calls)
    return Message(**made, reasoning_content=thinking) if thinking else made


_SYSTEM = Message(role="system", content="Be brief.")
_USER, _ANSWER = Message(role="user", content="What is it?"), Message(role="assistant", content="It is é.")
_THOUGHT = Message(role="assistant", content="It is.", reasoning_content="So it\nis.")
_RESULT = Message(role="tool", content='{"a": 1}\n', name=NAME)
TALKS = (
    _talk(_USER),
    _talk(_SYSTEM, _USER),
    _talk(_USER, _ANSWER),
    _talk(_USER, _ANSWER, _USER),
    _talk(_USER, _THOUGHT),
    _talk(_USER, _called(), _RESULT),
    _talk(_USER, _called("Looking.", word="", count=-1), _RESULT),
    _talk(_USER, _called(thinking="Hm."), _RESULT),
    _talk(_USER, _called(calls=2), _RESULT, _RESULT),
    _talk(_USER, _called(yes=True, nothing=None, nested=[1.5, {"a": "b"}])),
    _talk(_SYSTEM, _USER, _called(thinking="Hm."), _RESULT, _THOUGHT, _USER),
)
"""What a renderer and the chat template must write alike; what the template refuses is left out."""


class RendererForm(TemplateForm):
    """Tools by a renderer: it goes on from sampled tokens and finds calls, which are read and judged here.

    Args:
        tokenizer: Tokenizer of the model.
        tools: What can be called.
        family: Name of the renderer.
        renderer: The renderer.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Tool], family: str, renderer: Any) -> None:
        super().__init__(tokenizer, tools)
        self.name, self._renderer = f"renderers {family}", renderer
        self._as_texts = [_as_texts(spec) for spec in (*self._specs, SPEC)]

    @property
    def why(self) -> str:
        """Reason for the choice."""
        return f"it writes what the chat template does, and {self.reader} reads its calls back"

    def following(
        self, prompt_ids: Sequence[int], completion: Sampled, messages: Sequence[Message], new: int
    ) -> tuple[int, ...]:
        """Tokens of the next prompt: those so far and the renderer's behind them, or a render of all."""
        sampled = [*prompt_ids, *completion.token_ids]
        made = self._renderer.bridge_to_next_turn(
            list(prompt_ids), list(completion.token_ids), as_talk(messages)[len(messages) - new :], tools=self._specs
        )
        if made is not None and list(made.token_ids[: len(sampled)]) == sampled:
            return tuple(made.token_ids)
        return tuple(encode_text(self._tokenizer, self._render(as_talk(messages))))

    def _readers(self) -> Iterator[tuple[str, Read]]:
        yield "our reader of JSON", self._read_json
        yield "the renderer", self._read_by_renderer

    def _read_by_renderer(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        ids = list(completion.token_ids)
        # As if each argument were text: the renderer's types are not those of the tool's schema.
        parsed = self._renderer.parse_response(ids, tools=self._as_texts, prompt_ids=list(prompt_ids))
        text, thinking = parsed.content.strip(), (parsed.reasoning_content or "").strip()
        calls: list[ToolCall] = []
        for found in parsed.tool_calls:
            if found.token_span is not None:
                before = self._tokenizer.decode(ids[: found.token_span[0]])
                marks = thinking_marks(before)
                if not marks[-1][2] if marks else opens_thinking(self._tokenizer, prompt_ids):
                    continue
            if found.status == "unclosed_block" and completion.finish_reason == "length":
                return Reading(text, thinking, tuple(calls), CUT_CALL)
            if found.status in ("ok", "unknown_tool"):
                calls.append(judged(found.name, found.arguments, are_texts=self._are_texts))
            else:
                name = found.name if isinstance(found.name, str) else ""
                calls.append(ToolCall(name, None, f"{found.status.replace('_', ' ')}: {found.raw!r:.120}"))
        return Reading(text, thinking, tuple(calls))


def renderer_form(tokenizer: Any, tools: Sequence[Tool]) -> RendererForm | str:
    """The form of the renderer that writes what the tokenizer's chat template does, or why there is none.

    The one of the model's name is tried first. A fine-tune in a folder has another name, and its family's template.
    """
    if importlib.util.find_spec("renderers") is None:
        return "renderers is not installed (`pip install 'grpo-sdk[renderers]'`)"
    from jinja2.exceptions import TemplateError
    from renderers.base import MODEL_RENDERER_MAP, create_renderer
    from renderers.configs import config_from_name

    expected: list[tuple[Sequence[Mapping[str, Any]], bool, list[int]]] = []
    for talk in TALKS:
        for is_asked in (True, False):
            if is_asked and talk[-1]["role"] == "assistant":
                continue
            try:
                text = tokenizer.apply_chat_template(
                    list(talk), tools=[SPEC], tokenize=False, add_generation_prompt=is_asked
                )
            except (TemplateError, TypeError):
                continue
            expected.append((talk, is_asked, encode_text(tokenizer, text)))
    named = MODEL_RENDERER_MAP.get(getattr(tokenizer, "name_or_path", ""), "")
    families = dict.fromkeys((named, *MODEL_RENDERER_MAP.values()))
    problem = "no renderer writes what the chat template does"
    for family in families:
        if family in UNTRIED:
            continue
        try:
            config = config_from_name(family)
            if identity := getattr(config, "model_identity", None):
                config = config.model_copy(update={"model_identity": _identity(tokenizer, config, identity)})
            renderer = create_renderer(tokenizer, config)
        except Exception as error:  # of another family's tokenizer it raises anything
            reason = f"{error!r:.100}"
        else:
            reason = _difference(renderer, expected)
            if not reason:
                return RendererForm(tokenizer, tools, family, renderer)
        if family == named:
            problem = f"the renderer {family} of this model's name isn't used: {reason}"
    return problem


def _identity(tokenizer: Any, config: Any, identity: str) -> str:
    """What the chat template says that the model is, where the renderer says `identity`: MiniMax's names a version."""
    from renderers.base import create_renderer

    made = tokenizer.decode(create_renderer(tokenizer, config).render_ids(TALKS[0], tools=[SPEC]))
    expected = tokenizer.apply_chat_template(list(TALKS[0]), tools=[SPEC], tokenize=False)
    before, _, after = made.partition(identity)
    return str(expected.removeprefix(before).removesuffix(after))


def _difference(renderer: Any, expected: Sequence[tuple[Sequence[Mapping[str, Any]], bool, list[int]]]) -> str:
    """Where a renderer writes other tokens than the chat template; empty where it doesn't."""
    for talk, is_asked, ids in expected:
        try:
            made = renderer.render_ids(list(talk), tools=[SPEC], add_generation_prompt=is_asked)
        except Exception as error:  # likewise
            return f"{error!r:.100}"
        if made != ids:
            roles = ", ".join(message["role"] for message in talk)
            return f"it writes other tokens than the chat template for {roles}"
    return ""


def _as_texts(spec: Mapping[str, Any]) -> dict[str, Any]:
    function = spec["function"]
    properties = {key: {"type": "string"} for key in function["parameters"].get("properties", {})}
    parameters = {**function["parameters"], "properties": properties}
    return {**spec, "function": {**function, "parameters": parameters}}
