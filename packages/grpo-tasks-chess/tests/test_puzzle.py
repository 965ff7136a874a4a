from pathlib import Path

import pytest
from shared_data import shared_data

from grpo_sdk import BoundTask, UserError, load_task
from grpo_sdk.data import split_of
from grpo_tasks_chess.data.mates import mirror_key
from grpo_tasks_chess.puzzle import PuzzleRow, load_csv, make_row
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.rules import legal_moves, position
from grpo_tasks_chess.search import best_moves

# Made for these tests. The first move is the opponent's.
FOOLS_MATE = {
    "PuzzleId": "fools",
    "FEN": "rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2",
    "Moves": "g2g4 d8h4",
    "Rating": "600",
    "Themes": "mate mateIn1 oneMove short",
}
# Two rooks drive the king to the edge.
LADDER = {
    "PuzzleId": "ladder",
    "FEN": "k7/8/1R6/2R5/8/8/8/K7 b - - 0 1",
    "Moves": "a8a7 b6h6 a7b7 c5g5 b7c7 g5g7 c7d8 h6h8",
    "Rating": 1200,
    "Themes": ["mate", "endgame"],
}
MATE = make_row(FOOLS_MATE)


def puzzle(options: str = "") -> BoundTask:
    return load_task(f"chess.puzzle{options}")


def test_the_first_move_is_the_opponents() -> None:
    assert MATE.fen == "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
    assert MATE.solution == ("d8h4",) and MATE.is_mate
    assert (MATE.id, MATE.difficulty, MATE.themes) == ("fools", 600.0, ("mate", "mateIn1", "oneMove", "short"))
    assert make_row(LADDER).themes == ("mate", "endgame")


def test_prompts() -> None:
    assert puzzle().prompt(MATE) == f"Chess puzzle, Black to move.\nFEN: {MATE.fen}\nBest move in UCI:"
    asked = puzzle("?answer=line").prompt(MATE)
    assert isinstance(asked, str) and asked.endswith("Best line, the moves of both sides in UCI:")
    assert puzzle("?template=policy").prompt(MATE) == f"P: {MATE.fen}"


@pytest.mark.parametrize(("value", "texts"), [
    (1.0, [" d8h4", "d8h4\nbecause it is mate", " d8h4 g1f3"]),  # a line is graded by its first move
    (0.1, [" b8c6", " b8c6 d8h4"]),  # legal
    (0.0, [" d8a1", " d1h5"]),  # White's
])  # fmt: skip
def test_the_best_move(value: float, texts: list[str]) -> None:
    for text in texts:
        score = puzzle().score(text, MATE)
        assert score.value == pytest.approx(value) and score.valid and score.solved == (value == 1.0), text


@pytest.mark.parametrize(("text", "why"), [
    (" Qh4#", "'Qh4#' is no move in UCI, as e2e4"),
    ("", "no move"),
    ("\nd8h4", "no move"),
    (" d8h4" * 100, "100 words"),
])  # fmt: skip
def test_what_is_no_move_is_invalid_with_a_reason(text: str, why: str) -> None:
    score = puzzle().score(text, MATE)
    assert (score.value, score.valid, score.solved) == (0.0, False, False) and why in score.why


def test_any_mate_counts_where_the_puzzle_is_a_mate() -> None:
    # Rook and queen mate on the eighth rank; the solution names the rook.
    row = make_row({"FEN": "6k1/8/6K1/8/8/8/R7/2Q5 b - - 0 1", "Moves": "g8h8 a2a8"})
    assert row.is_mate and row.fen.startswith("7k/")
    for task in (puzzle(), puzzle("?answer=line")):
        assert task.score("a2a8", row).solved and task.score("c1c8", row).solved
    assert puzzle().score("c1c7", row).value == pytest.approx(0.1)
    # Where the solution is no mate, only the solution counts.
    assert puzzle().score("c1c8", row.model_copy(update={"is_mate": False})).value == pytest.approx(0.1)


def test_in_a_line_the_share_from_the_first_move_on_counts() -> None:
    row, task = make_row(LADDER), puzzle("?answer=line")
    line = LADDER["Moves"].split()[1:]  # type: ignore[attr-defined] # it is text
    assert row.solution == tuple(line) and len(line) == 7
    for right in range(1, 8):
        score = task.score(" ".join(line[:right]), row)
        assert score.value == pytest.approx(0.1 + 0.9 * right / 7) and score.solved == (right == 7)
    # A wrong reply of the opponent's ends what counts, and so does a wrong move of ours; both can be played.
    assert task.score(f"{line[0]} a7a8 {line[2]}", row).value == pytest.approx(0.1 + 0.9 / 7)
    assert task.score("a1a2 a7b6", row).value == pytest.approx(0.1)
    # After the end nothing can be played: seven of eight moves are legal, seven of eight right.
    assert task.score(f"{' '.join(line)} a1a2", row).value == pytest.approx(0.1 * 7 / 8 + 0.9 * 7 / 8)


