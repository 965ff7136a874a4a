"""`chess.best_move`, `chess.mate_in_one`, `chess.legal_moves`: rows, prompts, scores."""

from pathlib import Path

import chess
import orjson
import pytest

from grpo_sdk import UserError, load_task
from grpo_sdk.data import split_of
from grpo_tasks_chess.data.mates import mirror_key
from grpo_tasks_chess.questions import MateRow, mate_row
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.search import best_moves

FOOLS_MATE = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"


@pytest.mark.parametrize("name", ["policy", "legal_moves"])
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


@pytest.mark.parametrize("options", ["size=15", "size=5&themes=knight,discovered"])
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


@pytest.mark.parametrize("name", ["best_move", "mate_in_one", "legal_moves"])
def test_golds_and_demos_of_the_policy_template_are_solved(name: str) -> None:
    task = load_task(f"chess.{name}?size=12&template=policy&split=test")
    for row, (prompt, completion) in zip(task.rows(), task.demos(), strict=True):
        assert (prompt, completion) == (task.prompt(row), row.gold)
        assert task.score(completion, row).solved and task.score(completion, row).value == pytest.approx(1.0)


def test_rows_without_labels_have_demos_by_the_search() -> None:
    task = load_task("chess.best_move?engine=search&size=4")
    for row, (_, completion) in zip(task.rows(), task.demos(), strict=True):
        assert row.gold is None and task.score(completion, row).solved
        assert completion.strip() == best_moves(chess.Board(dict(row)["fen"]).fen(), lines=1)[0].move
    assert "built-in search to depth 2" in task.conditions["chess engine"]


@pytest.mark.parametrize(("name", "value", "texts"), [
    ("best_move", 1.0, ["d8h4", "d8h4\nI think"]),
    ("best_move", 0.2, ["a7a6"]),
    ("best_move", 0.0, ["a7a3"]),
    ("mate_in_one", 1.0, [" d8h4"]),
    ("mate_in_one", 0.1, ["a7a6"]),
    ("mate_in_one", 0.0, ["e2e4", "Qh4#", "d8h4 a7a6", "", "d8h4" * 1000]),
    ("legal_moves", 2 / 31, ["d8h4"]),
    ("legal_moves", 2 / 33, ["d8h4 d8h4 d8h4"]),
    ("legal_moves", 0.0, ["d8h5", " ".join(["d8h4"] * 219)]),
])  # fmt: skip
def test_values(name: str, value: float, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(orjson.dumps({"fen": FOOLS_MATE}))
    engine = "&engine=search" if name == "best_move" else ""
    task = load_task(f"chess.{name}?path={tmp_path}/{{split}}.jsonl{engine}")
    (row,) = task.rows()
    assert [task.score(text, row).value for text in texts] == pytest.approx([value] * len(texts))


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


@pytest.mark.parametrize(("options", "message"), [
    ("mate_in_one?themes=quen", "themes"),
    ("mate_in_one?themes=knight&without_themes=knight", "knight is both in themes and in without_themes"),
    ("mate_in_one?without_themes=queen,rook,bishop,knight,pawn", "without_themes leaves no piece"),
    ("policy?engine=search&themes=knight&in_check=0.5", "in_check is of positions from games"),
])  # fmt: skip
def test_themes_that_cannot_be_are_refused(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task(f"chess.{options}").rows()


@pytest.mark.parametrize("name", ["policy", "best_move"])
def test_positions_with_best_moves_may_have_the_themes_of_mates(name: str, tmp_path: Path) -> None:
    task = load_task(f"chess.{name}?engine=search&size=2&themes=knight,discovered&split=train")
    for row in task.rows():
        assert {"knight", "discovered"}.intersection(mate_row(chess.Board(dict(row)["fen"])).themes)
    mate, promotion = FOOLS_MATE, "7k/P5pp/8/8/8/8/8/K7 w - - 0 1"
    rows = [{"fen": fen} for fen in (mate, promotion, chess.STARTING_FEN)]
    (tmp_path / "test.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    for themes, fens in (
        ("themes=queen,promotion", [mate, promotion]),
        ("without_themes=queen", [promotion, chess.STARTING_FEN]),
    ):
        task = load_task(f"chess.{name}?path={tmp_path}/{{split}}.jsonl&split=test&{themes}")
        assert [dict(row)["fen"] for row in task.rows()] == fens
    assert load_task(f"chess.{name}?split=test&size=5&without_themes=queen").rows()[0].gold, "of the package"


def test_how_a_move_mates_is_its_theme() -> None:
    discovered = mate_row(chess.Board("6bk/7p/8/8/3N4/8/1B6/K7 w - - 0 1"))
    assert discovered.themes == ("discovered", "knight") and len(discovered.mates) == 8
    assert mate_row(chess.Board("7k/P5pp/8/8/8/8/8/K7 w - - 0 1")).themes == ("pawn", "promotion")
    with pytest.raises(ValueError, match="no move mates"):
        mate_row(chess.Board())
