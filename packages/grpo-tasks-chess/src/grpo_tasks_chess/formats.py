"""Writing and reading RookWorld's lines: `P:` (a position and its best moves) and `A:` (a move and its outcome).

    P: FEN……………M: e2e4 g1f3 …  E: 0.3 0.25 …  B: e2e4      prompt "P: FEN", completion from the padding on
    A: FEN+e2e4+e2e4+FEN+0.001+0+0                          prompt to the third "+", completion from there on

Writing is exact to the column. Reading accepts any number of spaces and refuses every other deviation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo_sdk import Invalid
from grpo_sdk.rewards import outside_thinking

FEN_WIDTH, MOVES_WIDTH, EVALUATIONS_WIDTH = 90, 30, 40
"""Widths of the fields of a `P:` line, each after its label of three characters. (RookWorld's validation file pads its
positions to 89; its other fields agree.)"""

MAX_CANDIDATES = 5
"""Largest number of moves in a `P:` line: the number of lines requested from the engine."""

MAX_HISTORY = 10
"""Largest number of moves in the history of an `A:` line, including the one being played."""

MATE_PAWNS = 1000.0
"""A mate in n is evaluated as 1000 − n/100 pawns, above any other evaluation, and a near one above a far one."""

MAX_CHARS = 2000
"""Longest line that is read; lines of these formats have at most about 190 characters besides runs of spaces."""

_MOVE = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
_EVALUATION = re.compile(r"[+-]?[0-9]{1,4}(?:\.[0-9]{1,4})?")
_REWARD = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{1,6})?")
FLAGS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, slots=True)
class Line:
    """A move and its evaluation.

    Attributes:
        move: Move in UCI.
        evaluation: Evaluation in pawns, for the side to move; a mate in n is ±(1000 − n/100).
    """

    move: str
    evaluation: float


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """Labels of a position in a `P:` line.

    Attributes:
        moves: Candidate moves in UCI, in any order.
        evaluations: Evaluation of each candidate, in pawns, for the side to move.
        best: Best candidate.
    """

    moves: tuple[str, ...]
    evaluations: tuple[float, ...]
    best: str


@dataclass(frozen=True, slots=True)
class PolicyFields:
    """Words of a completion of a `P:` line, as written; they need not be moves or numbers.

    Attributes:
        moves: Words between `M:` and `E:`.
        evaluations: Words between `E:` and `B:`.
        best: Words after `B:`.
    """

    moves: tuple[str, ...]
    evaluations: tuple[str, ...]
    best: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transition:
    """A move to be played; the prompt of an `A:` line.

    Attributes:
        fen: Position before the move.
        move: Move in UCI.
        history: Last moves of the game, oldest first, at most `MAX_HISTORY`; the last one is `move`.
    """

    fen: str
    move: str
    history: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentAnswer:
    """Outcome of a move; the completion of an `A:` line.

    Attributes:
        fen: Position after the move.
        reward: Reward of the player who moved: 1.0 mate, 0.5 draw, 0.001 the game continues, −1.0 illegal.
        terminated: Whether the game is over.
        truncated: Whether the move was illegal.
    """

    fen: str
    reward: float
    terminated: bool
    truncated: bool


def is_uci(word: str) -> bool:
    """Whether a word has the form of a move in UCI, as `e2e4` or `e7e8q`; the move may be illegal."""
    return _MOVE.fullmatch(word) is not None


def mate_in(moves: int) -> float:
    """Return the evaluation of a mate in n, or of being mated in −n, in pawns: ±(1000 − n/100)."""
    return ((100 if moves > 0 else -100) * MATE_PAWNS - moves) / 100


def format_evaluation(pawns: float) -> str:
    """Format an evaluation with one or two decimals: `0.0`, `-3.06`, `999.99`."""
    return str(round(pawns, 2) + 0.0)  # + 0.0 makes −0.0 a plain 0.0


def read_evaluation(word: str) -> float | None:
    """Read a number with at most four digits before and after the point; None if the word is not one."""
    return float(word) if _EVALUATION.fullmatch(word) else None


def write_policy_prompt(fen: str) -> str:
    """Return `P: ` and the position, without the spaces that pad it."""
    return f"P: {fen}"


def write_policy_completion(answer: PolicyAnswer, fen: str) -> str:
    """Return the rest of the line, from the spaces that pad the prompt's position to 90 columns."""
    moves = " ".join(answer.moves)
    evaluations = " ".join(map(format_evaluation, answer.evaluations))
    return (
        f"{_padding(fen, FEN_WIDTH)}M: {moves}{_padding(moves, MOVES_WIDTH)}"
        f"E: {evaluations}{_padding(evaluations, EVALUATIONS_WIDTH)}B: {answer.best}"
    )


