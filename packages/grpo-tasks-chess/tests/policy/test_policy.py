from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import chess
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from grpo_core import BoundTask, Score, UserError, load_task
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import prepare_tasks
from grpo_tasks_chess.engine.process import CLOSE_TIMEOUT_S, START_TIMEOUT_S, EngineProcess
from grpo_tasks_chess.environment.games import generated_rows
from grpo_tasks_chess.formats import (
    PolicyAnswer,
    format_evaluation,
    read_policy,
    write_policy_completion,
    write_policy_line,
)
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


def value_of(task: BoundTask, text: str, row: PolicyRow) -> float:
    value = task.score(text, row).value
    assert value is not None
    return value


def made_up_rows(count: int) -> list[PolicyRow]:
    """Positions of random games with labels that no engine has seen."""
    rows, seen = [], set[str]()
    for example in generated_rows(0, "train"):
        if example.fen in seen:  # with another kind of move
            continue
        seen.add(example.fen)
        random = Random(example.fen)
        legal = sorted(legal_moves(position(example.fen)))
        moves = random.sample(legal, min(5, len(legal)))
        evaluations = [float(format_evaluation(random.uniform(-9, 9))) for _ in moves]
        best = moves[int(np.argmax(evaluations))]
        rows.append(make_row({"fen": example.fen, "moves": moves, "evaluations": evaluations, "best": best}))
        if len(rows) == count:
            return rows
    raise AssertionError("unreachable: the rows have no end")


def test_gold_earns_the_maximum_in_every_shaping() -> None:
    for shaping in ("graduated", "linear", "binary", "continuous"):
        task = policy(f"&shaping={shaping}")
        for row in [ROW, *made_up_rows(30)]:
            score = task.score(row.gold or "", row)
            assert score.value == pytest.approx(1.0) and score.solved and not score.why, row
            assert score.parts["graded_by_labels"] == 1.0 and score.parts["graded_by_engine"] == 0.0


def test_demos_are_the_golds_or_have_their_best_moves_first() -> None:
    as_given = list(policy("&rows=packaged&size=40").demos())
    best_first = list(policy("&rows=packaged&size=40&demo_order=best_first").demos())
    rows = policy("&rows=packaged&size=40").rows()
    assert as_given == [(policy().prompt(row), row.gold) for row in rows] != best_first
    for row, (prompt, completion) in zip(rows, best_first, strict=True):
        answer = read_policy(completion)
        assert prompt == policy().prompt(row) and answer.best == answer.moves[0]
        assert list(answer.evaluations[1:]) == sorted(answer.evaluations[1:], reverse=True)
        assert policy().score(completion, row).value == 1.0


def test_a_share_of_the_demos_may_be_invalid() -> None:
    task = policy("&rows=packaged&size=200&demo_errors=0.3")
    scores = [task.score(completion, row) for row, (_, completion) in zip(task.rows(), task.demos(), strict=True)]
    assert {(score.valid, score.value) for score in scores} == {(True, 1.0), (False, -0.3)}
    assert 40 <= sum(not score.valid for score in scores) <= 80
    assert list(task.demos()) == list(policy("&rows=packaged&size=200&demo_errors=0.3").demos())


def test_prompt_and_gold_are_the_line() -> None:
    answer = PolicyAnswer(ROW.moves, ROW.evaluations, ROW.best)
    prompt = policy().prompt(ROW)
    assert prompt == f"P: {START}"
    assert f"{prompt}{ROW.gold}" == write_policy_line(START, answer)
    assert ROW.difficulty == 20.0  # moves of the first position


@pytest.mark.parametrize(
    ("best", "grade"),
    [
        ("d2d4", 1.0),  # the label
        ("g1f3", 0.7),  # second: 0.32
        ("e2e4", 0.7),  # third: 0.24
        ("c2c4", 0.5),  # fourth
        ("e2e3", 0.5),  # fifth
        ("a2a3", 0.2),  # legal
        ("e2e5", 0.0),
        ("e7e5", 0.0),  # Black's
    ],
)
def test_best_move_by_rank(best: str, grade: float) -> None:
    assert best_move_grade(best, TRUTH, LEGAL) == grade


