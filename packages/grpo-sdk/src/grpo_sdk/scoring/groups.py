"""Scores of the completions of whole prompts: the group rewards added to what each completion earns by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import combinations

from grpo_sdk.errors import UserError
from grpo_sdk.judges.service import Verdict
from grpo_sdk.killable.pool import WaitAll, resolved, wait_all
from grpo_sdk.scoring.judged import Ask
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.group_grading import GroupParts, is_compared, with_group_parts
from grpo_sdk.task.judging import JudgedReward, JudgeQuestion
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

Group = tuple[Sequence[str], Row, Sequence[Score]]
"""Completions of one prompt, their row, and the score of each by itself."""


def group_scores(scorer: Scorer, groups: Sequence[Group], wait: WaitAll = wait_all) -> list[list[Score]]:
    """Scores with the group rewards of the scorer's task, which its killable workers compute.

    A group whose rewards hang or crash abstains as a whole; it never costs another group anything.

    Args:
        scorer: Scorer of the task.
        groups: The groups.
        wait: Waits for results.
    """
    compared = [
        [text for text, score in zip(texts, scores, strict=True) if is_compared(score)] for texts, _, scores in groups
    ]
    compared_groups = [number for number, texts in enumerate(compared) if len(texts) > 1]
    answers = wait([scorer.submit_group(compared[number], groups[number][1]) for number in compared_groups])
    parts = dict(zip(compared_groups, with_verdicts(scorer.task, answers, scorer.ask, wait), strict=True))
    return [
        with_group_parts(scorer.task, scores, parts.get(number, GroupParts()))
        for number, (_, _, scores) in enumerate(groups)
    ]


def with_verdicts(
    task: BoundTask, groups: Sequence[GroupParts], ask: Ask, wait: WaitAll = wait_all
) -> list[GroupParts]:
    """Group rewards with those that judges decide, which are asked about all groups at once.

    Args:
        task: The task.
        groups: Group rewards of several prompts.
        ask: Asks a judge.
        wait: Waits for verdicts.

    Raises:
        UserError: a judge cannot be asked before the user changes something.
    """
    judges = {judge.name: judge for judge in task.task.judges()}
    comparisons_of: list[tuple[int, str, dict[tuple[int, int], Future[Verdict]]]] = [
        (number, name, _compare(judges[name], question, ask))
        for number, group in enumerate(groups)
        for name, question in group.questions.items()
    ]
    wait([future for _, _, comparisons in comparisons_of for future in comparisons.values()])
    completed = list(groups)
    for number, name, comparisons in comparisons_of:
        verdicts = {pair: future.result() for pair, future in comparisons.items()}
        rates = _win_rates(judges[name], groups[number].questions[name], verdicts, task)
        group = completed[number]
        completed[number] = replace(
            group,
            parts={**group.parts, name: [rate.value for rate in rates]},
            reasons={**group.reasons, name: [rate.why for rate in rates]},
            faults={**group.faults, name: [rate.fault for rate in rates]},
        )
    return completed


def pairs(count: int, comparisons: int | None) -> list[tuple[int, int]]:
    """The pairs that are compared: all, or for each answer the `comparisons` that stand next to it in a ring."""
    if comparisons is None or comparisons >= count - 1:
        return list(combinations(range(count), 2))
    return [(one, (one + step) % count) for step in range(1, comparisons // 2 + 1) for one in range(count)]


def _compare(judge: JudgedReward, question: JudgeQuestion, ask: Ask) -> dict[tuple[int, int], Future[Verdict]]:
    """Both orders of every pair; equal texts are a tie that nobody is asked about."""
    comparisons = {}
    readable = [index for index in range(len(question.texts)) if index not in question.too_long]
    for place, other_place in pairs(len(readable), judge.comparisons):
        one, other = readable[place], readable[other_place]
        for first, second in ((one, other), (other, one)):
            texts = (question.texts[first], question.texts[second])
            is_tie = texts[0] == texts[1]
            comparisons[first, second] = (
                resolved(Verdict(0.5, "equal texts"))
                if is_tie
                else ask(judge, replace(question, texts=texts, too_long=()))
            )
    return comparisons


def _win_rates(
    judge: JudgedReward, question: JudgeQuestion, verdicts: Mapping[tuple[int, int], Verdict], task: BoundTask
) -> list[Score]:
    """The mean value of each answer over the pairs of which both orders have a verdict, or why there is none.

    An answer that is too long for the judge abstains, or loses where the task's `on_timeout` is `fail`; of a pair that
    does not fit the judge's model, the longer one is. One that is left with nobody to be compared with gets 0, as every
    lone one does.
    """
    won: list[list[float]] = [[] for _ in question.texts]
    reasons = [""] * len(question.texts)
    limit = f"too long for judge {judge.name}; the limit is {judge.max_chars} characters"
    too_long = dict.fromkeys(question.too_long, limit)
    for (first, second), verdict in verdicts.items():
        other = verdicts[second, first]
        for missing in (verdict, other):
            if missing.is_refused:
                raise UserError(f"{missing.why}.")
            if missing.is_too_long:
                too_long[max(first, second, key=lambda index: len(question.texts[index]))] = missing.why
            elif missing.value is None:
                reasons[first] = reasons[first] or missing.why
        if verdict.value is not None and other.value is not None:
            won[first].append((verdict.value + 1 - other.value) / 2)
    abstains = task.task.on_timeout == "abstain"
    rates = []
    for index, (values, why) in enumerate(zip(won, reasons, strict=True)):
        if values:
            rates.append(Score(sum(values) / len(values)))
        elif index in too_long and abstains:
            rates.append(Score(None, why=too_long[index], fault="timeout"))
        elif why and index not in too_long:
            rates.append(Score(None, why=why, fault="infrastructure"))
        else:
            rates.append(Score(0.0))
    return rates
