"""`chess.best_move`, `chess.mate_in_one`, `chess.legal_moves`: rows, prompts, scores."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import chess
import orjson
import pytest

from grpo_core import UserError, load_task
from grpo_core.data import split_of
from grpo_tasks_chess.data.mates import mates_in_one, mirror_key
from grpo_tasks_chess.data.positions import positions
from grpo_tasks_chess.mate_in_one import MateRow, row_of
from grpo_tasks_chess.policy.rows import make_row
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.search import best_moves

FOOLS_MATE = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"

TASKS = ("best_move", "mate_in_one", "legal_moves")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_positions_belong_to_their_split_and_depend_on_the_seed(split: str) -> None:
    first = [board.fen() for board in islice(positions(0, split, label="a"), 40)]
    assert first == [board.fen() for board in islice(positions(0, split, label="a"), 40)]
    assert first != [board.fen() for board in islice(positions(1, split, label="a"), 40)]
    assert {split_of(position_key(fen)) for fen in first} == {split}
    assert not any(chess.Board(fen).is_game_over() for fen in first)
    mates = [board.copy() for board in islice(mates_in_one(0, split, label="a"), 10)]
    assert {split_of(mirror_key(board.piece_map(), board.turn)) for board in mates} == {split}


@pytest.mark.parametrize("name", ["policy", "best_move", "legal_moves"])
def test_a_share_of_the_positions_is_in_check(name: str) -> None:
    def share(options: str) -> float:
        rows = list(load_task(f"chess.{name}?size=200&{options}").rows())
        assert len({position_key(row.fen) for row in rows}) == 200  # type: ignore[attr-defined]
        boards = [chess.Board(row.fen) for row in rows]  # type: ignore[attr-defined]
        assert all(any(board.legal_moves) for board in boards)
        assert {split_of(position_key(board.fen())) for board in boards} == {"train"}
        return sum(board.is_check() for board in boards) / 200

    assert share("in_check=1") == 1
    assert 0.4 < share("in_check=0.5") < 0.65
    assert 0 < share("in_check=0") < 0.15


def mirror_images(board: chess.Board) -> list[chess.Board]:
    images = [board, board.mirror()]
    return images + [image.transform(chess.flip_horizontal) for image in images]


@pytest.mark.parametrize("options", ["size=40", "size=10&themes=knight,discovered"])
def test_no_mate_is_the_mirror_image_of_one_in_another_split(options: str) -> None:
    boards = {
        split: [chess.Board(row.fen) for row in load_task(f"chess.mate_in_one?{options}&split={split}").rows()]
        for split in ("train", "test")
    }
    trained = {position_key(image.fen()) for board in boards["train"] for image in mirror_images(board)}
    assert trained.isdisjoint(position_key(board.fen()) for board in boards["test"])
    for board in boards["test"]:
        assert len({mirror_key(image.piece_map(), image.turn) for image in mirror_images(board)}) == 1


@pytest.mark.parametrize("name", ["legal_moves", "environment"])
def test_the_splits_play_different_games(name: str) -> None:
    """Positions a move apart have nearly the same answers."""

    def pieces(split: str) -> list[frozenset[tuple[int, chess.Piece]]]:
        rows = load_task(f"chess.{name}?size=150&split={split}").rows()
        return [frozenset(chess.Board(row.fen).piece_map().items()) for row in rows]  # type: ignore[attr-defined]

    trained = pieces("train")
    near = sum(any(len(each ^ other) <= 4 for other in trained) for each in pieces("test") if len(each) > 6)
    assert near < 15, "openings alone may meet"


def test_every_mate_is_one_and_none_is_left_out() -> None:
    for row in load_task("chess.mate_in_one?size=40").rows():
        assert isinstance(row, MateRow)
        board = chess.Board(row.fen)
        mating = set()
        for move in list(board.legal_moves):
            board.push(move)
            if board.is_checkmate():
                mating.add(move.uci())
            board.pop()
        assert board.is_valid() and mating == set(row.mates)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("template", ["plain", "policy"])
def test_golds_and_demos_are_solved(name: str, template: str) -> None:
    task = load_task(f"chess.{name}?size=12&template={template}&split=test")
    for row, (prompt, completion) in zip(task.rows(), task.demos(), strict=True):
        assert prompt == task.prompt(row)
        assert completion == row.gold and task.score(completion, row).solved
        assert task.score(completion, row).value == pytest.approx(1.0)


def test_rows_without_labels_have_demos_by_the_search() -> None:
    task = load_task("chess.best_move?engine=search&size=4")
    for row, (_, completion) in zip(task.rows(), task.demos(), strict=True):
        assert row.gold is None and task.score(completion, row).solved
        assert completion.strip() == best_moves(chess.Board(dict(row)["fen"]).fen(), lines=1)[0].move
    assert "built-in search to depth 2" in task.conditions["chess engine"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("best_move", "d8h4", 1.0),
        ("best_move", "d8h4\nI think", 1.0),
        ("best_move", "a7a6", 0.2),
        ("best_move", "a7a3", 0.0),
        ("mate_in_one", " d8h4", 1.0),
        ("mate_in_one", "a7a6", 0.1),
        ("mate_in_one", "e2e4", 0.0),
        ("mate_in_one", "Qh4#", 0.0),
        ("mate_in_one", "d8h4 a7a6", 0.0),
        ("mate_in_one", "", 0.0),
        ("mate_in_one", "d8h4" * 1000, 0.0),
        ("legal_moves", "d8h4", 2 / 31),
        ("legal_moves", "d8h4 d8h4 d8h4", 2 / 33),
        ("legal_moves", "d8h5", 0.0),
        ("legal_moves", " ".join(["d8h4"] * 219), 0.0),
    ],
)
def test_values(name: str, text: str, value: float, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps({"fen": FOOLS_MATE}))
    task = load_task(f"chess.{name}?path={tmp_path}/rows.jsonl&split={split_of(position_key(FOOLS_MATE))}&engine=search"
                     if name == "best_move" else
                     f"chess.{name}?path={tmp_path}/rows.jsonl&split={split_of(position_key(FOOLS_MATE))}")  # fmt: skip
    (row,) = task.rows()
    assert task.score(text, row).value == pytest.approx(value)


def test_a_whole_list_is_solved_in_any_order_and_once() -> None:
    task = load_task("chess.legal_moves?size=3")
    for row in task.rows():
        moves = str(row.gold).split()
        assert len(moves) == row.difficulty == chess.Board(dict(row)["fen"]).legal_moves.count()
        assert task.score(" ".join(reversed(moves)), row).solved
        assert not task.score(" ".join([*moves, moves[0]]), row).solved
        assert not task.score(" ".join(moves[:-1]), row).solved
    assert max(row.difficulty or 0 for row in load_task("chess.legal_moves?size=20&max_moves=5").rows()) <= 5


def test_themes_take_and_leave_out() -> None:
    for row in load_task("chess.mate_in_one?size=6&themes=promotion").rows():
        assert "promotion" in dict(row)["themes"]
    for row in load_task("chess.mate_in_one?size=20&without_themes=queen").rows():
        assert "queen" not in dict(row)["themes"]
    with pytest.raises(UserError, match="themes"):
        load_task("chess.mate_in_one?themes=quen")
    with pytest.raises(UserError, match="knight is both in themes and in without_themes"):
        load_task("chess.mate_in_one?themes=knight&without_themes=knight")
    with pytest.raises(UserError, match="without_themes leaves no piece that mates"):
        load_task("chess.mate_in_one?without_themes=queen,rook,bishop,knight,pawn")


@pytest.mark.parametrize("name", ["policy", "best_move"])
def test_positions_with_best_moves_may_have_the_themes_of_mates(name: str, tmp_path: Path) -> None:
    spec = f"chess.{name}?engine=search&size=5&themes=knight,discovered"
    for split in ("train", "test"):
        task = load_task(f"{spec}&split={split}")
        for row in task.rows():
            board = chess.Board(dict(row)["fen"])
            mates = row_of(board)
            assert {"knight", "discovered"}.intersection(mates.themes)
            assert split_of(mirror_key(board.piece_map(), board.turn)) == split, "as the mates of chess.mate_in_one"
            for move in mates.mates:
                answer = f"M: {move} E: 999.99 B: {move}" if name == "policy" else move
                assert task.score(answer, row).parts["best_move_accuracy"] == 1.0
    rows = [{"fen": FOOLS_MATE}, {"fen": "7k/P5pp/8/8/8/8/8/K7 w - - 0 1"}, {"fen": chess.STARTING_FEN}]
    (tmp_path / "test.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))

    def fens(themes: str) -> list[str]:
        task = load_task(f"chess.{name}?path={tmp_path}/{{split}}.jsonl&split=test&{themes}")
        return [dict(row)["fen"] for row in task.rows()]

    assert fens("themes=queen,promotion") == [rows[0]["fen"], rows[1]["fen"]]
    assert fens("without_themes=queen") == [rows[1]["fen"], rows[2]["fen"]]
    assert load_task(f"chess.{name}?split=test&size=5&without_themes=queen").rows()[0].gold, "of the package"
    with pytest.raises(UserError, match="in_check is of positions from games"):
        load_task(f"{spec}&in_check=0.5")


def test_how_a_move_mates_is_its_theme() -> None:
    discovered = row_of(chess.Board("6bk/7p/8/8/3N4/8/1B6/K7 w - - 0 1"))
    assert discovered.themes == ("discovered", "knight") and len(discovered.mates) == 8
    assert row_of(chess.Board("7k/P5pp/8/8/8/8/8/K7 w - - 0 1")).themes == ("pawn", "promotion")
    with pytest.raises(ValueError, match="no move mates"):
        row_of(chess.Board())


def test_labels_of_a_file_are_used() -> None:
    row = make_row({"fen": FOOLS_MATE, "moves": ["d8h4", "a7a6"], "evaluations": [999.99, 0], "best": "d8h4"})
    score = load_task("chess.best_move?engine=none").score("a7a6", row)
    assert score.parts["graded_by_labels"] == 1.0 and score.value == 0.7
