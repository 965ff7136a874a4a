"""What HTTP costs: `python benchmarks/serve.py [--json]`.

The same completions are scored by a `Scorer` of this process, and by `grpo serve` with one completion a request and
with 32; each with and without completions that hang. As many are under way at once in every way, as many processes
score, and the ways alternate within one run, because machines are shared. The client of the server is this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil
from arguments import command_line, count, fraction, say

from grpo_sdk import Row, Scorer, Task, TaskConfig, load_task, reward

HANG_LIMIT_S = 0.5
"""Limit of a completion: a tenth of the default, so that a round takes seconds."""

IN_FLIGHT = 64
"""Completions under way at once: what slime sends."""

BATCH = 32
"""Completions of a request with several."""


class Sum(Row):
    """a + b = ?"""

    a: int
    b: int


def load(config: TaskConfig) -> Iterable[Sum]:
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
def right(answer: int, row: Sum) -> float:
    end = time.perf_counter() + 0.001  # an ordinary parser's millisecond
    while time.perf_counter() < end:
        pass
    return float(answer == row.a + row.b)


task = Task("sums", load, prompt, validate, [right], timeout_s=HANG_LIMIT_S)

SPEC = f"{os.path.abspath(__file__)}:task"

Sample = tuple[str, str]
"""A completion, and the id of its row."""


@dataclass(frozen=True)
class Round:
    """One pass over the completions.

    Attributes:
        samples_per_s: Completions per second of wall time.
        p50_ms: Median time from sending a completion to its score.
        p99_ms: 99th percentile of that.
        cpu_us: CPU time per completion of the process that has the scorer, the server or this one, without its workers.
        unscored: Completions without a score.
    """

    samples_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    unscored: int


class Connection:
    """A connection that stays open, with no more of HTTP than a benchmark needs."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: dict[str, Any]) -> Any:
        """Send a request to /score, and return its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._url.hostname, self._url.port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = (
            f"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        writer.write(head.encode() + b"\r\n\r\n" + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in answer, answer
        length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return json.loads(await reader.readexactly(length))

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
            self._streams = None


Score = Callable[[int, Sequence[Sample]], Awaitable[list[float | None]]]
"""Scores completions for one of the clients that run at once."""


async def measured(score: Score, samples: Sequence[Sample], clients: int, batch: int, pid: int) -> Round:
    """Let clients score all completions, each one request after another."""
    batches = [samples[start : start + batch] for start in range(0, len(samples), batch)]
    waiting, seconds, unscored = iter(batches), [0.0] * 0, 0

    async def client(number: int) -> None:
        nonlocal unscored
        for own in waiting:
            begin = time.perf_counter()
            values = await score(number, own)
            seconds.extend([time.perf_counter() - begin] * len(own))
            unscored += values.count(None)

    begin, cpu = time.perf_counter(), _cpu_s(pid)
    await asyncio.gather(*(client(number) for number in range(clients)))
    wall, cpu = time.perf_counter() - begin, _cpu_s(pid) - cpu
    seconds.sort()
    p99_s = seconds[int(0.99 * len(seconds))]
    cpu_us = 1e6 * cpu / len(samples)
    return Round(len(samples) / wall, 1e3 * statistics.median(seconds), 1e3 * p99_s, cpu_us, unscored)


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def completions(count: int, hanging: float, round_number: int) -> list[Sample]:
    """Right completions of some 400 characters, some of which hang instead; no two that hang are the same."""
    every = round(1 / hanging) if hanging else 0
    return [
        (f"hang {round_number} {index}" if every and index % every == every // 2 else f"{2 * (index % 64):>400}",
         str(index % 64))
        for index in range(count)
    ]  # fmt: skip


async def rounds(
    url: str, pid: int, scorer: Scorer, count: int, hanging: float, repeats: int
) -> dict[str, list[Round]]:
    """Alternate the ways over the same completions."""
    rows = {row.id: row for row in scorer.task.rows()}
    connections = [Connection(url) for _ in range(IN_FLIGHT)]

    async def here(client: int, samples: Sequence[Sample]) -> list[float | None]:
        return [
            score.value for score in await scorer.ascore([text for text, _ in samples], [rows[i] for _, i in samples])
        ]

    async def there(client: int, samples: Sequence[Sample]) -> list[float | None]:
        body = {"completions": [text for text, _ in samples], "rows": [row for _, row in samples]}
        return [each["score"] for each in (await connections[client].post(body))["scores"]]

    ways: dict[str, tuple[Score, int, int]] = {
        "Scorer": (here, IN_FLIGHT, 1),
        "grpo serve, 1 a request": (there, IN_FLIGHT, 1),
        f"Scorer, {BATCH} a call": (here, IN_FLIGHT // BATCH, BATCH),
        f"grpo serve, {BATCH} a request": (there, IN_FLIGHT // BATCH, BATCH),
    }
    results: dict[str, list[Round]] = {name: [] for name in ways}
    for number in range(repeats + 1):  # the first warms up
        for place, (name, (score, clients, batch)) in enumerate(ways.items()):
            samples = completions(count, hanging, number * len(ways) + place)
            result = await measured(score, samples, clients, batch, pid if score is there else os.getpid())
            for connection in connections:  # the server would, while the other ways are measured
                await connection.close()
            assert result.unscored == sum(text.startswith("hang") for text, _ in samples), result
            if number:
                results[name].append(result)
    return results


def main() -> None:
    """Print the table, or JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--samples", type=count, default=2000, help="completions per round (default 2000)")
    parser.add_argument("--rounds", type=count, default=5, help="rounds whose median is taken (default 5)")
    parser.add_argument("--workers", type=count, default=2, help="worker processes (default 2)")
    parser.add_argument("--hanging", type=fraction, default=0.01, help="share that hangs in half of the runs (0.01)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    arguments = parser.parse_args()
    neighbours = os.path.dirname(os.path.abspath(__file__))  # which this file, as the server's task, imports
    program = f"import sys; sys.path.append({neighbours!r}); "
    program += "from grpo_sdk.cli.main import main; sys.exit(main(sys.argv[1:]))"
    options = ("--port", "0", "--json", "--workers", str(arguments.workers))
    command = [sys.executable, "-c", program, "serve", SPEC, *options]
    report: dict[str, dict[str, list[Round]]] = {}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        Scorer(load_task(SPEC), workers=arguments.workers) as scorer,
    ):
        assert process.stdout is not None
        try:
            if not (line := process.stdout.readline()):
                sys.exit("error: grpo serve did not start")
            url = json.loads(line)["url"]
            scorer.warm()
            for hanging in (0.0, arguments.hanging):
                pending = rounds(url, process.pid, scorer, arguments.samples, hanging, arguments.rounds)
                report[f"{hanging:.1%} hang"] = asyncio.run(pending)
        finally:
            process.terminate()
    if arguments.json:
        data = {share: {name: list(map(asdict, runs)) for name, runs in ways.items()} for share, ways in report.items()}
        print(json.dumps({**vars(arguments), "limit_s": HANG_LIMIT_S, "in_flight": IN_FLIGHT, "results": data}))
        return
    say(
        f"{arguments.samples} completions of 400 characters, a reward of 1 ms, limit {HANG_LIMIT_S} s, "
        f"{arguments.workers} workers, {IN_FLIGHT} completions under way, {os.cpu_count()} cores"
    )
    print()
    print(f"{'way':<24}{'samples/s':>10}{'(range)':>13}{'p50 ms':>7}{'p99 ms':>7}{'(range)':>12}{'CPU µs':>7}")
    for share, ways in report.items():
        print(share)
        for name, runs in ways.items():
            rate, p50, p99 = ([getattr(run, name) for run in runs] for name in ("samples_per_s", "p50_ms", "p99_ms"))
            print(
                f"{name:<24}{statistics.median(rate):>10,.0f}{f'{min(rate):,.0f}–{max(rate):,.0f}':>13}"
                f"{statistics.median(p50):>7,.0f}{statistics.median(p99):>7,.0f}{f'{min(p99):,.0f}–{max(p99):,.0f}':>12}"
                f"{statistics.median(run.cpu_us for run in runs):>7,.0f}"
            )


if __name__ == "__main__":
    main()
