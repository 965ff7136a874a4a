#!/usr/bin/env bash
# What: python-chess's push_san and push_uci accept a null move, so a player may pass, also when in check.
# Versions: chess==1.11.2
# Expected: `--`, `Z0`, `@@@@` and `0000` raise like any other text that is no legal move, since passing isn't
#   legal in chess and `null in board.legal_moves` is False.
# Seen: `push_san("--")` in a position where White is in check plays 0000, and Black is to move, with White's
#   king still in check; `push_uci("0000")` does so too. `parse_san("Nxf3")` on an empty f3 is Nf3.
# Matters: an environment that plays `board.push_san(answer)` and counts an exception as illegal lets a model
#   pass instead of moving; a filter of illegal answers counts such a text as a legal move.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv chess==1.11.2
run <<'PYTHON'
import chess

CHECK = "4k3/8/8/8/8/8/4r3/4K3 w - - 0 1"
for text in ("--", "Z0", "0000", "@@@@"):
    board = chess.Board(CHECK)
    assert board.is_check()
    move = board.push_san(text)
    print(repr(text), "is played as", move.uci(), "; to move:", "White" if board.turn else "Black")
    assert not move and board.turn == chess.BLACK, f"{text} is {move} now"
    assert not chess.Board(CHECK).is_legal(move), "a null move is legal now"
board = chess.Board(CHECK)
assert not board.push_uci("0000"), "push_uci plays another move now"
assert chess.Board().parse_san("Nxf3").uci() == "g1f3", "Nxf3 on an empty square is read otherwise now"
PYTHON
