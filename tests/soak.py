"""What a long run leaves behind: `python tests/soak.py COUNT` runs so many programs, and prints it as JSON.

The descriptors, processes, mounts and resident memory of this process and all that it started are taken before the
first item, after a tenth of them, at the end, and once everything is closed.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from grpo_tasks_code.sandbox import Sandbox

CORPUS = Path(__file__).parents[1] / "packages/grpo-tasks-code/tests/sandbox_corpus"
SETTLE_S = 20.0
"""How long processes that were killed may take to be gone, and a spare to come."""
BATCH = 100
"""Items that are there at once."""


@dataclass(frozen=True)
class State:
    """What this process holds, with what it started.

    Attributes:
        descriptors: Open ones of this process.
        processes: Those that it started, and what these started.
        mounts: In its namespace.
        rss_mib: Resident memory of all.
    """

    descriptors: int
    processes: int
    mounts: int
    rss_mib: float

    @classmethod
    def now(cls) -> State:
        me = psutil.Process()
        started, rss = me.children(recursive=True), me.memory_info().rss
        for process in started:
            with suppress(psutil.NoSuchProcess):
                rss += process.memory_info().rss
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").count("\n")
        return cls(me.num_fds(), len(started), mounts, rss / (1 << 20))


def settled() -> State:
    """The state once nothing comes or goes any more."""
    give_up, state, since = time.monotonic() + SETTLE_S, State.now(), time.monotonic()
    while time.monotonic() < give_up and time.monotonic() - since < 2.0:
        time.sleep(0.1)
        now = State.now()
        if (now.processes, now.descriptors) != (state.processes, state.descriptors):
            since = time.monotonic()
        state = now
    return state


def main(count: int) -> None:
    """Run programs of the corpus, a batch at a time as training does, and print the states.

    There are nine ordinary ones for one attack, and some of each against tests.
    """
    corpus: dict[str, Any] = runpy.run_path(str(CORPUS / "run.py"))
    corpus["isolate"]()  # from here on an attack that succeeds harms nobody
    ordinary = list(corpus["load"]("programs").values())
    attacks = list(corpus["load"]("attacks_files", "attacks_processes", "attacks_kernel", "attacks_resources").values())
    hacks = [entry for entry in corpus["load"]("hacks").values() if "tests" not in entry]
    states, workers = {"first": State.now()}, os.cpu_count() or 1
    outcomes: Counter[str] = Counter()
    sandbox = Sandbox(workers=workers)

    def run(index: int) -> str:
        choice = random.Random(index)
        if choice.random() < 0.05:
            entry = choice.choice(hacks)
            result = sandbox.run_tests(entry["code"], corpus["ANSWER_TESTS"], 0.6, setup=entry.get("setup", ""))
            is_broken, status, why = "sandbox_error" in result.statuses, result.execution.status, result.reasons
        else:
            entry = choice.choice(attacks if choice.random() < 0.1 else ordinary)
            timeout_s = 0.3 if "while True" in entry["code"] else 10.0
            execution = sandbox.run(entry["code"], entry.get("stdin", ""), timeout_s, memory_mib=256)
            is_broken, status, why = execution.status == "sandbox_error", execution.status, execution.stderr
        if is_broken:
            print(f"{index}: {why!r} of {entry['code']!r:.200}", file=sys.stderr)
        return "sandbox_error" if is_broken else status

    for begin in range(0, count, BATCH):
        with ThreadPoolExecutor(workers) as threads:
            outcomes.update(threads.map(run, range(begin, min(begin + BATCH, count))))
            # A server that was lost is replaced when it is needed: need them all, so that states can be compared.
            list(threads.map(lambda _: sandbox.run("import time; time.sleep(0.2)"), range(workers)))
            list(threads.map(lambda _: sandbox.run_tests(SLOW, corpus["ANSWER_TESTS"][:1]), range(workers)))
        if "early" not in states and begin + BATCH >= count // 10:
            states["early"] = settled()
    states["late"] = settled()
    sandbox.close()
    states["closed"] = settled()
    print(json.dumps({"outcomes": outcomes, **{name: asdict(state) for name, state in states.items()}}))


SLOW = "import time\ndef answer(n):\n    time.sleep(0.2)\n    return 2 * n + 1"


if __name__ == "__main__":
    main(int(sys.argv[1]))
