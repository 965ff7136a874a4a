"""The two lines of RookWorld, written and read: `P:` (a position and its best moves) and `A:` (a move and its outcome).

    P: FEN……………M: e2e4 g1f3 …  E: 0.3 0.25 …  B: e2e4      prompt "P: FEN", completion from the padding on
    A: FEN+e2e4+e2e4+FEN+0.001+0+0                          prompt to the third "+", completion from there on

Writing is exact to the column. Reading takes any runs of spaces and refuses everything else that is out of form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_core import Invalid

if TYPE_CHECKING:
    from chess.engine import PovScore

FEN_WIDTH, MOVES_WIDTH, EVALUATIONS_WIDTH = 90, 30, 40
"""Columns of the fields of a `P:` line, each after its label of three characters. (RookWorld's validation file pads its
positions to 89; its other fields agree.)"""

MAX_CANDIDATES = 5
"""Moves of a `P:` line: as many lines as the engine was asked for."""

MAX_HISTORY = 10
"""Moves of an `A:` line's history, the one being played included."""

MATE_PAWNS = 1000.0
"""A mate in n is worth 1000 − n/100 pawns: any mate is above any other evaluation, and a near one above a far one."""

MAX_CHARS = 2000
"""A longer line is refused unread: those of the formats have at most about 190 characters, runs of spaces apart."""

END_OF_TEXT = "<|endoftext|>"
"""GPT-2's end of text, as decoders that keep special tokens show it."""

_MOVE = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
_EVALUATION = re.compile(r"[+-]?[0-9]{1,4}(?:\.[0-9]{1,4})?")
_REWARD = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{1,6})?")
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """What a `P:` line says of its position.

    Attributes:
        moves: Candidates in UCI, in any order.
        evaluations: Of each candidate, in pawns, for the side to move.
        best: The best candidate.
    """

    moves: tuple[str, ...]
    evaluations: tuple[float, ...]
    best: str


@dataclass(frozen=True, slots=True)
class PolicyFields:
    """The words of a completion of a `P:` line, as written: any of them may be no move or no number.

    Attributes:
        moves: Between `M:` and `E:`.
        evaluations: Between `E:` and `B:`.
        best: After `B:`.
    """

    moves: tuple[str, ...]
    evaluations: tuple[str, ...]
    best: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transition:
    """A move to be played; the prompt of an `A:` line.

    Attributes:
        fen: The position before it.
        move: In UCI.
        history: The last moves of the game, oldest first, at most `MAX_HISTORY`; the last one is `move`.
    """

    fen: str
    move: str
    history: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentAnswer:
    """What happens when a move is played; the completion of an `A:` line.

    Attributes:
        fen: The position after it.
        reward: For the player who moved: 1.0 mate, 0.5 draw, 0.001 the game goes on, −1.0 illegal.
        terminated: Whether the game is over.
        truncated: Whether the move was illegal.
    """

    fen: str
    reward: float
    terminated: bool
    truncated: bool


def is_uci(word: str) -> bool:
    """Whether a word has the form of a move in UCI, as `e2e4` or `e7e8q`; it may be illegal."""
    return _MOVE.fullmatch(word) is not None


def to_pawns(score: PovScore) -> float:
    """An engine's score in pawns, for the side to move; a mate in n is ±(1000 − n/100)."""
    return score.relative.score(mate_score=round(MATE_PAWNS * 100)) / 100


def format_evaluation(pawns: float) -> str:
    """An evaluation as the lines write it, one or two decimals: `0.0`, `-3.06`, `999.99`."""
    return str(round(pawns, 2) + 0.0)  # + 0.0 makes −0.0 a plain 0.0


def read_evaluation(word: str) -> float | None:
    """The number that a word is, if it is one of at most four digits before and after the point."""
    return float(word) if _EVALUATION.fullmatch(word) else None


def write_policy_prompt(fen: str) -> str:
    """`P: ` and the position, without the spaces that pad it."""
    return f"P: {fen}"


def write_policy_completion(answer: PolicyAnswer, fen: str) -> str:
    """The rest of the line, from the spaces that pad the position of the prompt to its 90 columns."""
    moves = " ".join(answer.moves)
    evaluations = " ".join(map(format_evaluation, answer.evaluations))
    return (
        f"{_padding(fen, FEN_WIDTH)}M: {moves}{_padding(moves, MOVES_WIDTH)}"
        f"E: {evaluations}{_padding(evaluations, EVALUATIONS_WIDTH)}B: {answer.best}"
    )


def without_best(completion: str) -> str:
    """A written completion as far as its evaluations: invalid, because it names no best move."""
    return completion[: completion.index("B:")].rstrip()


def _padding(text: str, width: int) -> str:
    return " " * max(1, width - len(text))  # at least one, so that what is too long can still be read


def write_policy_line(fen: str, answer: PolicyAnswer) -> str:
    """A whole `P:` line: prompt and completion."""
    return write_policy_prompt(fen) + write_policy_completion(answer, fen)


def read_policy_fields(text: str) -> PolicyFields:
    """The words of a `P:` completion: what stands after `M:`, `E:` and `B:`, in this order and with nothing before.

    Raises:
        Invalid: a label is missing or out of order, or there is text before them.
    """
    line = _first_line(text)
    before, m, rest = line.partition("M:")
    moves, e, rest = rest.partition("E:")
    evaluations, b, best = rest.partition("B:")
    if not (m and e and b):
        raise Invalid("not of the form M: moves E: evaluations B: move")
    if before.strip():
        raise Invalid("there is text before M:")
    return PolicyFields(tuple(moves.split()), tuple(evaluations.split()), tuple(best.split()))


