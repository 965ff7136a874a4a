"""The batch that every trainer scores, with the scores of our own scorer."""

from pathlib import Path
from typing import Any

from grpo_sdk import Row, Scorer, load_task
from grpo_sdk.scoring.parts import log_values

FAULTS = f"{Path(__file__).with_name('faults.py')}:task"

ENDLESS = "```python\nwhile True:\n    pass\n```"
WRONG = {"math.arithmetic": (" 7", " 130"), "code.computed": ("```python\nprint(1)\n```", ENDLESS), "chess.policy": ()}
INVALID = ("", "I do not know.", "\ud800 <answer>", "9" * 5000)


def completions(spec: str, rows: list[Row]) -> list[tuple[Row, str, str]]:
    """Row, kind and text of each completion of a task: gold ones, wrong ones, invalid ones."""
    name = spec.partition("?")[0]
    golds = [(row, "gold", row.gold or "") for row in rows]
    others = [(rows[0], "wrong", text) for text in WRONG[name]]
    others += [(rows[1], "wrong", rows[0].gold or "")]
    return [*golds, *others, *((rows[0], "invalid", text) for text in INVALID)]


def make_batch() -> list[dict[str, Any]]:
    """The batch: task, row as JSON, kind, completion, and what our scorer gives, with `value` None for no score."""
    batch = []
    for spec in ("math.arithmetic?size=2", "code.computed?size=2", "chess.policy?rows=packaged&size=2", FAULTS):
        task = load_task(spec)
        rows = task.rows()
        if spec == FAULTS:
            cases = [(rows[0], kind, text) for kind, text in (("gold", "fine"), ("wrong", "no"))]
            cases += [(rows[0], kind, kind) for kind in ("hang", "crash", "exit")]
        else:
            cases = completions(spec, rows)
        with Scorer(task, workers=1) as scorer:
            scores = scorer.score([text for *_, text in cases], [row for row, *_ in cases])
        for (row, kind, text), score in zip(cases, scores, strict=True):
            parts = {} if score.abstained else log_values(task, score)
            known = {"task": spec, "row": row.model_dump_json(), "prompt": task.prompt(row)}
            batch.append({**known, "kind": kind, "completion": text, "value": score.value, "parts": parts})
    return batch
