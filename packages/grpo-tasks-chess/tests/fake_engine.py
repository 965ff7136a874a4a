"""A UCI engine for tests, which counts material; `python fake_engine.py MODE` misbehaves as its mode says.

It values a move by the material after it, from the mover's side, and prefers what comes first in the alphabet.
"""

import os
import signal
import sys
import time
from pathlib import Path

import chess

VALUES = {chess.PAWN: 100, chess.KNIGHT: 300, chess.BISHOP: 310, chess.ROOK: 500, chess.QUEEN: 900, chess.KING: 0}
MODE = sys.argv[1]
FOLDER = Path(sys.argv[2])


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def value(board: chess.Board, move: chess.Move) -> tuple[str, int]:
    mover = board.turn
    board.push(move)
    try:
        if board.is_checkmate():
            return "mate 1", 100_000
        if board.is_game_over():
            return "cp 0", 0
        counted = sum(
            VALUES[piece.piece_type] * (1 if piece.color == mover else -1) for piece in board.piece_map().values()
        )
        return f"cp {counted}", counted
    finally:
        board.pop()


def search(board: chess.Board, multipv: int) -> None:
    scored = sorted((-value(board, move)[1], move.uci(), value(board, move)[0]) for move in board.legal_moves)
    for number, (_, move, score) in enumerate(scored[:multipv], 1):
        say(f"info depth 1 multipv {number} score {score} pv {move}")
    say(f"bestmove {scored[0][1]}")


def first_time(name: str) -> bool:
    """Whether no process of this folder has come here before."""
    try:
        (FOLDER / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def misbehave(board: chess.Board, multipv: int) -> bool:
    if MODE == "hangs-once" and first_time("hung"):
        time.sleep(600)
    elif MODE == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif MODE == "dies-once" and first_time("died"):
        os._exit(3)
    elif MODE == "nonsense":
        say("\x00\xff??", "info depth x score cp y pv e9e9", "info score cp 1 pv a1a8", "bestmove zzzz")
    elif MODE == "twice":
        move = next(iter(board.legal_moves)).uci()
        for number in range(1, multipv + 1):
            say(f"info depth 1 multipv {number} score cp 10 pv {move}")
        say(f"bestmove {move}")
    elif MODE == "chatters":
        sys.stdout.write("info string " + "x" * 10_000_000 + "\n")
        search(board, multipv)
    else:
        return False
    return True


def main() -> None:
    (FOLDER / f"pid-{os.getpid()}").touch()
    if MODE == "silent":
        time.sleep(600)
    board, multipv = chess.Board(), 1
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["uci"]:
            say("id name Fake 1", "option name Threads type spin default 1 min 1 max 8")
            say("option name Hash type spin default 8 min 1 max 64")
            if MODE != "one-line":
                say("option name MultiPV type spin default 1 min 1 max 500")
            say("uciok")
        elif words[:1] == ["isready"]:
            say("readyok")
        elif words[:3] == ["setoption", "name", "MultiPV"]:
            multipv = int(words[-1])
        elif words[:1] == ["position"]:
            board = chess.Board() if words[1] == "startpos" else chess.Board(" ".join(words[2:8]))
        elif words[:1] == ["go"]:
            if not misbehave(board, multipv):
                search(board, multipv)
        elif words[:1] == ["quit"]:
            return


if __name__ == "__main__":
    main()
