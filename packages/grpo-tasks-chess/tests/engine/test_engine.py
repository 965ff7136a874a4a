import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chess
import pytest
from waiting import eventually

from grpo_sdk import InfrastructureError, KillablePool, UserError
from grpo_tasks_chess.engine.finding import FoundEngine, find_engine
from grpo_tasks_chess.engine.pool import EnginePool, analyse
from grpo_tasks_chess.engine.process import EngineDiedError, EngineProcess
from grpo_tasks_chess.formats import Line

MakeEngine = Callable[..., str]
Pids = Callable[[], list[int]]

QUEEN_HANGS = "4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1"  # exd5 leaves a pawn; every other move a queen against a pawn
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"  # Ra8
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
POSITIONS = [QUEEN_HANGS, MATE_IN_ONE, chess.STARTING_FEN]


def test_lines_come_best_first_in_pawns_for_the_side_to_move(make_engine: MakeEngine) -> None:
    with EnginePool(make_engine()) as pool:
        # After exd5 White is a pawn up; after any other move a pawn stands against the queen, 1 − 9.
        best = pool.analyse(QUEEN_HANGS, multipv=3)
        assert best == (Line("e4d5", 1.0), Line("e1e2", -8.0), Line("e1f1", -8.0))
        assert pool.analyse(MATE_IN_ONE, multipv=1) == (Line("a1a8", 999.99),)
        mirrored = chess.Board(QUEEN_HANGS).mirror().fen()
        assert pool.analyse(mirrored, multipv=1) == (Line("e5d4", 1.0),)
        # Black's king has b8 and nothing else; Black is mated; Black is stalemated.
        assert len(pool.analyse("k7/8/2K5/8/8/8/8/7R b - - 0 1", multipv=5)) == 2
        assert pool.analyse(MATED) == pool.analyse("7k/5Q2/6K1/8/8/8/8/8 b - - 5 60") == ()


@pytest.mark.parametrize(("fen", "options", "message"), [
    ("not a position", {}, "no FEN"),
    ("QQQQQQQQ/QQQQQQQQ/QQQQQQQQ/8/8/8/k7/4K3 b - - 0 1", {}, "more pieces than a game has"),
    (chess.STARTING_FEN, {"depth": 0}, "depth=0"),
    (chess.STARTING_FEN, {"multipv": 0}, "multipv=0"),
    (chess.STARTING_FEN, {"timeout_s": 0}, "timeout_s=0"),
])  # fmt: skip
def test_what_no_engine_should_be_asked_is_refused_before_one_starts(
    make_engine: MakeEngine, pids: Pids, fen: str, options: dict[str, float], message: str
) -> None:
    with EnginePool(make_engine()) as pool, pytest.raises(UserError, match=message):
        pool.analyse(fen, **options)
    assert pids() == []


def test_an_engine_that_hangs_is_killed_and_the_next_call_has_another(make_engine: MakeEngine, pids: Pids) -> None:
    with EnginePool(make_engine("hangs-once")) as pool:
        begin = time.monotonic()
        with pytest.raises(InfrastructureError, match=r"did not answer in 0\.3 s, on 4k3/8.*it was killed"):
            pool.analyse(QUEEN_HANGS, timeout_s=0.3)
        assert time.monotonic() - begin < 10
        assert pids() == []
        assert pool.analyse(QUEEN_HANGS, multipv=1)[0].move == "e4d5"


def test_an_engine_that_died_once_is_asked_again(make_engine: MakeEngine, pids: Pids) -> None:
    with EnginePool(make_engine("dies-once")) as pool:
        assert pool.analyse(QUEEN_HANGS, multipv=1)[0].move == "e4d5"
        (pid,) = pids()
        assert os.getpgid(pid) == pid != os.getpgid(0)  # Ctrl-C does not reach it
        os.kill(pid, signal.SIGKILL)  # while it is idle
        assert pool.analyse(QUEEN_HANGS, multipv=1)[0].move == "e4d5"
        assert pid not in pids()


def test_a_position_that_kills_the_engine_is_an_error(make_engine: MakeEngine, pids: Pids) -> None:
    with EnginePool(make_engine("dies")) as pool, pytest.raises(EngineDiedError, match=r"on 4k3/8.*status -9"):
        pool.analyse(QUEEN_HANGS)
    assert pids() == []


@pytest.mark.parametrize(("mode", "message"), [
    ("nonsense", "gave 0 lines where 2 were asked for"),  # with an illegal line
    ("twice", "gave 2 lines where 2 were asked for"),  # the same move
    ("one-line", "does not support option MultiPV"),
])  # fmt: skip
def test_nonsense_is_no_verdict(make_engine: MakeEngine, pids: Pids, mode: str, message: str) -> None:
    with EnginePool(make_engine(mode)) as pool, pytest.raises(InfrastructureError, match=message):
        pool.analyse(QUEEN_HANGS, multipv=2, timeout_s=0.5)
    assert pids() == []