def test_the_policy_template_grades_the_best_move_of_a_policy_line() -> None:
    task = puzzle("?template=policy")
    assert task.score("  M: d8h4 b8c6  E: 999.99 0.1   B: d8h4", MATE).solved
    assert task.score("  M: d8h4 b8c6  E: 999.99 0.1   B: b8c6", MATE).value == pytest.approx(0.1)
    assert not task.score("d8h4", MATE).valid


@pytest.mark.parametrize(("record", "message"), [
    ({}, "FEN: missing"),
    ({"FEN": "here", "Moves": "e2e4 e7e5"}, "no FEN"),
    ({**FOOLS_MATE, "Moves": "g2g4"}, "Moves: 1; a puzzle is the opponent's move and 1 to 63 more"),
    ({**FOOLS_MATE, "Moves": "g2g4 Qh4#"}, "'Qh4#' is no legal move, in UCI"),
    ({**FOOLS_MATE, "Rating": "high"}, "Rating: 'high' is no number"),
])  # fmt: skip
def test_records_that_are_wrong_are_refused_in_one_line(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_row(record)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


CSV = "PuzzleId,FEN,Moves,Rating,Themes\n" + "".join(
    f"{number:05},{FOOLS_MATE['FEN'][:-1]}{number},g2g4 d8h4,{rating},{themes}\n"
    for number, (rating, themes) in enumerate([(600, "mate mateIn1"), (1500, "mate"), (2200, "fork"), ("", "mate")], 2)
)


def test_rows_are_filtered_by_rating_and_themes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(CSV)

    def ratings(options: str) -> list[float | None]:
        return [row.difficulty for row in puzzle(f"?path={tmp_path}/{{split}}.csv{options}").rows()]

    assert ratings("") == [600.0, 1500.0, 2200.0, None]
    assert ratings("&min_rating=1000") == [1500.0, 2200.0]
    assert ratings("&max_rating=1500") == [600.0, 1500.0]
    assert ratings("&themes=fork,mateIn1") == [600.0, 2200.0]
    with pytest.raises(UserError, match="no rows"):
        ratings("&max_rating=0")


def test_a_file_is_read_whole_and_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_text(CSV)
    assert [row.gold for row in load_csv(path)] == [" d8h4"] * 4
    path.write_text(f"{CSV}x,{FOOLS_MATE['FEN']},g2g4 Qh4,1,\n")
    with pytest.raises(UserError, match=r"puzzles\.csv:6: Moves: 'Qh4' is no legal move"):
        load_csv(path)
    with pytest.raises(UserError, match="no file"):
        load_csv(tmp_path / "absent.csv")


@pytest.mark.parametrize(("options", "message"), [
    ("answer=line&template=policy", "has room for one"),
    ("min_rating=9&max_rating=8", "min_rating 9 is above max_rating 8"),
    # What generated puzzles lack.
    ("max_rating=1000", "no rating: give rows=lichess"),
    ("themes=fork", "themes of generated puzzles are mateIn1"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        puzzle(f"?{options}")


def test_real_puzzles() -> None:
    """Every gold move and line earns the maximum; another move, unless it mates, the least."""
    path = shared_data("lichess_puzzles_900.csv")
    one, line = puzzle(), puzzle("?answer=line")
    for row, long in zip(load_csv(path)[::9], load_csv(path, answer="line")[::9], strict=True):
        assert one.score(row.gold or "", row).solved and line.score(long.gold or "", long).solved, row.id
        board = position(row.fen)
        wrong = next((each for each in legal_moves(board) if each != row.solution[0]), None)
        if wrong is not None:
            board.push_uci(wrong)
            is_mate = row.is_mate and board.is_checkmate()
            assert one.score(wrong, row).value == pytest.approx(1.0 if is_mate else 0.1), row.id
    splits = [puzzle(f"?path={path}&split={split}").rows() for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 900 and min(map(len, splits)) > 60


def test_generated_puzzles_have_one_good_move_by_the_search() -> None:
    rows = [row for row in puzzle("?size=12&split=test").rows() if isinstance(row, PuzzleRow)]
    assert len(rows) == 12 and rows == puzzle("?size=12&split=test").rows()
    for row in rows:
        lines = best_moves(row.fen, lines=2)
        board = position(row.fen)
        assert split_of(mirror_key(board.piece_map(), board.turn) if row.is_mate else position_key(row.fen)) == "test"
        if row.is_mate:
            assert lines[0].evaluation == 999.99 and "mateIn1" in row.themes
        else:
            assert lines[0].move == row.solution[0] and lines[0].evaluation - lines[1].evaluation >= 2.0
        assert puzzle().score(row.gold or "", row).solved
    assert {row.themes for row in puzzle("?size=3&themes=mateIn1").rows() if isinstance(row, PuzzleRow)} == {
        ("mateIn1", "mate")
    }
