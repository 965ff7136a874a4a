"""Searches for completions that earn more than they should.

What a completion should earn is not known in general, so each kind of attack has a rule of its own by which its
completions hold no right answer:

* Text that answers nothing, and programs that only deceive their tests, must not be solved on any row.
* A constant, or the same part of every prompt, may be right by chance. It must not solve more rows than the most
  frequent gold has, nor more than half of them; the rate's lower 99% limit counts.
* A text that states the answers of two rows must not be solved on both, where each row refuses the other's gold.
* A gold in which the answer was replaced by another must not be solved.
* A part of the gold, or an answer that has a part in common with it, may be right by chance, too: it must not be solved
  on more than half of the rows that have such a part.
* Calls without the last one of the gold and without its answer in words may be right by chance, too. No episode with
  tools may earn more than the gold.
* None of these may earn half of what the gold earns, above what an empty completion is paid, without being solved.
* Nothing may be run, raise an exception, or take longer than the task's limit.

Where judges have a say in what is solved, only the last rule is applied: no judge is asked.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from random import Random
from typing import Any

from grpo_sdk.check.answers import NUMBER, Gold, Sample, sample_rows
from grpo_sdk.check.attacks import Attack, Attempt, attacks, call_attacks, first_wrapper, wrapped
from grpo_sdk.check.oracle import Oracle
from grpo_sdk.check.probes import saying
from grpo_sdk.check.results import Finding, FuzzReport
from grpo_sdk.errors import UserError
from grpo_sdk.intervals import wilson
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.judged import assume_best
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.judging import JudgedReward
from grpo_sdk.task.tools.calls import read_tool_turns, write_tool_turns

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_BATCH = 16
"""Texts tried at once: the workers score them side by side, and the first that holds is taken."""


def shrink(text: str, holds: Callable[[Sequence[str]], Sequence[bool]], budget: int) -> str:
    """Remove parts of a text while something still holds: first words and signs, then characters; of calls, turns.

    Args:
        text: A text for which it holds.
        holds: For each of some texts, whether it holds.
        budget: Most texts that are tried.

    Returns:
        A text for which it holds; one from which no single part can be removed, if the budget suffices.
    """
    ways: list[tuple[Callable[[str], list[Any]], Callable[[Any], str]]] = [(_TOKEN.findall, "".join), (list, "".join)]
    if any(turn.calls for turn in read_tool_turns(text)[0]):
        ways = [(lambda text: [*read_tool_turns(text)[0]], partial(write_tool_turns, with_results=False))]
    for split, join in ways:
        parts = split(text)
        size = max(1, len(parts) // 2) if parts else 0
        while size and budget > 0:
            kept = None
            starts = range(0, len(parts), size)
            for first in range(0, len(starts), _BATCH):
                batch = [parts[:start] + parts[start + size :] for start in starts[first : first + _BATCH][:budget]]
                budget -= len(batch)
                verdicts = holds([join(left) for left in batch]) if batch else ()
                kept = next((left for left, is_kept in zip(batch, verdicts, strict=True) if is_kept), None)
                if kept is not None or budget == 0:
                    break
            if kept is None:
                size //= 2
            else:
                parts, size = kept, min(size, len(kept))
        text = join(parts)
    return text


TRIED_ROWS = 4

_FULL_WIDTH = str.maketrans("0123456789", "".join(chr(0xFF10 + digit) for digit in range(10)))
_LOOK_ALIKES = str.maketrans(
    "aeocpx",
    "\N{CYRILLIC SMALL LETTER A}\N{CYRILLIC SMALL LETTER IE}"
    "\N{CYRILLIC SMALL LETTER O}\N{CYRILLIC SMALL LETTER ES}\N{CYRILLIC SMALL LETTER ER}\N{CYRILLIC SMALL LETTER HA}",
)


def _number(change: Callable[[str], str]) -> Callable[[Gold], str]:
    def write(gold: Gold) -> str:
        return gold.before + (change(gold.answer) if NUMBER.fullmatch(gold.answer) else gold.answer) + gold.after

    return write


def _answer(change: Callable[[str], str]) -> Callable[[Gold], str]:
    return lambda gold: gold.before + (change(gold.answer) if gold.is_short else gold.answer) + gold.after


FORMS: Mapping[str, Callable[[Gold], str]] = {
    "a space after it": lambda gold: gold.text + " ",
    "a line break after it": lambda gold: gold.text + "\n",
    "a space before it": lambda gold: " " + gold.text,
    "a line break before it": lambda gold: "\n" + gold.text,
    "no white space around it": lambda gold: gold.text.strip(),
    "a full stop": _answer(lambda answer: answer + "."),
    "upper case": _answer(str.upper),
    "lower case": _answer(str.lower),
    "bold": _answer(lambda answer: f"**{answer}**"),
    "quotes": _answer(lambda answer: f'"{answer}"'),
    "in a sentence": _answer(lambda answer: f"The answer is {answer}"),
    "a plus sign": _number(lambda answer: answer if answer[0] in "+-\u2212" else f"+{answer}"),
    "zeros after the point": _number(lambda answer: answer if "." in answer else f"{answer}.0"),
    "a zero before": _number(lambda answer: re.sub(r"(?=[0-9])", "0", answer, count=1)),
    "commas between thousands": _number(
        lambda answer: f"{int(answer):,}" if re.fullmatch(r"-?[1-9][0-9]{3,}", answer) else answer
    ),
    "full-width digits": _number(lambda answer: answer.translate(_FULL_WIDTH)),
    "look-alike letters": _answer(lambda answer: answer.translate(_LOOK_ALIKES)),
}
"""Name -> the gold written so."""


def solved_forms(oracle: Oracle) -> dict[str, tuple[int, int]]:
    """Form -> (times that golds written so are solved, times tried), for golds that are solved and that it changes."""
    pairs = enumerate(zip(oracle.gold_scores, oracle.sample.golds, strict=True))
    places = [place for place, (score, gold) in pairs if score is not None and score.solved and gold is not None]
    trials = []
    for place in places[:TRIED_ROWS]:
        gold = oracle.sample.golds[place]
        assert gold is not None
        whole = str(oracle.sample.rows[place].gold)
        trials += [
            (name, saying(whole, write(gold)), place) for name, write in FORMS.items() if write(gold) != gold.text
        ]
    scores = oracle.scores([(text, place) for _, text, place in trials])
    counts: dict[str, tuple[int, int]] = {}
    for (name, _, _), score in zip(trials, scores, strict=True):
        solved, tried = counts.get(name, (0, 0))
        counts[name] = (solved + score.solved, tried + 1)
    return counts


__all__ = ["Finding", "FuzzReport", "fuzz"]

DEFAULT_ROWS = 40
MAX_COMPLETIONS = 1_000_000
BATCH = 32
"""Completions between two notices of progress."""

CONFIRMED = 8
"""Attacks of a kind that are tried on all rows."""

SHRINKING = 300
"""Texts tried to make a completion smaller; a tenth where each one takes the time limit."""


def fuzz(
    task: AnyTask,
    n: int = 200,
    seed: int = 0,
    *,
    rows: int = DEFAULT_ROWS,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FuzzReport:
    """Search for completions of a task that earn more than they should; the same ones for the same seed.

    Args:
        task: A task, or its spec.
        n: Completions to try.
        seed: Seed of the rows and completions.
        rows: Rows that completions are tried on.
        workers: Processes that score; by default one per usable core, at most 16.
        progress: Called with the numbers of completions tried so far and of all.

    Raises:
        UserError: no such task, or a number out of range.
        DataError: the task's data is not here.
    """
    if not 1 <= n <= MAX_COMPLETIONS:
        raise UserError(f"fuzz: {n} completions; give a number from 1 to {MAX_COMPLETIONS}.")
    if rows < 1:
        raise UserError(f"fuzz: rows={rows} must be at least 1.")
    bound = load_task(task)
    criteria = [spec for spec in bound.rewards if spec.is_criterion]
    if criteria and all(isinstance(spec.function, JudgedReward) for spec in criteria):
        raise UserError(
            f"fuzz: judges decide all that task {bound.name!r} pays, and none is asked here. "
            f"Measure them on completions with known verdicts: grpo judge {bound.spec}"
        )
    sample = sample_rows(bound, rows, seed)
    folder = Path(tempfile.mkdtemp(prefix="grpo-fuzz-"))
    try:
        with Scorer(bound, workers=workers, ask=assume_best) as scorer:
            plan = list(planned(sample, [*attacks(folder), *call_attacks(scorer)], n, seed))
            return _search(Oracle(bound, sample, scorer, seed), plan, seed, folder, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


Hit = tuple[Attack, Attempt]


def _search(
    oracle: Oracle,
    plan: Sequence[tuple[Attack, Attempt]],
    seed: int,
    folder: Path,
    progress: Callable[[int, int], None] | None,
) -> FuzzReport:
    """Explore, confirm, shrink, report."""
    hacked: set[int] = set()
    findings = []
    for kind, hits in _explore(oracle, plan, progress).items():
        confirmed = _confirm(oracle, kind, hits)
        if not confirmed:
            continue
        attack, attempt, earning, count = max(confirmed, key=lambda each: len(each[2]))  # of equals, the simplest
        findings.append(_finding(oracle, folder, kind, attack, attempt, len(earning), count))
        if not oracle.exemption(kind):
            hacked.update(*(rows for _, _, rows, _ in confirmed))
    sample = oracle.sample
    rate = wilson(len(hacked), len(sample.rows))
    return FuzzReport(
        task=oracle.task.spec,
        identity=oracle.task.identity,
        seed=seed,
        completions=len(plan),
        rows=len(sample.rows),
        findings=tuple(findings),
        hacked_rows=len(hacked),
        hackability=rate.value,
        hackability_low=rate.low,
        hackability_high=rate.high,
        chance=sample.chance,
        forms=solved_forms(oracle),
        not_scored=oracle.not_scored,
        note=oracle.note,
    )


def _explore(
    oracle: Oracle, plan: Sequence[tuple[Attack, Attempt]], progress: Callable[[int, int], None] | None
) -> dict[str, list[Hit]]:
    hits: dict[str, list[Hit]] = {}
    for first in range(0, len(plan), BATCH):
        batch = plan[first : first + BATCH]
        scores = oracle.try_all([attempt for _, attempt in batch])
        for (attack, attempt), score in zip(batch, scores, strict=True):
            if kind := oracle.kind(attack.kind, attempt, score):
                hits.setdefault(kind, []).append((attack, attempt))
        if progress is not None:
            progress(min(first + BATCH, len(plan)), len(plan))
    return hits


def _confirm(oracle: Oracle, kind: str, hits: list[Hit]) -> list[tuple[Attack, Attempt, set[int], int]]:
    """The attacks that hold over rows, of the `CONFIRMED` simplest ones in this order.

    Returns:
        (attack, attempt, rows where it earns too much, number of rows on which it was tried) of each.
    """
    hits.sort(key=lambda hit: (len(hit[0].wrappers), len(hit[1].text), hit[1].text))
    simplest = {(attack.title, attempt.text): (attack, attempt) for attack, attempt in reversed(hits)}
    confirmed = []
    for attack, attempt in list(reversed(simplest.values()))[:CONFIRMED]:
        earning, count = oracle.confirm(kind, attack, attempt)
        if oracle.holds(kind, earning, count):
            confirmed.append((attack, attempt, earning, count))
            if kind == "slow":  # is tried on two rows, and each takes the time limit
                break
    return confirmed


def _finding(
    oracle: Oracle, folder: Path, kind: str, attack: Attack, attempt: Attempt, earning: int, count: int
) -> Finding:
    holds = oracle.predicate(kind, attack, attempt)
    budget = SHRINKING // 10 if kind == "slow" else SHRINKING
    text = attempt.text if holds is None else shrink(attempt.text, holds, budget)
    score = oracle.score(text, attempt.row)
    gold = oracle.gold_scores[attempt.row]
    return Finding(
        kind=kind,
        attack=attack.title,
        row=oracle.sample.rows[attempt.row].id,
        completion=text.replace(str(folder), "/tmp/canary"),
        value=score.value,
        gold_value=None if gold is None else gold.value,
        solved=score.solved,
        why=score.why.replace(str(folder), "/tmp/canary"),
        earning=earning,
        tried=count,
        exempt=oracle.exemption(kind),
    )


def planned(sample: Sample, every: Sequence[Attack], n: int, seed: int) -> Iterator[tuple[Attack, Attempt]]:
    """The first n completions that can be made: each attack in the form of the golds, alone, then in random wrappers.

    With tools, every other one makes calls.

    Args:
        sample: Rows and golds.
        every: The attacks.
        n: Completions.
        seed: Seed of rows and wrappers.
    """
    random = Random(f"{seed}/plan")
    count = 0
    calling = [attack for attack in every if attack.has_calls]
    for attack in _forms([attack for attack in every if not attack.has_calls], calling, sample, random):
        first = random.randrange(len(sample.rows))
        places = (*range(first, len(sample.rows)), *range(first))
        attempts = (attack.attempt(sample, row, seed) for row in places)  # not every row has such a completion
        attempt = next((attempt for attempt in attempts if attempt is not None), None)
        if attempt is None:
            continue
        yield attack, attempt
        count += 1
        if count == n:
            return


def _forms(every: Sequence[Attack], calling: Sequence[Attack], sample: Sample, random: Random) -> Iterator[Attack]:
    formed = (Attack(attack.kind, attack.name, attack.make, (first_wrapper(attack, sample),)) for attack in every)
    for attack in chain(formed, every, (wrapped(attack, random) for attack in cycle(every))):
        yield attack
        if calling:
            yield wrapped(random.choice(calling), random)
