from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import broken_tasks
import jsonschema
import pytest

from grpo_core import load_task
from grpo_core.cli.main import main
from grpo_core.testing.table import check_task

FILE = broken_tasks.__file__

SEMANTIC = [
    "oracle_max",
    "floor_gap",
    "canary_floor",
    "no_solution_leakage",
    "verifier_determinism",
    "verifier_portability",
    "resource_envelope",
    "replayability",
]
"""The semantic checks of OpenEnv's severity policy v1."""


def written(spec: str, folder: Path) -> dict[str, Any]:
    check_task(load_task(spec), rows=4, openenv=folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert [result["check_id"] for result in report["results"]] == [f"semantic.{name}" for name in SEMANTIC]
    return report


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {result["check_id"].removeprefix("semantic."): result["status"] for result in report["results"]}


def test_a_faultless_task_passes_every_semantic_check(tmp_path: Path) -> None:
    report = written(f"{FILE}:faultless", tmp_path)
    assert report["verdict"] == "pass" and set(statuses(report).values()) == {"pass"}
    assert report["manifest"] == json.loads((tmp_path / "manifest.json").read_text())
    assert report["manifest"]["reward"]["range"] == [0.0, 1.0]
    canaries = [json.loads(line) for line in (tmp_path / "canaries/canaries.jsonl").read_text().splitlines()]
    assert len(canaries) >= 30 and max(canary["reward"] for canary in canaries) == 0


def test_the_oracle_prints_golds(tmp_path: Path) -> None:
    written(f"{FILE}:faultless", tmp_path)
    row = load_task(f"{FILE}:faultless").rows()[3]
    solve = [sys.executable, str(tmp_path / "oracle" / "solve.py")]
    assert subprocess.run([*solve, row.id], capture_output=True, text=True, check=True).stdout == row.gold
    assert subprocess.run([*solve, "no such row"], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("gold", {"oracle_max"}),
        ("junk", {"floor_gap", "canary_floor"}),
        ("leak", {"no_solution_leakage"}),
        ("imports", {"verifier_portability"}),
        ("rows", {"replayability"}),
    ],
)
def test_faults_fail_the_check_that_names_them(name: str, failed: set[str], tmp_path: Path) -> None:
    report = written(f"{FILE}:{name}", tmp_path)
    assert report["verdict"] == "fail"
    assert {check for check, status in statuses(report).items() if status == "fail"} == failed


def test_nothing_is_graded_where_scores_are_not_deterministic(tmp_path: Path) -> None:
    found = statuses(written(f"{FILE}:determinism", tmp_path))
    assert found.pop("verifier_determinism") == "fail" and set(found.values()) == {"skip"}


def test_a_task_without_golds_has_no_oracle(tmp_path: Path) -> None:
    report = written("games.nim?size=8", tmp_path)
    assert report["manifest"]["capabilities"]["oracle"] is None
    assert statuses(report)["oracle_max"] == "fail"  # so says OpenEnv


def test_mistakes_in_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").touch()
    assert main(["check", FILE, "--openenv", str(tmp_path / "out")]) == 2
    assert "--openenv needs one task" in capsys.readouterr().err
    assert main(["check", f"{FILE}:faultless", "-k", "gold", "--openenv", str(tmp_path / "out")]) == 2
    assert main(["check", f"{FILE}:faultless", "--openenv", str(tmp_path / "taken" / "out")]) == 2
    assert "Give another folder" in capsys.readouterr().err


PARSED = """
import sys
from pathlib import Path

from openenv.validation import Lane, ValidationReport, apply_policy, load_policy
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser

for folder in map(Path, sys.argv[1:]):
    report = ValidationReport.model_validate_json((folder / "report.json").read_text())
    assert OpenEnvYamlParser().parse(folder) == report.manifest
    assert apply_policy(report.results, load_policy(report.policy_version), Lane.LOCAL) == report.verdict
"""


@pytest.mark.network
def test_openenv_reads_what_is_written(tmp_path: Path) -> None:
    wheel = tmp_path / "openenv"
    install = ["uv", "pip", "install", "-q", "--python", sys.executable, "--target", str(wheel), "openenv==0.10.0"]
    subprocess.run(install, cwd=tmp_path, check=True)  # elsewhere the versions that this repository wants would hold
    schemas = wheel / "openenv" / "validation" / "schemas"
    folders = []
    for spec in (f"{FILE}:faultless", f"{FILE}:junk", "games.nim?size=8", "math.arithmetic?size=20"):
        folders.append(folder := tmp_path / spec.rpartition(":")[2].partition("?")[0])
        report = written(spec, folder)
        jsonschema.validate(report, json.loads((schemas / "report.schema.json").read_text()))
        manifest = json.loads((folder / "manifest.json").read_text())
        jsonschema.validate(manifest, json.loads((schemas / "manifest.schema.json").read_text()))
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    script = [sys.executable, "-c", PARSED, *map(str, folders)]
    ran = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
