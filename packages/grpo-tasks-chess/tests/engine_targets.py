"""What workers run in the tests of engines."""

from collections.abc import Callable

from grpo_tasks_chess.engine.finding import FoundEngine
from grpo_tasks_chess.engine.pool import analyse


def best_move(path: str) -> Callable[[bytes], bytes]:
    """A position -> the engine's best move."""
    return lambda fen: analyse(fen.decode(), multipv=1, engine=FoundEngine(path, "for this test"))[0].move.encode()
