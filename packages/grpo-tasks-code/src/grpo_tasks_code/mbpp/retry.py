"""The task `code.mbpp_retry`: two attempts, with the failing test shown in between."""

from __future__ import annotations

from dataclasses import replace

from grpo_sdk import Invalid
from grpo_tasks_code.mbpp.rows import MBPPRow
from grpo_tasks_code.mbpp.task import TASK as SINGLE
from grpo_tasks_code.mbpp.task import MBPPConfig, validate

ATTEMPTS = 2
SHOWN_CHARS = 300
"""Characters that are shown of a test and of its failure."""


def respond(text: str, row: MBPPRow, config: MBPPConfig) -> str | None:
    """Return the first failing test as a docstring to continue from; None if all pass.

    Raises:
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    try:
        result = validate(text, row, config)
    except Invalid as invalid:
        return _asked_again(f"{invalid}.")
    if result.passed == result.total:
        return None
    first = list(result.per_test).index(False)
    tests = row.tests + (row.challenge_tests if config.challenge else ())
    return _asked_again(f"This test fails ({_short(result.statuses[first])}):\n{_short(tests[first])}")


def _asked_again(why: str) -> str:
    return f'\n"""\n{why}\nWrite the whole function again.\n"""\n'


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


TASK = replace(SINGLE, name="mbpp_retry", respond=respond, max_turns=ATTEMPTS, evaluation=None)
"""Value: that of `code.mbpp` for the last attempt."""
