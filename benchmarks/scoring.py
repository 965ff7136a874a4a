"""What the killable scorer costs: `python benchmarks/scoring.py [--json]`.

The same completions are scored in process, by `Scorer`, and by `concurrent.futures.ProcessPoolExecutor` over the same
`BoundTask.score` (which has no deadline: a completion that hangs stops it for ever). The three alternate within one
run, because machines are shared; the median, the slowest and the fastest of the rounds are printed. `--ray N` adds a
Ray cluster of N simulated nodes on this machine, with as many workers each as the others have in all.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from arguments import command_line, count, natural, say

from grpo_sdk import BoundTask, Row, Score, Scorer, Task, TaskConfig, load_task, reward

WORK_US = (0, 1000)
"""Time in the reward: the overhead alone, and an ordinary parser's millisecond."""

HANG_LIMIT_S, BETWEEN_HANGS_S = 0.2, 1.0
"""Limit of a completion that hangs, and the time until the next one does: one hang at a time."""


class Work(TaskConfig):
    """How long the reward works."""

    work_us: int = 0


class Sum(Row):
    """a + b = ?"""

    a: int
    b: int


def load(config: Work) -> Iterable[Sum]:
    for index in range(64):
        yield Sum(id=str(index), gold=str(2 * index), a=index, b=index)


def prompt(row: Sum) -> str:
    return f"{row.a} + {row.b} ="


def validate(text: str, row: Sum) -> int:
    if text.startswith("hang"):
        while True:
            pass
    return int(text)


@reward()
def right(answer: int, row: Sum, config: Work) -> float:
    end = time.perf_counter() + config.work_us * 1e-6
    while time.perf_counter() < end:
        pass
    return float(answer == row.a + row.b)


task = Task("sums", load, prompt, validate, [right], config=Work)

_bound: BoundTask | None = None


def _load_in_peer(spec: str) -> None:
    global _bound
    _bound = load_task(spec)


