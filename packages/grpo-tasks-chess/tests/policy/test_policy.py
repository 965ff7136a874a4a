from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import orjson
import pytest

from grpo_core.evaluation.held_out import prepare_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk import BoundTask, Score, UserError, load_task
from grpo_tasks_chess.engine.process import CLOSE_TIMEOUT_S, START_TIMEOUT_S, EngineProcess
from grpo_tasks_chess.formats import PolicyAnswer, read_policy, write_policy_line
from grpo_tasks_chess.policy import labels
from grpo_tasks_chess.policy.grading import (
    Answer,
    Truth,
    best_move_grade,
    candidates_grade,
    evaluations_grade,
    format_grade,
)
from grpo_tasks_chess.policy.rows import PolicyRow, make_row
from grpo_tasks_chess.policy.task import metrics
from grpo_tasks_chess.rules import legal_moves, position

START = chess.STARTING_FEN
LABELS = {
    "fen": START,
    "moves": ["g1f3", "e2e3", "c2c4", "d2d4", "e2e4"],
    "evaluations": [0.32, 0.15, 0.17, 0.35, 0.24],
}
ROW = make_row({**LABELS, "best": "d2d4"})
UNLABELLED = make_row({"fen": START})
LEGAL = legal_moves(position(START)).keys()
TRUTH = Truth("labels", "d2d4", dict(zip(ROW.moves, ROW.evaluations, strict=True)))


def policy(options: str = "") -> BoundTask:
    return load_task(f"chess.policy?engine=none{options}")


def test_prompt_and_gold_are_the_line() -> None:
    answer = PolicyAnswer(ROW.moves, ROW.evaluations, ROW.best)
    assert f"{policy().prompt(ROW)}{ROW.gold}" == write_policy_line(START, answer)
    assert ROW.difficulty == 20.0  # moves of the first position


def test_demos_are_the_golds_or_have_their_best_moves_first() -> None:
    task = policy("&rows=packaged&size=40")
    as_given, best_first = list(task.demos()), list(task.with_options(demo_order="best_first").demos())
    assert as_given == [(task.prompt(row), row.gold) for row in task.rows()] != best_first
    for row, (prompt, completion) in zip(task.rows(), best_first, strict=True):
        answer = read_policy(completion)
        assert prompt == task.prompt(row) and answer.best == answer.moves[0]
        assert list(answer.evaluations[1:]) == sorted(answer.evaluations[1:], reverse=True)
        assert task.score(completion, row).value == 1.0


def test_a_share_of_the_demos_may_be_invalid() -> None:
    task = policy("&rows=packaged&size=200&demo_errors=0.3")
    scores = [task.score(completion, row) for row, (_, completion) in zip(task.rows(), task.demos(), strict=True)]
    assert {(score.valid, score.value) for score in scores} == {(True, 1.0), (False, -0.3)}
    assert 40 <= sum(not score.valid for score in scores) <= 80


@pytest.mark.parametrize(("grade", "moves"), [
    (1.0, ["d2d4"]),  # the label
    (0.7, ["g1f3", "e2e4"]),  # second and third: 0.32, 0.24
    (0.5, ["c2c4", "e2e3"]),  # fourth and fifth
    (0.2, ["a2a3"]),  # legal
    (0.0, ["e2e5", "e7e5"]),  # Black's
])  # fmt: skip
def test_best_move_by_rank(grade: float, moves: list[str]) -> None:
    assert [best_move_grade(move, TRUTH, LEGAL) for move in moves] == [grade] * len(moves)


def test_moves_that_are_evaluated_as_high_as_the_best_are_as_good() -> None:
    truth = Truth("labels", "d2d4", {"d2d4": 0.3, "e2e4": 0.3, "g1f3": 0.2})
    assert best_move_grade("e2e4", truth, LEGAL) == 1.0
    assert best_move_grade("g1f3", truth, LEGAL) == 0.7  # third
    assert best_move_grade("e2e4", Truth("legality"), LEGAL) == 0.2


@pytest.mark.parametrize(("moves", "grade"), [
    (ROW.moves, 1.0),
    (ROW.moves[::-1], 1.0),
    (ROW.moves[:2], 2 / 5),  # the sure ones alone do not pay: 2 of 5
    ((*ROW.moves[:4], "a2a3"), 4 / 5),
    (tuple(LEGAL), 5 / 20),  # nor does listing all
    (("d2d4",) * 5, 1 / 5),
    (("Nf3", "xx"), 0.0),
])  # fmt: skip
def test_candidates(moves: tuple[str, ...], grade: float) -> None:
    assert candidates_grade(moves, TRUTH, LEGAL) == pytest.approx(grade)


