"""How one model calls tools, and the choice of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.chat.renderer_form import renderer_form
from grpo_sdk.chat.template_form import TemplateForm
from grpo_sdk.chat.text_form import TextForm
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.tools.tool import Tool

ToolFormat = TextForm | TemplateForm
"""How one model calls tools; made once for a tokenizer and the tools."""


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
