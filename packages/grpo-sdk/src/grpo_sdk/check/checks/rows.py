"""Rows, prompts and demos."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from itertools import chain, islice
from statistics import fmean

from grpo_sdk.check.answers import canonical, prompt_text, read_gold, said_in
from grpo_sdk.check.checks.scores import failed_turn
from grpo_sdk.check.limits import decided_by_judges
from grpo_sdk.check.results import Result, failed, not_applicable, passed, shown
from grpo_sdk.check.subject import LOADED_ROWS, Scored, Subject, own_rows
from grpo_sdk.errors import DataError, RowError
from grpo_sdk.task.row import Prompt, Row, Split
from grpo_sdk.tasks.choices import LETTERS

SPLITS: tuple[Split, ...] = ("train", "validation", "test")

SPLIT_ROWS = 2000
"""Rows of each split that are compared."""

CHANCE = 0.2
"""Share of the rows in which an answer may appear by chance: 50 - 25 = 25, or a program that prints its own number."""

COPIED_LINES = 3
"""Last lines of a prompt that are tried as completions."""

DEMO_S = 60.0


def rows(subject: Subject) -> Result:
    """Rows and prompts survive JSON, pickle and parquet."""
    written = [row.model_dump_json() for row in subject.loaded]
    for row, text in zip(subject.loaded, written, strict=True):
        if subject.task.row_from_json(text) != row:
            return failed(f"row {row.id!r} changes when written as JSON", shown(text), "Use plain JSON types in rows.")
    outcome = subject.ask("pickle", subject.timeout_s + DEMO_S, rows=written)
    why = json.loads(outcome.value) if outcome.status == "ok" else outcome.why
    if why:
        return failed(
            "a row cannot be pickled and read back",
            why,
            "Define the row class at the top of a module, without __reduce__ or state beside its fields.",
        )
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return passed(f"{len(written)} rows: JSON and pickle (pyarrow is not installed, so parquet was not tried)")
    prompts = [prompt if isinstance(prompt, str) else json.dumps(prompt) for _, prompt in subject.prompts]
    columns = {"id": [row.id for row in subject.loaded], "row": written, "prompt": prompts}
    for name, column in columns.items():
        try:
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table({name: column}), buffer)
            read = pyarrow.parquet.read_table(buffer)[name].to_pylist()
        except (pyarrow.ArrowException, UnicodeError, OverflowError) as error:
            place = next((at for at, text in enumerate(column) if _is_broken(text)), 0)
            return failed(
                f"a {name} cannot be written as parquet: {type(error).__name__}",
                f"row {subject.loaded[place].id!r}: {shown(column[place])}",
                "Remove lone surrogates; trainers keep prompts and rows in parquet.",
            )
        if read != column:
            return failed(f"a {name} changes in parquet", shown(str(read)), "Use plain text.")
    return passed(f"{len(written)} rows: JSON, pickle and parquet")


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def split(subject: Subject) -> Result:
    """Train, validation and test have no problem in common."""
    seen: dict[str, tuple[str, str]] = {}
    sizes: dict[str, int] = {}
    for name in SPLITS:
        task = subject.whole.with_options(split=name)
        try:
            is_own = name == subject.whole.config.split
            loaded = subject.whole_rows[:SPLIT_ROWS] if is_own else own_rows(task, SPLIT_ROWS)
        except RowError as error:
            return failed(
                f"{name} has a row that cannot be used", str(error), "Every command that loads it ends there."
            )
        except DataError:
            loaded = ()
        if not loaded:
            continue  # a dataset need not have every split
        sizes[name] = len(loaded)
        for row in loaded:
            for key in (f"id {row.id}", f"prompt {json.dumps(task.prompt(row))} gold {row.gold}"):
                where, other = seen.setdefault(key, (name, row.id))
                if where != name:
                    return failed(
                        f"{where} and {name} have a problem in common",
                        f"row {other!r} of {where}, row {row.id!r} of {name}",
                        "Decide the split by a hash of the problem: grpo_sdk.data.split_of(content) == config.split, "
                        "or read_rows(…, content=…).",
                    )
    if len(sizes) < 2:
        return not_applicable(f"only the split {next(iter(sizes), subject.task.config.split)} has rows")
    return passed(", ".join(f"{size} {name}" for name, size in sizes.items()))


def leak(subject: Subject) -> Result:
    """The prompt does not contain the answer, and copying it is no answer."""
    pairs = [(row, prompt) for row, prompt in subject.opened if row.gold is not None and said_in(row.gold).strip()]
    if not pairs:
        has_gold = any(row.gold is not None for row in subject.loaded)
        return not_applicable("the golds say nothing, they call" if has_gold else "no row has a gold")
    leaks, by_chance = _told_by_prompts(pairs)
    share = (len(leaks) - by_chance) / len(pairs)
    if share > CHANCE:
        row, part, prompt = leaks[0]
        return failed(
            f"the prompts of {share:.0%} of the rows contain the answer",
            f"row {row.id!r}: {part!r} in {shown(prompt)}",
            'If that is the task, say so: exempt={"leak": "…"}; else leave the answer out of the prompt.',
        )
    copies = subject.scored(
        ("a copy of the prompt", text, row)
        for row, prompt in subject.opened
        if row in subject.rows and not _choices(row)  # a line of the prompt is a choice, and right by chance
        for text in _copies(prompt_text(prompt))
    )
    solved = {each.row.id: each for each in copies if each.score.solved}
    if len(solved) > CHANCE * len(subject.rows) and not decided_by_judges(subject.task):
        each = next(iter(solved.values()))
        return failed(
            f"copying the prompt solves {len(solved)} of {len(subject.rows)} rows",
            f"row {each.row.id!r}: {shown(each.text)}",
            "Compare the whole answer with the row's; a word that is somewhere in the text is no answer.",
        )
    return passed(f"{len(pairs)} prompts do not contain their gold")


def _told_by_prompts(pairs: Sequence[tuple[Row, Prompt]]) -> tuple[list[tuple[Row, str, str]], int]:
    """Prompts that contain their gold, or its answer more often than another row's; and how many do the reverse.

    Returns:
        ((row, what its prompt contains, the prompt) of each, number of prompts that contain another row's answer more
        often than their own).
    """
    answers = _answers([row for row, _ in pairs])
    leaks, by_chance = [], 0
    for row, prompt in pairs:
        text, gold = prompt_text(prompt), said_in(str(row.gold)).strip()
        answer, other = answers[row.id]
        has_frame = answer != gold
        if _tells(text, row, gold):
            leaks.append((row, gold, text))
        elif has_frame and _tells(text, row, answer, other):
            leaks.append((row, answer, text))
        elif has_frame and _tells(text, row, other, answer):
            by_chance += 1
    return leaks, by_chance


def _answers(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Id of a row -> (answer in its gold, that of the next row that has another one; empty if none has)."""
    answers = [read_gold(str(row.gold)).answer for row in rows]
    forms = [canonical(answer) for answer in answers]
    pairs = {}
    for place, row in enumerate(rows):
        following = chain(range(place + 1, len(rows)), range(place))
        pairs[row.id] = answers[place], next((answers[each] for each in following if forms[each] != forms[place]), "")
    return pairs