def test_moves_that_are_evaluated_as_high_as_the_best_are_as_good() -> None:
    truth = Truth("labels", "d2d4", {"d2d4": 0.3, "e2e4": 0.3, "g1f3": 0.2})
    assert best_move_grade("e2e4", truth, LEGAL) == 1.0
    assert best_move_grade("g1f3", truth, LEGAL) == 0.7  # third
    assert best_move_grade("e2e4", Truth("legality"), LEGAL) == 0.2


@pytest.mark.parametrize(
    ("moves", "grade"),
    [
        (ROW.moves, 1.0),
        (ROW.moves[::-1], 1.0),
        (ROW.moves[:2], 2 / 5),  # the sure ones alone do not pay: 2 of 5
        ((*ROW.moves[:4], "a2a3"), 4 / 5),
        (tuple(LEGAL), 5 / 20),  # nor does listing all
        (("d2d4",) * 5, 1 / 5),
        (("Nf3", "xx"), 0.0),
    ],
)
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


@pytest.mark.parametrize(
    ("moves", "numbers", "best", "grade"),
    [
        ("e2e4 d2d4", "0.3 0.2", "d2d4", 1.0),
        ("e2e4 d2d4", "0.3", "d2d4", (1 / 2 + 1 + 1) / 6),  # a number for every other move
        ("e2e4 d2d4", "0.3 x", "d2d4", (1 / 2 + 1 + 1) / 6),
        ("e2e4 d2d4", "0.3 0.2", "g1f3", (1 + 0 + 1) / 6),  # the best move is no candidate
        ("e2e4 Nf3", "0.3 0.2", "e2e4", (1 + 1 + 1 / 2) / 6),
        ("e2e5", "0.3", "e2e5", (1 + 1 + 0) / 6),
        ("e2e5 x y z", "0.3", "a1a8", (1 / 4 + 0 + 0) / 6),
    ],
)
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
    for shaping, value in (
        ("graduated", 0.6),
        ("continuous", quality),
        ("linear", -0.3 + 1.3 * quality),
        ("binary", 1.0),
    ):
        score = policy(f"&shaping={shaping}").score(text, ROW)
        assert score.value == pytest.approx(value) and score.valid and not score.solved
    assert policy().score("resigns", ROW).value == -0.3
    # graduated pays 0.2 for the least that has the form: nothing right but that a legal move is named.
    assert policy().score("M: a2a3 E: 9 B: a2a3", ROW).value == pytest.approx(0.2)


def test_spaces_an_end_of_text_and_what_follows_the_line_change_nothing() -> None:
    assert ROW.gold is not None
    task = policy()
    for text in (" ".join(ROW.gold.split()), f"{ROW.gold}\nP: and so on", f"{ROW.gold} <|endoftext|>", f"{ROW.gold}\n"):
        assert task.score(text, ROW).value == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("M: Nf3 E: 0.3 B: Nf3", "no move in UCI, as e2e4, after M:"),
        ("M: g1f3 E: 0.3 B: Nf3", "not one move in UCI, as e2e4, after B:"),
        ("M: g1f3 E: 0.3 B: g1f3 e2e4", "not one move"),
        ("M: g1f3 E: good B: g1f3", "no number after E:"),
        ("B: g1f3", "not of the form"),
        ("", "not of the form"),
        ("M: " + "e2e4 " * 2000, "more than 2000 characters"),
        ("\udc80", "not of the form"),
    ],
)
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


def test_a_repeated_move_is_in_form_and_is_seen() -> None:
    parts = policy().score("M: g1f3 g1f3 g1f3 g1f3 E: 1 1 1 1 B: g1f3", ROW).parts
    assert (parts["format_validity"], parts["distinct"], parts["candidates"]) == (1.0, 0.25, pytest.approx(0.2))


