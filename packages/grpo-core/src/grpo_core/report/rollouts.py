"""A run's completions as columns, bounded in number and size, for the browser of a report."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from grpo_core.report.curves import TaskTally, reward_of, spans
from grpo_core.tracking.base import plain
from grpo_sdk.errors import PluginError
from grpo_sdk.plugins.facts import Frame
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts
from grpo_sdk.task.row import labelled

Draw = Callable[[RolloutRecord], Sequence[Frame]]

MAX_ROLLOUTS = 50_000
"""Completions of a run in a report; of more, whole steps at equal distances are kept."""

MAX_TEXT_CHARS, MIN_TEXT_CHARS = 8_000, 400
"""Longest text of a completion, prompt or row, and what is left of it where there are many."""

MAX_CHARS = 48 << 20
"""Characters of all texts: a browser reads so much in less than a second."""

MAX_TOKENS = 2_000_000
"""Tokens with their log-probs; of later completions they are left out."""

MAX_DRAWN_CHARS = 12 << 20
"""Characters of all drawings; of completions after that they are left out."""

MAX_FRAMES = 200

SOLVED, VALID, ABSTAINED, TRUNCATED, EXCLUDED = 1, 2, 4, 8, 16
"""Bits of the column `flags`."""


class Table:
    """Values that occur often, each once, with its index."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._index: dict[Hashable, int] = {}

    def add(self, value: Any, key: Hashable | None = None) -> int:
        """Return the index of a value."""
        key = value if key is None else key
        if key not in self._index:
            self._index[key] = len(self.values)
            self.values.append(value)
        return self._index[key]


COLUMNS = ("group", "flags", "reward", "value", "tokens", "logprob", "text", "why", "parts", "role", "turns",
           "messages", "frames", "scored", "pieces", "logprobs", "fault")  # fmt: skip


@dataclass(slots=True)
class Columns:
    """Completions as columns; texts that repeat are in tables.

    Args:
        limit: Longest text.
        draw: Pictures of a completion.

    Attributes:
        problems: What could not be drawn or was left out, for the reader.
    """

    limit: int
    draw: Draw
    problems: dict[str, int] = field(default_factory=dict)
    groups: list[list[Any]] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    tables: dict[str, Table] = field(
        default_factory=lambda: {
            name: Table() for name in ("tasks", "prompts", "rows", "whys", "parts", "vocabulary", "frames", "faults")
        }
    )
    n_tokens: int = 0
    n_drawn: int = 0

    def add(self, group: Sequence[RolloutRecord]) -> None:
        """Add the completions of one prompt and step."""
        first, tables = group[0], self.tables
        prompt, row = first.prompt_text, plain(orjson.dumps(first.row).decode())
        self.groups.append(
            [
                first.step,
                tables["tasks"].add(first.task),
                first.group,
                tables["prompts"].add(self._clipped(prompt)),
                tables["rows"].add(self._clipped(row)),
                first.row_id[:200],
                first.difficulty,
                first.pass_rate,
            ]
        )
        for record in group:
            for name, value in self._values(record).items():
                self.columns[name].append(value)

    def as_json(self, total: int) -> dict[str, Any]:
        """All columns and tables."""
        return {
            "total": total,
            "groups": self.groups,
            "tables": {name: table.values for name, table in self.tables.items()},
            "problems": [f"{text}: {count} completion{'s' * (count != 1)}" for text, count in self.problems.items()],
            **self.columns,
        }

    def _values(self, record: RolloutRecord) -> dict[str, Any]:
        score, tables = record.score, self.tables
        reward = reward_of(record)
        flags = (
            SOLVED * score.solved
            | VALID * score.valid
            | ABSTAINED * score.abstained
            | TRUNCATED * (record.finish_reason == "length")
            | EXCLUDED * (record.included is False)
        )
        pieces, logprobs = self._tokens(record)
        return {
            "group": len(self.groups) - 1,
            "flags": int(flags),
            "reward": None if reward != reward else round(reward, 6),
            "value": None if score.value is None else round(score.value, 6),
            "tokens": record.tokens,
            "logprob": None if record.logprob is None else round(record.logprob, 3),
            "text": self._clipped(record.text),
            "why": tables["whys"].add(score.why),
            "fault": tables["faults"].add(score.fault),
            "parts": [[tables["parts"].add(name), round(part, 6)] for name, part in score.parts.items()],
            "role": record.role,
            "turns": record.turns,
            "messages": self._messages(record),
            "frames": self._frames(record),
            "scored": None if record.scored_text is None else self._clipped(record.scored_text),
            "pieces": pieces,
            "logprobs": logprobs,
        }

    def _messages(self, record: RolloutRecord) -> list[tuple[str, str]] | None:
        """Who said what; where it is too long, each message is cut to its share."""
        limit = self.limit if len(record.text) <= self.limit else self.limit // max(1, len(record.messages))
        return [(label, self._clipped(text, limit)) for label, text in labelled(record.messages)] or None

    def _clipped(self, text: str, limit: int | None = None) -> str:
        limit = self.limit if limit is None else limit
        if len(text) <= limit:
            return text
        self._note(f"longer than {self.limit} characters, and the middle is left out")
        tail = limit // 3
        return f"{text[: limit - tail]}\n… {len(text) - limit} characters left out …\n{text[-tail:]}"

    def _tokens(self, record: RolloutRecord) -> tuple[list[int] | None, list[float] | None]:
        """Pieces by their index in the vocabulary, and log-probs; None where they are not stored, or too many."""
        texts, logprobs = record.token_texts, record.token_logprobs
        if texts is None or logprobs is None or len(texts) != len(logprobs):
            return None, None
        if self.n_tokens + len(texts) > MAX_TOKENS:
            self._note("without token log-probs, to keep the file small")
            return None, None
        self.n_tokens += len(texts)
        vocabulary = self.tables["vocabulary"]
        return [vocabulary.add(text[:100]) for text in texts], [round(each, 2) for each in logprobs]

    def _frames(self, record: RolloutRecord) -> list[int] | None:
        if self.n_drawn > MAX_DRAWN_CHARS:
            self._note("not drawn, to keep the file small")
            return None
        try:
            frames = self.draw(record)[:MAX_FRAMES]
        except PluginError as error:
            self._note(str(error))
            return None
        table = self.tables["frames"]
        before, indices = len(table.values), []
        for frame in frames:
            value = [self._clipped(plain(frame.caption)), plain(frame.svg), self._clipped(plain(frame.text))]
            indices.append(table.add(value, tuple(value)))
        self.n_drawn += sum(len(svg) + len(text) for _, svg, text in table.values[before:])
        return indices or None

    def _note(self, problem: str) -> None:
        self.problems[problem] = self.problems.get(problem, 0) + 1


