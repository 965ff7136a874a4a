"""The right answers of a sample of rows: their shortest form, the text that all golds have around it, and chance."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from random import Random

from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.tools.calls import read_tool_turns
from grpo_sdk.tasks.answers import answer_of
from grpo_sdk.tasks.numbers import value_of

MAX_SHORT_CHARS = 40
MAX_SHORT_WORDS = 4
NUMBER = re.compile(r"[-+\u2212]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30})(?:\.[0-9]{1,30})?")
_WORDS = re.compile(r"[^\W_]+(?:[ '-][^\W_]+)*")


def said_in(gold: str) -> str:
    """What a gold says: of turns with calls, the text of the last one."""
    return read_tool_turns(gold)[0][-1].text


def canonical(answer: str) -> str:
    """A form in which two ways to write the same number or the same words are equal."""
    text = " ".join(answer.split()).strip(" .").casefold()
    return str(value_of(text)) if NUMBER.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold completion around its answer.

    Attributes:
        before: Text before the answer.
        answer: The answer that the completion marks, without white space around it.
        after: Text after the answer.
    """

    before: str
    answer: str
    after: str

    @property
    def text(self) -> str:
        """The whole completion."""
        return self.before + self.answer + self.after

    @property
    def is_short(self) -> bool:
        """Whether the answer is one number or a few words, so that a changed or a second one is another answer."""
        return len(self.answer) <= MAX_SHORT_CHARS and (
            NUMBER.fullmatch(self.answer) is not None
            or (_WORDS.fullmatch(self.answer) is not None and len(self.answer.split()) <= MAX_SHORT_WORDS)
        )


def read_gold(completion: str) -> Gold:
    """Find the answer of a gold completion; of turns with calls, in what it says."""
    completion = said_in(completion)
    answer = answer_of(completion, is_strict=False)
    before, _, after = completion.rpartition(answer) if answer else (completion, "", "")
    return Gold(before, answer, after)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text."""
    return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


@dataclass(frozen=True)
class Sample:
    """Rows of a task with what completions are made of.

    Attributes:
        rows: The rows.
        prompts: Their prompts as text.
        golds: What their golds say; None where a row has none, or one that only makes calls.
    """

    rows: tuple[Row, ...]
    prompts: tuple[str, ...]
    golds: tuple[Gold | None, ...]

    @cached_property
    def frame(self) -> tuple[str, str]:
        """The text that all golds have before and after their answers: it says nothing about any of them."""
        golds = [gold for gold in self.golds if gold is not None]
        before = _common_start([gold.before[::-1] for gold in golds])[::-1]
        return before, _common_start([gold.after for gold in golds])

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The different short answers, in the order of the rows."""
        return tuple({canonical(gold.answer): gold.answer for gold in self.golds if gold and gold.is_short}.values())

    @cached_property
    def chance(self) -> float:
        """Share of the rows that have the most frequent gold; 0 where rows have no golds."""
        counts = Counter(_meaning(row.gold) for row in self.rows if row.gold is not None)
        return max(counts.values(), default=0) / len(self.rows)

    def others(self, index: int) -> list[Gold]:
        """The golds of other rows that are not the answer of this one."""
        own = self.golds[index]
        return [
            gold for gold in self.golds if gold and (own is None or canonical(gold.answer) != canonical(own.answer))
        ]

    def is_right(self, text: str, index: int) -> bool:
        """Whether a completion is the gold of a row, written in one way or another."""
        gold, text = self.golds[index], said_in(text)
        written = map(canonical, (text, answer_of(text, is_strict=False)))
        return gold is not None and canonical(gold.answer) in written


def _common_start(texts: Sequence[str]) -> str:
    columns = takewhile(lambda signs: len(set(signs)) == 1, zip(*texts, strict=False))
    return "".join(signs[0] for signs in columns)


def _only_calls(gold: str) -> bool:
    return said_in(gold) != gold and not said_in(gold).strip()


def _meaning(gold: str) -> tuple[str, ...]:
    """What equal golds have in common: their answer and their calls."""
    calls = (call for turn in read_tool_turns(gold)[0] for call in turn.calls)
    written = (f"{call.name} {json.dumps(call.arguments, sort_keys=True)}" for call in calls)
    return canonical(read_gold(gold).answer), *written


def sample_rows(task: BoundTask, count: int, seed: int) -> Sample:
    """Draw rows of a task.

    Args:
        task: The task.
        count: Most rows to draw.
        seed: Seed of the draw.

    Raises:
        DataError: the task has no rows.
    """
    every = task.rows()
    rows: Sequence[Row] = every if len(every) <= count else Random(f"{seed}/rows").sample(every, count)
    golds = tuple(None if row.gold is None or _only_calls(row.gold) else read_gold(row.gold) for row in rows)
    return Sample(tuple(rows), tuple(prompt_text(task.prompt(row)) for row in rows), golds)