def test_metrics_are_means_and_pool_what_was_compared() -> None:
    task = policy()
    texts = [ROW.gold or "", "M: g1f3 e2e3 E: 0.82 0.15 B: g1f3", "no move"]
    found = metrics([*(task.score(text, ROW) for text in texts), Score(None, fault="timeout")])
    assert found == pytest.approx(
        {
            "chess_policy/format_validity": 2 / 3,
            "chess_policy/distinct": 2 / 3,
            "chess_policy/best_move_accuracy": 1 / 3,
            "chess_policy/top5_accuracy": 2 / 3,
            "chess_policy/legality": 2 / 3,
            "chess_policy/graded_by_labels": 1.0,
            "chess_policy/graded_by_engine": 0.0,
            "chess_policy/graded_by_search": 0.0,
            "chess_policy/evaluation_error": 0.5 / 7,  # 5 moves right, one off by 0.5, one right
        }
    )
    assert metrics([]) == {}
    # Legality says nothing about which move is best.
    alone = metrics([task.score("M: e2e4 E: 0 B: e2e4", UNLABELLED)])
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


@pytest.mark.parametrize("mode", ["dies", "hangs", "nonsense"])
def test_an_engine_that_fails_abstains_and_labelled_rows_do_not_care(
    mode: str, make_engine: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "TIMEOUT_S", 0.3)
    engine = make_engine(mode)
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


def test_the_engine_is_named_among_the_conditions(make_engine: Callable[[str], str], tmp_path: Path) -> None:
    engine = make_engine("plays")
    named = load_task(f"chess.policy?engine={engine}&path=x.jsonl&depth=7").conditions["chess engine"]
    assert named == f"Fake 1 to depth 7, for rows without labels: {engine}, asked for"
    (tmp_path / "engine").write_text("#!/bin/sh\n")
    (tmp_path / "engine").chmod(0o755)  # it ends at once
    assert "does not work" in load_task(f"chess.policy?engine={tmp_path}/engine&path=x").conditions["chess engine"]


def test_conditions_say_what_grades() -> None:
    for packaged in ("chess.policy?rows=packaged", "chess.policy?split=test"):
        assert load_task(packaged).conditions == {"chess labels": "of the package, for every row"}
        best_move = packaged.replace("policy", "best_move")
        assert load_task(best_move).conditions == {"chess labels": "of the package, for every row"}
    found = load_task("chess.policy?path=rows.jsonl&engine=none").conditions
    assert "rows.jsonl" in found["chess labels"] and "none, as asked" in found["chess engine"]


def test_an_evaluation_says_what_grades_its_own_split() -> None:
    _, choices = prepare_tasks("chess.policy,chess.best_move", {"size": 2}, EvaluationSettings())
    (labels,) = [choice for choice in choices if choice.what == "chess labels"]
    assert "chess.policy, chess.best_move" in labels.why
    assert not [choice for choice in choices if choice.what == "chess engine"]


def test_an_engine_that_is_not_there_is_an_error_before_the_run() -> None:
    with pytest.raises(UserError, match="/nowhere/engine is not there"):
        _ = load_task("chess.policy?path=rows.jsonl&engine=/nowhere/engine").conditions


Word = tuple[str, int]

WEIGHTS = {"evaluation": 1.0, "candidate": 1.5, "best": 4.0}


def words_of(row: PolicyRow) -> list[Word]:
    """The words of a completion by field, those of the lightest field first."""
    return [(field, i) for field in ("evaluation", "candidate") for i in range(len(row.moves))] + [("best", 0)]


