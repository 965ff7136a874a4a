"""Tests of one program: its process answers questions, this process compares, and a judge decides the rest."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, get_args

from grpo_tasks_code.sandbox.arguments import Limits
from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host.job import Job
from grpo_tasks_code.sandbox.host.plan import Judged, Pair, Plan
from grpo_tasks_code.sandbox.host.pool import ServerPool
from grpo_tasks_code.sandbox.host.process import ServerProcess
from grpo_tasks_code.sandbox.inside import wire
from grpo_tasks_code.sandbox.inside.values import UNEQUAL, decode, difference
from grpo_tasks_code.sandbox.results import Execution, TestResult, TestStatus, readable

_NONCE_BITS = 62
"""Bits of a question's number, which a program cannot foresee: what it wrote before is no answer."""

Answer = list[Any]
"""["value", values], ["raised", classes, text, attributes], ["callback", number, values, keywords], or a verdict:
[status, reason]; see `inside.answering`."""


class Candidate:
    """Asks a program one question at a time, and accepts exactly one answer to each.

    Args:
        job: Run of the program, in mode CANDIDATE.

    Attributes:
        fault: Why the set-up failed, before the program ran; empty if it did not.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fault = ""
        self._execution: Execution | None = None

    def load(self, before: str, classes: Sequence[str]) -> bool:
        """Run the set-up that the program may see, then the program; return whether it can answer questions."""
        self.job.send(["begin", before, list(classes)])
        match self.job.receive():
            case ["prepared"]:
                if self.job.receive() == ["ready"]:
                    return True
            case ["failed", str(reason)]:
                self.fault = reason
        self.end()
        return False

    def ask(self, kind: str, *details: Any) -> Answer:
        """Ask a question of one of the kinds in `inside.answering`."""
        if self._execution is not None:
            return list(verdict_without_answer(self._execution))
        number = secrets.randbits(_NONCE_BITS)
        self.job.send([kind, number, *details])
        reply = self.job.receive()
        match reply:
            case [int(answered), *answer] if answered == number and _is_answer(answer):
                return answer
        if reply is not None:  # the program itself writes to the channel, out of step
            self.job.kill("runtime_error")
        return list(verdict_without_answer(self.end()))

    def end(self) -> Execution:
        """Wait for the program to end, and return its execution."""
        if self._execution is None:
            self._execution = self.job.finish()
        return self._execution


def _is_answer(answer: Answer) -> bool:
    match answer:
        case ["value", [list(), list()]]:
            return True
        case ["raised", list(texts), str(), [list(), list()]] | ["callback", int(), [list(), list()], list(texts)]:
            return all(isinstance(text, str) for text in texts)
    return False


def verdict_without_answer(execution: Execution) -> tuple[TestStatus, str]:
    """Return the status of a test whose program ended before it answered."""
    if execution.status == "ok":
        return "failed", "the program ended before it answered"
    return execution.status, execution.last_line or f"the program ended with {execution.status}"


JUDGE = Limits(timeout_s=10.0, memory_mib=1024, output_bytes=1 << 16)
"""Limits of a judge per test, without the program's own time: a thousand times what an honest test takes."""

MAX_JUDGING_S = 60.0
"""Processor seconds of a judge for up to 600 tests: the program's answers decide how long each takes."""

_SIZE_FACTOR, _SIZE_MARGIN = 8, 4096
"""A value that equals the expected one has an encoding of about its size (1, 1.0 and True are equal). A much longer one
differs, and is not decoded: a set of crafted numbers can take hours to build."""
MAX_REASON_CHARS = 300
"""Length of the reason why a test did not pass."""
MAX_ATTEMPTS = 3
"""Attempts with servers that end before the program starts, and with judges that a test ends."""

Verdict = tuple[TestStatus, str]


def judging_s(tests: int) -> float:
    """Return the processor seconds of a judge for this many tests, less than the sum of their limits."""
    return min(JUDGE.timeout_s * tests, max(MAX_JUDGING_S, MAX_JUDGING_S / 600 * tests))


