"""The process of a judge that is a model of this machine: it loads the model once, and answers batches of calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from grpo_core.engines.compatibility import max_context
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.candidate import EngineSampler
from grpo_core.evaluation.sampling import Question
from grpo_core.policy.device import choose_device
from grpo_core.policy.load import load_policy
from grpo_core.policy.threads import choose_threads
from grpo_sdk.endpoints.base import SampleKey, Sampling
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.plugins.models import model_source
from grpo_sdk.task.row import Message

Handler = Callable[[bytes], bytes]


def make_language_model(name: str, device: str, temperature: float, max_tokens: int) -> Handler:
    """A chat model that writes verdicts.

    Args:
        name: Embedded name, local folder, GGUF file or hub id.
        device: Its device.
        temperature: Sampling temperature.
        max_tokens: Longest verdict, with its reason.

    Raises:
        UserError: there is no such model, or it has no chat template.
    """
    policy = load_policy(name, device=device)
    if not getattr(policy.tokenizer, "chat_template", None):
        raise UserError(f"judge {name}: its tokenizer has no chat template; a judge needs an instruct model.")
    engine = NativeEngine(policy.model.eval(), policy.tokenizer)
    sampler = EngineSampler(engine, policy.tokenizer, max_context=max_context(policy.model))
    sampling = Sampling(temperature=temperature, max_completion_length=max_tokens)

    def handle(payload: bytes) -> bytes:
        questions = [_question(call["messages"]) for call in json.loads(payload)]
        replies: list[dict[str, Any]] = [{}] * len(questions)
        with policy.precision():
            for index, answer in sampler.sample(questions, sampling):
                replies[index] = {
                    "text": answer.text,
                    "input_tokens": len(answer.prompt_ids),
                    "output_tokens": len(answer.token_ids),
                    "error": f"judge {name}: {answer.error}" if answer.error else "",
                    "is_too_long": answer.is_too_long,
                }
        return json.dumps(replies).encode()

    return handle


def _question(messages: list[dict[str, str]]) -> Question:
    """A call whose random numbers depend on its texts alone."""
    prompt = tuple(Message(role=message["role"], content=message["content"]) for message in messages)
    digest = hashlib.blake2b(json.dumps(messages).encode(), digest_size=8).hexdigest()
    return Question(prompt, SampleKey(0, 0, digest, 0), (), None)


def make_classifier(name: str, device: str, label: str | None) -> Handler:
    """A sequence classifier or a reward model.

    Args:
        name: Local folder or hub id.
        device: Its device.
        label: Label whose probability is the value; None for a model of one output.

    Raises:
        UserError: there is no such model, it has no classification head, or no such label.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source = model_source(name)
    where, _ = choose_device(device)
    tokenizer = AutoTokenizer.from_pretrained(source.location, trust_remote_code=False)
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            source.location, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        raise UserError(f"judge {name}: {' '.join(str(error).split())[:300]}") from None
    if info["missing_keys"]:
        raise UserError(
            f"judge {name}: it has no trained classification head ({', '.join(info['missing_keys'])[:100]})."
        )
    if tokenizer.pad_token_id is None:  # a decoder's, as of most reward models
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    choose_threads(sum(parameter.numel() for parameter in model.parameters()), where)
    output = _output_of(name, model.config, label)
    model = model.eval().to(where)
    longest = max_context(model)

    def handle(payload: bytes) -> bytes:
        calls = json.loads(payload)
        encoded = [_encode(tokenizer, call["prompt"], call["text"]) for call in calls]
        lengths = [len(each["input_ids"]) for each in encoded]
        fitting = [index for index, length in enumerate(lengths) if longest is None or length <= longest]
        replies: list[dict[str, Any]] = [
            {"error": f"judge {name}: a text of {length} tokens; the model takes {longest}", "is_too_long": True}
            for length in lengths
        ]
        if fitting:
            batch = tokenizer.pad([encoded[index] for index in fitting], return_tensors="pt").to(where)
            with torch.inference_mode():
                logits = model(**batch).logits.float().cpu()  # [B, labels]
            values = torch.sigmoid(logits[:, 0]) if output is None else torch.softmax(logits, -1)[:, output]
            for index, value in zip(fitting, values.tolist(), strict=True):
                replies[index] = {"value": value, "input_tokens": lengths[index], "output_tokens": 0}
        return json.dumps(replies).encode()

    return handle


def _encode(tokenizer: Any, prompt: str | None, text: str) -> Any:
    """Prompt and completion as the model was trained on them: a conversation where it has a template, else a pair."""
    text = text.encode("utf-8", "replace").decode()
    if prompt is None:
        return tokenizer(text)
    prompt = prompt.encode("utf-8", "replace").decode()
    if getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
        return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)
    return tokenizer(prompt, text)


def _output_of(name: str, config: Any, label: str | None) -> int | None:
    """Index of a label; None for a model of one output."""
    labels = {str(text): int(index) for index, text in config.id2label.items()}
    if len(labels) == 1:
        if label is not None and label not in labels:
            raise UserError(f"judge {name}: it has one output; leave out label={label!r}.")
        return None
    if label is None or label not in labels:
        given = "give label=" if label is None else f"no label {label!r};{near_match(label, labels)} give one"
        raise UserError(f"judge {Path(name).name}: {given} of {', '.join(labels)}.")
    return labels[label]
