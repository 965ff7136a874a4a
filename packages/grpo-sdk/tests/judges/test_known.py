import json
from pathlib import Path
from typing import Any

import pytest
from judge_server import Asked, judging
from judged_tasks import Question, best, polite
from local_endpoint import Server

from grpo_sdk import Scorer, UserError
from grpo_sdk.errors import DataError
from grpo_sdk.judges import Known
from grpo_sdk.judges.known import ErrorRate, JudgeErrors, known_of
from grpo_sdk.scoring.judge_errors import error_choices, judge_errors

ROW = Question(id="q0", gold="well")


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GRPO_CACHE_DIR", str(tmp_path / "cache"))


def errors_of(server: Server, known: object, **options: Any) -> JudgeErrors:
    with Scorer(polite(server.url, known=known, **options), workers=1) as scorer:
        [errors] = judge_errors(scorer)
    return errors


def lenient(asked: Asked) -> str:
    """Grades a text by the digit that it holds; `mute` gets no verdict."""
    text = asked.texts[0]
    return "Hm." if text == "mute" else asked.grade(text[-1])


def test_errors_of_each_kind_are_counted_with_their_intervals() -> None:
    known = [Known(ROW, f"right {grade}", 1.0) for grade in (9, 8, 2)] + [Known("q1", "wrong 6", False)]
    with judging(lenient) as server:
        errors = errors_of(server, [*known, Known(ROW, " ", 0.0), Known(ROW, "mute", 1.0)])

    assert (errors.known, errors.not_judged) == (6, 2), "one is refused by the validator, one has no verdict"
    assert errors.false_negative == ErrorRate(1, 3, pytest.approx(0.0615, abs=1e-3), pytest.approx(0.7923, abs=1e-3))
    assert errors.false_positive is not None and (errors.false_positive.errors, errors.false_positive.n) == (1, 1)
    assert errors.mean_error == pytest.approx((0.1 + 0.2 + 0.8 + 0.6) / 4)
    [choice] = error_choices({"polite": [errors]})
    assert choice.what == "judge polite" and "false negatives 0.33 (1 of 3, 95%: 0.06 to 0.79)" in choice.value
    assert "2 of 6 not judged (judge polite: judge at http://" in choice.value


def test_a_file_names_rows_by_id_or_holds_them(tmp_path: Path) -> None:
    lines = [
        {"row": "q3", "completion": "a 9", "verdict": 1},
        {"row": ROW.model_dump(), "completion": "b 1", "verdict": False},
    ]
    (tmp_path / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    with judging(lenient) as server:
        errors = errors_of(server, str(tmp_path / "known.jsonl"))

    assert (errors.known, errors.not_judged, errors.mean_error) == (2, 0, pytest.approx(0.1))


@pytest.mark.parametrize(("line", "message"), [
    ("{", r"known.jsonl:2: write {"),
    ('{"row": "q0", "completion": "a"}', r"known.jsonl:2: write {"),
    ('{"row": 3, "completion": "a", "verdict": 1}', "the row must be an id"),
    ('{"row": "q0", "completion": "a", "verdict": 7}', "verdict 7 of row 'q0' must be a number from 0 to 1"),
    ('{"row": "q0", "completion": "a", "verdict": NaN}', "verdict nan"),
])  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "known.jsonl").write_text('{"row": "q0", "completion": "a", "verdict": 1}\n' + line)

    with pytest.raises(DataError, match=message):
        known_of(tmp_path / "known.jsonl", "polite")


@pytest.mark.parametrize("source", [3, ["please"], {"q0": 1.0}])
def test_what_is_no_known_verdict_is_refused(source: object) -> None:
    with pytest.raises(UserError, match="must be a list of Known"):
        known_of(source, "polite")


def test_a_missing_file_and_a_row_that_does_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.jsonl: No such file"):
        known_of(tmp_path / "nowhere.jsonl", "polite")
    with judging(lenient) as server, pytest.raises(UserError, match="q99"):
        errors_of(server, [Known("q99", "a", 1.0)])
    task = best("http://127.0.0.1:1/v1", known=[Known(ROW, "a", 1.0)])  # of a pairwise judge
    with Scorer(task, workers=1) as scorer, pytest.raises(UserError, match="compares answers"):
        judge_errors(scorer)