def _copies(prompt: str) -> list[str]:
    lines = [line for line in prompt.splitlines() if line.strip()]
    return list(dict.fromkeys([prompt, *lines[-COPIED_LINES:]]))


def feedback(subject: Subject) -> Result:
    """What the validator and `respond` say does not contain the answer."""
    if not subject.golds:
        return not_applicable("no row has a gold")
    prompts = {row.id: prompt_text(prompt) for row, prompt in subject.opened}
    wrong = [
        each
        for each in (*subject.junk, *subject.others, *subject.damage[-1])
        if not each.score.solved and each.row.gold and said_in(each.row.gold)
    ]
    messages = [(each, each.score.why) for each in wrong if each.score.why.startswith("invalid: ")]
    if subject.task.task.respond is not None and subject.task.has_turns:
        for each, state in subject.repeated_turns(wrong):
            if state.fault:
                return failed_turn(each, state)
            messages.append((each, prompt_text(state.prompt or "")))
    if not messages:
        return not_applicable("the validator refused nothing that was tried")
    known = {each.row.id: prompts[each.row.id] for each, _ in messages}
    answers = _answers([row for row in subject.loaded if row.gold is not None])
    leaks: dict[str, tuple[Scored, str]] = {}
    by_chance = set()  # rows for which a message contains another row's answer: "a number from 1 to 9"
    for each, text in messages:
        seen = (known[each.row.id], each.text)
        own, other = (_count_new(text, answer, seen) for answer in answers[each.row.id])
        if own > other:
            leaks.setdefault(each.row.id, (each, text))
        elif other > own:
            by_chance.add(each.row.id)
    if len(leaks) - len(by_chance) > CHANCE * len(known):
        each, text = next(iter(leaks.values()))
        return failed(
            f"the answer of {len(leaks)} of {len(known)} rows stands in what the task says of a wrong one",
            f"row {each.row.id!r}: {shown(each.text)} is told {shown(text)}",
            "Say what is wrong with the completion, not what would be right: reasons reach logs and later turns.",
        )
    return passed(f"{len({id(each) for each, _ in messages})} wrong completions are told no answer")


