"""What checks run in a killable worker beside scoring: timing, pickling, games, and a process with a hash seed."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from grpo_sdk.plugins.tasks import received_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import prints_to_stderr
from grpo_sdk.task.game import GameConfig, Rules
from grpo_sdk.task.game.rules import GameStart
from grpo_sdk.task.judging import Pending
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Invalid, Score
from grpo_sdk.task.spec import TaskSpec

LAST_WORDS = 4096
"""Bytes of what a process printed in which its error is looked for."""


def make_handler(*sent: str) -> Callable[[bytes], bytes]:
    """Load the task that was sent and return the function that answers each request; a worker calls it once."""
    task = received_task(*sent)

    def handle(payload: bytes) -> bytes:
        request = json.loads(payload)
        operation = OPERATIONS[request.pop("operation")]
        return json.dumps(operation(task, sent, **request)).encode()

    return handle


def measure_latency(
    task: BoundTask,
    sent: Sequence[str],
    texts: Sequence[str],
    rows: Sequence[str],
    predictions: Sequence[str] | None,
    attempt: int,
) -> dict[str, list[float]]:
    """Seconds of each completion, by function: `validate`, each reward, `tools`, and `all` of the scoring.

    `attempt` makes a second request another one: one that timed out is not run again.
    """
    times: dict[str, list[float]] = defaultdict(list)
    author = task.task
    timed = replace(
        author,
        validate=_timed(author.validate, "validate", times),
        rewards=tuple(_timed(spec.function, spec.name, times) for spec in task.rewards),
        row=author.row_type(),
    )
    bound = BoundTask(timed, task.name, task.config, TaskSpec(task.name), is_object=task.is_object)
    for text, row_json in zip(texts, rows, strict=True):
        row = bound.row_from_json(row_json)
        before, begin = sum(map(sum, times.values())), time.perf_counter()
        bound.score(text, row, predictions)
        seconds, functions = time.perf_counter() - begin, sum(map(sum, times.values())) - before
        times["all"].append(seconds)
        if author.has_tools:
            times["tools"].append(seconds - functions)
    return times


def _timed(function: Callable[..., Any], name: str, times: dict[str, list[float]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            times[name].append(time.perf_counter() - begin)

    timed.__name__ = name  # an object that can be called has none
    return timed


def pickle_rows(task: BoundTask, sent: Sequence[str], rows: Sequence[str]) -> str:
    """Why a row does not survive pickling; empty where all do."""
    for text in rows:
        row = task.row_from_json(text)
        try:
            copy = pickle.loads(pickle.dumps(row))  # our own bytes
        except Exception as error:  # a class of the author's may raise anything
            return f"row {row.id!r}: {type(error).__name__}: {error}"
        if copy != row:
            return f"row {row.id!r} changes: {copy!r:.200}"
    return ""


def distinct_starts(task: BoundTask, sent: Sequence[str], rows: Sequence[str]) -> list[int]:
    """Indices of the rows that begin a game's first position that no row before begins."""
    seen: dict[Any, int] = {}
    for index, row in enumerate(rows):
        seen.setdefault(_key(_start(task, row)[1]), index)
    return list(seen.values())


def play_perfectly(task: BoundTask, sent: Sequence[str], row: str, nodes: int) -> dict[str, Any]:
    """Play the perfect player in each seat against every reply of the other, from one start.

    Returns:
        `positions`: how many were reached; `value`: role -> return where both play perfectly; `worst`: role -> the
        least return that a reply leads to; `line`: role -> the moves to it; `complete`: role -> whether all replies
        were tried.
    """
    rules, start = _start(task, row)
    search = _Search(rules, nodes)
    value = search.perfect(start)
    worst, line, complete = {}, {}, {}
    for role in rules.game.roles:
        worst[role], line[role], complete[role] = search.least(start, role)
    return {"positions": search.seen, "complete": complete, "value": dict(value), "worst": worst, "line": line}


def _start(task: BoundTask, row: str) -> tuple[Rules, Any]:
    """The rules of a game, and the first position of an episode."""
    game, config, episode = task.task.game, task.config, task.row_from_json(row)
    assert game is not None and isinstance(config, GameConfig) and isinstance(episode, GameStart)
    rules = Rules(game, config)
    return rules, rules.call("initial", seed=episode.seed)


def _key(state: Any) -> Any:
    """What equal positions have in common: the position itself, or its bytes where it has no hash."""
    try:
        hash(state)
    except TypeError:
        return pickle.dumps(state)
    return state


class _Search:
    """Games of a perfect player against every reply, until a number of positions has been reached.

    Args:
        rules: Game and options.
        nodes: Bound on the positions.
    """

    def __init__(self, rules: Rules, nodes: int) -> None:
        self.rules, self.nodes, self.seen = rules, nodes, 0

    def perfect(self, state: Any) -> Mapping[str, float]:
        """Returns of a game in which all play perfectly."""
        for _ in range(self.rules.game.max_turns):
            returns: Mapping[str, float] | None = self.rules.outcome(state)
            if returns is not None:
                return returns
            state = self.rules.call("apply", state=state, action=self.rules.call("best", state=state))
        return dict.fromkeys(self.rules.game.roles, 0.0)

    def least(self, start: Any, role: str) -> tuple[float, list[str], bool]:
        """The least return of a perfect player in a role, the moves that lead to it, and whether all were tried.

        Depth first; a position that other moves led to is not visited again, since play goes on from it alike.
        """
        least, line = float("inf"), ["(no game ended)"]
        stack: list[tuple[Any, tuple[str, ...]]] = [(start, ())]
        visited: set[tuple[Any, int]] = set()  # the limit of turns counts moves
        while stack and len(visited) < self.nodes // len(self.rules.game.roles):
            state, moves = stack.pop()
            if (key := (_key(state), len(moves))) in visited:
                continue
            visited.add(key)
            self.seen += 1
            returns = self.rules.outcome(state)
            if returns is None and len(moves) >= self.rules.game.max_turns:
                returns = dict.fromkeys(self.rules.game.roles, 0.0)
            if returns is not None:
                if returns[role] < least:
                    least, line = float(returns[role]), [*moves]
                continue
            is_own = self.rules.call("to_move", state=state) == role
            actions = [self.rules.call("best", state=state)] if is_own else self.rules.legal(state)
            for action in actions:
                after = self.rules.call("apply", state=state, action=action)
                place = list(self.rules.legal(state)).index(action)
                stack.append((after, (*moves, self.rules.written(place, state))))
        return least, line, not stack


