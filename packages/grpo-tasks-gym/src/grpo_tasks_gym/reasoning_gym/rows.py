"""Rows of a data set: its entries in the order of their seeds, each in the split that its question hashes to."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Generator
from itertools import count
from typing import Any, BinaryIO

import numpy
import orjson
from pydantic import JsonValue

from grpo_sdk import Row, UserError
from grpo_sdk.data import DataError, ExhaustedError, split_of, stable_id
from grpo_tasks_gym.reasoning_gym.catalogue import datasets
from grpo_tasks_gym.reasoning_gym.entries import encode
from grpo_tasks_gym.reasoning_gym.options import CompositeOptions, GymConfig, config_class
from grpo_tasks_gym.reasoning_gym.sources import build, prints_nothing

CHUNK = 500
"""Entries of one instance of a data set; the next instance goes on where it ends."""

MAX_ATTEMPTS = 2_000
"""Entries tried for one row before its level counts as exhausted; a split holds a tenth of them at least."""


class GymRow(Row):
    """One entry of a data set.

    Attributes:
        question: Text of the question.
        answer: Its answer, where reasoning-gym states one.
        metadata: What its scorer needs, as `entries.encode` writes it.
        level: Level of the curriculum; None is the default configuration.
    """

    question: str
    answer: str | None
    metadata: JsonValue
    level: int | None = None


def load_rows(config: GymConfig) -> Generator[GymRow]:
    """Distinct entries of the split, from the levels in turn."""
    levels = config.level_range()
    streams = {level: _entries(config, level) for level in levels}
    seen: set[str] = set()
    try:
        for index in count():
            level = levels[index % len(levels)]
            if level not in streams:
                continue
            for _, entry in zip(range(MAX_ATTEMPTS), streams[level], strict=False):
                question = entry["question"]
                if question not in seen and split_of(question) == config.split:
                    seen.add(question)
                    yield _row(entry, config, level)
                    break
            else:
                streams.pop(level).close()
                if not streams:
                    hint = f", and size is {config.size}. Give a smaller one: ?size={len(seen)}" if config.size else ""
                    raise ExhaustedError(
                        f"only {len(seen)} distinct rows of split {config.split!r} exist{hint}.", len(seen)
                    )
    finally:
        for stream in streams.values():
            stream.close()


def _row(entry: dict[str, Any], config: GymConfig, level: int | None) -> GymRow:
    answer = entry["answer"]
    gold = None
    if answer is not None:
        gold = f"<answer>{answer}</answer>" if config.template == "tags" else f" {answer}"
    return GymRow(
        id=stable_id(entry["question"]),
        gold=gold,
        difficulty=None if level is None else float(level),
        question=entry["question"],
        answer=answer,
        metadata=entry["metadata"],
        level=level,
    )


def _entries(config: GymConfig, level: int | None) -> Generator[dict[str, Any]]:
    """Entries with encoded metadata, without end; close it."""
    seed = int.from_bytes(hashlib.blake2b(f"{config.seed}/{level}".encode(), digest_size=4).digest(), "big")
    if _needs_process(config):
        return _from_process(config, level, seed)
    return _generated(config, level, seed)


def _generated(
    config: GymConfig, level: int | None, seed: int, *, seeds_process: bool = False
) -> Generator[dict[str, Any]]:
    for first in count(seed, CHUNK):
        with prints_nothing():
            dataset = build(config, level, seed=first % 2**32)
        for index in range(CHUNK):
            if seeds_process:
                random.seed(first + index)
                numpy.random.seed((first + index) % 2**32)
            with prints_nothing():
                entry = dataset[index]
            answer = entry["answer"]
            yield {
                "question": str(entry["question"]),
                "answer": answer if answer is None else str(answer),
                "metadata": encode(entry["metadata"]),
            }


def _needs_process(config: GymConfig) -> bool:
    known = datasets()
    if config.dataset == "composite" and config.path is not None:
        return True  # the file may name any of them
    names = config.weights() if isinstance(config, CompositeOptions) else (config.dataset,)
    return any(known[name].needs_process for name in names)


def _from_process(config: GymConfig, level: int | None, seed: int) -> Generator[dict[str, Any]]:
    """The entries of a data set from a process with a fixed PYTHONHASHSEED and random numbers seeded for each entry.

    `-P` keeps modules of the working directory out of it.
    """
    job = {"dataset": config.dataset, "options": config.model_dump(exclude_unset=True), "level": level, "seed": seed}
    process = subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", "grpo_tasks_gym.reasoning_gym.rows"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(orjson.dumps(job))
            process.stdin.close()
            for line in process.stdout:
                entry = orjson.loads(line)
                if "error" in entry:
                    raise DataError(entry["error"])
                yield entry
            raise DataError(f"reasoning_gym.{config.dataset}: the process that generates entries ended.")
        finally:
            process.kill()


def results_only() -> BinaryIO:
    """The process's stdout; what data sets print goes to stderr from here on."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def main() -> None:
    """Print entries as JSON lines until the reader goes away; the job is on stdin."""
    output = results_only()
    job = orjson.loads(sys.stdin.buffer.read())
    config = config_class(job["dataset"]).model_validate(job["options"])
    try:
        for entry in _generated(config, job["level"], job["seed"], seeds_process=True):
            output.write(orjson.dumps(entry) + b"\n")
            output.flush()
    except UserError as error:
        output.write(orjson.dumps({"error": str(error)}) + b"\n")
        output.flush()
    except BrokenPipeError:
        os._exit(0)  # closing the file would raise again


if __name__ == "__main__":
    main()