class Gathered(NamedTuple):
    """The completions of a run.

    Attributes:
        tasks: Task -> curves and distributions of all completions.
        kept: The kept completions; None keeps none.
        problems: Damaged lines that are left out.
        last_step: Step of the last completion; 0 if there is none.
    """

    tasks: dict[str, Any]
    kept: dict[str, Any] | None
    problems: list[str]
    last_step: int


def gather(run: Path, draw: Draw, limit: int = MAX_ROLLOUTS) -> Gathered:
    """Read a run's completions once.

    Args:
        run: Folder of the run, which has completions.
        draw: Pictures of a completion.
        limit: Most completions that are kept; 0 keeps none.
    """
    path = run / "logs" / "rollouts.jsonl"
    size, total = path.stat().st_size, _lines(path)
    stride = -(-total // limit) if limit else 0
    kept = total // stride if stride else 1
    room = MAX_TEXT_CHARS if size <= MAX_CHARS else max(MIN_TEXT_CHARS, min(MAX_TEXT_CHARS, MAX_CHARS // max(1, kept)))
    columns, problems = Columns(room, draw), list[str]()
    tallies: dict[str, TaskTally] = {}
    steps: dict[int, int] = {}
    step = 0
    records = read_rollouts(run, problems=problems)
    for (step, _, task), members in groupby(records, key=lambda record: (record.step, record.group, record.task)):
        group = list(members)
        tallies.setdefault(task, TaskTally()).add(group)
        # The first step is kept, and then every so many.
        number = steps.setdefault(step, len(steps))
        if stride and number % stride == 0:
            columns.add(group)
    edges = spans(max(steps, default=0))
    tasks = {task: tally.as_json(edges) for task, tally in tallies.items()}
    return Gathered(tasks, columns.as_json(total) if limit else None, problems, step)


def _lines(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
    return count


def drawer(draw: Callable[[str, Mapping[str, Any], str, Any], Sequence[Frame]]) -> Draw:
    """Return a function that has the plugins draw a completion, and stops asking those that fail."""
    broken: dict[str, str] = {}

    def drawn(record: RolloutRecord) -> Sequence[Frame]:
        name = record.task.partition("?")[0]
        plugin = name.partition(".")[0]
        if plugin in broken:
            raise PluginError(broken[plugin])
        try:
            return draw(name, record.row, record.scored_text or record.text, record.score)
        except PluginError as error:
            broken[plugin] = str(error)
            raise

    return drawn
