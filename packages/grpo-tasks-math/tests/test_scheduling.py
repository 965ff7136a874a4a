from itertools import combinations, pairwise

import pytest

from grpo_sdk import load_task
from grpo_tasks_math.scheduling import Event, SchedulingRow, best_schedule, content

TASK = load_task("math.scheduling?size=210")


def event(title: str, start: str, end: str, *, priority: bool = False) -> Event:
    return Event(title=title, start=_minute(start), end=_minute(end), priority=priority)


def _minute(clock: str) -> int:
    hours, minutes = clock.split(":")
    return 60 * int(hours) + int(minutes)


# Standup 30 and Review 90 minutes do not overlap; Call overlaps Review, but its 60 minutes count double.
# Best: Standup + Call = 30 + 120 = 150. Standup + Review = 120.
ROW = SchedulingRow(
    id="x",
    events=(
        event("Review", "10:00", "11:30"),
        event("Standup", "09:00", "09:30"),
        event("Call", "10:30", "11:30", priority=True),
    ),
    optimum=150,
)
BEST = "<schedule>\n09:00-09:30 Standup\n10:30-11:30 Call\n</schedule>"


def block(*lines: str) -> str:
    return "\n".join(["<schedule>", *lines, "</schedule>"])


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (1.0, [BEST, f"\n{BEST}\n", f"<think>\nThe call counts double: <schedule>.\n</think>\n{BEST}"]),
        (1.0, [block(" 9:00-9:30  Standup", "10:30 – 11:30: Call (priority)")]),
        (0.9, [f"Here it is: {BEST}", f"{BEST}\nDone."]),  # the form asks for the block alone
        (0.8, [block("10:30-11:30 Call", "09:00-09:30 Standup")]),  # not in order
        (0.3 + 0.7 * 120 / 150, [block("09:00-09:30 Standup", "10:00-11:30 Review")]),
        (0.1 + 0.7 * 120 / 150, [block("10:30-11:30 Call")]),  # a single line shows no order
        (0.3, [block("10:00-11:30 Review", "10:30-11:30 Call")]),  # they overlap
        # Another time, and no such event.
        (0.3, [block("09:00-09:30 Standup", f"10:30-{other}") for other in ("11:45 Call", "11:30 Party")]),
        (0.1, [block("09:00-09:30 Standup", "09:00-09:30 Standup")]),  # twice
        (0.0, ["", block(), BEST + BEST, "09:00-09:30 Standup\n10:30-11:30 Call", block("09:00 Standup")]),
        (0.0, [block("09:00-09:30 Standup", "and the call"), "</schedule>09:00-09:30 Standup<schedule>"]),
    ],
)
def test_the_rungs(value: float, texts: list[str]) -> None:
    for text in texts:
        score = TASK.score(text, ROW)
        assert score.value == pytest.approx(value) and score.solved == (value == 1.0), (text, score)


def test_a_blocked_break_stays_free() -> None:
    blocked = ROW.model_copy(update={"blocked": (_minute("11:00"), _minute("12:00")), "optimum": 30})
    assert TASK.score(BEST, blocked).parts["completion"] == 0.0
    assert TASK.score(block("09:00-09:30 Standup"), blocked).parts["completion"] == 1.0
    edge = ROW.model_copy(update={"blocked": (_minute("11:30"), _minute("12:00"))})  # begins when the call ends
    assert TASK.score(BEST, edge).parts["completion"] == 1.0


def _fits(chosen: tuple[Event, ...], blocked: tuple[int, int] | None) -> bool:
    spans = sorted([(e.start, e.end) for e in chosen] + ([blocked] if blocked else []))
    return all(a[1] <= b[0] for a, b in pairwise(spans))


def test_the_optimum_is_that_of_trying_everything() -> None:
    for row in TASK.rows():
        assert isinstance(row, SchedulingRow)
        choices = (c for size in range(len(row.events) + 1) for c in combinations(row.events, size))
        most = max(sum(e.worth for e in chosen) for chosen in choices if _fits(chosen, row.blocked))
        best = best_schedule(row.events, row.blocked)
        assert row.optimum == most == sum(e.worth for e in best)
        assert 2 <= len(best) < len(row.events)


def test_the_prompt_says_everything_that_counts() -> None:
    prompt = TASK.prompt(ROW.model_copy(update={"blocked": (720, 780)}))
    assert isinstance(prompt, str)
    for needed in ("Keep 12:00-13:00 free.", "10:30-11:30 Call (priority)", "count 2 times", "HH:MM-HH:MM Title"):
        assert needed in prompt
    assert "Keep" not in str(TASK.prompt(ROW))


def test_titles_and_order_make_no_other_problem() -> None:
    renamed = [e.model_copy(update={"title": f"Other {i}"}) for i, e in enumerate(reversed(ROW.events))]
    assert content(ROW) == content(ROW.model_copy(update={"events": tuple(renamed)}))
    assert content(ROW) != content(ROW.model_copy(update={"blocked": (720, 780)}))
