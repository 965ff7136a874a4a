"""Ranks that evaluate together find what one process finds, whoever has how many rows."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import evaluation_rank_runs
import pytest
from evaluation_rank_runs import called_back, evaluated
from evaluation_runs import TASKS
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core import Row, Score
from grpo_core.engines.base import StopRequested
from grpo_core.evaluation.ranks import evaluate_together
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.surprisal import Certainty, TokenStatistics
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.ranks import Ranks

SEVERAL = (
    TASKS
    + """
def first(config):
    return load(config)[:1]

one = Task("one", first, prompt, validate, (right,), row=Letter, max_completion_length=4)
"""
)

TIMED = ("seconds", "samples_per_s", "tokens_per_s", "peak_memory_mib")


class Threads:
    """Ranks as threads of this process."""

    def __init__(self, size: int) -> None:
        self.size, self._barrier = size, threading.Barrier(size, timeout=20)
        self._data: list[bytes] = [b""] * size

    def rank(self, rank: int) -> Any:
        outer = self

        class Rank(Ranks):
            def gather(self, data: bytes) -> list[bytes]:
                outer._data[rank] = data
                outer._barrier.wait()
                found = list(outer._data)
                outer._barrier.wait()
                return found

        return Rank(rank=rank, size=self.size)

    def together(self, rows: Sequence[Row], evaluate: Any) -> list[Any]:
        found: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            try:
                found[rank] = evaluate_together(
                    rows, lambda mine: evaluate(rank, mine), self.rank(rank), lambda *expected: nullcontext()
                )
            except StopRequested:
                found[rank] = "stopped"

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        return found


def rows_of(count: int) -> list[Row]:
    return [Row(id=str(index)) for index in range(count)]


def of(rows: Sequence[Row], text: str = "") -> Evaluation:
    """Two completions a row, of which every number depends on the row."""
    numbers = [int(row.id) for row in rows]
    sure = [
        Certainty(TokenStatistics(0.1 * at, 0.0, 1.0, 0.3), TokenStatistics(1 / 3, 0.0, 1.0, 0.5)) for at in numbers
    ]
    scores = [
        (Score(1 / (at + 1), {"part": 0.1 * at}, True, at % 2 == 0, text), Score(None, fault="timeout", why=text))
        for at in numbers
    ]
    return Evaluation(
        rows=rows,
        texts=[each for at in numbers for each in (f"{at}{text}", text)],
        lengths=[each for at in numbers for each in (at, None)],
        truncated=[False, True] * len(rows),
        scores=[each for pair in scores for each in pair],
        temperature=0.7,
        split="test",
        n=2,
        certainty=[each for one in sure for each in (one, None)],
        think_lengths=[each for at in numbers for each in (None, at)],
        seconds=float(max(numbers, default=0)),
        peak_memory_mib=1.0,
    )


@settings(max_examples=20, deadline=None)
@given(count=st.integers(0, 7), size=st.integers(1, 3), text=st.text(max_size=3) | st.just("\ud800\x00"))
def test_all_get_the_whole_in_order_to_the_last_bit(count: int, size: int, text: str) -> None:
    rows = rows_of(count)
    for found in Threads(size).together(rows, lambda rank, mine: of(mine, text)):
        assert found == of(rows, text)


def test_a_stop_on_one_rank_is_a_stop_on_all() -> None:
    def evaluate(rank: int, mine: Sequence[Row]) -> Evaluation:
        if rank == 1:
            raise StopRequested
        return of(mine)

    assert Threads(3).together(rows_of(4), evaluate) == ["stopped"] * 3
    with pytest.raises(StopRequested):
        evaluate_together(rows_of(2), lambda mine: evaluate(1, mine), Ranks(), lambda *expected: nullcontext())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluation_ranks")
    for part in fresh_model("tiny", seed=0):
        part.save_pretrained(path / "model")
    (path / "tasks.py").write_text(SEVERAL)
    return path


def two_ranks(folder: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    out.mkdir()
    script = evaluation_rank_runs.__file__
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "--monitor-interval=0.1", script, str(folder), str(out), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((out / f"rank_{rank}.json").read_text()) for rank in range(2)]


def untimed(found: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in found["metrics"].items() if not name.endswith(TIMED)}


def records(out: Path, task: str) -> list[dict[str, Any]]:
    (path,) = (out / "eval_runs" / f"run_1_{task}").rglob("records.jsonl.gz")
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("options", [(), pytest.param(("shard",), id="sharded", marks=pytest.mark.slow)])
def test_two_processes_find_what_one_finds(folder: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "alone").mkdir()
    alone = json.loads(json.dumps(evaluated(folder, tmp_path / "alone", Ranks())))
    first, second = two_ranks(folder, tmp_path / "together", *options)
    assert untimed(first) == pytest.approx(untimed(alone), rel=1e-5)
    assert first["results"] == second["results"], "each rank knows all of it"
    for task in ("letters", "one"):
        ours, theirs = records(tmp_path / "alone", task), records(tmp_path / "together", task)
        assert len(ours) == (10 if task == "letters" else 2)
        for name in ("row", "sample", "text", "length", "truncated", "score"):
            assert [each[name] for each in ours] == [each[name] for each in theirs], name
    assert len({record["text"] for record in records(tmp_path / "alone", "letters")}) > 4, "the texts say something"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_trainers_callback_shares_the_rows_too(folder: Path, tmp_path: Path) -> None:
    alone = called_back(folder, Ranks())
    for together in two_ranks(folder, tmp_path / "out", "trl"):
        assert untimed(together) == pytest.approx(untimed(alone), rel=1e-5)
