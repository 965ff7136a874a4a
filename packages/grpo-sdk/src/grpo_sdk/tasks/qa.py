"""`core.qa`: questions and golds from a file of one's own, scored by one of several verifiers."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from grpo_sdk.data import DatasetConfig, Record, read_rows, stable_id
from grpo_sdk.plugins.loading import resolve
from grpo_sdk.task.composition import reward
from grpo_sdk.task.marks import cut_at_stop, mark_of
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Invalid
from grpo_sdk.task.task import Task
from grpo_sdk.tasks.choices import LETTERS
from grpo_sdk.tasks.verifiers import VERIFIERS

VerifierName = Literal["exact", "number", "math", "choice", "regex", "json", "code"]

QUESTION = "{question}"

TEMPLATES: Mapping[str, str] = {
    "qa": "Question: {question}\nAnswer:",
    "plain": "{question}\n",
    "steps": (
        "Solve the problem step by step. End with a line that holds #### and the answer.\n\n"
        "Question: {question}\nAnswer:"
    ),
    "tags": (
        "Answer the question. Reason first, then give the final answer inside <answer> </answer> tags.\n\n"
        "Question: {question}\nAnswer:"
    ),
}
"""Templates by name; another text is a template itself, if `{question}` is in it."""

ANSWERS: Mapping[str, str] = {
    "tag": " <answer>{answer}</answer>", "box": " \\boxed{{answer}}",
    "####": "\n#### {answer}", "answer:": " Answer: {answer}"
}  # fmt: skip
"""Gold completions for a warm start, by the mark that the template asks for; otherwise a space and the answer."""

NEXT_QUESTION = "\nQuestion:"
"""What a base model goes on with behind its answer."""
STOP = ("</answer>", NEXT_QUESTION)

ROLES = ("system", "user", "assistant")

_OWN_LETTER = re.compile(r"\A\(?([A-Ja-j])[).:]\s+(?=\S)")
"""The letter that a choice of a file carries already."""

_LOGGER = logging.getLogger(__name__)


class QaConfig(DatasetConfig):
    """Options of `core.qa`.

    Attributes:
        verifier: How completions are scored: exact, number, math, choice, regex, json or code.
        template: Prompt: qa, plain, steps, tags, or a text with {question} in it.
        chat: Whether the prompt is a message of the user, for models with a chat template.
    """

    verifier: VerifierName = "exact"
    template: str = "qa"
    chat: bool = False

    @field_validator("template")
    @classmethod
    def _known_template(cls, value: str, info: ValidationInfo) -> str:
        if value not in TEMPLATES and QUESTION not in value:
            raise ValueError(f"must be {', '.join(TEMPLATES)}, or a text with {QUESTION} in it")
        if value == "steps" and info.data.get("verifier") == "code":
            raise ValueError(
                "steps asks for the answer after ####, which is a comment in Python; take tags, qa or plain"
            )
        return value


class QaRow(Row):
    """One question.

    Attributes:
        question: The question, or messages, which are the prompt as they are.
        answer: What the verifier compares with: an answer, a pattern, a schema or tests.
        choices: Texts of the choices, which the prompt lists with letters.
    """

    question: Prompt
    answer: str
    choices: tuple[str, ...] = ()


def load(config: QaConfig) -> Iterator[QaRow]:
    """Questions and golds of a file of your own (.jsonl, .csv, .parquet), by the verifier of your choice."""
    verifier = VERIFIERS[config.verifier]
    verifier.require(config.verifier)

    is_of_hub = (config.path or "").startswith("hub:")
    first: dict[tuple[Any, ...], tuple[str, str]] = {}  # question and choices -> its answer, and where
    of_id: dict[str, tuple[str, ...]] = {}

    def row(record: Record) -> QaRow:
        question, gold, demo = record["question"], record["answer"], record.get("completion")
        choices = _choices(record.get("choices"))
        columns = {config.fields.get(name, name) for name in record.read}
        if guessed := columns & record.guessed.keys():
            raise ValueError(record.guessed[min(guessed)])
        question, answer = _question(question, config), _text(gold, "answer")
        if config.verifier in ("exact", "regex") and isinstance(gold, float):
            raise ValueError(
                f"answer is the number {answer}; it may have been written in another way, and verifier="
                f"{config.verifier} compares text: use verifier=number, or save the column as text"
            )
        if not question:
            raise ValueError("the question is empty")
        verifier.check(answer, choices)
        content = _content(question)
        first_answer, first_place = first.setdefault((content, choices), (answer, record.where))
        if first_answer != answer and not is_of_hub:  # a file of the hub cannot be edited: each is a row
            raise ValueError(
                f"the same question as in {first_place}, with another answer: {content!r:.80}. Keep one of them; with "
                "verifier=regex one pattern takes several answers: yes|no"
            )
        row_id = stable_id(f"{content}\n{answer}")
        if of_id.setdefault(row_id, choices) != choices:
            row_id = stable_id("\n".join([content, answer, *choices]))
        gold = answer if demo is None and verifier.is_answer else demo
        return QaRow(
            id=row_id,
            question=question,
            answer=answer,
            choices=choices,
            gold=None if gold is None else _completion(_text(gold, "completion"), config, is_whole=demo is not None),
        )

    rows = read_rows(config, row, needs=("question", "answer"), content=lambda row: _content(row.question))
    yield from _distinct(rows, config)


def _distinct(rows: Iterable[QaRow], config: QaConfig) -> Iterator[QaRow]:
    """Rows without repetitions of question, choices and answer; says on stderr how many were dropped."""
    ids: set[str] = set()
    dropped = 0
    try:
        for row in rows:
            if row.id in ids:
                dropped += 1
            else:
                ids.add(row.id)
                yield row
    finally:  # also where size ends the reading
        if dropped:
            _say(f"{config.path}, split {config.split}: dropped {dropped} repeated row{'s' * (dropped > 1)}.")


@lru_cache(maxsize=64)  # a command may load a task several times
def _say(message: str) -> None:
    _LOGGER.warning(message)


def _question(value: Any, config: QaConfig) -> Prompt:
    """A question as text, or as messages where it is a list of them."""
    if not isinstance(value, list) or not (value == [] or isinstance(value[0], dict)):
        return _text(value, "question")
    if config.template != QaConfig().template:
        raise ValueError(f"template={config.template} is for a question that is text; this one is a list of messages")
    for message in value:
        given = {name: part for name, part in message.items() if part is not None}  # a column of structs has every name
        if given.keys() != {"role", "content"} or given["role"] not in ROLES or not isinstance(given["content"], str):
            raise ValueError(f"a message is a role ({', '.join(ROLES)}) and a text as its content, not {given!r:.80}")
    return tuple(Message(role=message["role"], content=message["content"]) for message in value)


def _content(question: Prompt) -> str:
    return question if isinstance(question, str) else json.dumps(question)


def _text(value: Any, field: str) -> str:
    """A value of a file as text: numbers as they are written, lists and objects as JSON."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        raise ValueError(f"{field} is null")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field} is {value}, which is no answer to anything")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:  # of a parquet file: bytes, dates
        raise ValueError(f"{field} holds {type(value).__name__}; save the column as text or numbers") from None