def read_policy(text: str) -> PolicyAnswer:
    """Read a `P:` completion in full form: as many evaluations as moves, all in UCI, the best one among them.

    Raises:
        Invalid: it is in another form; says where. Whether the moves are legal is not asked.
    """
    fields = read_policy_fields(text)
    evaluations = tuple(map(read_evaluation, fields.evaluations))
    for word in (*fields.moves, *fields.best):
        if not is_uci(word):
            raise Invalid(f"{word[:20]!r} is no move in UCI, as e2e4 or e7e8q")
    if not fields.moves or len(fields.moves) != len(evaluations):
        raise Invalid(f"{len(fields.moves)} moves and {len(evaluations)} evaluations")
    numbers = tuple(number for number in evaluations if number is not None)
    if len(numbers) < len(evaluations):
        raise Invalid("an evaluation that is no number of pawns, as 0.25")
    if len(fields.best) != 1 or fields.best[0] not in fields.moves:
        raise Invalid("B: holds one of the moves after M:")
    return PolicyAnswer(fields.moves, numbers, fields.best[0])


def read_policy_line(line: str) -> tuple[str, PolicyAnswer]:
    """Read a whole `P:` line: its position and what it says of it.

    Raises:
        Invalid: it is in another form; says where. Whether the position and the moves are legal is not asked.
    """
    prompt, label, rest = _first_line(line).partition("M:")
    if not prompt.startswith("P:"):
        raise Invalid("a policy line begins with P:")
    return _position(prompt.removeprefix("P:")), read_policy(label + rest)


def write_environment_prompt(transition: Transition) -> str:
    """An `A:` line up to and including its third `+`."""
    return f"A: {transition.fen}+{transition.move}+{' '.join(transition.history)}+"


def write_environment_completion(answer: EnvironmentAnswer) -> str:
    """The rest of the line: `FEN+reward+terminated+truncated`, flags as 0 or 1."""
    return f"{answer.fen}+{float(answer.reward)}+{answer.terminated:d}+{answer.truncated:d}"


def write_environment_line(transition: Transition, answer: EnvironmentAnswer) -> str:
    """A whole `A:` line: prompt and completion."""
    return write_environment_prompt(transition) + write_environment_completion(answer)


def read_environment_prompt(text: str) -> Transition:
    """Read an `A:` line up to its third `+`.

    Raises:
        Invalid: it is in another form; says where. Whether the position and the move are legal is not asked.
    """
    line = _first_line(text)
    fields = line.removeprefix("A:").split("+")
    if not line.startswith("A:") or len(fields) != 4 or fields[3].strip():
        raise Invalid("not of the form A: FEN+move+history+")
    transition = Transition(_position(fields[0]), fields[1].strip(), tuple(fields[2].split()))
    problem = transition_problem(transition)
    if problem:
        raise Invalid(problem)
    return transition


def transition_problem(transition: Transition) -> str:
    """What is wrong with the form of a move and its history, in one line; empty where nothing is."""
    for word in (transition.move, *transition.history):
        if not is_uci(word):
            return f"{word[:20]!r} is no move in UCI, as e2e4 or e7e8q"
    if len(transition.history) > MAX_HISTORY:
        return f"a history of {len(transition.history)} moves; at most {MAX_HISTORY} are kept, the one played included"
    if transition.history[-1:] != (transition.move,):
        return f"the history must end with the move that is played, {transition.move}"
    return ""


def read_environment(text: str) -> EnvironmentAnswer:
    """Read an `A:` completion: `FEN+reward+terminated+truncated`; flags may be 0, 1, true or false.

    Raises:
        Invalid: it is in another form; says where. Whether the position is possible is not asked.
    """
    fields = [field.strip() for field in _first_line(text).split("+")]
    if len(fields) != 4:
        raise Invalid(f"{len(fields)} fields where FEN+reward+terminated+truncated has 4")
    position, reward, *flags = fields
    if _REWARD.fullmatch(reward) is None:
        raise Invalid(f"{reward[:20]!r} is no reward, as 0.001")
    unread = [flag[:20] for flag in flags if flag.lower() not in _FLAGS]
    if unread:
        raise Invalid(f"{unread[0]!r} is no flag, 0 or 1")
    terminated, truncated = (_FLAGS[flag.lower()] for flag in flags)
    return EnvironmentAnswer(_position(position), float(reward), terminated, truncated)


def read_environment_line(line: str) -> tuple[Transition, EnvironmentAnswer]:
    """Read a whole `A:` line.

    Raises:
        Invalid: it is in another form; says where. Whether the positions and the move are legal is not asked.
    """
    fields = _first_line(line).split("+")
    prompt, completion = "+".join(fields[:3]), "+".join(fields[3:])
    return read_environment_prompt(f"{prompt}+"), read_environment(completion)


def _first_line(text: str) -> str:
    """The first line, up to GPT-2's end of text: what trainers without stop strings let follow is not looked at."""
    line = text[: MAX_CHARS + 1].partition("\n")[0].partition(END_OF_TEXT)[0]
    if len(line) > MAX_CHARS:
        raise Invalid(f"a line of more than {MAX_CHARS} characters")
    return line.strip()


def _position(text: str) -> str:
    if "/" not in text:  # no more is asked: how near a damaged position is to the right one is graded
        raise Invalid("there is no position: a FEN has eight ranks, divided by /")
    return " ".join(text.split())
