from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import chess
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from grpo_core import BoundTask, Score, UserError, load_task
from grpo_tasks_chess.data.games import endgame, light_player, played
from grpo_tasks_chess.environment.games import generated_rows
from grpo_tasks_chess.environment.grading import fen_distance, game_state_grade, reward_grade
from grpo_tasks_chess.environment.rows import EnvironmentRow, make_row
from grpo_tasks_chess.environment.task import metrics
from grpo_tasks_chess.formats import EnvironmentAnswer, write_environment_completion
from grpo_tasks_chess.records import position_key, position_key_of
from grpo_tasks_chess.rules import play

START = chess.STARTING_FEN
AFTER = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
ROW = make_row({"fen": START, "move": "e2e4"})
SPLITS = ("train", "validation", "test")
SOME = list(islice(generated_rows(0, "train"), 250))


def environment(options: str = "") -> BoundTask:
    return load_task(f"chess.environment?size=50{options}")


def test_prompt_and_gold_are_the_line() -> None:
    assert environment().prompt(ROW) == f"A: {START}+e2e4+e2e4+"
    assert ROW.gold == f"{AFTER}+0.001+0+0"
    # A move that is not legal leaves the board.
    illegal = make_row({"fen": START, "move": "e2e5", "history": ["e2e5"]})
    assert illegal.gold == f"{START}+-1.0+0+1"


@pytest.mark.parametrize("shaping", ["graduated", "linear", "binary", "continuous"])
def test_gold_earns_the_maximum(shaping: str) -> None:
    task = environment(f"&shaping={shaping}")
    for row in task.rows():
        score = task.score(row.gold or "", row)
        assert score.value == pytest.approx(1.0) and score.solved and not score.why, row


def test_generated_rows_follow_the_rules() -> None:
    for row in SOME:
        assert play(row.fen, row.move, row.history) == row.outcome
        assert row.history[-1] == row.move and 1 <= len(row.history) <= 10


def test_generated_rows_show_every_outcome() -> None:
    """Rare ones far more often than games do: a mate ends one game, of some hundred moves."""
    rows = list(islice(generated_rows(1, "train"), 600))
    outcomes = Counter(row.reward for row in rows)
    assert outcomes[1.0] >= 10 and outcomes[0.5] >= 8 and outcomes[-1.0] >= 50 and outcomes[0.001] >= 400
    boards = [(chess.Board(row.fen), chess.Move.from_uci(row.move)) for row in rows if not row.truncated]
    assert sum(board.is_castling(move) for board, move in boards) >= 6
    assert sum(move.promotion is not None for _, move in boards) >= 10
    assert sum(board.is_en_passant(move) for board, move in boards) >= 2
    assert sum(chess.popcount(board.occupied) > 24 for board, _ in boards) >= 120
    assert {len(row.history) for row in rows} == set(range(1, 11))


def test_row_i_depends_on_the_seed_the_split_and_i_alone() -> None:
    task = environment()
    assert task.with_options(size=10).rows() == task.rows()[:10]
    assert task.rows() == environment().rows()
    ids = {row.id for row in task.rows()}
    assert not ids & {row.id for row in task.with_options(seed=1).rows()}


def test_splits_are_disjoint_for_every_pair_of_seeds() -> None:
    keys = {
        (split, seed): {position_key(row.fen) for row in islice(generated_rows(seed, split), 30)}
        for split in SPLITS
        for seed in (0, 1)
    }
    for (split, _), found in keys.items():
        for (other, _), others in keys.items():
            assert split == other or not found & others


def test_the_key_of_a_board_is_that_of_its_fen() -> None:
    random = Random(3)
    boards = [chess.Board("r3k2r/8/8/pP6/8/8/8/R3K2R w KQkq a6 0 30"), chess.Board("8/P6k/8/8/8/8/8/K7 w - - 0 60")]
    boards += (each.copy() for _ in range(20) for each in played(chess.Board(), light_player(random)))
    boards += (each.copy() for _ in range(50) for each in islice(played(endgame(random), light_player(random)), 5))
    assert any(board.has_legal_en_passant() for board in boards)
    for board in boards:
        assert position_key_of(board) == position_key(board.fen())


