"""Decides which completions earn more than they should; see `fuzz`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from grpo_sdk.check.answers import Sample
from grpo_sdk.check.attacks import Attack, Attempt
from grpo_sdk.check.limits import TOLERANCE, decided_by_judges, highest_value
from grpo_sdk.check.probes import has_answer
from grpo_sdk.intervals import wilson
from grpo_sdk.scoring.abstention import is_out_of_time
from grpo_sdk.scoring.scorer import MAX_TEXT_CHARS, Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.judging import TOO_LONG
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import read_tool_turns

PAID = 0.5
"""Share of the gold's value, above what an empty completion is paid, from which a wrong completion earns too much."""

MOST = 0.75
"""Share of the rows on which wrong completions must be paid for a finding."""

LIMIT_CONFIDENCE = 0.98
"""Two-sided confidence whose lower limit is the one-sided 99% limit of a rate."""

MIN_UNEARNED_ROWS = 3
SLOW_ROWS = 2
"""Rows on which a text that takes the time limit is tried again."""

SHRINKING_ROWS = 4
"""Rows on which a smaller text must still earn, where a finding is about many rows."""

Holds = Callable[[Sequence[str]], list[bool]]


class Oracle:
    """Scores completions in killable workers, and decides which of them earn more than they should.

    Args:
        task: The task.
        sample: Its rows.
        scorer: Scorer of the task.
        seed: Seed of the completions.
    """

    def __init__(self, task: BoundTask, sample: Sample, scorer: Scorer, seed: int) -> None:
        self.task, self.sample = task, sample
        self.not_scored = 0
        self._judges_decide = decided_by_judges(task)
        self._scorer, self._seed = scorer, seed
        self._known: dict[tuple[str, int], Score] = {}

    @property
    def note(self) -> str:
        """What could not be tried."""
        if self._judges_decide:
            return "judges have a say and none was asked, so only texts that crash, run or take long were looked for"
        if self.task.task.game is not None:
            return "a game: its completions are whole episodes, so only hostile and empty ones were tried"
        if self.task.opponent is not None and self.not_scored:
            return f"an opponent's predictions decide: {self.not_scored} completions were not scored without them"
        missing = sum(gold is None for gold in self.sample.golds)
        if missing:
            which = "gold that says an answer" if self.task.task.has_tools else "gold"
            return (
                f"{missing} of {len(self.sample.golds)} rows have no {which}: no answers were changed or joined there"
            )
        return ""

    def exemption(self, kind: str) -> str:
        """Reason by which the task declares findings of a kind; empty where it does not."""
        return self.task.task.exempt.get(f"fuzz.{kind}", "")

    def scores(self, pairs: Sequence[tuple[str, int]]) -> list[Score]:
        """Scores of (text, place of the row), each scored once."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        texts, rows = [text for text, _ in new], [self.sample.rows[row] for _, row in new]
        predictions = None if self.task.opponent is None else [()] * len(new)
        for pair, score in zip(new, self._scorer.score(texts, rows, predictions), strict=True):
            self._known[pair] = score
            self.not_scored += score.fault == "infrastructure"
        return [self._known[pair] for pair in pairs]

    def score(self, text: str, row: int) -> Score:
        """Score of one completion."""
        return self.scores([(text, row)])[0]

    @cached_property
    def gold_scores(self) -> tuple[Score | None, ...]:
        """Score of each row's gold, where it has one."""
        places = [place for place, row in enumerate(self.sample.rows) if row.gold is not None]
        scores = dict(zip(places, self.scores([(self._gold(place), place) for place in places]), strict=True))
        return tuple(scores.get(place) for place in range(len(self.sample.rows)))

    def _gold(self, row: int) -> str:
        return str(self.sample.rows[row].gold)

    def try_all(self, attempts: Sequence[Attempt]) -> list[Score]:
        """Scores of attempts on their first rows; those of their second rows are scored along with them."""
        second = [(attempt.text, attempt.other) for attempt in attempts if attempt.other is not None]
        first = [(attempt.text, attempt.row) for attempt in attempts]
        return self.scores([*first, *second])[: len(first)]

    def kind(self, kind: str, attempt: Attempt, score: Score) -> str:
        """Kind of finding that a scored attempt may be; empty if it earns what it should.

        Args:
            kind: Kind of the attack.
            attempt: What was scored.
            score: Its score.
        """
        if is_out_of_time(score) and not score.why.startswith(TOO_LONG):  # a judge refuses a long text at once
            return "slow"
        if score.fault == "reward":
            return "crash"
        if attempt.canary is not None:
            return "evaluated" if attempt.canary.exists() else ""
        if self._judges_decide:
            return ""
        if self.task.task.has_tools and (score.value or 0.0) > self._highest(score, attempt.row) + TOLERANCE:
            return "overpaid"
        if kind == "several":
            return "several" if self._pays_both(attempt) else ""
        if score.solved:
            is_wrong = kind in ("constant", "copy") or not self._is_right(attempt)
            return kind if is_wrong and kind not in ("slow", "evaluated") else ""
        is_paid = kind in ("nothing", "constant", "copy", "tampering") and self._share(score, attempt.row) >= PAID
        return "unearned" if is_paid else ""

    def _is_right(self, attempt: Attempt) -> bool:
        """Whether an attempt has the answer of its row: in words, or as the decisive call of its gold."""
        calls = [call for turn in read_tool_turns(attempt.text)[0] for call in turn.calls]
        gold = self.sample.rows[attempt.row].gold
        is_called = bool(calls) and (gold is None or has_answer(calls, gold, self.task.task.all_tools()))
        return is_called or self.sample.is_right(attempt.text, attempt.row)

    def _highest(self, score: Score, row: int) -> float:
        """The value of a row's gold, or the highest that the rewards declare where no gold is solved."""
        gold = self.gold_scores[row]
        return gold.value if gold and gold.solved and gold.value is not None else highest_value(self.task, score)

    def _share(self, score: Score, row: int) -> float:
        """Value as a share of the gold's, above what an empty completion is paid; below 0 is no pay."""
        gold, empty = self.gold_scores[row], self.score("", row)
        if score.value is None or gold is None or gold.value is None or empty.value is None:
            return 0.0
        floor = max(empty.value, 0.0) if gold.value > 0 else empty.value
        return (score.value - floor) / (gold.value - floor) if gold.solved and gold.value > floor else 0.0

    def _pays_both(self, attempt: Attempt) -> bool:
        """Whether a text with two answers is solved on both rows, each of which refuses the other's gold."""
        row, other = attempt.row, attempt.other
        assert other is not None
        if not all(score.solved for score in self.scores([(attempt.text, row), (attempt.text, other)])):
            return False
        crossed = [(self._gold(other), row), (self._gold(row), other)]
        own = [(self._gold(row), row), (self._gold(other), other)]
        return [score.solved for score in self.scores([*own, *crossed])] == [True, True, False, False]

    def confirm(self, kind: str, attack: Attack, attempt: Attempt) -> tuple[set[int], int]:
        """Try an attack on all rows.

        Args:
            kind: Kind of the finding.
            attack: The attack.
            attempt: A completion of it; tried as it is where the finding is about one text.

        Returns:
            (rows where it earns too much, rows on which it was tried).
        """
        places = range(len(self.sample.rows))
        if kind == "slow":
            places = range(attempt.row, min(attempt.row + SLOW_ROWS, len(places)))
        if attack.kind == "constant":
            attempts = [Attempt(attempt.text, place) for place in places]
        else:
            results = [
                attempt if place == attempt.row else attack.attempt(self.sample, place, self._seed) for place in places
            ]
            attempts = [each for each in results if each is not None]
        scores = self.try_all(attempts)
        pairs = list(zip(attempts, scores, strict=True))
        earning = {each.row for each, score in pairs if self.kind(attack.kind, each, score) == kind}
        unsolved = sum(not score.solved for score in scores)
        return earning, unsolved if kind == "unearned" else len(attempts)

    def holds(self, kind: str, earning: set[int], tried: int) -> bool:
        """Whether that many rows are a finding; a wrong answer on one row is, what may be right by chance is not."""
        if kind == "unearned":
            return len(earning) >= max(min(MIN_UNEARNED_ROWS, len(self.sample.rows)), MOST * tried)
        if kind in ("constant", "copy", "partial", "calls"):
            return bool(earning) and wilson(len(earning), tried, confidence=LIMIT_CONFIDENCE).low > max(
                0.5, self.sample.chance
            )
        return bool(earning)

    def predicate(self, kind: str, attack: Attack, attempt: Attempt) -> Holds | None:
        """A function that says of texts whether they still show a finding; None where the text is the row's own.

        Args:
            kind: Kind of the finding.
            attack: The attack.
            attempt: The completion that shows it.
        """
        if attack.kind == "copy":
            return None
        rows = [attempt.row]
        if attack.kind == "constant":
            places = range(len(self.sample.rows))
            scores = self.scores([(attempt.text, place) for place in places])
            earning = [row for row in places if self.kind(attack.kind, Attempt(attempt.text, row), scores[row]) == kind]
            rows = [row for row in earning if not self.sample.is_right(attempt.text, row)][:SHRINKING_ROWS] or rows

        def holds(texts: Sequence[str]) -> list[bool]:
            kept = [
                text for text in texts if all(part in text for part in attempt.keep) and len(text) <= MAX_TEXT_CHARS
            ]
            trials = [Attempt(text, row, attempt.keep, attempt.other, attempt.canary) for text in kept for row in rows]
            verdicts = self._verdicts(attack.kind, kind, trials)
            shown = {text for text in kept if all(verdicts[text, row] for row in rows)}
            return [text in shown for text in texts]

        return holds

    def _verdicts(self, attack: str, kind: str, trials: Sequence[Attempt]) -> dict[tuple[str, int], bool]:
        verdicts = {}
        if attack != "evaluated":
            self.try_all(trials)  # all at once; below one by one from memory
        for trial in trials:
            if trial.canary is not None:
                trial.canary.unlink(missing_ok=True)
                self._known.pop((trial.text, trial.row), None)
            verdicts[trial.text, trial.row] = self.kind(attack, trial, self.score(trial.text, trial.row)) == kind
        return verdicts
