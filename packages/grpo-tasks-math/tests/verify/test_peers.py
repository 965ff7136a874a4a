"""The cases of math-verify's own tests (tests/test_all.py, MIT; the notice is in the file), and wrong golds for them.

A case that asks for what is an option here has its options; one where this verifier differs has the reason.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from grpo_tasks_math.verify import Verdict, verify

CASES: list[dict[str, Any]] = json.loads((Path(__file__).with_name("math_verify_cases.json")).read_bytes())["cases"]
PATIENCE_S = 60.0


def are_correct(cases: list[dict[str, Any]], *, with_options: bool) -> list[bool]:
    def is_correct(case: dict[str, Any]) -> bool:
        options = case.get("options", {}) if with_options else {}
        return verify(case["gold"], case["completion"], PATIENCE_S, **options) is Verdict.CORRECT

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(is_correct, cases))


def test_it_agrees_with_their_suite_but_for_options_and_reasons() -> None:
    assert len(CASES) == 186
    verdicts = are_correct(CASES, with_options=True)
    differing = [case for case, is_correct in zip(CASES, verdicts, strict=True) if is_correct != case["is_right"]]
    assert differing == [case for case in CASES if "ours_differs" in case]
    assert len(differing) == 2


def test_what_is_an_option_is_not_the_default() -> None:
    optional = [case for case in CASES if "options" in case]
    assert len(optional) == 6
    assert not any(are_correct(optional, with_options=False))


_NUMBER = re.compile(r"(?<![\w.{])[0-9]+(?![\w.,}%])")


def wrong_golds(gold: str) -> Iterator[str]:
    """The gold with one of its numbers changed; of a solution or a chain of equations not every number counts."""
    if len(gold) > 80 or gold.count("=") > 1 or "boxed" in gold:
        return
    for number in _NUMBER.finditer(gold):
        yield f"{gold[: number.start()]}{int(number[0]) + 1}{gold[number.end() :]}"


def test_no_right_answer_is_right_for_another_gold() -> None:
    wrong = [{**case, "gold": gold} for case in CASES if case["is_right"] for gold in wrong_golds(case["gold"])]
    assert len(wrong) > 100
    verdicts = are_correct(wrong, with_options=True)
    assert [case["gold"] for case, is_correct in zip(wrong, verdicts, strict=True) if is_correct] == []