def _score_in_peer(text: str, row_json: str) -> Score:
    assert _bound is not None
    return _bound.score(text, _bound.row_from_json(row_json))


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
        way: Who scored.
        work_us: Microseconds in the reward.
        samples_per_s: Completions per second of wall time, in the median of the rounds.
        slowest_per_s: Likewise in the slowest of them.
        fastest_per_s: Likewise in the fastest of them.
        own_cpu_us: CPU time of the calling process per completion: what the trainer loses.
    """

    way: str
    work_us: int
    samples_per_s: float
    slowest_per_s: float
    fastest_per_s: float
    own_cpu_us: float


Way = Callable[[Sequence[str], Sequence[Row]], list[Score]]


def measure(work_us: int, samples: int, rounds: int, workers: int, cluster: Any = None) -> list[Result]:
    """Alternate the ways over the same completions."""
    bound = load_task(f"{os.path.abspath(__file__)}:task?work_us={work_us}")
    rows = (bound.rows() * (samples // 64 + 1))[:samples]
    # A completion of some 400 characters: text, not bookkeeping, should be what is sent.
    texts = [f"{row.gold:>400}" for row in rows]

    def in_process(texts: Sequence[str], rows: Sequence[Row]) -> list[Score]:
        return [bound.score(text, row) for text, row in zip(texts, rows, strict=True)]

    context = multiprocessing.get_context("spawn")
    with ExitStack() as resources:
        scorer = resources.enter_context(Scorer(bound, workers=workers))
        executor = resources.enter_context(
            ProcessPoolExecutor(workers, context, initializer=_load_in_peer, initargs=(bound.spec,))
        )

        def peer(texts: Sequence[str], rows: Sequence[Row]) -> list[Score]:
            return list(executor.map(_score_in_peer, texts, [row.model_dump_json() for row in rows]))

        ways: dict[str, Way] = {"in process": in_process, "Scorer": scorer.score, "ProcessPoolExecutor": peer}
        if cluster is not None:
            ways["Scorer, Ray"] = resources.enter_context(Scorer(bound, workers=workers, cluster=cluster)).score
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for round_number in range(rounds + 1):  # the first warms up
            for name, way in ways.items():
                wall, own = time.perf_counter(), time.process_time()
                scores = way(texts, rows)
                if round_number:
                    times[name].append((time.perf_counter() - wall, time.process_time() - own))
                assert all(score.value == 1.0 for score in scores), scores[0]
    return [
        Result(
            name,
            work_us,
            samples_per_s=samples / statistics.median(wall for wall, _ in measured),
            slowest_per_s=samples / max(wall for wall, _ in measured),
            fastest_per_s=samples / min(wall for wall, _ in measured),
            own_cpu_us=1e6 * statistics.median(own for _, own in measured) / samples,
        )
        for name, measured in times.items()
    ]


def measure_hangs(hangs: int) -> list[float]:
    """Seconds from the deadline of a completion that hangs to the score of the next one, with one worker."""
    bound = load_task(f"{os.path.abspath(__file__)}:task")
    row = bound.rows()[2]
    costs = []
    with Scorer(bound, workers=1, timeout_s=HANG_LIMIT_S) as scorer:
        scorer.warm()
        for hang in range(hangs):
            time.sleep(BETWEEN_HANGS_S)
            begin = time.perf_counter()
            hung, behind = scorer.submit(f"hang {hang}", row), scorer.submit("4", row)
            assert behind.result().value == 1.0 and hung.result().fault == "timeout"
            costs.append(time.perf_counter() - begin - HANG_LIMIT_S)
    return sorted(costs)


@contextmanager
def simulated_cluster(nodes: int) -> Iterator[Any]:
    """A Ray cluster of several nodes on this machine, as the `Scorer` takes it."""
    from ray.cluster_utils import Cluster

    from grpo_sdk.scoring.cluster import ray_cluster

    simulated = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            simulated.add_node(num_cpus=1)
        yield ray_cluster(simulated.address)
    finally:
        simulated.shutdown()


def main() -> None:
    """Print the table, or JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--samples", type=count, default=2000, help="completions per round (default 2000)")
    parser.add_argument("--rounds", type=count, default=5, help="rounds whose median is taken (default 5)")
    parser.add_argument("--workers", type=count, default=2, help="worker processes (default 2)")
    parser.add_argument("--hangs", type=count, default=40, help="completions that hang, one at a time (default 40)")
    parser.add_argument(
        "--ray", type=natural, default=0, metavar="N", help="nodes of a simulated Ray cluster (default 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    arguments = parser.parse_args()
    with ExitStack() as resources:
        cluster = resources.enter_context(simulated_cluster(arguments.ray)) if arguments.ray else None
        results = [
            result
            for work_us in WORK_US
            for result in measure(work_us, arguments.samples, arguments.rounds, arguments.workers, cluster)
        ]
    hangs = measure_hangs(arguments.hangs)
    hang = {"median_s": statistics.median(hangs), "p95_s": hangs[int(0.95 * len(hangs))], "hangs": len(hangs)}
    if arguments.json:
        report = {"results": [asdict(result) for result in results], "score_after_deadline": hang}
        json.dump({**report, "workers": arguments.workers, "samples": arguments.samples}, sys.stdout, indent=2)
        print()
        return
    print(f"{arguments.samples} completions of 400 characters, {arguments.workers} workers, {os.cpu_count()} cores\n")
    print(f"{'way':<22}{'reward µs':>10}{'samples/s':>12}{'slowest to fastest':>20}{'own CPU µs':>12}")
    for result in results:
        spread = f"{result.slowest_per_s:,.0f}–{result.fastest_per_s:,.0f}"
        print(
            f"{result.way:<22}{result.work_us:>10}{result.samples_per_s:>12,.0f}{spread:>20}{result.own_cpu_us:>12.1f}"
        )
    print()
    say(
        f"from the deadline of one that hangs to the score of the next: median {1000 * hang['median_s']:.1f} ms, "
        f"p95 {1000 * hang['p95_s']:.1f} ms of {len(hangs)}"
    )


if __name__ == "__main__":
    main()
