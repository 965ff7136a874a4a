from pathlib import Path
from random import Random

import chess
import orjson
import pytest

from grpo_sdk import UserError, load_task
from grpo_tasks_chess.data import rookworld
from grpo_tasks_chess.data.checking import check
from grpo_tasks_chess.formats import PolicyAnswer, Transition, write_environment_line, write_policy_line
from grpo_tasks_chess.rules import play

# Published rows, with fewer spaces. Black's best move is the worst one listed; the highest is h7f8.
WHITE = (
    "P: 3r2r1/pp2kp1p/2pb4/3n4/5P2/P3PKN1/1P3P1P/1BR3R1 w - - 7 26 "
    "M: b1a2 g1d1 g3f5 e3e4 h2h4 E: 3.83 3.83 3.9 4.41 3.92 B: e3e4"
)
BLACK = (
    "P: 2b3k1/Q4rqn/p2p4/4p3/p6p/2PP3P/BP3PP1/R5K1 b - - 0 34 "
    "M: a4a3 c8f5 h7f6 h7g5 h7f8 E: -3.06 -2.82 -3.21 -3.16 -2.3 B: h7f6"
)
MOVE = (
    "1k1r2nr/1p4b1/2pP3p/q3N1P1/R1PP1B2/3B1N1P/1P3QP1/5RK1 b - - 0 22+g8e7+"
    "c1f4 b4a5 e4f6 e6e5 f6d7 f8g7 d7e5 c8b8 a1a4 g8e7+"
    "1k1r3r/1p2n1b1/2pP3p/q3N1P1/R1PP1B2/3B1N1P/1P3QP1/5RK1 w - - 1 23+0.001+0+0"
)
KING_TAKEN = (
    "A: 8/p2Q2N1/4p3/r1P1P3/3p4/6NP/r4PP1/3K3R b - - 3 44+a5a4+"
    "f7e8 a6a5 e8c6 f3a3 c6b7 d5d4 b7d7 a3a2 d2d1 a5a4+8/p2Q2N1/4p3/2P1P3/r2p4/6NP/r4PP1/3K3R w - - 4 45+0.001+0+0"
)
# The published environment played what is illegal, as long as a piece stood there.
PLAYED_ILLEGALLY = (
    "A: rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1+e1e5+e1e5+"
    "rnbqkbnr/pppppppp/8/4K3/8/8/PPPPPPPP/RNBQ1BNR b kq - 1 1+0.001+0+0"
)


def policy_lines(count: int, *, worst: bool) -> list[str]:
    """Lines of Black's positions; B: is the highest evaluated move, or the lowest."""
    lines = []
    for number in range(count):
        board = chess.Board()
        random = Random(number)
        for _ in range(7):
            board.push(random.choice(list(board.legal_moves)))
        moves = [move.uci() for move in board.legal_moves][:3]
        values = random.sample([-0.5, 0.25, 1.0], 3)
        best = (min if worst else max)(zip(values, moves, strict=True))[1]
        lines.append(write_policy_line(board.fen(), PolicyAnswer(tuple(moves), tuple(values), best)))
    return lines


