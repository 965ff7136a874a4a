from itertools import islice
from pathlib import Path
from random import Random

import chess
import orjson
import pytest

from grpo_sdk import BoundTask, Score, load_task
from grpo_tasks_chess.data.environment import generated_rows
from grpo_tasks_chess.data.games import endgame, light_player, played
from grpo_tasks_chess.environment.grading import fen_distance, game_state_grade, reward_grade
from grpo_tasks_chess.environment.rows import make_row
from grpo_tasks_chess.environment.task import metrics
from grpo_tasks_chess.formats import EnvironmentAnswer
from grpo_tasks_chess.records import position_key, position_key_of
from grpo_tasks_chess.rules import play

START = chess.STARTING_FEN
AFTER = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
ROW = make_row({"fen": START, "move": "e2e4"})
SOME = list(islice(generated_rows(0, "train"), 100))


def environment(options: str = "") -> BoundTask:
    return load_task(f"chess.environment?size=50{options}")


def test_prompt_and_gold_are_the_line() -> None:
    assert environment().prompt(ROW) == f"A: {START}+e2e4+e2e4+"
    assert ROW.gold == f"{AFTER}+0.001+0+0"
    # A move that is not legal leaves the board.
    illegal = make_row({"fen": START, "move": "e2e5", "history": ["e2e5"]})
    assert illegal.gold == f"{START}+-1.0+0+1"


def test_row_i_follows_the_rules_and_depends_on_the_seed_and_i_alone() -> None:
    assert all(play(row.fen, row.move, row.history) == row.outcome for row in SOME)
    task = environment()
    ten = task.with_options(size=10).rows()
    assert ten == task.rows()[:10] != task.with_options(size=10, seed=1).rows()


def test_the_key_of_a_board_is_that_of_its_fen() -> None:
    random = Random(3)
    boards = [chess.Board("r3k2r/8/8/pP6/8/8/8/R3K2R w KQkq a6 0 30"), chess.Board("8/P6k/8/8/8/8/8/K7 w - - 0 60")]
    boards += (each.copy() for _ in range(4) for each in played(chess.Board(), light_player(random)))
    boards += (each.copy() for _ in range(20) for each in islice(played(endgame(random), light_player(random)), 5))
    assert any(board.has_legal_en_passant() for board in boards)
    for board in boards:
        assert position_key_of(board) == position_key(board.fen())


def test_the_value_is_the_shaped_quality() -> None:
    # The board as it was: "4P3" for "8", "PPPP1PPP" for "PPPPPPPP", "b" for "w": of 59 characters 5 edits; flags and
    # reward right.
    distance = fen_distance(START, AFTER)
    assert distance == pytest.approx(5 / max(len(START), len(AFTER)))
    text = f"{START}+0.001+0+0"
    quality = (4 + 3 * (1 - distance) + 2 + 1) / 10
    for shaping, value in (
        ("graduated", 0.8),  # 1.0 is for the right position only
        ("continuous", quality),
        ("linear", -0.3 + 1.3 * quality),
        ("binary", -0.2),  # so is its only reward
    ):
        score = environment(f"&shaping={shaping}").score(text, ROW)
        assert score.value == pytest.approx(value) and score.valid and not score.solved
    # Wrong flags too: 0.94 − 0.2; and a wrong reward: − 0.09. Each rung of the ladder is 0.2.
    assert environment().score(f"{START}+0.001+1+1", ROW).value == pytest.approx(0.4)
    assert environment().score(f"{START}+0.001+1+0", ROW).value == pytest.approx(0.6)
    assert environment().score("/+-1+1+1", ROW).value == pytest.approx(0.2)


def test_binary_pays_the_exact_next_state_only() -> None:
    task = environment("&shaping=binary")
    for text in ("a/b+0.001+0+0", f"{AFTER[:-1]}2+0.001+0+0", f"{AFTER}+0.001+0+1", f"{AFTER}+0.5+0+0"):
        assert task.score(text, ROW).value == pytest.approx(-0.2)
    assert task.score(f"{AFTER}+0.001+0+0", ROW).value == 1.0


