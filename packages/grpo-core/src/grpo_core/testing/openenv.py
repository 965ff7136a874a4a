"""OpenEnv's integrity manifest and report (its RFC 008), with the semantic checks, from the results of our checks.

OpenEnv names eight `semantic.*` checks, which grade what an environment pays; for a task of text they follow from the
conformance checks. Static and runtime checks, of an image and a server, are left to `openenv validate`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from grpo_core.testing.limits import TOLERANCE, highest_value
from grpo_core.testing.results import Result, TaskReport, shown
from grpo_core.testing.subject import Scored, Subject

POLICY = "v1"
"""Version of OpenEnv's severity policy: by it every semantic check that fails fails the whole."""

SEMANTIC_LEVEL = 3

MARGIN = 0.1
"""Least distance between the highest reward and that of no answer: what the policy allows an author to declare."""

MEMORY_MB = 4096
"""Memory of one completion: the limit of `Scorer`."""

DISK_MB = 1024
"""Declared, since a budget has to be: scoring writes nothing, a sandbox at most this."""

MAX_CANARY_CHARS = 1000
"""Longest completion that is written among the canaries."""

GOLDS, CANARIES, ORACLE = "oracle/golds.jsonl", "canaries/canaries.jsonl", "oracle/solve.py"

SOLVE = '''\
"""Print the completion that solves a row: python solve.py ROW_ID."""

import json
import pathlib
import sys

for line in pathlib.Path(__file__).with_name("golds.jsonl").read_text(encoding="utf-8").splitlines():
    row = json.loads(line)
    if row["id"] == sys.argv[1]:
        sys.stdout.write(row["gold"])
        break
else:
    sys.exit(f"no gold for row {sys.argv[1]!r}")
'''

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class _Grade:
    """Status of an OpenEnv check with its evidence."""

    status: Status
    evidence: Sequence[str]
    remediation: str | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)


def write_openenv(subject: Subject, report: TaskReport, folder: Path) -> list[Path]:
    """Write `openenv.yaml`, `manifest.json`, `report.json`, the golds as oracle, and junk as canaries.

    Args:
        subject: The task that was checked.
        report: Results of all checks.
        folder: Is created if it is missing; files of these names in it are replaced.

    Returns:
        The files.
    """
    sections = _sections(subject)
    name, version = subject.task.name, subject.task.task.version
    manifest = {
        "manifest_schema_version": "1",
        "name": name,
        "version": version,
        "signature": "openenv.yaml",
        "judge": None,
        **sections,
    }
    results = _results(subject, {result.check: result for result in report.results}, sections["reward"])
    statuses = {result["status"] for result in results}
    verdict = "fail" if "fail" in statuses else "warn" if "skip" in statuses else "pass"
    document = {
        "report_schema_version": "1",
        "target": report.spec,
        "source_digest": subject.whole.identity,
        "signature": "openenv.yaml",
        "manifest": manifest,
        "policy_version": POLICY,
        "lane": "local",
        "levels_run": [SEMANTIC_LEVEL],
        "results": results,
        "verdict": verdict,
    }
    source = {"name": name, "version": version, "validation": sections}
    contents = {
        "openenv.yaml": yaml.safe_dump(source, sort_keys=False),
        "manifest.json": _json(manifest),
        "report.json": _json(document),
        CANARIES: _lines(
            {"id": each.row.id, "completion": each.text, "reward": each.score.value} for each in _canaries(subject)
        ),
    }
    if subject.golds:
        golds = ({"id": row.id, "gold": row.gold} for row in subject.whole.rows() if row.gold is not None)
        contents |= {GOLDS: _lines(golds), ORACLE: SOLVE}
    written = []
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def _sections(subject: Subject) -> dict[str, Any]:
    """The declarations of a task: those of the manifest that `openenv.yaml` holds as well."""
    task = subject.task
    seen = [each.score.value for each in (*subject.golds, *_canaries(subject)) if each.score.value is not None]
    scored = next((each.score for each in (*subject.golds, *subject.junk) if each.score.parts), None)
    high = highest_value(task, scored) if scored is not None else 1.0
    low = min([0.0, *seen]) if high > 0 else min([high - 1.0, *seen])
    generated = task.config.path is None
    return {
        "reward": {
            "range": [low, high],
            "oracle_tolerance": TOLERANCE,
            "floor_margin": MARGIN * max(1.0, high - low),
            "variance_tolerance": None,
        },
        "resources": {
            "cpu": 1.0,
            "memory_mb": MEMORY_MB,
            "disk_mb": DISK_MB,
            "episode_timeout_s": task.task.timeout_s,
            "gpus": 0,
            "gpu_types": [],
        },
        "task_distribution": {
            "generator_seed": task.config.seed if generated else None,
            "dataset_version": subject.whole.identity,
            "generator_model": None,
        },
        "network": {"mode": "public", "allowed_hosts": []},
        "capabilities": {
            "oracle": {"form": "script", "location": ORACLE} if subject.golds else None,
            "verifier": {"kind": "reward_channel", "entry": None},
            "set_state": False,
            "llm_judged": False,
            "rubric_tree": False,
            "task_api": False,
            "canaries": CANARIES,
            "declared_tools": [],
            "declared_task_count": {task.config.split: len(subject.whole.rows())},
        },
        "types": {"tags": [f"grpo:{task.name.partition('.')[0]}"]},
    }