def demos(subject: Subject) -> Result:
    """Demos are scored, and earn more than no answer."""
    task = subject.task
    if task.task.demos is None:
        return not_applicable("the demos are the golds")
    if task.task.game is not None:
        return _game_demos(subject)
    by_prompt = {json.dumps(prompt): row for row, prompt in subject.prompts}
    pairs = list(islice(task.demos(), LOADED_ROWS))
    if not pairs:
        return failed("demos() gives nothing", "no demo", "Give pairs of a prompt and a completion.")
    matched = [("a demo", text, by_prompt[key]) for prompt, text in pairs if (key := json.dumps(prompt)) in by_prompt]
    if not matched:
        return failed(
            "no demo has the prompt of a row",
            shown(prompt_text(pairs[0][0])),
            "Make the prompts of demos with the task's prompt().",
        )
    scored = subject.scored(matched[: len(subject.rows)])
    empty = fmean(each.score.value or 0.0 for each in subject.junk if not each.text.strip())
    values = [each.score.value for each in scored if each.score.value is not None]
    invalid = [each for each in scored if not each.score.valid]
    if len(values) < len(scored) or fmean(values) <= empty or len(invalid) > len(scored) / 2:
        each = next((each for each in scored if each.score.value is None), (invalid or scored)[0])
        return failed(
            f"{len(scored)} demos earn {fmean(values or [0.0]):.3g}, no answer {empty:.3g}; {len(invalid)} are invalid",
            f"row {each.row.id!r}: {shown(each.text)}: {each.score.why}",
            "A warm start teaches what demos show: most of them must be answers.",
        )
    return passed(f"{len(scored)} demos earn {fmean(values):.3g} on average, no answer {empty:.3g}")


def _game_demos(subject: Subject) -> Result:
    """Most demos of a game are legal moves, as far as their positions are known."""
    starts = [row.model_dump_json() for row in subject.loaded]
    outcome = subject.ask("demo moves", subject.timeout_s + DEMO_S, rows=starts, limit=len(starts))
    if outcome.status != "ok":
        return failed("demos() fails", outcome.why, "demos() must yield pairs of a prompt and a completion.")
    counts = json.loads(outcome.value)
    if not counts["matched"]:
        return not_applicable("no demo is about the first position of a row")
    text = f"{counts['legal']} of {counts['matched']} first moves among the demos are legal"
    if counts["legal"] <= counts["matched"] / 2:
        return failed(text, "see grpo sample", "A warm start teaches what demos show: most must be legal moves.")
    return passed(text)


def _tells(prompt: str, row: Row, answer: str, other: str = "") -> bool:
    """Whether a prompt contains an answer, more often than another one; of choices, more often than any other one."""
    texts = _choices(row)
    for options in (LETTERS[: len(texts)], texts):
        if answer in options:
            others = [_count(prompt, option) for option in options if option != answer]
            return _count(prompt, answer) > max(others, default=0)
    return _count(prompt, answer) > _count(prompt, other)


def _choices(row: Row) -> tuple[str, ...]:
    """Texts of a row's field `choices`, of which the prompt gives each a letter; empty for a row without choices."""
    choices = getattr(row, "choices", ())
    return tuple(map(str, choices)) if isinstance(choices, list | tuple) else ()


def _count_new(text: str, answer: str, seen: Sequence[str]) -> int:
    """How often a text contains an answer, if no text that was seen before does."""
    return 0 if any(_count(each, answer) for each in seen) else _count(text, answer)


def _count(text: str, answer: str) -> int:
    """How often a text contains an answer as whole words."""
    return len(re.findall(rf"(?<!\w){re.escape(answer)}(?!\w)", text)) if answer else 0
