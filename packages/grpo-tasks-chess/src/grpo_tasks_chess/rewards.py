"""Reward functions over plain text, for tasks and for any other code; none of them imports torch or needs an engine.

The gold is a line of the tasks' formats or a position: see each function. No completion raises: without an answer it
earns 0. A gold that cannot be read raises `grpo_sdk.UserError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from grpo_sdk import Invalid, UserError
from grpo_sdk.rewards import outside_thinking
from grpo_tasks_chess.environment.grading import fen_distance, prediction
from grpo_tasks_chess.formats import EnvironmentAnswer, is_uci, read_policy_fields, read_policy_line
from grpo_tasks_chess.policy import grading
from grpo_tasks_chess.rules import legal_moves, position

__all__ = ["best_move", "candidates", "evaluations", "legal_move", "next_position", "outcome", "policy", "solution"]

WEIGHTS: Mapping[str, float] = {"best_move": 4.0, "format": 2.0, "candidates": 1.5, "evaluations": 1.0}
"""Weights of the parts in `policy`, as in `chess.policy`."""

Known = tuple[grading.Answer, grading.Truth, Collection[str]]


def legal_move(completion: str, gold: str) -> float:
    """Return 1 if the move of the completion is legal in a position, else 0.

    The move is the one after `B:`, or the first word of the completion, in UCI.

    Args:
        completion: Text of the model.
        gold: The position, as a FEN.

    Raises:
        UserError: the position cannot be read or played.

    Examples:
        >>> from grpo_tasks_chess.rewards import legal_move
        >>> start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
        >>> legal_move(" e2e4", start), legal_move("e2e5", start)
        (1.0, 0.0)
    """
    try:
        words = read_policy_fields(completion).best
    except Invalid:
        words = tuple(outside_thinking(completion)[:200].split()[:1])
    return float(bool(words) and words[0] in legal_moves(position(gold)))


def best_move(completion: str, gold: str) -> float:
    """Return the worth of the move after `B:` by its rank: 1.0, 0.7 to the third, 0.5 to the fifth, 0.2 if legal.

    Args:
        completion: Text of the model: `M: moves E: evaluations B: move`.
        gold: A whole line with labels: `P: FEN M: moves E: evaluations B: move`.

    Raises:
        UserError: the gold is no such line.

    Examples:
        >>> from grpo_tasks_chess.rewards import best_move
        >>> gold = "P: 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 M: e2e4 e1f2 E: 1.2 0.8 B: e2e4"
        >>> best_move("M: e2e4 E: 1.0 B: e2e4", gold)
        1.0
        >>> best_move("M: e1f2 E: 1.0 B: e1f2", gold), best_move("M: e1f2 E: 1.0 B: e1e3", gold)
        (0.7, 0.0)
    """
    known = _known(completion, gold)
    return 0.0 if known is None else grading.best_move_grade(known[0].best, *known[1:])


def candidates(completion: str, gold: str) -> float:
    """Return the share of the labelled moves that are listed after `M:`; more words than labels lower it.

    Args:
        completion: As for `best_move`.
        gold: As for `best_move`.

    Raises:
        UserError: as for `best_move`.

    Examples:
        >>> from grpo_tasks_chess.rewards import candidates
        >>> gold = "P: 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 M: e2e4 e1f2 E: 1.2 0.8 B: e2e4"
        >>> candidates("M: e2e4 e1d2 E: 1.0 0.5 B: e2e4", gold)
        0.5
    """
    known = _known(completion, gold)
    return 0.0 if known is None else grading.candidates_grade(known[0].moves, *known[1:])


def evaluations(completion: str, gold: str) -> float:
    """Return how near the evaluations of the labelled moves are: the mean of max(0, 1 − |Δ| / (|true| + 1)), in pawns.

    Args:
        completion: As for `best_move`.
        gold: As for `best_move`.

    Raises:
        UserError: as for `best_move`.

    Examples:
        >>> from grpo_tasks_chess.rewards import evaluations
        >>> gold = "P: 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 M: e2e4 e1f2 E: 1.0 0.0 B: e2e4"
        >>> evaluations("M: e2e4 e1f2 E: 2.0 0.0 B: e2e4", gold)
        0.75
    """
    known = _known(completion, gold)
    return 0.0 if known is None else grading.evaluations_grade(known[0].evaluations, known[1])


def policy(completion: str, gold: str) -> float:
    """Return 4·best move + 2·form + 1.5·candidates + evaluations, the parts of `chess.policy`; 8.5 at most.

    Args:
        completion: As for `best_move`.
        gold: As for `best_move`.

    Raises:
        UserError: as for `best_move`.

    Examples:
        >>> from grpo_tasks_chess.rewards import policy
        >>> gold = "P: 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 M: e2e4 e1f2 E: 1.2 0.8 B: e2e4"
        >>> policy("M: e2e4 e1f2 E: 1.2 0.8 B: e2e4", gold), policy("e2e4", gold)
        (8.5, 0.0)
    """
    known = _known(completion, gold)
    if known is None:
        return 0.0
    answer, truth, legal = known
    parts = {
        "best_move": grading.best_move_grade(answer.best, truth, legal),
        "format": grading.format_grade(answer, legal),
        "candidates": grading.candidates_grade(answer.moves, truth, legal),
        "evaluations": grading.evaluations_grade(answer.evaluations, truth),
    }
    return sum(WEIGHTS[name] * value for name, value in parts.items())


def solution(completion: str, gold: str) -> float:
    """Return the share of a puzzle's moves that are found from the first on; moves after its end count against it.

    Args:
        completion: Text of the model: moves in UCI on the first line.
        gold: The moves of the solution, those of the opponent included.

    Raises:
        UserError: the gold holds no move in UCI, or something else.

    Examples:
        >>> from grpo_tasks_chess.rewards import solution
        >>> solution(" e1e8", "e1e8"), solution("h5f7 e8f7 a1a2", "h5f7 e8f7 c4d5 f7e8")
        (1.0, 0.5)
    """
    wanted = gold.split()
    if not wanted or not all(map(is_uci, wanted)):
        raise UserError(f"no solution of a puzzle: {gold[:80]!r}. It has moves in UCI, as h5f7 e8f7.")
    moves = outside_thinking(completion)[:2000].partition("\n")[0].split()
    right = 0
    while right < min(len(moves), len(wanted)) and moves[right] == wanted[right]:
        right += 1
    return right / max(len(wanted), len(moves))


def outcome(completion: str, gold: str) -> float:
    """Return 1 if a move's outcome is predicted exactly, position, reward and flags, else 0.

    Args:
        completion: Text of the model: `FEN+reward+terminated+truncated`.
        gold: The same, right.

    Raises:
        UserError: the gold has another form.

    Examples:
        >>> from grpo_tasks_chess.rewards import outcome
        >>> gold = "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1+0.001+0+0"
        >>> outcome(gold, gold), outcome("4k3/8/8/8/8/4P3/8/4K3 b - - 0 1+0.001+0+0", gold)
        (1.0, 0.0)
    """
    return float(prediction(completion) == _true_outcome(gold))


def next_position(completion: str, gold: str) -> float:
    """Return how like the right position the predicted one is: 1 − edits / length of the longer FEN.

    Args:
        completion: As for `outcome`.
        gold: As for `outcome`.

    Raises:
        UserError: as for `outcome`.

    Examples:
        >>> from grpo_tasks_chess.rewards import next_position
        >>> gold = "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1+0.001+0+0"
        >>> next_position(gold, gold), next_position("no position", gold)
        (1.0, 0.0)
    """
    predicted, true = prediction(completion), _true_outcome(gold)
    return 0.0 if predicted is None else 1.0 - fen_distance(predicted.fen, true.fen)


def _known(completion: str, gold: str) -> Known | None:
    """The answer with what its gold knows; None for a completion without an answer."""
    try:
        fen, labels = read_policy_line(gold)
    except Invalid as problem:
        raise UserError(
            f"no gold of chess.policy: {problem}. It is a line P: FEN M: moves E: numbers B: move."
        ) from None
    legal = legal_moves(position(fen)).keys()
    try:
        answer = grading.read_answer(completion)
    except Invalid:
        return None
    return answer, grading.Truth("labels", labels.best, dict(zip(labels.moves, labels.evaluations, strict=True))), legal


def _true_outcome(gold: str) -> EnvironmentAnswer:
    true = prediction(gold)
    if true is None:
        raise UserError(f"no outcome of a move: {gold[:120]!r}. It is FEN+reward+terminated+truncated.")
    return true
