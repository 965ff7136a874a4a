import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import UserError
from grpo_tasks_chess.formats import EnvironmentAnswer
from grpo_tasks_chess.rules import legal_moves, play, position, read_fen

START = chess.STARTING_FEN


OPEN = "rnbqkbnr/ppp1pppp/8/8/3p4/8/PPPPPPPP/RNBQKBNR w KQkq - 0 3"
FOOLS_MATE = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
ROOKS = "4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1"


@pytest.mark.parametrize(("fen", "move", "after", "reward"), [
    # No black pawn can take on e3, so no en-passant square is written.
    (START, "e2e4", "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1", 0.001),
    # Here the pawn on d4 can.
    (OPEN, "e2e4", "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3", 0.001),
    # It could, but its king would be in check of the queen: the capture is not legal.
    ("8/8/8/8/k2p3Q/8/4P3/4K3 w - - 0 1", "e2e4", "8/8/8/8/k2pP2Q/8/8/4K3 b - - 0 1", 0.001),
    (FOOLS_MATE, "d8h4", "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3", 1.0),
    # Stalemate, and king against king.
    ("7k/8/6K1/8/8/8/8/5Q2 w - - 4 60", "f1f7", "7k/5Q2/6K1/8/8/8/8/8 b - - 5 60", 0.5),
    ("8/8/8/3k4/4P3/8/8/K7 b - - 0 50", "d5e4", "8/8/8/8/4k3/8/8/K7 w - - 0 51", 0.5),
    # The 75-move rule: 150 half-moves; after 149 the game goes on, and a mate on the 150th is a mate.
    ("7k/8/8/8/8/8/R7/K7 w - - 149 99", "a1b1", "7k/8/8/8/8/8/R7/1K6 b - - 150 99", 0.5),
    ("7k/8/8/8/8/8/R7/K7 w - - 148 99", "a1b1", "7k/8/8/8/8/8/R7/1K6 b - - 149 99", 0.001),
    ("7k/8/6K1/8/8/8/R7/8 w - - 149 99", "a2a8", "R6k/8/6K1/8/8/8/8/8 b - - 150 99", 1.0),
    ("8/P6k/8/8/8/8/8/K7 w - - 0 1", "a7a8n", "N7/7k/8/8/8/8/8/K7 b - - 0 1", 0.5),
    (ROOKS, "e1g1", "4k3/8/8/8/8/8/8/R4RK1 b - - 1 1", 0.001),
])  # fmt: skip
def test_outcomes(fen: str, move: str, after: str, reward: float) -> None:
    assert play(fen, move, (move,)) == EnvironmentAnswer(after, reward, reward != 0.001, False)


@pytest.mark.parametrize(("fen", "move"), [
    (ROOKS, "e1h1"),  # castling has one spelling
    (START, "e4e5"),  # no piece there
    (START, "e1e2"),  # an own piece there
    ("4k3/8/8/8/4r3/8/4R3/4K3 w - - 0 1", "e2d2"),  # a pinned piece
    ("8/P6k/8/8/8/8/8/K7 w - - 0 1", "a7a8"),  # a pawn that does not become a piece
    ("7k/5Q2/6K1/8/8/8/8/8 b - - 5 60", "h8g8"),  # the game is over: nothing is legal
])  # fmt: skip
def test_an_illegal_move_leaves_the_board(fen: str, move: str) -> None:
    assert play(fen, move, (move,)) == EnvironmentAnswer(fen, -1.0, False, True)


@pytest.mark.parametrize(("fen", "message"), [
    ("e2e4", "no FEN: 'e2e4'"),
    ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -", "six fields"),
    ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN w KQkq - 0 1", "no FEN"),
    (f"8/8/8/8/8/8/8/K1k5 w - - {'9' * 5000} 1", "'9{80}' is no half-move clock"),
    ("8/8/8/8/8/8/8/K1k5 w - e9 0 1", "'e9' is no en-passant square"),
    ("8/8/8/8/8/8/8/K1k5 x - - 0 1", "'x' is no side to move"),
    ("8/8/8/8/8/8/8/K1k5 w - - 0 \n", "is no move number"),
    ("\udc80", "no FEN"),
    ("8/8/8/8/8/8/8/8 w - - 0 1", "no piece"),
    ("8/8/8/8/8/8/8/K7 w - - 0 1", "no black king"),
    ("8/8/8/8/8/8/8/K1K3k1 w - - 0 1", "more than one king"),
    ("4k2P/8/8/8/8/8/8/4K3 w - - 0 1", "pawn on the first or last rank"),
    ("4k3/4R3/8/8/8/8/8/4K3 w - - 0 1", "not to move"),
])  # fmt: skip
def test_what_is_no_position_is_refused_in_one_line(fen: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        play(fen, "e2e4", ("e2e4",))
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_a_published_position_without_a_king_can_be_read_but_not_played() -> None:
    fen = "8/p2Q2N1/4p3/r1P1P3/3p4/6NP/r4PP1/3K3R b - - 3 44"
    assert read_fen(fen).fen() == fen
    with pytest.raises(UserError, match="no black king"):
        position(fen)


def test_moves_and_histories_of_another_form_are_refused() -> None:
    with pytest.raises(UserError, match="'Nf3' is no move in UCI"):
        play(START, "Nf3", ("Nf3",))
    with pytest.raises(UserError, match="must end with"):
        play(START, "e2e4", ())


@given(st.lists(st.integers(0, 10_000), max_size=80))
def test_a_game_of_outcomes_is_the_game_itself(choices: list[int]) -> None:
    """Playing move by move through FENs alone agrees with a board that remembers the whole game."""
    board, fen = chess.Board(), chess.STARTING_FEN
    history: tuple[str, ...] = ()
    for choice in choices:
        moves = sorted(legal_moves(position(fen)))
        assert moves == sorted(move.uci() for move in board.legal_moves)
        if not moves or board.is_fivefold_repetition():
            break
        move = moves[choice % len(moves)]
        board.push_uci(move)
        history = (*history[-9:], move)
        answer = play(fen, move, history)
        if not board.is_fivefold_repetition():  # not to be seen in ten half-moves
            assert (answer.fen, answer.terminated) == (board.fen(), board.is_game_over())
            assert answer.reward == (1.0 if board.is_checkmate() else 0.5 if board.is_game_over() else 0.001)
        fen = answer.fen