def corrupted(row: PolicyRow, damaged: list[Word], random: Random) -> str:
    """The gold completion with some of its words replaced by wrong ones of their kind."""
    moves, numbers, best = list(row.moves), list(map(str, row.evaluations)), row.best
    others = sorted(set(legal_moves(position(row.fen))) - set(row.moves)) or ["a1h7"]
    for field, index in damaged:
        if field == "evaluation":
            numbers[index] = format_evaluation(random.choice((-1, 1)) * random.uniform(10, 20))
        elif field == "candidate":
            moves[index] = random.choice(["a1h7", "e2e9", "Nf3", random.choice(others)])
        else:
            best = random.choice(others)
    return f"  M: {' '.join(moves)}   E: {' '.join(numbers)} B: {best}"


@pytest.mark.parametrize("shaping", ["continuous", "graduated"])
def test_reward_falls_with_corruption(shaping: str) -> None:
    """500 corruptions of gold completions, the evaluations first, then the candidates, the best move last."""
    task, random = policy(f"&shaping={shaping}"), Random(0)
    amounts, rewards = [], []
    for row in made_up_rows(100) * 5:
        words = words_of(row)
        damaged = random.randint(0, len(words))
        amounts.append(damaged / len(words))
        rewards.append(value_of(task, corrupted(row, words[:damaged], random), row))
    assert len(amounts) == 500 and min(amounts) == 0.0 and max(amounts) == 1.0
    assert spearmanr(amounts, rewards).statistic <= -0.95


def test_reward_falls_with_the_weight_of_what_is_corrupted_whatever_it_is() -> None:
    task, random = policy("&shaping=continuous"), Random(0)
    amounts, rewards = [], []
    for row in made_up_rows(100) * 5:
        words = words_of(row)
        damaged = random.sample(words, random.randint(0, len(words)))
        amounts.append(sum(WEIGHTS[field] / (1 if field == "best" else len(row.moves)) for field, _ in damaged))
        rewards.append(value_of(task, corrupted(row, damaged, random), row))
    assert spearmanr(amounts, rewards).statistic <= -0.95


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_any_text_gets_a_verdict(text: str) -> None:
    for row in (ROW, UNLABELLED):
        score = policy().score(text, row)
        assert not score.abstained and score.value is not None and -0.3 <= score.value <= 1.0


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "fen: missing"),
        ({"fen": 7}, "fen: a int where text is wanted"),
        ({"fen": "here"}, "no FEN: 'here'"),
        ({"fen": "8/8/8/8/8/8/8/K7 w - - 0 1"}, "no black king"),
        ({"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 5 60"}, "no legal move"),
        ({**LABELS, "best": "Nf3"}, "best: 'Nf3' is none of the moves"),
        ({**LABELS, "moves": ["Nf3", "d2d4"], "best": "d2d4"}, "'Nf3' is no legal move, in UCI"),
        ({**LABELS, "evaluations": [0.1], "best": "d2d4"}, "evaluations: 1 for 5 different moves"),
        ({**LABELS, "evaluations": "0.1 x", "best": "d2d4"}, "'x' is no number"),
        ({**LABELS, "evaluations": [1001.0] * 5, "best": "d2d4"}, "within ±1000"),
        ({**LABELS, "moves": ["d2d4"] * 5, "best": "d2d4"}, "5 for 1 different moves"),
        (
            {"fen": START, "moves": "d2d4 e2e4", "evaluations": "1 9", "best": "d2d4"},
            "best: d2d4 is evaluated 1, and e2e4 9",
        ),
        ({"text": "P: nothing"}, "text: there is no position"),
        ({"text": f"A: {START}+e2e4+e2e4+"}, "text: a policy line begins with P:"),
    ],
)
def test_records_that_are_wrong_are_refused_in_one_line(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_row(record)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def write(path: Path, records: list[Any]) -> Path:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return path


def test_rows_come_from_files_of_fields_and_of_lines(tmp_path: Path) -> None:
    rows = made_up_rows(40)
    fields = [row.model_dump(mode="json", include={"fen", "moves", "evaluations", "best"}) for row in rows]
    # Of a file of lines Black's labels are checked; those of made-up rows are right.
    lines = [{"text": f"P: {row.fen}{row.gold}"} for row in rows] + [{"text": f"{START}+e2e4+e2e4+{START}+0.001+0+0"}]
    sources: list[tuple[str, list[Any]]] = [("fields.jsonl", [*fields, fields[0]]), ("lines.jsonl", lines)]
    for name, records in sources:
        path = write(tmp_path / name, records)
        read = [
            row for split in ("train", "validation", "test") for row in _rows(policy(f"&path={path}&split={split}"))
        ]
        assert sorted(read, key=lambda row: row.id) == sorted(rows, key=lambda row: row.id)


def _rows(task: BoundTask) -> list[PolicyRow]:
    try:
        return [row for row in task.rows() if isinstance(row, PolicyRow)]
    except UserError as problem:
        assert "Give more rows, or one file per split" in str(problem)  # of forty rows a tenth may be none
        return []


def test_lines_whose_black_labels_are_upside_down_are_put_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row for row in made_up_rows(120) if row.fen.split()[1] == "b" and len(row.moves) > 1]
    lines = []
    for row in rows:
        worst = row.moves[int(np.argmin(row.evaluations))]
        lines.append(write_policy_line(row.fen, PolicyAnswer(row.moves, row.evaluations, worst)))
    path = write(tmp_path / "{split}.jsonl", [])
    write(tmp_path / "train.jsonl", [{"text": line} for line in lines])
    assert {row.fen: row.best for row in _rows(policy(f"&path={path}"))} == {row.fen: row.best for row in rows}
    assert [record.getMessage() for record in caplog.records if "set to the highest" in record.getMessage()]


