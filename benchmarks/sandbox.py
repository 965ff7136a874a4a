"""Programs per second of the sandbox beside fresh interpreters, alternating in one run.

    python benchmarks/sandbox.py [--programs 200] [--rounds 7] [--workers 2] [--levels L3 L2] [--json]

Every contender runs the same program, `workers` at a time: the sandbox at each level; `python -I -S` in a process of
its own, which protects from nothing; and bubblewrap around that, if it is installed. A round gives each of them the
same number of programs, and rounds alternate, because machines are shared: only ratios within one run mean something.
What is printed are medians over the rounds, and percentiles of the time from a call to its result.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from arguments import command_line, count

from grpo_tasks_code.sandbox import Sandbox, SandboxUnavailableError

LEVELS = ("L3", "L2", "L1")
PROGRAM, EXPECTED = "print(sum(range(10)))", "45\n"
PEER = "python -I -S"
WARM_UP = 10  # programs of each before the first round: servers start, caches fill

Run = Callable[[], str]


@dataclass(frozen=True)
class Contender:
    """One contender: programs per second, how many times that of the peer, and milliseconds of a call."""

    name: str
    per_second: float
    ratio: float
    p50_ms: float
    p99_ms: float


def fresh(*prefix: str) -> Run:
    """A new interpreter for each program."""
    command = [*prefix, sys.executable, "-I", "-S", "-c", PROGRAM]
    return lambda: subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def bubblewrap() -> list[str] | None:
    """A command that isolates as L3 does, if it is installed and allowed."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    command = [path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc"]
    return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else None


def sandboxed(sandbox: Sandbox) -> Run:
    """A forked child of a server."""
    return lambda: sandbox.run(PROGRAM).stdout


def timed(run: Run) -> float:
    """Seconds of one program."""
    begin = time.perf_counter()
    if run() != EXPECTED:
        raise SystemExit("a program did not print what it must")
    return time.perf_counter() - begin


def measure(contenders: dict[str, Run], programs: int, rounds: int, workers: int) -> list[Contender]:
    """Alternate, and compare with the peer."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with ThreadPoolExecutor(workers) as threads:
        for run in contenders.values():
            list(threads.map(timed, [run] * WARM_UP))
        for _ in range(rounds):
            for name, run in contenders.items():
                begin = time.perf_counter()
                times[name] += threads.map(timed, [run] * programs)
                rates[name].append(programs / (time.perf_counter() - begin))
    found = []
    for name in contenders:
        cuts = statistics.quantiles(times[name], n=100)
        ratio = statistics.median(own / peer for own, peer in zip(rates[name], rates[PEER], strict=True))
        found.append(Contender(name, statistics.median(rates[name]), ratio, 1e3 * cuts[49], 1e3 * cuts[98]))
    return found


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--programs", type=count, default=200, help="of each contender in each round")
    parser.add_argument("--rounds", type=count, default=7, help="rounds whose median is taken (7)")
    parser.add_argument("--workers", type=count, default=min(2, os.cpu_count() or 1), help="programs at once")
    parser.add_argument(
        "--levels", nargs="+", choices=LEVELS, default=["L3", "L2"], metavar="LEVEL", help=", ".join(LEVELS)
    )
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    arguments = parser.parse_args()
    contenders: dict[str, Run] = {PEER: fresh()}
    sandboxes = []
    for level in arguments.levels:
        sandbox = Sandbox(level, workers=arguments.workers)
        try:
            contenders[f"{level} {sandbox.level.title}"] = sandboxed(sandbox)
            sandboxes.append(sandbox)
        except SandboxUnavailableError as error:
            print(f"{level} is not measured: {error}", file=sys.stderr)
    wrapper = bubblewrap()
    if wrapper is not None:
        contenders["bubblewrap"] = fresh(*wrapper)
    found = measure(contenders, arguments.programs, arguments.rounds, arguments.workers)
    for sandbox in sandboxes:
        sandbox.close()
    if arguments.json:
        print(json.dumps([asdict(each) for each in found]))
        return
    print(f"{arguments.workers} at a time, {arguments.rounds} rounds of {arguments.programs} programs each")
    print(f"{'':<16}{'programs/s':>12}{'ratio':>8}{'p50 ms':>9}{'p99 ms':>9}")
    for each in found:
        print(f"{each.name:<16}{each.per_second:>12.0f}{each.ratio:>8.2f}{each.p50_ms:>9.1f}{each.p99_ms:>9.1f}")


if __name__ == "__main__":
    main()