class Examination:
    """Runs the tests of one program.

    Args:
        plan: Plan of the tests.
        servers: Servers for the program.
        judges: Other servers, for judges: a program that waits for its judge must not keep it from starting.
    """

    def __init__(self, plan: Plan, servers: ServerPool, judges: ServerPool) -> None:
        self._plan, self._servers, self._judges = plan, servers, judges
        self._verdicts: dict[int, Verdict] = {}

    def run(self, program: bytes, limits: Limits) -> TestResult:
        """Run the program and decide every test.

        Raises:
            ServerError: no server started the program, which has no verdict.
        """
        with self._servers.server() as server:
            candidate = Candidate(Job(server, program, b"", limits, mode=wire.CANDIDATE))
            if candidate.load(self._plan.before, self._plan.shared):
                self._decide(candidate)
            execution = candidate.end()
            candidate.job.check_server()
        without = verdict_without_answer(execution)
        if candidate.fault:
            without = "sandbox_error", f"the set-up failed: {candidate.fault}"
        return result_of([self._verdicts.get(index, without) for index in range(len(self._plan.tests))], execution)

    def _decide(self, candidate: Candidate) -> None:
        judged: list[tuple[int, Judged]] = []
        for index, way in enumerate(self._plan.tests):
            if isinstance(way, Judged):
                judged.append((index, way))
            else:
                self._verdicts[index] = _compare(candidate, way)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if not judged:
                break
            rest: Verdict = "failed", "what the program answers ended one judge after another"
            try:
                with self._judges.server() as server:
                    self._judge(candidate, server, judged)
            except ServerError as error:
                rest = "sandbox_error", str(error)
            judged = [item for item in judged if item[0] not in self._verdicts]
            if attempt == MAX_ATTEMPTS:
                self._verdicts.update(dict.fromkeys([index for index, _ in judged], rest))

    def _judge(self, candidate: Candidate, server: ServerProcess, tests: Sequence[tuple[int, Judged]]) -> None:
        """Have a judge decide the tests: all, or up to one that ends the judge.

        Raises:
            ServerError: the server ended before it started the judge.
        """
        judge = Job(server, b"", b"", JUDGE, mode=wire.JUDGE, most_cpu_s=judging_s(len(tests)))
        plan = self._plan
        names = [list(group) for group in (plan.names, plan.classes, plan.objects, plan.exceptions, plan.shared)]
        sources = [[index, way.source, way.before, list(way.shared)] for index, way in tests]
        judge.send(["begin", plan.setup, *names, sources])
        classes = {index: way for index, way in tests if way.shared}
        current: int | None = None
        while (message := judge.receive()) is not None:
            match message:
                case ["test", int(index)]:
                    current = index
                    if index in classes:
                        candidate.ask("define", classes[index].before, list(classes[index].shared))
                    judge.renew_clock()
                    judge.send(["go"])
                case ["ask", [str(kind), *details]]:
                    judge.send(candidate.ask(kind, *details))
                case ["verdict", status, str(reason)] if current is not None and status in get_args(TestStatus):
                    self._verdicts[current] = status, reason[:MAX_REASON_CHARS]
                    judge.send(["go"])
        execution = judge.finish()
        judge.check_server()
        undecided = [index for index, _ in tests if index not in self._verdicts]
        if current in undecided and execution.status != "sandbox_error":
            # The program's answer ended the judge, or a bug of the test did: the program must not gain from it.
            self._verdicts[current] = "failed", f"the test ended with {execution.status}"
        else:
            why = f"the judge failed: {execution.last_line or execution.status}"
            self._verdicts.update(dict.fromkeys(undecided, ("sandbox_error", why)))


def _compare(candidate: Candidate, pairs: Sequence[Pair]) -> Verdict:
    """Decide whether every call returns the expected value."""
    for pair in pairs:
        match candidate.ask("call", ["name", pair.function], pair.arguments, list(pair.keywords)):
            case ["value", [[["reference", ["object", _, str(its_type)]], *_], _]]:
                return "failed", f"{pair.question} is a {its_type}, not plain data"
            case ["value", [[value, *_], _]]:
                try:
                    text = json.dumps(value)
                    # An array is no literal, and its comparison could take all memory.
                    is_short = len(text) <= _SIZE_FACTOR * pair.size + _SIZE_MARGIN and '["numpy", ' not in text
                    reason = "is too long" if not is_short else difference(decode(value), pair.expected)
                except Exception:  # whatever reading or comparing foreign data raises, as Decimal("sNaN") does
                    reason = UNEQUAL
                if reason:
                    return "failed", f"{pair.question} {reason}"
            case ["raised", classes, text, _]:
                return "failed", f"{pair.question} raises {classes[0] if classes else 'something'}: {text}"
            case [status, str(reason)]:
                return status, reason[:MAX_REASON_CHARS]
            case _:
                return "failed", f"{pair.question} has no answer"
    return "passed", ""


def result_of(verdicts: Sequence[Verdict], execution: Execution) -> TestResult:
    """Build the result from the verdicts."""
    statuses = [status for status, _ in verdicts]
    per_test = [status == "passed" for status in statuses]
    reasons = [readable(reason[:MAX_REASON_CHARS])[:MAX_REASON_CHARS] for _, reason in verdicts]
    return TestResult(sum(per_test), len(per_test), per_test, statuses, reasons, execution.level, execution)


def undecided(tests: int, execution: Execution) -> TestResult:
    """Build the result of a program that was not asked anything."""
    return result_of([verdict_without_answer(execution)] * tests, execution)
