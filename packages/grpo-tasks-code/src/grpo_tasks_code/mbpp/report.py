"""Report of an evaluation of MBPP: the two files and the metrics of the reference system."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from grpo_sdk import EvaluationRecord, EvaluationReport
from grpo_tasks_code.mbpp.environment import mbpp_environment

FOLDER = "mbpp_eval"
"""Default folder of the files, in the run's folder."""

_PREFIXES = {"initial": "initial_", "interval": "", "final": "final_"}
"""Prefix of a metric, by phase."""


def report(evaluation: EvaluationReport) -> Mapping[str, float]:
    """Write `mbpp_summary_step_{s}_{phase}_{time}.json` and `mbpp_details_…`, and return the metrics.

    Returns:
        `mbpp_eval/pass_rate`, `problems_passed`, `total_problems` and `eval_time` of an interval evaluation; at the
        start `mbpp_eval/initial_pass_rate` and so on, at the end `mbpp_eval/final_pass_rate`.
    """
    summary = summary_of(evaluation)
    environment = mbpp_environment()
    folder = environment.results_dir or (evaluation.folder and evaluation.folder / FOLDER)
    if environment.save_results and folder is not None:
        try:
            _write(Path(folder), summary, evaluation)
        except OSError as error:  # a full disk must not lose the metrics
            warnings.warn(f"the files of the MBPP evaluation are not written: {error}", RuntimeWarning, stacklevel=2)
    prefix = _PREFIXES[evaluation.phase]
    named = {
        "pass_rate": summary["pass_rate"],
        "problems_passed": summary["problems_passed"],
        "total_problems": summary["total_problems"],
        "eval_time": summary["eval_time_seconds"],
    }
    return {f"mbpp_eval/{prefix}{name}": value for name, value in named.items() if value is not None}


def summary_of(evaluation: EvaluationReport) -> dict[str, Any]:
    """Return the reference system's summary, with a confidence interval and the number of unscored completions."""
    problems = defaultdict[str, list[EvaluationRecord]](list)
    for record in evaluation.records:
        problems[record.row.id].append(record)
    scored = [records for records in problems.values() if any(not record.score.abstained for record in records)]
    results = evaluation.results
    return {
        "step": evaluation.step,
        "phase": evaluation.phase,
        "timestamp": datetime.now().astimezone().isoformat(timespec="seconds"),
        "total_problems": len(scored),
        "problems_passed": sum(any(record.score.solved for record in records) for records in scored),
        "pass_rate": results.get("solved_rate"),
        "pass_rate_ci_low": results.get("ci_low"),
        "pass_rate_ci_high": results.get("ci_high"),
        "not_scored": sum(record.score.abstained for record in evaluation.records),
        "eval_time_seconds": evaluation.seconds,
        "config": {
            "task": evaluation.task,
            **evaluation.config.model_dump(mode="json"),
            "num_questions": len(problems),
            "completions_per_problem": len(evaluation.records) // max(1, len(problems)),
            "temperature": results.get("temperature"),
            "top_p": results.get("top_p"),
        },
    }


def _detail(record: EvaluationRecord) -> dict[str, Any]:
    return {
        "task_id": record.row.id,
        "prompt": record.prompt,
        "completion": record.completion,
        "passed": record.score.solved,
        "passed_tests": record.score.parts.get("passed_tests"),
        "reward": record.score.value,
        "why": record.score.why,
        "sample": record.sample,
        "tokens": record.tokens,
        "truncated": record.truncated,
    }


def _write(folder: Path, summary: Mapping[str, Any], evaluation: EvaluationReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y%m%d_%H%M%S")
    name = f"step_{evaluation.step}_{evaluation.phase}_{stamp}.json"
    details = {**summary, "results": [_detail(record) for record in evaluation.records]}
    for kind, content in (("summary", summary), ("details", details)):
        # Escaped, because a completion may hold lone surrogates, which UTF-8 cannot.
        text = json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False)
        partial = folder / f".mbpp_{kind}_{name}"
        partial.write_text(text + "\n", encoding="ascii")
        partial.replace(folder / partial.name[1:])