def test_flags_and_rewards_in_steps() -> None:
    true = EnvironmentAnswer(AFTER, 0.001, terminated=False, truncated=False)
    assert game_state_grade(true, true) == 1.0
    assert game_state_grade(EnvironmentAnswer("", 0, terminated=True, truncated=False), true) == 0.5
    assert game_state_grade(EnvironmentAnswer("", 0, terminated=True, truncated=True), true) == 0.0
    assert [reward_grade(each, 0.001) for each in (0.001, 0.0, 0.05, 0.2, 0.5, -1.0)] == [1.0, 1.0, 0.7, 0.4, 0.1, 0.1]
    # An illegal move is −1.0, as the data has it.
    assert reward_grade(0.0, -1.0) == 0.1 and reward_grade(-1.0, -1.0) == 1.0


def test_metrics_are_means_with_the_worst_for_what_is_invalid() -> None:
    scores = [environment().score(text, ROW) for text in (ROW.gold or "", f"{START}+0.501+1+0", "no")]
    means = {
        "format_validity": 2 / 3,
        "next_state_exact": 1 / 3,
        "next_state_distance": (fen_distance(START, AFTER) + 1) / 3,
        "flags_accuracy": 1 / 3,
        "reward_error": (0.5 + 2) / 3,
    }
    found = metrics([*scores, Score(None, fault="timeout")])
    assert found == pytest.approx({f"chess_environment/{name}": value for name, value in means.items()})
    assert metrics([]) == {}


def test_what_is_no_answer_gets_the_floor_and_a_reason() -> None:
    score = environment().score(f"{AFTER}+0.001+0+maybe", ROW)
    assert (score.value, score.valid, score.solved) == (-0.3, False, False) and "'maybe' is no flag" in score.why


OUTCOME = {"next_fen": AFTER, "reward": 0.001, "terminated": False, "truncated": False}


@pytest.mark.parametrize(("record", "message"), [
    ({}, "move: missing"),
    ({"fen": START, "move": "e2e4", "history": [1]}, "history: a list of words"),
    ({"fen": "8/8/8/8/8/8/8/K7 w - - 0 1", "move": "a1a2"}, "no black king"),
    ({"fen": START, "move": "e2e4", **OUTCOME, "reward": "x"}, "reward: 'x' is no number"),
    ({"fen": START, "move": "e2e4", **OUTCOME, "terminated": None}, "terminated: 'None' is neither"),
    ({"text": "A: nothing"}, "text: not of the form"),
])  # fmt: skip
def test_records_that_are_wrong_are_refused_in_one_line(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_row(record)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_outcomes_of_a_file_are_taken_as_they_are() -> None:
    # The rules know of no fivefold repetition here; who has the whole game does.
    row = make_row({"fen": START, "move": "e2e4", **OUTCOME, "reward": 0.5, "terminated": 1})
    assert row.gold == f"{AFTER}+0.5+1+0"
    # And a position that cannot be played, as RookWorld's have, needs no rules where it has labels.
    kingless = "8/p2Q2N1/4p3/r1P1P3/3p4/6NP/r4PP1/3K3R b - - 3 44"
    after = "8/p2Q2N1/4p3/2P1P3/r2p4/6NP/r4PP1/3K3R w - - 4 45"
    row = make_row({"text": f"A: {kingless}+a5a4+a5a4+{after}+0.001+0+0"})
    assert row.gold == f"{after}+0.001+0+0"


def test_a_file_holds_fields(tmp_path: Path) -> None:
    fields = [row.model_dump(mode="json", exclude={"id", "gold", "difficulty"}) for row in SOME[:30]]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, [*fields, fields[0]])))
    rows = load_task(f"chess.environment?path={tmp_path}/{{split}}.jsonl").rows()
    assert [row.gold for row in rows] == [row.gold for row in SOME[:30]]
