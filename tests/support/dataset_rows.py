"""The tasks of this repository, each with rows: those of datasets get some, in the dataset's form."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_sdk.plugins.host import default_host

NUMBERS = range(2, 26)
OTHERS = ("inspect", "nemo_gym", "openenv", "reasoning_gym", "verifiers")
"""Plugins whose scorers are other libraries'."""

_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")
CITIES = [f"{first}{second}" for first in _WORDS for second in ("", "ton", "field")]


def _gsm8k(n: int) -> Mapping[str, Any]:
    solution = f"She has {n}+{3 * n}=<<{n}+{3 * n}={4 * n}>>{4 * n} pins.\n#### {4 * n}"
    return {"question": f"Mia has {n} pins and buys {3 * n} more. How many has she?", "answer": solution}


def _competition(n: int) -> Mapping[str, Any]:
    problem = f"A rope of ${n}$ metres is cut into $7$ equal parts. How many metres has a part?"
    solution = f"It is $\\boxed{{\\frac{{{n}}}{{7}}}}$."
    return {"problem": problem, "solution": solution, "level": f"Level {1 + n % 5}", "type": "Prealgebra"}


def _mbpp(n: int) -> Mapping[str, Any]:
    tests = [f"assert add_{n}({a}) == {a + n}" for a in (1, 5, -3)]
    code = f"def add_{n}(a):\n    return a + {n}\n"
    return {"text": f"Write a function to add {n} to a number.", "code": code, "task_id": 600 + n, "test_list": tests}


def _humaneval(n: int) -> Mapping[str, Any]:
    return {
        "task_id": f"HumanEval/{n}",
        "prompt": f'def times_{n}(a: int) -> int:\n    """ {n} times a. """\n',
        "canonical_solution": f"    return {n} * a\n",
        "test": f"def check(candidate):\n    assert [candidate(2), candidate(-5)] == [{2 * n}, {-5 * n}]\n",
        "entry_point": f"times_{n}",
    }


def _puzzle(n: int) -> Mapping[str, Any]:
    fen = f"rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 {n}"
    return {"PuzzleId": f"{n:05}", "FEN": fen, "Moves": "g2g4 d8h4", "Rating": "600", "Themes": "mate mateIn1"}


def _exact(n: int) -> Mapping[str, Any]:
    return {"question": f"Question {n}?", "answer": CITIES[n - 2]}


def _number(n: int) -> Mapping[str, Any]:
    return {"question": f"Question {n}?", "answer": f"{7 * n + 3}"}


def _choice(n: int) -> Mapping[str, Any]:
    return {"question": f"Question {n}?", "answer": "ABCD"[n % 4], "choices": ["one", "two", "three", "four"]}


def _code(n: int) -> Mapping[str, Any]:
    tests = f"assert f_{n}(1) == {1 + n}\nassert f_{n}(5) == {5 + n}"
    return {"question": f"Question {n}?", "answer": tests, "completion": f"def f_{n}(a):\n    return a + {n}\n"}


RECORDS = {
    "math.gsm8k": _gsm8k,
    "math.competition": _competition,
    "code.mbpp": _mbpp,
    "code.mbpp_retry": _mbpp,
    "code.humaneval?split=test": _humaneval,
    "chess.puzzle": _puzzle,
    "core.qa?verifier=exact": _exact,
    "core.qa?verifier=number": _number,
    "core.qa?verifier=math": _number,
    "core.qa?verifier=choice": _choice,
    "core.qa?verifier=code": _code,
}
"""Spec of a task whose data are elsewhere -> makes one record."""


def our_specs() -> Sequence[str]:
    """The tasks of ours that have rows, or get some from `with_rows`."""
    names = {name for report in default_host().reports() if report.name not in OTHERS for name in report.tasks}
    elsewhere = {spec.partition("?")[0] for spec in RECORDS}
    return sorted({*names} - elsewhere - {"harbor.task"} | {*RECORDS})


def with_rows(spec: str, folder: Path) -> str:
    """The spec, with a file of rows for every split where its data are elsewhere."""
    if spec not in RECORDS:
        return spec
    records = [RECORDS[spec](n) for n in NUMBERS]
    file = folder / ("train.csv" if spec == "chess.puzzle" else "rows.jsonl")
    with file.open("w", encoding="utf-8") as opened:
        if file.suffix == ".csv":
            writer = csv.DictWriter(opened, records[0])
            writer.writeheader()
            writer.writerows(records)
        else:
            opened.writelines(json.dumps(record) + "\n" for record in records)
    path = folder / "{split}.csv" if file.suffix == ".csv" else file  # the puzzles are one position, in one split
    return f"{spec}{'&' if '?' in spec else '?'}path={path}"