def test_the_packaged_set_is_right_and_split() -> None:
    found = [load_task(f"chess.environment?rows=packaged&split={split}").rows() for split in SPLITS]
    assert sum(map(len, found)) >= 300 and min(map(len, found)) >= 20
    keys = [{position_key(row.fen) for row in rows if isinstance(row, EnvironmentRow)} for rows in found]
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    for row in (row for rows in found for row in rows):
        assert isinstance(row, EnvironmentRow) and play(row.fen, row.move, row.history) == row.outcome


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
    assert environment().score("e2e4", ROW).value == pytest.approx(-0.3)


def test_binary_pays_the_exact_next_state_only() -> None:
    task = environment("&shaping=binary")
    for row in task.rows():
        assert task.score("a/b+0.001+0+0", row).value == pytest.approx(-0.2), "the form alone"
        copied = task.score(f"{row.fen}+0.001+0+0", row)
        assert copied.solved is (copied.value == 1.0)
    for near in (f"{AFTER[:-1]}2+0.001+0+0", f"{AFTER}+0.001+0+1", f"{AFTER}+0.5+0+0"):
        assert task.score(near, ROW).value == pytest.approx(-0.2)
    assert task.score(f"{AFTER}+0.001+0+0", ROW).value == 1.0


def test_only_binary_is_another_task_than_before() -> None:
    versions = {name: environment(f"&shaping={name}").task.version for name in ("graduated", "linear", "binary")}
    assert versions == {"graduated": "0", "linear": "0", "binary": "1"}


def test_flags_and_rewards_in_steps() -> None:
    true = EnvironmentAnswer(AFTER, 0.001, terminated=False, truncated=False)
    assert game_state_grade(true, true) == 1.0
    assert game_state_grade(EnvironmentAnswer("", 0, terminated=True, truncated=False), true) == 0.5
    assert game_state_grade(EnvironmentAnswer("", 0, terminated=True, truncated=True), true) == 0.0
    assert [reward_grade(each, 0.001) for each in (0.001, 0.0, 0.05, 0.2, 0.5, -1.0)] == [1.0, 1.0, 0.7, 0.4, 0.1, 0.1]
    # An illegal move is −1.0, as the data has it.
    assert reward_grade(0.0, -1.0) == 0.1 and reward_grade(-1.0, -1.0) == 1.0


def test_metrics_are_means_with_the_worst_for_what_is_invalid() -> None:
    task = environment()
    scores = [task.score(text, ROW) for text in (ROW.gold or "", f"{START}+0.501+1+0", "no")]
    distance = fen_distance(START, AFTER)
    assert metrics([*scores, Score(None, fault="timeout")]) == pytest.approx(
        {
            "chess_environment/format_validity": 2 / 3,
            "chess_environment/next_state_exact": 1 / 3,
            "chess_environment/next_state_distance": (distance + 1) / 3,
            "chess_environment/flags_accuracy": 1 / 3,
            "chess_environment/reward_error": (0.5 + 2) / 3,
        }
    )
    assert metrics([]) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "1 fields"),
        (f"{AFTER}+0.001+0", "3 fields"),
        (f"{AFTER}+0.001+0+maybe", "'maybe' is no flag"),
        (f"{AFTER}+much+0+0", "'much' is no reward"),
        ("e4+0.001+0+0", "no position"),
        ("/" * 10_000, "more than 2000 characters"),
        ("\udc80", "1 fields"),
    ],
)
def test_what_is_no_answer_gets_the_floor_and_a_reason(text: str, why: str) -> None:
    score = environment().score(text, ROW)
    assert (score.value, score.valid, score.solved) == (-0.3, False, False)
    assert why in score.why


def corrupted(row: EnvironmentRow, amount: float, random: Random) -> str:
    """The gold completion, damaged: up to 0.7 ever more of the position, then the reward and the flags."""
    fen = list(row.next_fen)
    for index in random.sample(range(len(fen)), round(min(1.0, amount / 0.7) * len(fen))):
        fen[index] = random.choice("pnbrqkPNBRQK12345678/ ")
    answer = EnvironmentAnswer(
        "".join(fen) if "/" in fen else "/" + "".join(fen),
        row.reward - 0.5 * (amount > 0.8),
        row.terminated ^ (amount > 0.87),
        row.truncated ^ (amount > 0.94),
    )
    return write_environment_completion(answer)


