"""The conformance checks and the fuzzer's findings by name, from which a task may be exempt."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_sdk.errors import UserError, unknown_name

TOOL_CHECKS: Mapping[str, str] = {
    "schema": "every tool, and every parameter of one, has a description, and takes what its schema allows",
    "hang": "calls of golds, and others made from the schemas, end in time",
    "crash": "such calls, and `reset()`, raise nothing but `ToolError`",
    "oversized": "the results of such calls are short enough to be read whole",
    "arguments": "hostile arguments get a result: huge, deep, empty, negative, of wrong types, paths, shell commands",
    "repeat": "the same calls in another process give the same results and score",
    "state": "an episode's calls give the same results and score when other episodes run beside it",
    "pay": "calls that are not the gold's do not earn what the gold earns",
}
"""Name of each check of a task with tools -> what it proves."""

CHECKS: Mapping[str, str] = {
    "gold": "every gold earns the highest value and is solved",
    "junk": "no answer, and answers without sense, are not solved and earn no more than form pays",
    "bounds": "no completion earns more than the rewards and the composer declare",
    "range": "every reward that can be earned reaches its declared maximum on a gold",
    "ladder": "the more an answer is damaged, the less it earns",
    "group": "group rewards give a number to each of several valid completions of a prompt",
    "hostile": "very long, deep, unclosed and undecodable text gets a score in time",
    "latency": "a completion is scored in half of its time limit",
    "determinism": "rows, prompts and scores are the same in processes with different hash seeds",
    "imports": "loading and scoring import no torch",
    "rows": "rows and prompts survive JSON, pickle and parquet",
    "split": "train, validation and test have no problem in common",
    "leak": "the prompt does not contain the answer",
    "feedback": "what the validator and `respond` say does not contain the answer",
    "demos": "demos are scored, and earn more than no answer",
    "perfect": "the perfect player of a game gets its value whatever the other player does",
    **TOOL_CHECKS,
}
"""Name of each check -> what it proves."""

FINDINGS: Mapping[str, str] = {
    "nothing": "a completion without any answer is solved",
    "constant": "one completion solves more than half of the rows, and more than the most frequent answer does",
    "copy": "the same part of every prompt solves more than half of the rows, and more than the most frequent answer",
    "several": "a completion that states two answers is solved on the rows of both, which refuse each other's gold",
    "changed": "a gold whose answer was changed to another one is solved",
    "partial": "a part of the gold, or an answer that shares a part with it, is solved on more than half of the rows",
    "tampering": "a program that solves nothing passes",
    "evaluated": "text of a completion is run as Python",
    "slow": "scoring takes longer than the task's limit",
    "crash": "the task's code raises an exception",
    "calls": "calls that are not the gold's, and no answer in words, are solved on more than half of the rows",
    "overpaid": "an episode with tools earns more than the gold",
    "unearned": "completions that are not solved earn at least half of what golds earn",
}
"""Kind of finding of the fuzzer, exempt as `fuzz.KIND` -> what it says."""

EXEMPTIONS = (*CHECKS, *(f"fuzz.{kind}" for kind in FINDINGS))


def check_exemptions(task: str, exempt: Mapping[str, str]) -> None:
    """Refuse exemptions from checks and findings that do not exist, and those without a reason.

    Args:
        task: Name of the task, for messages.
        exempt: Name of a check, or `fuzz.` and a kind of finding -> why the task does not hold it.

    Raises:
        UserError: see above.
    """
    if not isinstance(exempt, Mapping):
        raise UserError(
            f"task {task!r}: exempt is a {type(exempt).__name__}; write each check with its reason: "
            'exempt={"leak": "the prompt names all possible answers"}.'
        )
    for name, reason in exempt.items():
        if name not in EXEMPTIONS:
            raise unknown_name(f"conformance check for exempt= of task {task!r}:", name, EXEMPTIONS)
        if not isinstance(reason, str) or not reason.strip():
            raise UserError(f"task {task!r}: exempt[{name!r}] needs its reason in words, which `grpo check` prints.")