def test_labels_that_contradict_each_other_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = {"fen": START, "moves": ["d2d4", "e2e4"], "evaluations": [0.3, 0.2], "best": "d2d4"}
    reordered = {**labels, "moves": ["e2e4", "d2d4"], "evaluations": [0.2, 0.3]}
    other = {**labels, "evaluations": [0.2, 0.3], "best": "e2e4"}
    path = tmp_path / "{split}.jsonl"
    for records, warnings in (([labels, reordered], 0), ([labels, other, other], 1)):
        caplog.clear()
        write(tmp_path / "train.jsonl", records)
        (row,) = _rows(policy(f"&path={path}"))
        assert row.best == "d2d4"
        assert sum("comes again with other labels" in each.getMessage() for each in caplog.records) == warnings


def test_a_wrong_row_of_a_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", [{"fen": START}, {"fen": "8/8/8/8/8/8/8/K7 w - - 0 1"}])
    with pytest.raises(UserError, match=r"train\.jsonl:2: a position that cannot be played, with no black king"):
        policy(f"&path={path.with_name('{split}.jsonl')}").rows()


def test_the_labelled_set_of_the_package() -> None:
    """Enough rows in disjoint splits, and each one's gold earns the maximum."""
    rows = {
        split: load_task(f"chess.policy?rows=packaged&split={split}").rows()
        for split in ("train", "validation", "test")
    }
    assert len(rows["train"]) >= 300 and len(rows["test"]) >= 30 and len(rows["validation"]) >= 30
    keys = [" ".join(row.fen.split()[:4]) for found in rows.values() for row in found if isinstance(row, PolicyRow)]
    assert len(set(keys)) == len(keys) == sum(map(len, rows.values()))
    task = policy()
    for found in rows.values():
        for row in found:
            assert isinstance(row, PolicyRow) and row.gold is not None
            assert task.score(row.gold, row).value == 1.0
            assert read_policy(row.gold).best == row.best
            # Labels of a real engine: the best move is the one that is evaluated highest.
            assert row.evaluations[row.moves.index(row.best)] == max(row.evaluations)
            assert write_policy_completion(PolicyAnswer(row.moves, row.evaluations, row.best), row.fen) == row.gold