def _choices(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        value = value.split("|")
    if not isinstance(value, list):
        raise ValueError("choices must be a list of texts, or one text with | between them")
    choices = tuple(_text(choice, "choices") for choice in value)
    heads = [_OWN_LETTER.match(choice) for choice in choices[: len(LETTERS)]]
    if all(head and head[1].upper() == letter for head, letter in zip(heads, LETTERS, strict=False)):
        return tuple(_OWN_LETTER.sub("", choice) for choice in choices)  # the prompt writes them
    return choices


def _completion(gold: str, config: QaConfig, *, is_whole: bool) -> str:
    if is_whole:
        return gold
    unmarked = "{answer}" if config.template == "plain" else " {answer}"
    return ANSWERS.get(_mark(config), unmarked).replace("{answer}", gold)


def _mark(config: QaConfig) -> str:
    return mark_of(TEMPLATES.get(config.template, config.template))


def prompt(row: QaRow, config: QaConfig) -> Any:
    """The question in the template, with its choices below it; or its messages."""
    if not isinstance(row.question, str):
        return row.question
    listed = [f"{letter}) {choice}" for letter, choice in zip(LETTERS, row.choices, strict=False)]
    question = "\n".join([row.question, *listed])
    text = TEMPLATES.get(config.template, config.template).replace(QUESTION, question)
    return ({"role": "user", "content": text},) if config.chat else text


def validate(text: str, row: QaRow, config: QaConfig) -> float:
    """The verifier's value of the completion.

    Raises:
        Invalid: the completion has no answer of the wanted kind.
        TimeoutError: the check takes too long.
    """
    completion = cut_at_stop(text, STOP)[0].removesuffix(NEXT_QUESTION)
    if not completion.strip():
        raise Invalid("no answer")
    return VERIFIERS[config.verifier].score(completion, row.answer, row.choices, _mark(config))


@reward(1.0)
def correct(answer: float) -> float:
    """1 for a right answer; with verifier=code, the share of the tests that pass."""
    return answer


def conditions(config: QaConfig) -> Mapping[str, str]:
    """With verifier=code, the level of the sandbox."""
    if config.verifier != "code":
        return {}
    VERIFIERS["code"].require("code")
    return dict(resolve("grpo_tasks_code.sandboxed:conditions")())


def specialize(config: QaConfig, task: Task) -> Task:
    """A chat model ends its completion itself, and may think aloud about "Question:"."""
    return replace(task, stop=("</answer>",) if config.chat else task.stop, specialize=None)


TASK = Task(
    "qa",
    load,
    prompt,
    validate,
    (correct,),
    config=QaConfig,
    row=QaRow,
    version="2",
    stop=STOP,
    timeout_s=15.0,  # tests of a program may take 10 s; the other verifiers take milliseconds
    on_timeout="fail",
    default_model="tiny",
    conditions=conditions,
    specialize=specialize,
)