@pytest.mark.parametrize("shaping", ["continuous", "graduated"])
def test_reward_falls_with_corruption(shaping: str) -> None:
    task, random = environment(f"&shaping={shaping}"), Random(0)
    amounts = [random.random() for _ in range(500)]
    rewards = [
        task.score(corrupted(row, amount, random), row).value or 0.0
        for row, amount in zip(SOME * 2, amounts, strict=True)
    ]
    assert spearmanr(amounts, rewards).statistic <= -0.95


@settings(max_examples=50)
@given(st.text(alphabet=st.characters() | st.sampled_from("+/ 018\ud800"), max_size=300))
def test_any_text_gets_a_verdict(text: str) -> None:
    score = environment().score(text, ROW)
    assert not score.abstained and score.value is not None and -0.3 <= score.value <= 1.0


OUTCOME = {"next_fen": AFTER, "reward": 0.001, "terminated": False, "truncated": False}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "move: missing"),
        ({"fen": "here", "move": "e2e4"}, "no FEN"),
        ({"fen": START, "move": "e4"}, "'e4' is no move in UCI"),
        ({"fen": START, "move": "e2e4", "history": ["e2e4"] * 11}, "a history of 11 moves; at most 10"),
        ({"fen": START, "move": "e2e4", "history": ["d2d4"]}, "must end with the move that is played"),
        ({"fen": START, "move": "e2e4", "history": [1]}, "history: a list of words"),
        ({"fen": "8/8/8/8/8/8/8/K7 w - - 0 1", "move": "a1a2"}, "no black king"),
        ({"fen": START, "move": "e2e4", **OUTCOME, "reward": "x"}, "reward: 'x' is no number"),
        ({"fen": START, "move": "e2e4", **OUTCOME, "terminated": None}, "terminated: 'None' is neither"),
        ({"fen": START, "move": "e2e4", **OUTCOME, "next_fen": "there"}, "no FEN"),
        ({"text": "A: nothing"}, "text: not of the form"),
    ],
)
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


def test_lines_of_a_file_are_set_to_what_the_rules_say(tmp_path: Path) -> None:
    """RookWorld played illegal moves, lost a king that way, and left out the prefix."""
    lines = [
        f"{START}+e2e4+e2e4+{AFTER}+0.001+0+0",
        f"A: {START}+e1e5+e1e5+rnbqkbnr/pppppppp/8/4K3/8/8/PPPPPPPP/RNBQ1BNR b kq - 1 1+0.001+0+0",
        "A: 8/p2Q2N1/4p3/r1P1P3/3p4/6NP/r4PP1/3K3R b - - 3 44+a5a4+a5a4+8/8/8/8/8/8/8/8 w - - 4 45+0.001+0+0",
        "P: not this kind",
    ]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": line}) for line in lines))
    task = load_task(f"chess.environment?path={tmp_path}/{{split}}.jsonl")
    assert [row.gold for row in task.rows()] == [f"{AFTER}+0.001+0+0", f"{START}+-1.0+0+1"]


def test_a_file_of_fields(tmp_path: Path) -> None:
    records = [row.model_dump(mode="json", exclude={"id", "gold", "difficulty"}) for row in SOME[:30]]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, [*records, records[0]])))
    task = load_task(f"chess.environment?path={tmp_path}/{{split}}.jsonl")
    assert task.rows() == SOME[:30]
    with pytest.raises(UserError, match="no file"):
        load_task(f"chess.environment?path={tmp_path}/absent.jsonl").rows()


_PROBE = """
import hashlib, sys
from grpo_core import load_task

digest = hashlib.sha256()
task = load_task("chess.environment?size=30")
for row in task.rows():
    digest.update(row.model_dump_json().encode() + repr(task.score(row.gold, row)).encode())
digest.update(load_task("chess.policy").identity.encode() + load_task("chess.puzzle").task.name.encode())
print(digest.hexdigest(), sorted({"torch", "transformers", "datasets", "numpy", "scipy", "pyarrow"} & set(sys.modules)))
"""


def test_rows_and_scores_are_the_same_in_every_process_and_import_nothing_heavy() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].endswith("[]\n")
