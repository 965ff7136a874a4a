"""A task under check: its rows, and completions of them that are scored once for every check that looks at them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

from grpo_sdk.check.answers import prompt_text, said_in
from grpo_sdk.check.overlap import of_size
from grpo_sdk.check.probes import Plan, Played, plan_of, play, rewritten, saying
from grpo_sdk.check.texts import BLANKS, HOSTILE, JUNK, LEVELS, damaged
from grpo_sdk.errors import DataError, ExhaustedError
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.plugins.task_objects import send
from grpo_sdk.scoring.abstention import is_out_of_time
from grpo_sdk.scoring.judged import assume_best
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask, first_rows
from grpo_sdk.task.game import write_transcript
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import read_tool_turns
from grpo_sdk.task.turns import TurnState

DEFAULT_ROWS = 8

LOADED_ROWS = 512
"""Rows that are loaded, of which some are drawn to score completions of them."""

FEW = 3
"""Rows that every junk text is tried on."""

LONGEST_S = 60.0
"""Bound on the time of one completion, for tasks whose own limit is longer."""

MAX_TIMEOUTS = 6
"""Completions that may run out of time before no more are tried: a task that always hangs is checked in a minute."""

MAX_COUNTED = 20_000
"""Rows of the task as it was given that are loaded to count its golds."""

MAX_GOLDS = 256
"""Golds that are scored, so that a tenth of wrong ones is found."""

GOLDS_S = 5.0
"""Time for golds beyond those of the drawn rows."""

CHUNK = 8
"""Completions that are scored at once."""

MAX_TURNS = 8
"""Turns in which a text is written again and again."""

MAX_TURN_CHARS = 1 << 17
"""Bound on the text of all turns: as JSON a character takes up to 6, and a request has at most `MAX_TEXT_CHARS`."""

PROBE_S = 180.0
"""Bound on a process that loads the task and scores a few completions."""

PREDICTION = "1"
"""An opponent's answer, for tasks that have one: no model is asked."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A completion with its score.

    Attributes:
        kind: What the completion is, for messages.
        text: The completion.
        row: Its row.
        score: Its score.
    """

    kind: str
    text: str
    row: Row
    score: Score


class Subject:
    """A task under check. A context manager that ends the worker processes.

    Args:
        task: The task.
        rows: Rows that completions are scored for.
        seed: Seed of their choice, and of everything that is drawn.
        progress: Called with what is done, how much of it, and the total.

    Attributes:
        whole: The task as it was given.
        task: The task with at most `LOADED_ROWS` rows.
        loaded: These rows.
        rows: Those of them that completions are scored for.

    Raises:
        DataError: the task has no rows here.
    """

    def __init__(
        self,
        task: BoundTask,
        rows: int = DEFAULT_ROWS,
        seed: int = 0,
        progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    ) -> None:
        self.seed, self.progress, self.whole = seed, progress, task
        limit = max(LOADED_ROWS, rows)
        self.task = task if task.config.size is not None and task.config.size <= limit else of_size(task, limit)
        self.loaded: Sequence[Row] = self.task.rows()
        self.rows = random.Random(f"check/{seed}").sample(self.loaded, min(rows, len(self.loaded)))
        self._timeouts = 0
        self.timeout_s = min(task.task.timeout_s, LONGEST_S)
        self.scorer = self.new_scorer(1)
        self._sent = send(self.task)
        module = "grpo_sdk.check.worker"
        self.pool = KillablePool(f"{module}:make_handler", args=self._sent, name=f"check-{task.name}", preload=module)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes."""
        self.scorer.close()
        self.pool.close()

    def new_scorer(self, tool_workers: int) -> Scorer:
        """A scorer of the task that has not scored anything.

        Args:
            tool_workers: Processes in which tools run; each episode that runs beside others gets one of its own.
        """
        return Scorer(self.task, timeout_s=self.timeout_s, ask=assume_best, tool_workers=tool_workers)

    @property
    def hangs(self) -> bool:
        """Whether so many completions ran out of time that no more are tried."""
        return self._timeouts >= MAX_TIMEOUTS

    @property
    def with_gold(self) -> list[Row]:
        """The drawn rows that have a gold."""
        return [row for row in self.rows if row.gold is not None]

    def predictions(self, text: str = PREDICTION) -> list[str] | None:
        """Answers of the opponent; None for a task that has none."""
        return None if self.task.opponent is None else [text] * self.task.opponent.samples

    def completion(self, text: str) -> str:
        """A text as the task scores it: a game's is a move in the transcript of an episode."""
        game = self.task.task.game
        return text if game is None else write_transcript(game.roles[0], [text])

    def scored(self, completions: Iterable[tuple[str, str, Row]], predict: bool = False) -> list[Scored]:
        """Score completions in killable workers.

        Args:
            completions: (kind, text, row) of each.
            predict: Whether an opponent answers with the text, too.
        """
        batch = list(completions)
        texts = [text for _, text, _ in batch]
        predictions = None
        if self.task.opponent is not None:
            predictions = [self.predictions(text if predict else PREDICTION) or [] for text in texts]
        scores: list[Score] = []
        while len(scores) < len(batch):
            here = slice(len(scores), len(scores) + CHUNK)
            if self.hangs:
                why = f"not tried: {self._timeouts} completions before it took longer than {self.timeout_s:g} s"
                scores += [Score(None, why=why, fault="timeout")] * len(batch[here])
                continue
            rows = [row for _, _, row in batch[here]]
            scores += self.scorer.score(texts[here], rows, None if predictions is None else predictions[here])
            self._timeouts += sum(is_out_of_time(score) for score in scores[here])
        return [Scored(kind, text, row, score) for (kind, text, row), score in zip(batch, scores, strict=True)]

    def repeated_turns(self, completions: Sequence[Scored]) -> Iterator[tuple[Scored, TurnState]]:
        """The state after every turn of rollouts that write one text in each, until the rollout is over or fails.

        Args:
            completions: Texts that rollouts write, with their rows.
        """
        for start in range(0, len(completions), CHUNK):
            going = list(completions[start : start + CHUNK])
            for turn in range(1, min(self.task.max_turns, MAX_TURNS + 1)):
                going = [each for each in going if turn * len(each.text) <= MAX_TURN_CHARS]
                futures = [self.scorer.next_turn([each.text] * turn, each.row) for each in going]
                states = [(each, future.result()) for each, future in zip(going, futures, strict=True)]
                yield from states
                going = [each for each, state in states if state.prompt is not None and not state.fault]

    def ask(self, operation: str, timeout_s: float, **request: Any) -> Outcome:
        """Run an operation of `grpo_sdk.check.worker` and wait."""
        payload = json.dumps({"operation": operation, **request}).encode()
        return self.pool.submit(payload, timeout_s).result()

    @cached_property
    def golds(self) -> list[Scored]:
        """The golds of the drawn rows."""
        return self.scored(("a gold", str(row.gold), row) for row in self.with_gold)

    @cached_property
    def whole_rows(self) -> tuple[Row, ...]:
        """The first `MAX_COUNTED` rows of the task as it was given."""
        return own_rows(self.whole, MAX_COUNTED)

    @property
    def gold_count(self) -> str:
        """Number of rows with a gold in the task as it was given, as far as its rows can be loaded."""
        rows: Sequence[Row] = self.loaded
        is_known = len(rows) < LOADED_ROWS
        if not is_known:
            with suppress(DataError):  # a row that cannot be used is what the check of splits reports
                rows = self.whole_rows
                is_known = len(rows) < MAX_COUNTED
        count = sum(row.gold is not None for row in rows)
        return str(count) if is_known else f"at least {count}"

    def all_golds(self) -> Iterator[Scored]:
        """The golds of the drawn rows, then those of other rows, up to `MAX_GOLDS` or for `GOLDS_S`."""
        yield from self.golds
        drawn = {row.id for row in self.rows}
        others = [row for row in self.loaded if row.gold is not None and row.id not in drawn]
        others = others[: max(0, MAX_GOLDS - len(self.golds))]
        end = time.monotonic() + GOLDS_S
        while others and time.monotonic() < end:
            yield from self.scored(("a gold", str(row.gold), row) for row in others[:CHUNK])
            others = others[CHUNK:]

    @cached_property
    def junk(self) -> list[Scored]:
        """Junk, on a few rows each."""
        return self.scored((name, self.completion(text), row) for row in self.rows[:FEW] for name, text in JUNK.items())

    @cached_property
    def others(self) -> list[Scored]:
        """The gold of another row, where it differs."""
        rows = self.with_gold
        pairs = zip(rows, [*rows[1:], *rows[:1]], strict=True)
        return self.scored(("the gold of another row", str(b.gold), a) for a, b in pairs if a.gold != b.gold)

    @cached_property
    def damage(self) -> list[list[Scored]]:
        """The golds at each level of damage, from none to all."""
        return [
            self.golds
            if share == 0
            else self.scored(
                (
                    f"a gold of which {share:.0%} is damaged",
                    rewritten(str(row.gold), partial(damaged, share=share, seed=f"{self.seed}/{row.id}")),
                    row,
                )
                for row in self.with_gold
            )
            for share in LEVELS
        ]

    @cached_property
    def hostile(self) -> list[Scored]:
        """Hostile texts and the gold between blanks, on one row, also as an opponent's answers."""
        first = self.rows[0]
        texts = [(name, self.completion(text)) for name, text in HOSTILE.items()]
        if first.gold is not None:
            said = said_in(first.gold)
            texts += [
                (f"a gold between {name}", saying(first.gold, f"{run}{said}{run}")) for name, run in BLANKS.items()
            ]
        return self.scored(((name, text, first) for name, text in texts), predict=True)

    @cached_property
    def prompts(self) -> list[tuple[Row, Prompt]]:
        """The loaded rows with their prompts."""
        return [(row, self.task.prompt(row)) for row in self.loaded]

    @cached_property
    def opened(self) -> list[tuple[Row, Prompt]]:
        """The loaded rows with the prompts that begin their episodes, what `reset()` adds included."""
        if self.task.task.environment is None:
            return self.prompts
        opened = list(self.prompts)
        for place, (row, _) in enumerate(opened):
            state = next(self.scorer.session(row).play(()))
            if state.prompt is None:  # the check `crash` is about that
                break
            opened[place] = row, state.prompt
        return opened

    @cached_property
    def plans(self) -> list[Plan]:
        """Episodes with tools to play: golds, calls of each tool, and calls of all."""
        prompts = {row.id: prompt_text(prompt) for row, prompt in self.opened}
        golds = [Plan("a gold", row, read_tool_turns(str(row.gold))[0]) for row in self.with_gold[:FEW]]
        tools = self.task.task.all_tools()
        single = [
            plan_of(f"calls of {tool.name}()", row, [tool] * 2, prompts[row.id], self.seed)
            for row in self.rows[:FEW]
            for tool in tools
        ]
        every = [
            plan_of(f"calls of all tools ({number})", row, tools, prompts[row.id], self.seed)
            for row in self.rows
            for number in range(FEW)
        ]
        return [*golds, *single, *every]

    @cached_property
    def played(self) -> list[Played]:
        """The plans played one after the other in a new process, without those that call a tool that has hung."""
        return self.play_plans()

    def play_plans(self) -> list[Played]:
        """Play the plans in a new process; see `played`."""
        played: list[Played] = []
        hanging: set[str] = set()
        with self.new_scorer(1) as scorer:
            for plan in self.plans:
                if hanging.isdisjoint(call.name for turn in plan.turns for call in turn.calls):
                    played += play(scorer, [plan])
                    state = played[-1].state
                    if state.fault == "timeout" and not state.moves:  # reset()
                        break
                    if state.fault == "timeout":
                        hanging.update(call.name for call in plan.turns[len(state.moves) - 1].calls)
        return played

    @cached_property
    def probed(self) -> list[Scored]:
        """The completions that `probes` score again."""
        return [*self.golds[:FEW], *self.others[:FEW], *self.junk[: len(JUNK)]]

    @cached_property
    def probes(self) -> list[Mapping[str, Any]]:
        """What two processes with different hash seeds make of the task; `error` where one of them failed."""
        if any(each.score.fault == "timeout" for each in self.probed):
            return [{"error": f"golds or junk take longer than {self.timeout_s:g} s"}] * 2
        places = {row.id: place for place, row in enumerate(self.loaded)}
        request = {
            "rows": len(self.loaded),
            "texts": [each.text for each in self.probed],
            "places": [places[each.row.id] for each in self.probed],
            "predictions": self.predictions(),
        }
        payloads = [
            json.dumps({"operation": "probe", "hash_seed": hash_seed, "request": json.dumps(request)}).encode()
            for hash_seed in ("1", "2")
        ]
        return [
            json.loads(outcome.value) if outcome.status == "ok" else {"error": outcome.why}
            for outcome in self.pool.map(payloads, PROBE_S)
        ]


def own_rows(task: BoundTask, limit: int) -> tuple[Row, ...]:
    """The first rows of a task, at most a number of them; where its size says more than there are, all.

    Raises:
        DataError: it has none, or a row that cannot be used.
    """
    try:
        return first_rows(task, limit)
    except ExhaustedError as error:
        if not error.available:
            raise
        return first_rows(task.with_options(size=error.available), limit)
