"""Several processes with one model evaluate together: each answers its share of the rows, and all get the whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from grpo_core.evaluation.results import Certainty, Evaluation, TokenStatistics
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import EngineError, UserError
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

if TYPE_CHECKING:
    from grpo_core.policy.ranks import Ranks

_STOPPED = b"stopped"


def evaluate_together(
    rows: Sequence[Row],
    evaluate: Callable[[Sequence[Row]], Evaluation],
    ranks: Ranks,
    in_step: Callable[..., AbstractContextManager[None]],
) -> Evaluation:
    """Evaluate rows on all ranks. The result is that of one process, since a completion depends on its key alone.

    Every rank calls it with the same rows, even if its share is empty: a model in shards runs on all or on none.

    Args:
        rows: All rows, in order.
        evaluate: Evaluates some of them in this process.
        ranks: The processes that evaluate.
        in_step: The context in which ranks run a model that they share; see `Policy.in_step`.

    Raises:
        StopRequested: `evaluate` raised it on any rank; it is raised on all.
        EngineError: likewise, and `UserError`.
    """
    if ranks.size == 1:
        with in_step():
            return evaluate(rows)
    share = ranks.share(len(rows))
    own: list[Evaluation] = []

    def answer() -> bytes:
        try:
            with in_step(StopRequested, EngineError, UserError):
                own.append(evaluate(rows[share.start : share.stop]))
        except StopRequested:
            return _STOPPED
        return _packed(own[0])

    parts = ranks.together(answer)
    if _STOPPED in parts:
        raise StopRequested
    return _joined(own[0], parts, rows)


def _packed(part: Evaluation) -> bytes:
    """Pack a part as JSON in ASCII, in which any text survives, without the rows."""
    return json.dumps(  # orjson refuses lone surrogates
        {
            "texts": part.texts,
            "lengths": part.lengths,
            "truncated": part.truncated,
            "think_lengths": part.think_lengths,
            "scores": [asdict(score) for score in part.scores],
            "certainty": part.certainty,
            "seconds": part.seconds,
            "peak_memory_mib": part.peak_memory_mib,
        }
    ).encode("ascii")


def _joined(own: Evaluation, packed: Sequence[bytes], rows: Sequence[Row]) -> Evaluation:
    parts = [json.loads(part) for part in packed]
    return replace(
        own,
        rows=rows,
        texts=[text for part in parts for text in part["texts"]],
        lengths=[length for part in parts for length in part["lengths"]],
        truncated=[flag for part in parts for flag in part["truncated"]],
        think_lengths=[length for part in parts for length in part["think_lengths"]],
        scores=[Score(**score) for part in parts for score in part["scores"]],
        certainty=[_certainty(pair) for part in parts for pair in part["certainty"]],
        seconds=max(part["seconds"] for part in parts),
        peak_memory_mib=max(part["peak_memory_mib"] for part in parts),
    )


def _certainty(pair: Sequence[Sequence[float]] | None) -> Certainty | None:
    return None if pair is None else Certainty(*(TokenStatistics(*numbers) for numbers in pair))
