"""Boards of Connect Four as integers, and an exact solver.

Columns are stored side by side in bits, the lowest cell first, with one empty bit above each, so that no line of four
runs from the top of one column into the bottom of the next. With 4 rows, bits 0–3 are column 0, bit 4 is empty, etc.
"""

from __future__ import annotations

from functools import lru_cache

MAX_SOLVED_CELLS = 20
"""Largest board that `Solver` accepts: an empty 4 × 5 is solved in a second, 4 × 6 takes ten times as long."""

TABLE_SIZE = 500_000
"""Largest number of stored positions, about 130 bytes each; a full table is cleared."""

_BASE = 64
"""Two bounds from −31 to 32 are stored as the digits of one number, which takes a third of a tuple's memory."""

_SHIFT = 31


def has_four(stones: int, rows: int) -> bool:
    """Whether four stones form a line: vertically, horizontally or diagonally."""
    for step in (1, rows, rows + 1, rows + 2):
        pairs = stones & (stones >> step)
        if pairs & (pairs >> (2 * step)):
            return True
    return False


class Solver:
    """Perfect play by negamax with alpha-beta pruning and a transposition table (Pons, "Solving Connect Four").

    The value of a position is the result of perfect play for the player to move: its sign is win or loss, its size is
    1 + the cells left at the end, so that early wins and late losses are preferred.

    Args:
        rows: Height of the board.
        columns: Width of the board; rows · columns is at most `MAX_SOLVED_CELLS`.
    """

    def __init__(self, rows: int, columns: int) -> None:
        assert rows * columns <= MAX_SOLVED_CELLS
        self._rows, self._cells = rows, rows * columns
        heights = [column * (rows + 1) for column in range(columns)]
        middle_first = sorted(heights, key=lambda height: abs(2 * height - heights[-1]))  # most lines cross the middle
        self._columns = tuple(((1 << rows) - 1) << height for height in middle_first)
        self._lowest = sum(1 << height for height in heights)
        self._known: dict[int, int] = {}

    @property
    def limit(self) -> int:
        """A number above the size of every value."""
        return self._cells + 1

    def value(self, mine: int, taken: int, alpha: int, beta: int) -> int:
        """Return the value of an undecided position if it is between alpha and beta, else a bound on the same side.

        Args:
            mine: Stones of the player to move.
            taken: All stones.
            alpha: Lower end of the window; values up to it need not be distinguished.
            beta: Upper end of the window; values from it on need not be distinguished.
        """
        left = self._cells - taken.bit_count()
        if left == 0:
            return 0
        moves = []
        for column in self._columns:
            landing = (taken + self._lowest) & column
            if landing:
                if has_four(mine | landing, self._rows):
                    return left
                moves.append(landing)
        key = mine + taken + self._lowest  # unique for a position, since the sum marks the top of each column
        known = self._known.get(key)
        if known is None:  # no immediate win: an own win takes two more moves, the opponent's comes with the next
            low, high = min(0, 1 - left), max(0, left - 2)
        else:
            low, high = known // _BASE - _SHIFT, known % _BASE - _SHIFT
        if low >= beta or low == high:
            return low
        if high <= alpha:
            return high
        floor, ceiling = max(alpha, low), min(beta, high)
        best, reached = -self._cells, floor
        for landing in moves:
            value = -self.value(mine ^ taken, taken | landing, -ceiling, -reached)
            if value > best:
                best = value
                if best >= ceiling:
                    break
                reached = max(reached, best)
        low, high = best if best > floor else low, best if best < ceiling else high
        if len(self._known) >= TABLE_SIZE:
            self._known.clear()
        self._known[key] = (low + _SHIFT) * _BASE + high + _SHIFT
        return best


@lru_cache(maxsize=4)
def solver(rows: int, columns: int) -> Solver:
    """Return the solver for a board size; it keeps its table of positions."""
    return Solver(rows, columns)
