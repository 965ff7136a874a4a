"""Every built-in task holds the conformance checks, or says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_core import load_task
from grpo_core.cli.main import main
from grpo_core.plugins.host import default_host
from grpo_core.testing.table import check_task

# Written for this test, in the datasets' forms; each file holds the rows of one split.
SUBJECTS = ("pins", "nails", "screws", "bolts", "rivets", "hooks")
RECORDS = {
    "math.gsm8k": [
        {
            "question": f"Mia has {n} {what}, and buys {n + 3} more. How many has she?",
            "answer": f"She has {n}+{n + 3}=<<{n}+{n + 3}={2 * n + 3}>>{2 * n + 3} {what}.\n#### {2 * n + 3}",
        }
        for n, what in enumerate(SUBJECTS, 40)
    ],
    "math.competition": [
        {
            "problem": f"How many elements has the product of sets with ${n}$ and $17$ elements?",
            "solution": f"It has ${n} \\cdot 17 = \\boxed{{{17 * n}}}$.",
            "level": "Level 2",
            "type": "Counting & Probability",
        }
        for n in range(31, 37)
    ],
    "code.mbpp": [
        {
            "text": f"Write a function to multiply a number by {n}.",
            "code": f"def multiply(number):\n    return {n} * number",
            "task_id": 600 + n,
            "test_list": [f"assert multiply(2) == {2 * n}", f"assert multiply(-7) == {-7 * n}"],
        }
        for n in range(2, 6)
    ],
    "code.humaneval": [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def multiply(number):\n    """Multiply a number by {n + 2}."""\n',
            "canonical_solution": f"    return {n + 2} * number\n",
            "test": f"def check(candidate):\n    assert candidate(2) == {2 * n + 4}\n",
            "entry_point": "multiply",
        }
        for n in range(4)
    ],
    "chess.puzzle": [
        {
            "PuzzleId": "fools",
            "FEN": "rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2",
            "Moves": "g2g4 d8h4",
            "Rating": "600",
            "Themes": "mate mateIn1 oneMove short",
        },
        {
            "PuzzleId": "ladder",
            "FEN": "k7/8/1R6/2R5/8/8/8/K7 b - - 0 1",
            "Moves": "a8a7 b6h6 a7b7 c5g5 b7c7 g5g7 c7d8 h6h8",
            "Rating": "1200",
            "Themes": "mate endgame",
        },
    ],
    "core.qa": [
        {"question": f"What is the capital of {country}?", "answer": capital}
        for country, capital in (("France", "Paris"), ("Japan", "Tokyo"), ("Peru", "Lima"), ("Kenya", "Nairobi"))
    ],
}
RECORDS["code.mbpp_retry"] = RECORDS["code.mbpp"]

OPTIONS = {"code.humaneval": {"split": "test"}}


@pytest.fixture
def our_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves out the plugin whose scorers are reasoning-gym's."""
    monkeypatch.setenv("GRPO_PLUGINS", "chess,code,games,math")
    default_host.cache_clear()
    yield
    default_host.cache_clear()


# 20 tasks, each with scoring processes of its own.
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("our_tasks")
def test_golds_and_junk_of_every_task_that_has_rows_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.testing.subject.LOADED_ROWS", 8)  # two are scored, and chess makes its rows
    code = main(["check", "all", "--rows", "2", "-k", "gold,junk", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, [task for task in report["tasks"] if task["failed"]]
    assert len([task for task in report["tasks"] if not task["unavailable"]]) >= 18
    assert {task["task"] for task in report["tasks"] if task["unavailable"]} <= set(RECORDS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("our_tasks")
def test_every_task_that_has_rows_here_holds_all_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "all", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, [result for task in report["tasks"] for result in task["results"] if result["status"] == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDS)
def test_tasks_of_datasets_hold_all_checks(name: str, tmp_path: Path) -> None:
    split = OPTIONS.get(name, {}).get("split", "train")
    suffix = "csv" if name == "chess.puzzle" else "jsonl"
    records = RECORDS[name]
    if suffix == "csv":
        lines = [",".join(records[0]), *(",".join(record.values()) for record in records)]
    else:
        lines = [json.dumps(record) for record in records]
    (tmp_path / f"{split}.{suffix}").write_text("\n".join(lines) + "\n")
    task = load_task(name, path=f"{tmp_path}/{{split}}.{suffix}", **OPTIONS.get(name, {}))
    assert not check_task(task).failures