def test_evaluations_are_compared_by_their_moves() -> None:
    shuffled = dict(reversed(list(TRUTH.evaluations.items())))
    assert evaluations_grade(shuffled, TRUTH) == 1.0
    # One is off by 0.62 where 0.24 is true: 1 − 0.62 / 1.24 = 0.5, and the other four are right.
    assert evaluations_grade({**shuffled, "e2e4": 0.86}, TRUTH) == pytest.approx(4.5 / 5)
    assert evaluations_grade({"d2d4": 0.35}, TRUTH) == pytest.approx(1 / 5)
    assert evaluations_grade({"d2d4": 99.0}, TRUTH) == 0.0
    # Mates are held to ten pawns: which mate it is does not matter.
    mate = Truth("labels", "e2e4", {"e2e4": 999.99})
    assert evaluations_grade({"e2e4": 999.9}, mate) == 1.0
    assert evaluations_grade({"e2e4": -999.9}, mate) == 0.0  # 1 − 20/11, at least 0


def answer(moves: str, numbers: str, best: str) -> Answer:
    return Answer(tuple(moves.split()), tuple(None if n == "x" else float(n) for n in numbers.split()), best)


@pytest.mark.parametrize(("moves", "numbers", "best", "grade"), [
    ("e2e4 d2d4", "0.3 0.2", "d2d4", 1.0),
    ("e2e4 d2d4", "0.3 x", "d2d4", (1 / 2 + 1 + 1) / 6),  # a number for every other move
    ("e2e4 d2d4", "0.3 0.2", "g1f3", (1 + 0 + 1) / 6),  # the best move is no candidate
    ("e2e4 Nf3", "0.3 0.2", "e2e4", (1 + 1 + 1 / 2) / 6),
    ("e2e5", "0.3", "e2e5", (1 + 1 + 0) / 6),
    ("e2e5 x y z", "0.3", "a1a8", (1 / 4 + 0 + 0) / 6),
])  # fmt: skip
def test_format(moves: str, numbers: str, best: str, grade: float) -> None:
    assert format_grade(answer(moves, numbers, best), LEGAL) == pytest.approx(grade)


def test_of_a_move_that_is_listed_twice_the_first_evaluation_counts() -> None:
    assert answer("e2e4 d2d4 e2e4 g1f3", "0.3 x 9", "e2e4").evaluations == {"e2e4": 0.3}


def test_a_position_whose_game_is_over_gets_a_verdict(make_engine: Callable[[str], str]) -> None:
    over = PolicyRow(id="over", fen="7k/5Q2/6K1/8/8/8/8/8 b - - 5 60")
    for engine in ("none", make_engine("plays")):
        score = load_task(f"chess.policy?engine={engine}").score("M: h8h7 E: 0 B: h8h7", over)
        assert score.value == pytest.approx(0.2) and not score.solved and score.parts["best_move"] == 0.0


def test_the_value_is_the_shaped_quality() -> None:
    # The best move is second (0.7), the form is full, two of three listed moves of five known (2/5), their
    # evaluations exact (2/5): (4·0.7 + 2·1 + 1.5·0.4 + 1·0.4) / 8.5 = 5.8 / 8.5 = 0.6824.
    text = "M: g1f3 e2e3 E: 0.32 0.15 B: g1f3"
    quality = (4 * 0.7 + 2 + 1.5 * 0.4 + 0.4) / 8.5
    values = {"graduated": 0.6, "continuous": quality, "linear": -0.3 + 1.3 * quality, "binary": 1.0}
    for shaping, value in values.items():
        score = policy(f"&shaping={shaping}").score(text, ROW)
        assert score.value == pytest.approx(value) and score.valid and not score.solved
    assert policy().score("resigns", ROW).value == -0.3
    # graduated pays 0.2 for the least that has the form: nothing right but that a legal move is named.
    assert policy().score("M: a2a3 E: 9 B: a2a3", ROW).value == pytest.approx(0.2)


@pytest.mark.parametrize(("text", "why"), [
    ("M: Nf3 E: 0.3 B: Nf3", "no move in UCI, as e2e4, after M:"),
    ("M: g1f3 E: 0.3 B: Nf3", "not one move in UCI, as e2e4, after B:"),
    ("M: g1f3 E: good B: g1f3", "no number after E:"),
])  # fmt: skip
def test_what_is_no_answer_gets_the_floor_and_a_reason(text: str, why: str) -> None:
    score = policy().score(text, ROW)
    assert (score.value, score.valid, score.solved) == (-0.3, False, False)
    assert why in score.why
    assert score.parts["evaluation_error"] == 10.0 and score.parts["graded_by_labels"] == 1.0