def text_file(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_published_lines_become_records(tmp_path: Path) -> None:
    source = text_file(tmp_path / "rows.txt", [WHITE, "", MOVE, BLACK])
    (where, white), (_, black) = rookworld.records(source, "policy")
    assert where == f"{source}:1" and white["fen"] == "3r2r1/pp2kp1p/2pb4/3n4/5P2/P3PKN1/1P3P1P/1BR3R1 w - - 7 26"
    assert white["moves"] == ["b1a2", "g1d1", "g3f5", "e3e4", "h2h4"]
    assert white["evaluations"] == [3.83, 3.83, 3.9, 4.41, 3.92] and white["best"] == "e3e4"
    assert black["best"] == "h7f8"  # this one row of Black has the worst for the best: it is set right
    ((where, move),) = rookworld.records(source, "environment")  # without its "A: "
    assert where == f"{source}:3"
    assert (move["move"], move["history"][-1], len(move["history"])) == ("g8e7", "g8e7", 10)
    assert move["next_fen"] == "1k1r3r/1p2n1b1/2pP3p/q3N1P1/R1PP1B2/3B1N1P/1P3QP1/5RK1 w - - 1 23"
    assert (move["reward"], move["terminated"], move["truncated"]) == (0.001, False, False)


@pytest.mark.parametrize(("worst", "best", "are_set_right"), [(40, 3, True), (3, 40, False)])
def test_blacks_best_moves_are_set_right_where_most_are_the_worst(
    worst: int, best: int, are_set_right: bool, tmp_path: Path
) -> None:
    lines = [WHITE, *policy_lines(best, worst=False), *policy_lines(worst, worst=True)]
    report = rookworld.Report()
    source = text_file(tmp_path / "rows.txt", lines)
    records = [record for _, record in rookworld.records(source, "policy", report=report)]
    highest = [each["evaluations"][each["moves"].index(each["best"])] == max(each["evaluations"]) for each in records]
    assert highest == [True] * (1 + best) + [are_set_right] * worst
    assert (report.labels.lowest, report.labels.highest, report.rows) == (worst, best, 44)
    assert report.labels.are_inverted == are_set_right
    assert ("lowest in 40 of 43 rows; it is set to the highest" in str(report.labels)) == are_set_right


def test_equal_evaluations_decide_nothing() -> None:
    labels = rookworld.Labels()
    labels.add(PolicyAnswer(("e2e4", "d2d4"), (0.3, 0.3), "e2e4"))
    labels.add(PolicyAnswer(("e2e4",), (0.3,), "e2e4"))
    labels.add(PolicyAnswer(("e2e4", "d2d4", "c2c4"), (0.3, 0.2, 0.1), "d2d4"))
    assert (labels.highest, labels.lowest, labels.between) == (0, 0, 1)


def test_outcomes_are_what_the_rules_say(tmp_path: Path) -> None:
    source = text_file(tmp_path / "rows.txt", [PLAYED_ILLEGALLY, f"A: {MOVE}", KING_TAKEN])
    report = rookworld.Report()
    illegal, legal = (record for _, record in rookworld.records(source, "environment", report=report))
    assert (illegal["next_fen"], illegal["reward"], illegal["truncated"]) == (chess.STARTING_FEN, -1.0, True)
    assert legal["reward"] == 0.001
    ((problem, count),) = report.unreadable.items()
    assert "no black king" in problem and count == 1


def test_what_cannot_be_read_is_counted_and_passed_over(tmp_path: Path) -> None:
    rubbish = ["P: nothing", "P: " + "x" * 100_000, "\x00", "A: 8/8+e2e4+e2e4+8/8+0.001+0+0", "P: 8/8 M: z E: 1 B: z"]
    source = text_file(tmp_path / "rows.txt", [*rubbish, WHITE])
    report = rookworld.Report()
    assert len(list(rookworld.records(source, "policy", report=report))) == 1
    assert sum(report.unreadable.values()) >= 3
    with pytest.raises(UserError, match="no A: line can be read"):
        list(rookworld.records(source, "environment"))
    with pytest.raises(UserError, match="no file"):
        list(rookworld.records(str(tmp_path / "none.txt"), "policy"))
    (tmp_path / "rows.jsonl").write_text('{"fen": "x"}\n')
    with pytest.raises(UserError, match=r"no text; RookWorld's rows have a column text\. It has: fen"):
        list(rookworld.records(str(tmp_path / "rows.jsonl"), "policy"))


def test_the_hubs_test_split_lends_the_rows_that_are_not_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(source: str, *, split: str) -> list[tuple[str, dict[str, str]]]:
        asked.append((source, split))
        return [(f"{split} row {number}", {"text": line}) for number, line in enumerate(policy_lines(30, worst=False))]

    monkeypatch.setattr(rookworld, "read_records", read)
    found = {
        split: [where for where, _ in rookworld.records(rookworld.HUB, "policy", split)]
        for split in ("train", "validation", "test")
    }
    assert asked == [(rookworld.HUB, "train"), (rookworld.HUB, "test"), (rookworld.HUB, "test")]
    assert all(where.startswith("train") for where in found["train"])
    assert all(where.startswith("test") for where in found["validation"] + found["test"])


def test_a_task_reads_its_kind_of_lines_set_right(tmp_path: Path) -> None:
    text_file(tmp_path / "train.txt", [*policy_lines(20, worst=True), MOVE, PLAYED_ILLEGALLY, KING_TAKEN])
    rows = load_task(f"chess.policy?path={tmp_path}/{{split}}.txt").rows()
    assert len(rows) == 20 and all(row.evaluations[row.moves.index(row.best)] == max(row.evaluations) for row in rows)
    legal, illegal = load_task(f"chess.environment?path={tmp_path}/{{split}}.txt").rows()
    assert str(legal.gold).endswith("+0.001+0+0") and illegal.gold == f"{chess.STARTING_FEN}+-1.0+0+1"


def test_a_check_finds_wrong_labels_and_shared_positions(tmp_path: Path) -> None:
    e4 = Transition(chess.STARTING_FEN, "e2e4", ("e2e4",))
    right = write_environment_line(e4, play(e4.fen, e4.move, e4.history))
    # The square behind the pawn is written only where it can be taken; this is RookWorld's own mistake of old.
    wrong = right.replace("KQkq - 0 1+0.001", "KQkq e3 0 1+0.001")
    one = text_file(tmp_path / "one.txt", [WHITE, BLACK, right])
    two = text_file(tmp_path / "two.txt", [WHITE.replace("w - - 7 26", "w - - 0 1"), wrong, "P: 8/8 M:"])
    report = check([one, two])
    assert not report["ok"]
    first, second = report["files"]
    assert first["rows"] == {"policy": 2, "environment": 1}
    assert sum(first["splits"].values()) == 3
    assert first["problems"] == {"the best move is not evaluated highest": {"rows": 1, "first": [f"{one}:2"]}}
    assert first["best_move_is_evaluated"] == {
        "white": {"highest": 1, "lowest": 0, "between": 0},
        "black": {"highest": 0, "lowest": 1, "between": 0},
    }
    assert set(second["problems"]) == {"the rules say another outcome", "cannot be read"}
    # The clocks apart it is the same position of White, and the same start.
    assert [(pair["kind"], pair["positions"]) for pair in report["shared"]] == [("policy", 1), ("environment", 1)]


def test_a_check_of_what_is_right(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    moves, evaluations = ["e2e4", "d2d4", "g1f3", "c2c4", "b1c3"], [0.3, 0.2, 0.2, 0.1, 0.0]
    for count, problems in ((2, {"fewer candidates than there are"}), (5, set())):
        fields = {"fen": chess.STARTING_FEN, "moves": moves[:count], "evaluations": evaluations[:count], "best": "e2e4"}
        path.write_bytes(orjson.dumps(fields))
        assert check([str(path)])["files"][0]["problems"].keys() == problems
    assert check([str(path)])["ok"]
