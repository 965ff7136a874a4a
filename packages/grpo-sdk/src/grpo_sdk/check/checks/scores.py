"""What completions earn: golds, junk, damaged golds, and the bounds of all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from statistics import fmean

from grpo_sdk.check.limits import LUCK, TOLERANCE, decided_by_judges, highest_value, unearned_value
from grpo_sdk.check.results import Result, failed, not_applicable, passed, shown
from grpo_sdk.check.subject import Scored, Subject
from grpo_sdk.check.texts import LEVELS
from grpo_sdk.scoring.groups import Group, group_scores
from grpo_sdk.task.group_grading import is_compared
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import read_tool_turns, turns_problem
from grpo_sdk.task.turns import TurnState

NO_GOLD = "no row has a gold"

RAISE_INVALID = "Raise Invalid for what is the completion's fault; any other exception is the task's."

CURES = {"timeout": "Make scoring faster, or raise timeout_s.", "infrastructure": "Correct the machine, not the task."}
"""By fault, where what the task does is not to be changed."""

GROUP = 16
"""Completions of a prompt that group rewards compare."""

MAX_CORNERS = 6
"""Criteria whose combinations are all tried: 64 of them."""

RISE = 0.05
"""Share of the range of values by which a mean may rise from one level of damage to the next: luck of a few rows."""


def gold(subject: Subject) -> Result:
    """Every gold earns the highest value and is solved, of as many rows as there is time for."""
    if not subject.golds:
        return not_applicable(NO_GOLD)
    if subject.task.task.has_tools and (problem := _turns_problem(subject)) is not None:
        return problem
    count = 0
    for each in subject.all_golds():
        count += 1
        score = each.score
        if score.value is None:
            return _unscored(each)
        highest = highest_value(subject.task, score)
        if score.value < highest - TOLERANCE or not score.solved:
            earned = f"earns {score.value:g} of {highest:g}{'' if score.solved else ' and is not solved'}"
            return failed(
                f"a gold {earned}",
                f"row {each.row.id!r}: {shown(each.text)}: {score.why or 'every reward is at its maximum'}",
                "Correct the row's gold, or what the reward calls right; a model trained on these golds learns them.",
            )
    total = subject.gold_count
    scored = f"{count} golds earn" if str(count) == total else f"{count} of {total} golds earn"
    return passed(f"{scored} {subject.golds[0].score.value:g} and are solved")


def _turns_problem(subject: Subject) -> Result | None:
    """Whether a gold is no episode that a policy can have."""
    for row in subject.loaded:
        text, most = str(row.gold), subject.task.max_turns
        why = turns_problem(text)
        if not why and (count := len(read_tool_turns(text)[0])) > most:
            why = f"{count} turns of at most {most}"
        if why:
            example = '{"turns": [{"text": "…", "calls": [{"name": "…", "arguments": {…}}]}, {"text": "…"}]}'
            return failed(f"a gold is no episode: {why}", f"row {row.id!r}: {shown(text)}", f"Write it as {example}.")
    return None


def junk(subject: Subject) -> Result:
    """An answer without sense earns what form pays, and is not solved."""
    for each in subject.junk:
        if each.score.value is None:
            return _unscored(each)
        limit = unearned_value(subject.task, each.score)
        luck = LUCK * max(0.0, highest_value(subject.task, each.score) - limit)
        is_solved = each.score.solved and not decided_by_judges(subject.task)
        if each.score.value > limit + luck + TOLERANCE or is_solved:
            solved = " and is solved" if is_solved else ""
            return failed(
                f"{each.kind} earns {each.score.value:g}{solved}; at most {limit:g} is for form",
                f"row {each.row.id!r}: {shown(each.text)}: {_parts(each.score)}",
                "Raise Invalid in validate() for what holds no answer, and compare with the row before paying.",
            )
    most = max(each.score.value or 0.0 for each in subject.junk)
    return passed(f"{len(subject.junk)} texts earn at most {most:g}")


def bounds(subject: Subject) -> Result:
    """No completion earns more than what is declared."""
    count = 0
    for each in _all_scored(subject):
        if each.score.value is None:
            continue  # other checks are about that
        count += 1
        highest = highest_value(subject.task, each.score)
        if each.score.value > highest + TOLERANCE:
            return failed(
                f"{each.kind} earns {each.score.value:g}, more than the {highest:g} that its rewards declare",
                f"row {each.row.id!r}: {shown(each.text)}: {_parts(each.score)}",
                "A penalty must not pay: weight < 0 goes with positive amounts, maximum=0 with negative ones.",
            )
    return passed(f"{count} completions") if count else not_applicable("no completion was scored")


def observed_range(subject: Subject) -> Result:
    """Every reward that can be earned reaches its declared maximum on a gold."""
    if not any(each.score.parts for each in subject.golds):
        return not_applicable("no gold was scored" if subject.golds else NO_GOLD)
    for spec in subject.task.rewards:
        reached = [each.score.parts[spec.name] for each in subject.golds if spec.name in each.score.parts]
        if spec.is_criterion and reached and not any(map(spec.reached_by, reached)):
            return failed(
                f"reward {spec.name}() declares a maximum of {spec.maximum:g}; the best gold has {max(reached):g}",
                f"row {subject.golds[0].row.id!r}: {shown(subject.golds[0].text)}: {_parts(subject.golds[0].score)}",
                f"State the largest value that a right answer gets: @reward(…, maximum={max(reached):g}).",
            )
    return passed("every declared maximum is reached")


def ladder(subject: Subject) -> Result:
    """The more an answer is damaged the less it earns, and a composer never pays less for more."""
    if (problem := _composer_problem(subject)) is not None:
        return problem
    if not subject.golds:
        return not_applicable(NO_GOLD)
    means = []
    for level in subject.damage:
        values = [each.score.value for each in level if each.score.value is not None]
        if not values:
            return _unscored(level[0])
        means.append(fmean(values))
    allowed = RISE * (max(means) - min(means)) + TOLERANCE
    for (share, mean), (next_share, next_mean) in itertools.pairwise(zip(LEVELS, means, strict=True)):
        if next_mean > mean + allowed:
            worst = max(subject.damage[LEVELS.index(next_share)], key=lambda each: each.score.value or 0.0)
            return failed(
                f"golds of which {share:.0%} is damaged earn {mean:.3g}, with {next_share:.0%} {next_mean:.3g}",
                f"row {worst.row.id!r}: {shown(worst.text)} earns {worst.score.value:g}: {_parts(worst.score)}",
                "Pay more for what is closer to right; a model climbs the steps that are there.",
            )
    return passed(" ≥ ".join(f"{mean:.2g}" for mean in means) + " as damage grows")


def group(subject: Subject) -> Result:
    """Group rewards give a number to each of several valid completions of a prompt."""
    if not subject.task.task.group_specs():
        return not_applicable("it has no group reward")
    candidates = [each for each in _all_scored(subject) if is_compared(each.score)]
    groups: list[Group] = []
    for row in subject.rows:
        members = [each for each in candidates if each.row.id == row.id][:GROUP]
        members *= 2 if len(members) == 1 else 1  # one text twice is a group, too
        if members:
            groups.append(([each.text for each in members], row, [each.score for each in members]))
    for texts, row, members_scores in groups:  # one after the other: after one that takes all its time none is tried
        (scores,) = group_scores(subject.scorer, [(texts, row, members_scores)])
        for text, score in zip(texts, scores, strict=True):
            if score.value is None:
                return failed(
                    score.why,
                    f"row {row.id!r}: {len(texts)} valid completions, among them {shown(text)}",
                    CURES.get(score.fault, "Return one number for each of `answers`, in order; it gets two or more."),
                )
    if not groups:
        return not_applicable("no completion that was tried is valid")
    return passed(f"{sum(len(texts) for texts, _, _ in groups)} completions of {len(groups)} prompts")


def _composer_problem(subject: Subject) -> Result | None:
    """Whether the composer pays less where one reward is met in addition."""
    task = subject.task
    known = next((each.score for each in (*subject.golds, *subject.junk) if each.score.parts), None)
    criteria = [spec for spec in task.rewards if spec.is_criterion][:MAX_CORNERS]
    if known is None:
        return None
    base = {spec.name: known.parts[spec.name] if spec.is_fact else min(0.0, spec.maximum) for spec in task.rewards}
    for corner in itertools.product((False, True), repeat=len(criteria)):
        parts = base | {spec.name: spec.maximum for spec, met in zip(criteria, corner, strict=True) if met}
        value = task.task.compose(task.rewards, parts, True)
        for spec, met in zip(criteria, corner, strict=True):
            more = task.task.compose(task.rewards, parts | {spec.name: spec.maximum}, True)
            if not met and more < value - TOLERANCE:
                others = ", ".join(other.name for other, holds in zip(criteria, corner, strict=True) if holds)
                return failed(
                    f"the composer pays {value:g} without {spec.name}, and {more:g} with it",
                    f"rewards at their maximum: {others or 'none'}",
                    "A composer must not pay less for a part that is larger.",
                )
    return None


def _all_scored(subject: Subject) -> Iterable[Scored]:
    return (
        *subject.golds,
        *subject.junk,
        *subject.others,
        *itertools.chain.from_iterable(subject.damage),
        *subject.hostile,
    )


def _unscored(each: Scored) -> Result:
    return failed(
        f"{each.kind} is not scored",
        f"row {each.row.id!r}: {shown(each.text)}: {each.score.fault}: {each.score.why}",
        CURES.get(each.score.fault, RAISE_INVALID),
    )


def _parts(score: Score) -> str:
    listed = ", ".join(f"{name} {value:g}" for name, value in score.parts.items()) or "no parts"
    return listed if score.valid else f"{listed} (invalid)"


def failed_turn(completion: Scored, state: TurnState) -> Result:
    """The result of a check where the task's code fails in a turn."""
    turn = f" in turn {len(state.moves)}" if len(state.moves) > 1 else ""
    return failed(
        f"respond() fails on {completion.kind}{turn} ({state.fault})",
        f"row {completion.row.id!r}: {shown(completion.text)}: {state.why}",
        "respond() must answer any text: it is called before the completion is scored.",
    )