def test_facts_of_an_answer() -> None:
    # Second best; errors |0.52 − 0.32| and |0.15 − 0.15| of the two moves that are known.
    parts = policy().score("M: g1f3 e2e3 a2a3 E: 0.52 0.15 7 B: g1f3", ROW).parts
    assert parts["format_validity"] == 1.0 and parts["legality"] == 1.0
    assert parts["best_move_accuracy"] == 0.0 and parts["top5_accuracy"] == 1.0
    assert parts["evaluations_compared"] == 2.0 and parts["evaluation_error"] == pytest.approx(0.1)
    assert policy().score("M: a2a3 E: 7 B: a2a3", ROW).parts["evaluation_error"] == 10.0
    # A repeated move is in form, and is seen.
    parts = policy().score("M: g1f3 g1f3 g1f3 g1f3 E: 1 1 1 1 B: g1f3", ROW).parts
    assert (parts["format_validity"], parts["distinct"], parts["candidates"]) == (1.0, 0.25, pytest.approx(0.2))


def test_metrics_are_means_and_pool_what_was_compared() -> None:
    texts = [ROW.gold or "", "M: g1f3 e2e3 E: 0.82 0.15 B: g1f3", "no move"]
    found = metrics([*(policy().score(text, ROW) for text in texts), Score(None, fault="timeout")])
    means = {
        "format_validity": 2 / 3,
        "distinct": 2 / 3,
        "best_move_accuracy": 1 / 3,
        "top5_accuracy": 2 / 3,
        "legality": 2 / 3,
        "graded_by_labels": 1.0,
        "graded_by_engine": 0.0,
        "graded_by_search": 0.0,
        "evaluation_error": 0.5 / 7,  # 5 moves right, one off by 0.5, one right
    }
    assert found == pytest.approx({f"chess_policy/{name}": value for name, value in means.items()})
    assert metrics([]) == {}
    # Legality says nothing about which move is best.
    alone = metrics([policy().score("M: e2e4 E: 0 B: e2e4", UNLABELLED)])
    assert "chess_policy/best_move_accuracy" not in alone and alone["chess_policy/legality"] == 1.0


def test_without_labels_and_engine_legality_grades() -> None:
    score = policy("&shaping=continuous").score("M: a2a3 e2e4 E: 0 0 B: a2a3", UNLABELLED)
    # (4·0.2 + 2·1 + 1.5·0.3 + 1·0.1) / 8.5
    assert score.value == pytest.approx(3.35 / 8.5) and not score.solved
    assert score.parts["graded_by_labels"] == score.parts["graded_by_engine"] == 0.0
    illegal = policy("&shaping=continuous").score("M: a2a5 e2e4 E: 0 0 B: a2a5", UNLABELLED)
    assert illegal.value is not None and score.value is not None and illegal.value < score.value / 2


MATE_IN_ONE = make_row({"fen": "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"})


def test_without_labels_the_engine_grades(make_engine: Callable[[str], str]) -> None:
    task = load_task(f"chess.policy?engine={make_engine('plays')}")
    score = task.score("M: d8h4 E: 999.99 B: d8h4", MATE_IN_ONE)
    assert score.solved and score.parts["best_move"] == 1.0 and score.parts["evaluation_error"] == 0.0
    assert score.parts["graded_by_engine"] == 1.0 and score.parts["graded_by_labels"] == 0.0
    assert score.parts["candidates"] == pytest.approx(1 / 5)  # of its five lines
    assert task.score("M: h7h5 E: 0 B: h7h5", MATE_IN_ONE).parts["best_move"] == 0.2
    assert task.score(ROW.gold or "", ROW).parts["graded_by_labels"] == 1.0


def test_an_engine_that_fails_abstains_and_labelled_rows_do_not_care(make_engine: Callable[[str], str]) -> None:
    engine = make_engine("dies")
    task = load_task(f"chess.policy?engine={engine}")
    score = task.score("M: e2e4 E: 0 B: e2e4", UNLABELLED)
    assert score.abstained and score.fault == "infrastructure" and engine in score.why
    assert task.score(ROW.gold or "", ROW).value == 1.0
    assert task.score("no answer", UNLABELLED).value == -0.3  # nothing to ask it for


@pytest.mark.parametrize(("name", "completion"), [("policy", "M: e2e4 E: 0 B: e2e4"), ("best_move", "e2e4")])
def test_an_engine_that_does_not_start_abstains_and_is_started_once(
    name: str, completion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EngineProcess.__init__.__kwdefaults__, "start_timeout_s", 0.5)
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\necho >> {tmp_path}/starts\nexec sleep 600\n")
    engine.chmod(0o755)
    task = load_task(f"chess.{name}?engine={engine}")
    for _ in range(3):
        score = task.score(completion, UNLABELLED)
        assert score.abstained and score.fault == "infrastructure" and "did not answer in 0.5 s" in score.why
    assert "does not work" in task.conditions["chess engine"]
    assert (tmp_path / "starts").read_text() == "\n"


