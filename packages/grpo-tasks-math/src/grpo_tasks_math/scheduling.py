"""`math.scheduling`: choose meetings that do not overlap, so that as much weighted time as possible is used."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import procedural
from grpo_tasks_math.levels import ThreeLevels

PRIORITY_WEIGHT = 2
"""Weight of a minute of a priority event."""

LEVELS = {1: (4, 4, 0.0), 2: (5, 7, 0.0), 3: (7, 10, 1.0)}
"""Level -> fewest and most events, and the probability of a blocked break."""

DAY = (8 * 60, 18 * 60)
"""First and last minute of the day."""

QUARTER = 15
"""Events begin and end on quarters of an hour."""

_TITLES = (
    "Standup, Design review, Budget talk, Interview, Code review, Client call, Lunch with Ana, Training, Planning, "
    "Retrospective, Press briefing, Team photo, Dentist, Workshop"
)
TITLES = _TITLES.split(", ")

MAX_SCHEDULE_CHARS = 2_000
"""Longer schedules are refused; ten events need less than 400."""

MAX_TEXT_CHARS = 20_000
"""Longer completions are refused."""

_LINE = re.compile(r"([0-9]{1,2}):([0-9]{2})\s?[-–]\s?([0-9]{1,2}):([0-9]{2}):?\s+(\S.{0,60})")


class SchedulingConfig(ThreeLevels):
    """Options of `math.scheduling`.

    Attributes:
        min_difficulty: Easiest level: 1 four events, 2 five to seven, 3 seven to ten and a break to keep free.
        max_difficulty: Hardest level.
    """


class Event(BaseModel):
    """An event that may be scheduled.

    Attributes:
        title: Unique in its row.
        start: Minute of the day.
        end: Minute of the day, after `start`.
        priority: Whether its minutes count `PRIORITY_WEIGHT` times.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    start: int
    end: int
    priority: bool

    @property
    def worth(self) -> int:
        """Weighted minutes."""
        return (self.end - self.start) * (PRIORITY_WEIGHT if self.priority else 1)


class SchedulingRow(Row):
    """Events of a day.

    Attributes:
        events: Events that may be scheduled.
        blocked: Start and end of a break to keep free, or None.
        optimum: Most weighted minutes of a schedule.
    """

    events: tuple[Event, ...]
    blocked: tuple[int, int] | None = None
    optimum: int = Field(ge=1)


class Entry(NamedTuple):
    """One line of a schedule: minutes of the day, and a title."""

    start: int
    end: int
    title: str