def _results(subject: Subject, checks: Mapping[str, Result], reward: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The eight semantic checks, in OpenEnv's order; none is graded where scores are not deterministic."""
    graders: Mapping[str, tuple[Callable[[], _Grade], Sequence[str]]] = {
        "oracle_max": (lambda: _oracle_max(subject, checks, reward), ("gold",)),
        "floor_gap": (lambda: _floor_gap(subject, reward), ("junk",)),
        "canary_floor": (lambda: _canary_floor(subject, checks), ("junk", "hostile")),
        "no_solution_leakage": (lambda: _of_checks(checks, "leak", "feedback"), ("leak", "feedback")),
        "verifier_determinism": (lambda: _of_checks(checks, "determinism"), ("determinism",)),
        "verifier_portability": (lambda: _portability(subject, checks), ("determinism", "imports")),
        "resource_envelope": (lambda: _envelope(subject, checks), ("latency",)),
        "replayability": (lambda: _of_checks(checks, "rows", "determinism"), ("rows", "determinism")),
    }
    is_deterministic = checks["determinism"].status == "passed"
    results = []
    for name, (grade, needed) in graders.items():
        if is_deterministic or name == "verifier_determinism":
            found = grade()
        else:
            found = _Grade("skip", [f"needs semantic.verifier_determinism: {checks['determinism'].text}"])
        results.append(
            {
                "check_id": f"semantic.{name}",
                "status": found.status,
                "measured": dict(found.measured),
                "evidence": list(found.evidence),
                "remediation": found.remediation,
                "duration_s": sum(checks[check].seconds for check in needed),
            }
        )
    return results


def _of_checks(checks: Mapping[str, Result], *names: str) -> _Grade:
    """A grade that follows from checks of ours: all that apply must hold; where none does, it is skipped."""
    results = [checks[name] for name in names]
    evidence = [f"{result.check}: {result.status}: {result.text}" for result in results]
    for result in results:
        if result.status == "failed":
            return _Grade("fail", [*evidence, result.example], result.advice, result.measured)
    is_graded = any(result.status == "passed" for result in results)
    return _Grade("pass" if is_graded else "skip", evidence)


def _oracle_max(subject: Subject, checks: Mapping[str, Result], reward: Mapping[str, Any]) -> _Grade:
    if not subject.golds:
        advice = "Give rows a gold: OpenEnv fails an environment without an oracle."
        return _Grade("fail", [f"no oracle: {checks['gold'].text}"], advice)
    values = [each.score.value for each in subject.golds if each.score.value is not None]
    measured = {
        "oracle_reward": min(values, default=None),
        "declared_max": reward["range"][1],
        "declared_tolerance": reward["oracle_tolerance"],
    }
    grade = _of_checks(checks, "gold")
    return _Grade(grade.status, grade.evidence, grade.remediation, measured)


def _floor_gap(subject: Subject, reward: Mapping[str, Any]) -> _Grade:
    empty = [each for each in subject.junk if each.kind == "empty"]
    floor = max((each.score.value for each in empty if each.score.value is not None), default=None)
    high, margin = reward["range"][1], reward["floor_margin"]
    measured = {"measured_floor": floor, "declared_max": high, "declared_margin": margin}
    if floor is None:
        return _Grade("fail", ["the empty completion is not scored"], "Raise Invalid for it.", measured)
    evidence = [f"the empty completion earns {floor:g}; the distance to {high:g} is {high - floor:g}"]
    if high - floor < margin:
        return _Grade("fail", evidence, "Raise Invalid in validate() for what holds no answer.", measured)
    return _Grade("pass", evidence, measured=measured)


def _canary_floor(subject: Subject, checks: Mapping[str, Result]) -> _Grade:
    canaries = _canaries(subject)
    values = [each.score.value for each in canaries if each.score.value is not None]
    measured = {"canaries": len(canaries), "highest_reward": max(values, default=None)}
    solved = next((each for each in canaries if each.score.solved), None)
    if solved is not None:
        advice = "Raise Invalid in validate() for what holds no answer."
        return _Grade("fail", [f"{solved.kind} is solved: {shown(solved.text)}"], advice, measured)
    grade = _of_checks(checks, "junk", "hostile")
    return _Grade(grade.status, grade.evidence, grade.remediation, measured)


def _portability(subject: Subject, checks: Mapping[str, Result]) -> _Grade:
    grade = _of_checks(checks, "determinism", "imports")
    addresses = [address for probe in subject.probes for address in probe.get("connections", ())]
    if grade.status == "pass" and addresses:
        evidence = [*grade.evidence, f"scoring connected to {addresses[0]}"]
        return _Grade("fail", evidence, "Score without a network, or load what is needed with the rows.")
    return _Grade(grade.status, [*grade.evidence, "scoring opened no connection"], grade.remediation)


def _envelope(subject: Subject, checks: Mapping[str, Result]) -> _Grade:
    memory = max((probe.get("memory_mb", 0.0) for probe in subject.probes), default=0.0)
    measured = {**checks["latency"].measured, "memory_mb": memory, "declared_memory_mb": MEMORY_MB}
    grade = _of_checks(checks, "latency")
    evidence = [*grade.evidence, f"scoring took {memory:.0f} MB of {MEMORY_MB}"]
    if memory > MEMORY_MB:
        return _Grade("fail", evidence, "Load less when scoring; workers have this limit.", measured)
    return _Grade(grade.status, evidence, grade.remediation, measured)


def _canaries(subject: Subject) -> list[Scored]:
    """Completions that must not earn: those short enough to be read, in ASCII."""
    texts = (*subject.junk, *subject.hostile)
    return [each for each in texts if len(each.text) <= MAX_CANARY_CHARS and each.text.isascii()]


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _lines(records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)