@pytest.mark.parametrize("name", ["policy", "best_move"])
def test_an_engine_is_out_of_time_long_before_its_task(name: str) -> None:
    twice = 2 * (START_TIMEOUT_S + labels.TIMEOUT_S)  # an engine that died is started again
    assert twice + CLOSE_TIMEOUT_S < load_task(f"chess.{name}").task.timeout_s


def test_the_engine_is_named_among_the_conditions(make_engine: Callable[[str], str]) -> None:
    engine = make_engine("plays")
    named = load_task(f"chess.policy?engine={engine}&path=x.jsonl&depth=7").conditions["chess engine"]
    assert named == f"Fake 1 to depth 7, for rows without labels: {engine}, asked for"
    with pytest.raises(UserError, match="/nowhere/engine is not there"):
        _ = load_task("chess.policy?path=x.jsonl&engine=/nowhere/engine").conditions


@pytest.mark.parametrize("options", ["rows=packaged", "split=test"])
@pytest.mark.parametrize("name", ["policy", "best_move"])
def test_conditions_say_what_grades(name: str, options: str) -> None:
    assert load_task(f"chess.{name}?{options}").conditions == {"chess labels": "of the package, for every row"}
    found = load_task(f"chess.{name}?path=rows.jsonl&engine=none").conditions
    assert "rows.jsonl" in found["chess labels"] and "none, as asked" in found["chess engine"]


def test_an_evaluation_says_what_grades_its_own_split() -> None:
    _, choices = prepare_tasks("chess.policy,chess.best_move", {"size": 2}, EvaluationSettings())
    (labels,) = [choice for choice in choices if choice.what == "chess labels"]
    assert "chess.policy, chess.best_move" in labels.why
    assert not [choice for choice in choices if choice.what == "chess engine"]


@pytest.mark.parametrize(("record", "message"), [
    ({"fen": 7}, "fen: a int where text is wanted"),
    ({"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 5 60"}, "no legal move"),
    ({**LABELS, "best": "Nf3"}, "best: 'Nf3' is none of the moves"),
    ({**LABELS, "moves": ["Nf3", "d2d4"], "best": "d2d4"}, "'Nf3' is no legal move, in UCI"),
    ({**LABELS, "evaluations": [0.1], "best": "d2d4"}, "evaluations: 1 for 5 different moves"),
    ({**LABELS, "evaluations": [1001.0] * 5, "best": "d2d4"}, "within ±1000"),
    ({**LABELS, "moves": ["d2d4"] * 5, "best": "d2d4"}, "5 for 1 different moves"),
    ({**LABELS, "moves": "d2d4 e2e4", "evaluations": "1 9", "best": "d2d4"}, "d2d4 is evaluated 1, and e2e4 9"),
    ({"text": "P: nothing"}, "text: there is no position"),
    ({"text": f"A: {START}+e2e4+e2e4+"}, "text: a policy line begins with P:"),
])  # fmt: skip
def test_records_that_are_wrong_are_refused_in_one_line(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_row(record)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def write(path: Path, records: list[Any]) -> Path:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return path


def test_rows_come_from_files_of_fields_and_of_lines(tmp_path: Path) -> None:
    rows = policy("&rows=packaged&size=40").rows()
    assert all(isinstance(row, PolicyRow) for row in rows)
    fields = [row.model_dump(mode="json", include={"fen", "moves", "evaluations", "best"}) for row in rows]
    lines = [{"text": f"P: {dict(row)['fen']}{row.gold}"} for row in rows]
    lines.append({"text": f"{START}+e2e4+e2e4+{START}+0.001+0+0"})  # of the other kind
    for records in ([*fields, fields[0]], lines):
        write(tmp_path / "train.jsonl", records)
        assert policy(f"&path={tmp_path}/{{split}}.jsonl").rows() == rows


def test_labels_that_contradict_each_other_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = {"fen": START, "moves": ["d2d4", "e2e4"], "evaluations": [0.3, 0.2], "best": "d2d4"}
    reordered = {**labels, "moves": ["e2e4", "d2d4"], "evaluations": [0.2, 0.3]}
    other = {**labels, "evaluations": [0.2, 0.3], "best": "e2e4"}
    path = tmp_path / "{split}.jsonl"
    for records, warnings in (([labels, reordered], 0), ([labels, other, other], 1)):
        caplog.clear()
        write(tmp_path / "train.jsonl", records)
        (row,) = policy(f"&path={path}").rows()
        assert dict(row)["best"] == "d2d4"
        assert sum("comes again with other labels" in each.getMessage() for each in caplog.records) == warnings


def test_a_wrong_row_of_a_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", [{"fen": START}, {"fen": "8/8/8/8/8/8/8/K7 w - - 0 1"}])
    with pytest.raises(UserError, match=r"train\.jsonl:2: a position that cannot be played, with no black king"):
        policy(f"&path={path.with_name('{split}.jsonl')}").rows()
