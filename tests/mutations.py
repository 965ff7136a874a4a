"""Whether the tests notice bugs: `python tests/mutations.py` breaks one line at a time and runs the tests of its room.

It works in a copy of the checkout with its uncommitted changes. The tests are those that CI runs, so a bug that only a
`slow` test notices is not caught. What catches a bug must pass without it. The bugs are in mutations.toml.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
RUN_S = 900.0
"""Limit of one run of tests; a test that hangs fails by its own limit before, which is a catch."""


@dataclass(frozen=True)
class Mutation:
    """A bug of one line.

    Attributes:
        room: Part of the project.
        bug: What is wrong.
        file: File with the line, from the root.
        tests: File or folder of tests, from the root.
        line: Line as it is, without indentation; once in the file.
        broken: Line in its place.
    """

    room: str
    bug: str
    file: str
    tests: str
    line: str
    broken: str

    def __str__(self) -> str:
        return f"{self.room}: {self.bug}"

    def applied(self, source: str) -> str | None:
        """The source with the bug; None where the line is not in it once."""
        lines = source.splitlines(keepends=True)
        places = [index for index, line in enumerate(lines) if line.strip() == self.line]
        if len(places) != 1:
            return None
        lines[places[0]] = lines[places[0]].replace(self.line, self.broken)
        return "".join(lines)


MUTATIONS = tuple(Mutation(**each) for each in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"])


@dataclass(frozen=True)
class Result:
    """What became of a mutation.

    Attributes:
        mutation: The mutation.
        caught_by: Test that failed; empty for none.
        problem: Why no test failed, where that has a reason.
        seconds: Time of the run.
    """

    mutation: Mutation
    caught_by: str
    problem: str
    seconds: float

    def __str__(self) -> str:
        if self.caught_by:
            return f"caught by {self.caught_by} in {self.seconds:.0f} s"
        return self.problem or f"NOT CAUGHT by {self.mutation.tests} in {self.seconds:.0f} s"


class Copy:
    """A copy of a checkout, in which tests and all processes that they start import the copied packages.

    Args:
        root: The checkout.
        folder: An empty folder.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self._cache, self._log = folder / "checkout", folder / "cache", folder / "pytest.log"
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (root / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.root / name)
        sources = [str(source) for source in sorted(self.root.glob("packages/*/src"))]
        # What is remembered of plugins is another checkout's, and options of the caller are not those of CI.
        kept = {name: value for name, value in os.environ.items() if name not in ("GRPO_CACHE_DIR", "PYTEST_ADDOPTS")}
        path = os.pathsep.join([*sources, *filter(None, [kept.get("PYTHONPATH")])])
        # Bytecode of a file counts as new if it has the file's size and second, as after a bug of one character.
        self._environment = kept | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def failures(self, tests: Sequence[str], *options: str, limit_s: float = RUN_S) -> tuple[list[str], str]:
        """Run tests.

        Returns:
            The tests that failed, and what kept pytest from deciding; empty for nothing.
        """
        shutil.rmtree(self._cache, ignore_errors=True)
        command = (sys.executable, "-P", "-m", "pytest", "-q", "-n", "0", "-o", f"cache_dir={self._cache}", *options)
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*command, *tests], cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return [], f"NOT CAUGHT: the tests do not end within {limit_s:g} s"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if code not in (0, 1):
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            errors = [line for line in lines if line.startswith(("E  ", "ERROR"))] or lines[-1:]
            return [], f"NOT CAUGHT: pytest ends with {code}: {' '.join(errors[:1])}"
        failed = self._cache / "v" / "cache" / "lastfailed"
        return list(json.loads(failed.read_text(encoding="utf-8"))) if code else [], ""

    def run(self, mutation: Mutation, limit_s: float = RUN_S) -> Result:
        """Break a line, run its tests until the first failure, and repair the line."""
        path = self.root / mutation.file
        source, status = (path.read_text(encoding="utf-8"), path.stat()) if path.is_file() else ("", None)
        broken = mutation.applied(source)
        if status is None or broken is None:
            return Result(mutation, "", f"no longer applies: {mutation.file} has not the line once", 0.0)
        start = time.monotonic()
        try:
            path.write_text(broken, encoding="utf-8")
            failed, problem = self.failures([mutation.tests], "-x", limit_s=limit_s)
        finally:
            path.write_text(source, encoding="utf-8")
            # With its time: the bytecode of the broken one has another.
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return Result(mutation, failed[0] if failed else "", problem, time.monotonic() - start)


def run_all(
    root: Path, mutations: Collection[Mutation], say: Callable[[str], None], limit_s: float = RUN_S
) -> Iterator[Result]:
    """Run mutations one after the other in a copy of a checkout, and say what became of each."""
    with tempfile.TemporaryDirectory(prefix="grpo-mutations-") as folder:
        copy, results = Copy(root, Path(folder)), []
        for number, mutation in enumerate(mutations, 1):
            say(f"{number:2}/{len(mutations)} {mutation} … ")
            results.append(copy.run(mutation, limit_s))
            say(f"{results[-1]}\n")
        caught = list(dict.fromkeys(result.caught_by for result in results if result.caught_by))
        failed: list[str] = []
        problem = ""
        if caught:
            say("the same tests without the bugs … ")
            failed, problem = copy.failures(caught, limit_s=limit_s)
            say(f"{problem or f'{len(failed)} of {len(caught)} fail'}\n")
        for result in results:
            if result.caught_by and (problem or result.caught_by in failed):
                why = problem or f"NOT CAUGHT: {result.caught_by} fails without the bug"
                result = replace(result, caught_by="", problem=why)
                say(f"{result.mutation} … {result}\n")
            yield result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a bug was not caught or a line has changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="a room, or a part of a name")
    only = parser.parse_args(arguments).only
    chosen = [each for each in MUTATIONS if only in str(each)]
    if not chosen:
        rooms = ", ".join(dict.fromkeys(each.room for each in MUTATIONS))
        parser.error(f"no mutation has {only!r} in its name. Rooms: {rooms}.")
    results = list(run_all(ROOT, chosen, lambda text: print(text, end="", flush=True)))
    caught = sum(bool(each.caught_by) for each in results)
    print(f"{caught} of {len(results)} caught")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the tests end, too
    sys.exit(main())
