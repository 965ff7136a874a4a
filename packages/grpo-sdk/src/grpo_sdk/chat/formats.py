"""How one model calls tools, and the choice of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.chat.renderer_form import renderer_form
from grpo_sdk.chat.template_form import TemplateForm
from grpo_sdk.chat.text_form import Sampled, TextForm
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.tools.calls import Reading
from grpo_sdk.task.tools.tool import Tool


class ToolFormat(Protocol):
    """How one model calls tools; made once for a tokenizer and the tools.

    Attributes:
        name: Its name: `text`, `template` or `renderers FAMILY`.
        why: Reason why it was chosen.
        stop: Strings that end a completion.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class
    @property
    def why(self) -> str: ...  # noqa: D102 - see the class
    @property
    def stop(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class

    def first(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of the first prompt, in which the tools are described."""
        ...

    def read(self, prompt_ids: Sequence[int], completion: Sampled) -> Reading:
        """What a completion says: a malformed call is one with a problem."""
        ...

    def following(
        self, prompt_ids: Sequence[int], completion: Sampled, messages: Sequence[Message], new: int
    ) -> tuple[int, ...]:
        """Token ids of the next turn's prompt: the tokens so far as they were sampled, and those of new messages.

        Where the model's family cannot go on so, they are those of all messages, and don't begin with what was sampled.

        Args:
            prompt_ids: The last prompt.
            completion: The policy's answer to it.
            messages: The whole conversation, the answer and the new messages included.
            new: How many of them are new: results of the answer's calls, in their order, perhaps a message of the user.
        """
        ...


def choose_format(tokenizer: Any, tools: Sequence[Tool], prompt: Prompt) -> ToolFormat:
    """How a model calls tools: by a renderer, else by its chat template, else in text.

    Each is tried by rendering, so that the name of a model decides nothing.

    Args:
        tokenizer: Tokenizer of the model.
        tools: What can be called.
        prompt: A prompt of the task; text, or chat.

    Raises:
        UserError: the prompt has messages and the model has no chat template.
    """
    if isinstance(prompt, str):
        return TextForm(tokenizer, tools, prompt, "the task's prompts are text")
    encode_prompt(tokenizer, prompt)  # refuses a model without a chat template
    renderer = renderer_form(tokenizer, tools)
    if isinstance(renderer, str):
        passed_over = renderer
    elif passed_over := renderer.problem(prompt):
        passed_over = f"{renderer.name} isn't used: {passed_over}"
    else:
        return renderer
    template = TemplateForm(tokenizer, tools, passed_over)
    if problem := template.problem(prompt):
        return TextForm(tokenizer, tools, prompt, f"{problem}; {passed_over}")
    return template