def load(config: SchedulingConfig) -> Iterator[SchedulingRow]:
    """Meetings of a day, some of which overlap."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> SchedulingRow:
    fewest, most, break_chance = LEVELS[level]
    while True:
        events = _events(random, random.randint(fewest, most))
        blocked = (12 * 60, 13 * 60) if random.random() < break_chance else None
        best = best_schedule(events, blocked)
        if 2 <= len(best) < len(events):  # one event cannot be in order, and all of them leave nothing to choose
            break
    gold = "\n".join(["", "<schedule>", *map(_line, best), "</schedule>"])
    return SchedulingRow(id="", events=events, blocked=blocked, optimum=sum(event.worth for event in best), gold=gold)


def _events(random: Random, count: int) -> tuple[Event, ...]:
    events = []
    for title in random.sample(TITLES, count):
        length = QUARTER * random.randint(2, 10)
        start = random.randrange(DAY[0], DAY[1] - length + 1, QUARTER)
        events.append(Event(title=title, start=start, end=start + length, priority=random.random() < 0.3))
    return tuple(events)


def best_schedule(events: Sequence[Event], blocked: tuple[int, int] | None) -> list[Event]:
    """Return the schedule with the most weighted minutes: weighted interval scheduling (Kleinberg, Tardos, 6.1).

    With the events ordered by their end, best(i) = max(best(i − 1), worth(i) + best(p(i))), where the first p(i) events
    end before event i starts.
    """
    free = [event for event in events if not (blocked and event.start < blocked[1] and blocked[0] < event.end)]
    free.sort(key=lambda event: (event.end, event.start, event.title))
    ends = [event.end for event in free]
    before = [bisect_right(ends, event.start) for event in free]
    best = [0]
    for event, earlier in zip(free, before, strict=True):
        best.append(max(best[-1], event.worth + best[earlier]))
    chosen: list[Event] = []
    i = len(free)
    while i:
        if best[i] == best[i - 1]:
            i -= 1
        else:
            chosen.append(free[i - 1])
            i = before[i - 1]
    return chosen[::-1]


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _line(event: Event) -> str:
    return f"{_clock(event.start)}-{_clock(event.end)} {event.title}"


def content(row: SchedulingRow) -> str:
    """What makes two rows the same problem: times and priorities; titles and the order of the events do not matter."""
    return " ".join(sorted(f"{e.start}-{e.end}{'!' * e.priority}" for e in row.events)) + f" {row.blocked}"


def prompt(row: SchedulingRow) -> str:
    """The rules, the form of the answer, and the events."""
    listed = [f"{_line(event)}{' (priority)' if event.priority else ''}" for event in row.events]
    rules = [
        "Choose events from this list for one day. No two may overlap; one may start when another ends. "
        f"Use as many minutes as you can: minutes of priority events count {PRIORITY_WEIGHT} times.",
        *([f"Keep {_clock(row.blocked[0])}-{_clock(row.blocked[1])} free."] if row.blocked else []),
        "Write the chosen events in order of time between <schedule> and </schedule>, each on a line of its own "
        "as HH:MM-HH:MM Title.",
    ]
    return "\n".join([*rules, "", *listed, "", "Schedule:"])


def validate(text: str) -> list[Entry]:
    """Return the lines of the one <schedule> block; text before it (thinking) is ignored.

    Raises:
        Invalid: there is not exactly one block, it is empty, or a line is not HH:MM-HH:MM Title.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise Invalid(f"a completion of more than {MAX_TEXT_CHARS} characters")
    answer = text.rpartition("</think>")[2]
    if answer.count("<schedule>") != 1 or answer.count("</schedule>") != 1:
        raise Invalid("not exactly one <schedule> block")
    block, closed, _ = answer.partition("<schedule>")[2].partition("</schedule>")
    if not closed or len(block) > MAX_SCHEDULE_CHARS:
        raise Invalid(f"the <schedule> block is not closed, or has more than {MAX_SCHEDULE_CHARS} characters")
    entries = [_entry(line.strip()) for line in block.splitlines() if line.strip()]
    if not entries:
        raise Invalid("an empty schedule")
    return entries


def _entry(line: str) -> Entry:
    match = _LINE.fullmatch(line)
    if match is None:
        raise Invalid(f"{line[:40]!r} is not HH:MM-HH:MM Title")
    start_hour, start_minute, end_hour, end_minute, title = match.groups()
    return Entry(
        60 * int(start_hour) + int(start_minute),
        60 * int(end_hour) + int(end_minute),
        title.removesuffix("(priority)").rstrip(),
    )


@reward(0.1)
def format(answer: list[Entry], text: str) -> float:
    """1 when nothing follows the block, and nothing but a closed <think> block comes before it."""
    before, _, after = text.rpartition("</think>")[2].partition("<schedule>")
    return float(not before.strip() and not after.partition("</schedule>")[2].strip())


@reward(0.2)
def chronological(answer: list[Entry]) -> float:
    """1 when there are at least two lines, each starting later than the one before."""
    return float(len(answer) >= 2 and all(a.start < b.start for a, b in pairwise(answer)))


@reward(0.7)
def completion(answer: list[Entry], row: SchedulingRow) -> float:
    """Weighted minutes over the optimum; 0 if a line is no event, is repeated, overlaps another, or is blocked."""
    known = {Entry(event.start, event.end, event.title): event for event in row.events}
    if not all(entry in known for entry in answer):
        return 0.0
    taken = sorted([*answer, *([Entry(*row.blocked, "")] if row.blocked else [])])
    if any(a.end > b.start for a, b in pairwise(taken)):  # a repeated line overlaps itself
        return 0.0
    return min(1.0, sum(known[entry].worth for entry in answer) / row.optimum)


TASK = Task(
    "scheduling",
    load,
    prompt,
    validate,
    (format, chronological, completion),
    config=SchedulingConfig,
    row=SchedulingRow,
    stop=("</schedule>",),
    max_completion_length=400,  # ten lines of about 30 characters, with room to think
    on_timeout="fail",
)
"""Value: 0.1 format + 0.2 chronological order + 0.7 times the share of the optimum; 0.0 without a schedule."""