def read_demo_moves(task: BoundTask, sent: Sequence[str], rows: Sequence[str], limit: int) -> dict[str, int]:
    """How many of a game's demos answer the first position of a row, and how many of these are legal moves."""
    game, config = task.task.game, task.config
    assert game is not None and isinstance(config, GameConfig)
    rules = Rules(game, config)
    starts = {}
    for text in rows:
        episode = task.row_from_json(text)
        assert isinstance(episode, GameStart)
        state = rules.call("initial", seed=episode.seed)
        starts[json.dumps(rules.call("observe", state=state, role=rules.call("to_move", state=state)))] = state
    matched = legal = 0
    for prompt, completion in islice(task.demos(), limit):
        state = starts.get(json.dumps(prompt))
        if state is not None:
            matched += 1
            legal += _is_legal(rules, completion, state)
    return {"matched": matched, "legal": legal}


def _is_legal(rules: Rules, text: str, state: Any) -> bool:
    try:
        return rules.call("parse", text=text, state=state) in rules.legal(state)
    except Invalid:
        return False


def run_probe(task: BoundTask, sent: Sequence[str], hash_seed: str, request: str) -> Any:
    """Run `probe` in a process of its own with a hash seed; this worker's limit ends that, too."""
    # Files and no pipes: a process that the task left behind would hold the end of a pipe open.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as printed:
        ran = subprocess.run(
            [sys.executable, "-c", "from grpo_sdk.check.worker import main; main()"],
            input=json.dumps({"sent": list(sent), **json.loads(request)}).encode(),
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=answer,
            stderr=printed,
            check=False,
        )
        answer.seek(0)
        content = answer.read()
        if ran.returncode == 0 and content:
            return json.loads(content)
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - LAST_WORDS))
        words = printed.read().decode(errors="replace").strip().splitlines()
    status = f"it ended with status {ran.returncode} before it answered"
    return {"error": words[-1] if ran.returncode and words else status}


HEAVY = ("torch", "transformers", "trl", "peft", "vllm", "jax", "tensorflow")
"""Modules that a task must not import: each costs every worker that scores seconds and hundreds of MiB."""


REPEATS = 50
REPEAT_S = 2.0
"""Times, and seconds, that the same completions are scored again, to see a score that depends on earlier ones."""


def probe(sent: list[str], rows: int, texts: list[str], places: list[int], predictions: list[str] | None) -> Any:
    """What this process makes of a task.

    Args:
        sent: Task, as workers get it.
        rows: Rows that are compared, from the first.
        texts: Completions to score.
        places: Place of each completion's row.
        predictions: An opponent's answers.

    Returns:
        Hashes of the rows and prompts, the scores, the scores after many others, and the heavy modules that are
        imported.
    """
    task = received_task(*sent)
    loaded = task.rows()
    begin = time.monotonic()
    scores = _scores(task, texts, [loaded[place] for place in places], predictions)
    again, repeats = scores, 0
    while again == scores and repeats < REPEATS and time.monotonic() - begin < REPEAT_S:
        again = _scores(task, texts, [loaded[place] for place in places], predictions)
        repeats += 1
    return {
        "rows": [_hash(row.model_dump_json()) for row in loaded[:rows]],
        "prompts": [_hash(json.dumps(task.prompt(row))) for row in loaded[:rows]],
        "scores": scores,
        "again": again,
        "heavy": [name for name in HEAVY if name in sys.modules],
    }


def _scores(task: BoundTask, texts: list[str], rows: list[Row], predictions: list[str] | None) -> list[list[Any]]:
    return [compared(_score(task, text, row, predictions)) for text, row in zip(texts, rows, strict=True)]


def _score(task: BoundTask, text: str, row: Row, predictions: list[str] | None) -> Score:
    """The score in this process; judges are taken to be satisfied, as in all checks."""
    if not task.task.judges():
        return task.score(text, row, predictions)
    known: dict[str, float] = {}
    while isinstance(graded := task.grader.grade(text, row, known=known), Pending):
        known = {**graded.parts, **dict.fromkeys(graded.questions, 1.0)}
    return graded


def compared(score: Score) -> list[Any]:
    """What two scores of the same completion must have in common, as JSON."""
    return [score.value, score.parts, score.valid, score.solved, score.fault]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def main() -> None:
    """Answer the request on stdin, as JSON on stdout."""
    with prints_to_stderr():
        answer = json.dumps(probe(**json.loads(sys.stdin.read())))
    sys.stdout.write(answer)


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "latency": measure_latency,
    "pickle": pickle_rows,
    "starts": distinct_starts,
    "perfect": play_perfectly,
    "demo moves": read_demo_moves,
    "probe": run_probe,
}
"""Name in a request -> function of the task and the rest of the request."""