def without_best(completion: str) -> str:
    """Truncate a completion after its evaluations, which makes it invalid, since it names no best move."""
    return completion[: completion.index("B:")].rstrip()


def _padding(text: str, width: int) -> str:
    return " " * max(1, width - len(text))  # at least one, so that a field that is too long can still be read


def write_policy_line(fen: str, answer: PolicyAnswer) -> str:
    """Return a whole `P:` line: prompt and completion."""
    return write_policy_prompt(fen) + write_policy_completion(answer, fen)


def read_policy_fields(text: str) -> PolicyFields:
    """Read the words of a `P:` completion after `M:`, `E:` and `B:`, in this order and without text before them.

    Raises:
        Invalid: a label is missing or out of order, or there is text before them.
    """
    line = first_line(text)
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
        Invalid: it has another form; says where. The legality of moves is not checked.
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
    """Read a whole `P:` line: the position and its labels.

    Raises:
        Invalid: it has another form; says where. The legality of position and moves is not checked.
    """
    prompt, label, rest = first_line(line).partition("M:")
    if not prompt.startswith("P:"):
        raise Invalid("a policy line begins with P:")
    return _position(prompt.removeprefix("P:")), read_policy(label + rest)


def write_environment_prompt(transition: Transition) -> str:
    """Return an `A:` line up to and including its third `+`."""
    return f"A: {transition.fen}+{transition.move}+{' '.join(transition.history)}+"


def write_environment_completion(answer: EnvironmentAnswer) -> str:
    """Return the rest of the line: `FEN+reward+terminated+truncated`, flags as 0 or 1."""
    return f"{answer.fen}+{float(answer.reward)}+{answer.terminated:d}+{answer.truncated:d}"


def write_environment_line(transition: Transition, answer: EnvironmentAnswer) -> str:
    """Return a whole `A:` line: prompt and completion."""
    return write_environment_prompt(transition) + write_environment_completion(answer)


def read_environment_prompt(text: str) -> Transition:
    """Read an `A:` line up to its third `+`.

    Raises:
        Invalid: it has another form; says where. The legality of position and move is not checked.
    """
    line = first_line(text)
    fields = line.removeprefix("A:").split("+")
    if not line.startswith("A:") or len(fields) != 4 or fields[3].strip():
        raise Invalid("not of the form A: FEN+move+history+")
    transition = Transition(_position(fields[0]), fields[1].strip(), tuple(fields[2].split()))
    problem = transition_problem(transition)
    if problem:
        raise Invalid(problem)
    return transition


def transition_problem(transition: Transition) -> str:
    """Describe what is wrong with the form of a move and its history, in one line; empty if nothing is."""
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
        Invalid: it has another form; says where. The validity of the position is not checked.
    """
    fields = [field.strip() for field in first_line(text).split("+")]
    if len(fields) != 4:
        raise Invalid(f"{len(fields)} fields where FEN+reward+terminated+truncated has 4")
    position, reward, *flags = fields
    if _REWARD.fullmatch(reward) is None:
        raise Invalid(f"{reward[:20]!r} is no reward, as 0.001")
    unread = [flag[:20] for flag in flags if flag.lower() not in FLAGS]
    if unread:
        raise Invalid(f"{unread[0]!r} is no flag, 0 or 1")
    terminated, truncated = (FLAGS[flag.lower()] for flag in flags)
    return EnvironmentAnswer(_position(position), float(reward), terminated, truncated)


def read_environment_line(line: str) -> tuple[Transition, EnvironmentAnswer]:
    """Read a whole `A:` line.

    Raises:
        Invalid: it has another form; says where. The legality of positions and move is not checked.
    """
    fields = first_line(line).split("+")
    prompt, completion = "+".join(fields[:3]), "+".join(fields[3:])
    return read_environment_prompt(f"{prompt}+"), read_environment(completion)


def first_line(text: str) -> str:
    """Return the first line behind the thinking; trainers without stop strings let more text follow it."""
    line = outside_thinking(text).partition("\n")[0]
    if len(line) > MAX_CHARS:
        raise Invalid(f"a line of more than {MAX_CHARS} characters")
    return line.strip()


def _position(text: str) -> str:
    if "/" not in text:  # no further check: the similarity of a damaged position to the right one is graded
        raise Invalid("there is no position: a FEN has eight ranks, divided by /")
    return " ".join(text.split())
