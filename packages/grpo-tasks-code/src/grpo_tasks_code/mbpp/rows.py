"""Reads MBPP, full or sanitized, from the hub, from one file per split, or from one file split by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from grpo_sdk import Row
from grpo_sdk.data import DatasetConfig, read_rows, split_of, stable_id
from grpo_tasks_code.extraction import MAX_PROGRAM_CHARS, block_of
from grpo_tasks_code.sandbox import check_tests

Variant = Literal["sanitized", "full"]

HUB = "google-research-datasets/mbpp"

PROMPT_IDS = range(1, 11)
"""Problems that the paper (arXiv 2108.07732) reserves for few-shot prompts; they are in no split."""

_SPLITS: Mapping[Literal["train", "validation", "test"], range] = {
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}

MAX_TESTS = 100
MAX_TEST_CHARS = 20_000
"""Bounds on one problem of a file; MBPP's problems are far smaller."""


class MBPPRow(Row):
    """One problem; its difficulty is the number of lines of the reference solution.

    Attributes:
        task_id: Number of the problem, which decides its split where all problems are in one file.
        text: Description of the function.
        tests: `assert …` statements; the prompt shows the first.
        setup: Statements that run before the tests.
        challenge_tests: Harder tests, which few problems have.
    """

    task_id: int
    text: str
    tests: tuple[str, ...]
    setup: str = ""
    challenge_tests: tuple[str, ...] = ()


def read_problems(config: DatasetConfig, variant: Variant) -> Iterator[MBPPRow]:
    """Yield the problems of the configured split in an order that depends on the seed, so the first n are a sample.

    Args:
        config: Path, split, seed and field mapping.
        variant: Variant of the hub's dataset; ignored for a local file.

    Raises:
        DataError: no file, no network, or a record that does not fit.
    """
    if _has_splits(config):
        rows = list(_read(config, variant))
    else:
        rows = [row for row in _whole_file(config, variant) if _split_of(row.task_id) == config.split]
    yield from sorted(rows, key=lambda row: stable_id(f"mbpp/{config.seed}/{row.task_id}"))


def read_prompt_problems(config: DatasetConfig, variant: Variant) -> list[MBPPRow]:
    """Return the problems reserved for few-shot prompts, by number: the split `prompt`, or 1 to 10 of one file.

    Raises:
        DataError: as in `read_problems`.
    """
    if _has_splits(config):
        rows = list(_read(config.model_copy(update={"split": "prompt"}), variant))
    else:
        rows = [row for row in _whole_file(config, variant) if row.task_id in PROMPT_IDS]
    return sorted(rows, key=lambda row: row.task_id)


def _has_splits(config: DatasetConfig) -> bool:
    """Return whether the source itself defines the splits: the hub, or one file per split."""
    return config.path is None or config.path.startswith("hub:") or "{split}" in config.path


def _whole_file(config: DatasetConfig, variant: Variant) -> Iterator[MBPPRow]:
    # `read_rows` would split the file by a hash, and together the three splits are the file.
    for part in _SPLITS:
        yield from _read(config.model_copy(update={"split": part}), variant)


def _read(config: DatasetConfig, variant: Variant) -> Iterator[MBPPRow]:
    return read_rows(config, _row, needs=("task_id", "code", "test_list"), hub=f"{HUB}/{variant}")


def _split_of(task_id: int) -> str | None:
    """Return the published split of a number; other numbers are split by hash."""
    if task_id in PROMPT_IDS:
        return None
    return next((split for split, numbers in _SPLITS.items() if task_id in numbers), split_of(str(task_id)))


def _row(record: Mapping[str, Any]) -> MBPPRow:
    if "text" not in record and "prompt" not in record:
        raise ValueError("no field 'text' (full) or 'prompt' (sanitized). Say where it is with ?fields=text:COLUMN")
    code = _text(record, "code")
    imports = _lines(record, "test_imports")
    setup = "\n".join([*imports, _text(record, "test_setup_code")] if record.get("test_setup_code") else imports)
    tests = _lines(record, "test_list")
    if not tests:
        raise ValueError("test_list: no tests")
    if len(code) > MAX_PROGRAM_CHARS:
        raise ValueError(f"code: more than {MAX_PROGRAM_CHARS} characters")
    challenge_tests = _lines(record, "challenge_test_list")
    check_tests(tests + challenge_tests, setup=setup)
    task_id = int(record["task_id"])
    return MBPPRow(
        id=str(task_id),
        task_id=task_id,
        text=_text(record, "text" if "text" in record else "prompt"),
        tests=tests,
        setup=setup,
        challenge_tests=challenge_tests,
        gold=block_of(code),
        difficulty=float(sum(bool(line.strip()) for line in code.splitlines())),
    )


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        raise ValueError(f"{field}: a {type(value).__name__} where text is wanted")
    return value.replace("\r\n", "\n").strip("\n").rstrip()


def _lines(record: Mapping[str, Any], field: str) -> tuple[str, ...]:
    values = record.get(field) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{field}: a list of texts is wanted")
    if len(values) > MAX_TESTS or any(len(value) > MAX_TEST_CHARS for value in values):
        raise ValueError(f"{field}: at most {MAX_TESTS} texts of {MAX_TEST_CHARS} characters")
    return tuple(value.replace("\r\n", "\n").strip() for value in values)