def test_ten_megabytes_of_chatter_before_the_answer_do_not_matter(make_engine: MakeEngine) -> None:
    with EnginePool(make_engine("chatters")) as pool:
        assert pool.analyse(QUEEN_HANGS, multipv=1)[0].move == "e4d5"


def test_a_program_that_does_not_speak_uci_is_said_to(make_engine: MakeEngine, pids: Pids, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"did not answer in 0\.5 s, being started"):
        EngineProcess(make_engine("silent"), start_timeout_s=0.5)
    assert pids() == []
    with pytest.raises(EngineDiedError, match="died being started"):
        EngineProcess("/bin/true")
    data = tmp_path / "data"
    data.write_bytes(b"\x00\x01")
    data.chmod(0o755)
    with pytest.raises(InfrastructureError, match="is no program for this machine"):
        EngineProcess(str(data))


def test_threads_share_as_many_processes_as_the_pool_has(make_engine: MakeEngine, pids: Pids) -> None:
    with EnginePool(make_engine(), size=2) as pool:
        alone = [pool.analyse(fen, multipv=2) for fen in POSITIONS]
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(lambda fen: pool.analyse(fen, multipv=2), POSITIONS * 4))
        assert together == alone * 4
        assert 1 <= len(pids()) <= 2
    assert pids() == []
    with pytest.raises(InfrastructureError, match="closed"):
        pool.analyse(QUEEN_HANGS)


def test_a_forked_child_has_engines_of_its_own(make_engine: MakeEngine, pids: Pids) -> None:
    path = make_engine()
    with EnginePool(path) as pool:
        expected = pool.analyse(QUEEN_HANGS)
        ours = pids()
        child = os.fork()
        if child == 0:  # pragma: no cover - measured in the parent only
            code = 1
            try:
                code = 0 if pool.analyse(QUEEN_HANGS) == expected and len(pids()) == 2 else 2
                pool.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert pids() == ours
        assert pool.analyse(QUEEN_HANGS) == expected


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a searching engine hears of its end on Linux only")
@pytest.mark.parametrize(
    ("mode", "end"), [("plays", "fails"), ("plays", "killed"), ("hangs-once", "returns"), ("hangs-once", "killed")]
)
def test_no_engine_outlives_its_process(make_engine: MakeEngine, pids: Pids, mode: str, end: str) -> None:
    program = Path(__file__).with_name("programs") / "asking_process.py"
    ran = subprocess.run(
        [sys.executable, program, make_engine(mode), QUEEN_HANGS, end], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "asked\n"
    assert "Warning" not in ran.stderr
    assert eventually(lambda: pids() == [])


def test_a_scoring_worker_takes_its_engine_with_it(
    make_engine: MakeEngine, pids: Pids, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    with KillablePool("engine_targets:best_move", args=(make_engine("hangs-once"),), workers=1) as pool:
        assert pool.submit(QUEEN_HANGS.encode(), 1.0).result().status == "timeout"
        assert eventually(lambda: pids() == [])
        assert pool.submit(MATE_IN_ONE.encode(), 30.0).result().value == b"a1a8"
        (engine,) = pids()
        assert os.getpgid(engine) != engine  # in the worker's group, which is killed as a whole
    assert eventually(lambda: pids() == [])


def test_an_answer_is_remembered(make_engine: MakeEngine, pids: Pids) -> None:
    engine = FoundEngine(make_engine(), "for this test")
    first = analyse(QUEEN_HANGS, multipv=2, engine=engine)
    (pid,) = pids()
    os.kill(pid, signal.SIGKILL)
    assert analyse(QUEEN_HANGS, multipv=2, engine=engine) == first
    assert eventually(lambda: pids() == [])


@pytest.mark.skipif(find_engine() is None, reason="no engine is installed; Debian: apt install stockfish")
def test_stockfish_answers_the_same_in_any_order_and_process() -> None:
    with EnginePool(size=1) as one, EnginePool(size=2) as two:
        alone = [one.analyse(fen, depth=6) for fen in POSITIONS]
        assert [one.analyse(fen, depth=6) for fen in reversed(POSITIONS)] == alone[::-1]
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(lambda fen: two.analyse(fen, depth=6), POSITIONS * 2)) == alone * 2
    mate = alone[1]
    assert mate[0] == Line("a1a8", 999.99)
    assert [line.evaluation for line in mate] == sorted((line.evaluation for line in mate), reverse=True)
