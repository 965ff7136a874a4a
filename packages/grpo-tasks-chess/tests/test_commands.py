"""`grpo chess …` as a reader types it."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import orjson
import pytest

import grpo_core
import grpo_sdk
from grpo_sdk.cli.main import run_command
from grpo_tasks_chess.commands import chess as group
from grpo_tasks_chess.data import making
from grpo_tasks_chess.match import GAME, Mover, play_match, random_mover, write_pgn

MakeEngine = Callable[..., str]
MATE_IN_TWO_PLIES = ["f2f3", "e7e5", "g2g4", "d8h4"]  # fool's mate


def grpo_chess(*words: object) -> int:
    return run_command(group, [str(word) for word in words], "grpo chess")


def scripted(moves: list[str]) -> dict[str, Mover]:
    """Movers who play the given moves in turn."""
    left = iter(moves)
    mover = Mover("scripted", lambda board: GAME.write(chess.Move.from_uci(next(left)), board))
    return {"white": mover, "black": mover}


class FakeCompleter:
    """Stands in for the model: remembers what it was made with and asked, and answers with the first legal move."""

    said: str | None = None

    def make(self, model: str, **options: Any) -> FakeCompleter:
        self.made, self.asked = {"model": model, **options}, list[str]()
        return self

    def __call__(self, prompts: list[str]) -> list[str]:
        self.asked.extend(prompts)
        return [
            self.line(chess.Board(prompt.removeprefix("P: "))) if self.said is None else self.said for prompt in prompts
        ]

    def line(self, board: chess.Board) -> str:
        move = min(move.uci() for move in board.legal_moves)
        return f"    M: {move}    E: 0.1     B: {move}\n"


@pytest.fixture
def completer(monkeypatch: pytest.MonkeyPatch) -> FakeCompleter:
    fake = FakeCompleter()
    monkeypatch.setattr(grpo_core, "Completer", fake.make, raising=False)
    monkeypatch.setattr(grpo_sdk, "check_model", lambda name, adapter: None, raising=False)
    return fake


def parsed(pgn: str) -> chess.pgn.Game:
    game = chess.pgn.read_game(io.StringIO(pgn))
    assert game is not None and game.errors == []
    return game


def test_data_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_sdk.display.progress.REPORT_FIRST_S", 600.0)  # however slow this machine: no progress
    out = tmp_path / "rows.jsonl"
    assert grpo_chess("make-environment-data", out, "--count", 10, "--workers", 1) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}   10 rows, jsonl, seed 0\nsplits   ")
    assert "  ordinary " in printed.out and "54% wanted" in printed.out
    assert printed.err == ""
    assert grpo_chess("make-environment-data", out, "--count", 10, "--json") == 0
    summary = orjson.loads(capsys.readouterr().out)
    assert summary["finished_before"] and summary["rows"] == 10
    assert grpo_chess("make-environment-data", out, "--count", 11) == 2
    assert "error: " in capsys.readouterr().err

    assert grpo_chess("verify", out) == 0
    assert "rows: environment 10" in capsys.readouterr().out
    assert grpo_chess("verify", out, out, "--json") == 1
    assert orjson.loads(capsys.readouterr().out)["shared"][0]["positions"] > 0
    assert grpo_chess("verify", out, out) == 1
    assert "PROBLEM   10 positions of environment are in both" in capsys.readouterr().out


def test_no_engine_is_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRPO_CHESS_ENGINE", "/nowhere/fish")
    assert grpo_chess("make-policy-data", tmp_path / "p.jsonl", "--count", 1) == 2
    said = capsys.readouterr().err
    assert "/nowhere/fish is not there. Install Stockfish" in said and len(said.splitlines()) == 1
    assert grpo_chess("play", "--model", "tiny", "--engine", "/nowhere/other") == 2
    assert "/nowhere/other is not there" in capsys.readouterr().err
    assert grpo_chess("play") == 2
    assert "--opponent random" in capsys.readouterr().err


def test_a_stopped_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "make", stop)
    assert grpo_chess("make-environment-data", tmp_path / "rows.jsonl", "--count", 10) == 130
    assert "rows.jsonl.partial; the same command continues with them" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_before_the_game(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_tasks_chess.match.play_match", lambda *args, **options: pytest.fail("a game was played"))
    (tmp_path / "file").write_text("")
    for option in ("--pgn", "--svg"):
        words = ("play", "--model", "chess-tiny", "--opponent", "random", option, tmp_path / "file" / "one")
        assert grpo_chess(*words) == 2
        assert f"{tmp_path / 'file' / 'one'}: " in capsys.readouterr().err


def test_a_model_plays_an_engine_and_the_record_is_valid(
    tmp_path: Path, make_engine: MakeEngine, completer: FakeCompleter, capsys: pytest.CaptureFixture[str]
) -> None:
    pgn, svg = tmp_path / "games" / "one.pgn", tmp_path / "at-{ply}.svg"
    words = ("play", "--model", "./model", "--engine", make_engine(), "--colour", "black", "--max-moves", 4)
    assert grpo_chess(*words, "--pgn", pgn, "--svg", svg, "--seed", 5, "--temperature", 0.5) == 0
    printed = capsys.readouterr().out
    assert "♚" in printed and "1. a3   Fake 1, depth 1" in printed  # of moves that are equal the fake takes a2a3
    assert printed.splitlines()[-1] == "*   Fake 1, depth 1 – ./model   broken off after 4 moves, 8 plies"
    game = parsed(pgn.read_text())
    assert len(list(game.mainline_moves())) == 8
    assert (game.headers["White"], game.headers["Result"]) == ("Fake 1, depth 1", "*")
    drawn = [path for path in sorted(tmp_path.iterdir()) if path.suffix == ".svg"]
    assert [path.name for path in drawn] == [f"at-00{ply}.svg" for ply in range(1, 9)]
    assert drawn[-1].read_text().startswith("<svg")
    assert completer.made["model"] == "./model" and completer.made["seed"] == 5
    assert completer.made["temperature"] == 0.5 and completer.made["stop"] == ("\n",)
    board = chess.Board()
    board.push_uci("a2a3")
    assert completer.asked[0] == f"P: {board.fen()}" and len(completer.asked) == 4


@pytest.mark.parametrize("said", ["", "M: e2e4 E: 0 B: e2e5", "\x1b[31m}{" * 400, "\ud800"])
def test_an_illegal_move_loses_or_is_replaced(
    said: str, completer: FakeCompleter, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    completer.said = said
    words = ("play", "--model", "m", "--opponent", "random", "--max-moves", 3, "--pgn", tmp_path / "a.pgn")
    assert grpo_chess(*words, "--json") == 0
    lost = orjson.loads(capsys.readouterr().out)
    assert (lost["result"], lost["ended_by"], lost["plies"]) == ("0-1", "illegal move of m", 0)
    assert lost["illegal_moves_of_the_model"] == 1
    assert parsed(lost["pgn"]).headers["Termination"] == "rules infraction"
    assert "\x1b" not in lost["pgn"]

    assert grpo_chess(*words, "--fallback") == 0
    assert "in place of: " in capsys.readouterr().out
    game = parsed((tmp_path / "a.pgn").read_text())
    assert len(list(game.mainline_moves())) == 6
    assert "m gave no legal move" in game.next().comment


def test_a_game_ends_by_the_rules() -> None:
    seen = list[int]()
    match = play_match(scripted(MATE_IN_TWO_PLIES), on_ply=lambda match: seen.append(len(match.position.moves)))
    assert (match.result, match.ended_by, seen) == ("0-1", "checkmate", [1, 2, 3, 4])
    pgn = write_pgn(match, when=date(2026, 1, 2))
    assert parsed(pgn).headers["Date"] == "2026.01.02"
    assert "1. f3 e5 2. g4 Qh4# 0-1" in pgn


KNIGHTS = "g1f3 g8f6 f3g1 f6g8"
ROOK = "g8h8 b1a1 h8g8 a1b1"


@pytest.mark.parametrize(("fen", "moves", "result", "ended_by", "plies"), [
    (chess.STARTING_FEN, f"{KNIGHTS} {KNIGHTS} e2e4", "1/2-1/2", "threefold repetition", 8),
    # A move to where the position stood twice could be played, and White mates instead.
    ("6k1/5ppp/8/8/8/8/8/1R2K3 b - - 0 1", f"{ROOK} g8h8 b1a1 h8g8 a1a8", "1-0", "checkmate", 8),
    ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 99 90", "a1a8", "1-0", "checkmate", 1),
    ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 98 90", "a1b1 g8h8 b1a1", "1/2-1/2", "fifty moves", 2),
])  # fmt: skip
def test_a_draw_stands_on_the_board_and_not_in_a_move_to_come(
    fen: str, moves: str, result: str, ended_by: str, plies: int
) -> None:
    match = play_match(scripted(moves.split()), fen=fen)
    assert (match.result, match.ended_by, len(match.position.moves)) == (result, ended_by, plies)


def test_a_game_may_begin_elsewhere(completer: FakeCompleter, capsys: pytest.CaptureFixture[str]) -> None:
    fen = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
    completer.said = "M: a1a8 E: 999.99 B: a1a8"
    words = ("play", "--model", "m", "--opponent", "random", "--start")
    assert grpo_chess(*words, fen, "--json") == 0
    result = orjson.loads(capsys.readouterr().out)
    assert (result["result"], result["ended_by"]) == ("1-0", "checkmate")
    game = parsed(result["pgn"])
    assert game.headers["FEN"] == fen and game.headers["Termination"] == "normal"
    assert grpo_chess(*words, "nowhere") == 2
    assert "no FEN" in capsys.readouterr().err


def test_illegal_moves_are_counted_by_who_gave_them() -> None:
    players: dict[str, Mover] = {"white": Mover("m", lambda board: ""), "black": random_mover(0)}
    fen = "6k1/5ppp/8/8/8/8/8/R3K3 b - - 0 1"
    match = play_match(players, fen=fen, replaces_illegal=True, max_moves=2)
    # Black began: of four replies the second and the fourth are White's.
    assert (len(match.position.moves), match.illegal_of("white"), match.illegal_of("black")) == (4, 2, 0)
