"""Diagnoses are provoked by real runs of the embedded model, and a sound run has none."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from ears import Ears

from grpo_core import resume, train
from grpo_core.config import RunConfig
from grpo_core.tracking.diagnoses import DIAGNOSES, named
from grpo_core.tracking.diagnosis import History
from grpo_sdk.callbacks import Finding

TASKS = Path(__file__).parents[1] / "support" / "diagnosed_tasks.py"
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "troubleshooting.md"

EIGHT, TWO_TOKENS = {"num_generations": 8}, {"max_completion_length": 2}
COLD = {"max_steps": 5, "temperature": 0.01, "dynamic_sampling": True, "dynamic_sampling_attempts": 1}
FAST = {"learning_rate": 1e-2, "max_steps": 6, "lora": {"enabled": True, "dropout": 0.5}}

RUNS: list[tuple[str, Mapping[str, Any], Mapping[str, str]]] = [
    # task, settings, name of each diagnosis: pattern of what is seen
    ("unsolvable", {"max_steps": 1, "prompts_per_step": 8, "eval": {"size": 49}, **EIGHT}, {
        "all-rewards-equal": "all 64 .* earn 0",
        "golds-unsolved": r"unsolvable: 32 of 32 golds .* '11\+12': nothing 0 of 1",
        "few-held-out-rows": r"unsolvable: 49 held-out rows .* ±0\.13",
    }),
    ("sound", {"max_steps": 6, **TWO_TOKENS, "mask_truncated_completions": True}, {
        "zero-gradient": "exactly 0",
        "truncated": "every completion hit .*=2",
    }),
    ("sound", {**COLD, "learning_rate": 0.0}, {
        "learning-rate-zero": "rate is 0 for 3",
        "equal-rewards-in-groups": r"% of the groups .* 5 logged steps",
        "identical-completions": "identical for 5",
        "dynamic-sampling-unfilled": r"of 4 groups have equal rewards although",
    }),
    ("sound+unsolvable", {"max_steps": 10, **EIGHT}, {"task-without-signal": r"\.unsolvable: 100% of its groups"}),
    ("empty", {"max_steps": 3}, {"empty-completions": "every completion is empty"}),
    ("sound", {**FAST, **EIGHT}, {"sampler-mismatch": "disagree by"}),
    ("overlapping", {"max_steps": 1, "eval": {"size": 8}}, {"evaluation-rows-in-training": "4 of 8 held-out rows"}),
]  # fmt: skip
COURSES = {
    *("kl-high", "entropy-collapse", "gradient-spike", "clipping-high", "clipping-never", "longer-without-reward"),
    *("answers-invalid", "held-out-falls", "part-falls", "part-dominates", "answers-alike"),
    *("abstained", "skipped-updates"),
}
"""test_monitor and test_hacking have them, with the metrics of a run: most take long to provoke."""


SMALL = {"prompts_per_step": 4, "num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-5}
UNEVALUATED = {"at_start": False, "at_end": False}


def run(folder: Path, task: str, **settings: Any) -> tuple[list[Finding], Path]:
    ears = Ears()
    spec = ",".join(f"{TASKS}:{name}" for name in task.split("+"))
    own = {"model": "tiny", "output_dir": str(folder), "device": "cpu", "progress": False}
    result = train(spec, [ears], **{**own, "eval": UNEVALUATED, **SMALL, **settings})
    return ears.findings, result.run_dir


@pytest.mark.parametrize(("task", "settings", "patterns"), RUNS, ids=[", ".join(each) for *_, each in RUNS])
def test_a_real_run_provokes_it(
    tmp_path: Path, task: str, settings: Mapping[str, Any], patterns: Mapping[str, str]
) -> None:
    findings, run_dir = run(tmp_path, task, **settings)
    summary = orjson.loads((run_dir / "summary.json").read_bytes())
    assert summary["warnings"] == [each.as_json() for each in findings]
    events = [orjson.loads(line) for line in (run_dir / "logs" / "events.jsonl").read_bytes().splitlines()]
    for name, pattern in patterns.items():
        (finding,) = [each for each in findings if each.name == name]
        assert re.search(pattern, finding.seen), finding.seen
        assert finding.why and finding.fix
        logged = [(each["step"], each["message"]) for each in events if each.get("name") == name]
        assert logged == [(finding.step, str(replace(finding, step=0)))]


def test_a_sound_run_has_none(tmp_path: Path) -> None:
    findings, run_dir = run(tmp_path, "sound", max_steps=21, **EIGHT)  # both windows are full
    assert findings == []
    assert orjson.loads((run_dir / "summary.json").read_bytes())["warnings"] == []


@pytest.mark.parametrize(("evaluation", "fix"), [
    ({"size": 8}, "raise eval.size (now 8)"),
    ({"size": 512}, "path={split}.jsonl"),
    ({"size": 512, "subset_frac": 0.1}, "raise eval.subset_frac (now 0.1)"),
    ({"size": 60}, ""),
    ({"size": 8, **UNEVALUATED}, ""),
])  # fmt: skip
def test_what_to_do_about_few_held_out_rows_goes_by_why_they_are_few(evaluation: dict[str, Any], fix: str) -> None:
    config = RunConfig.model_validate({"task": "a.b", "eval": evaluation})
    held = {8: 8, 512: 40, 60: 60}[evaluation["size"]] if "at_start" not in evaluation else 0
    diagnosis = named("few-held-out-rows")
    history = History(config, 0.05, held_out={"a.b": held})
    found = [diagnosis.fix(history, about) for about, seen in diagnosis.see(history, diagnosis) if seen]
    assert (fix in found[0]) if fix else not found


def test_each_diagnosis_is_provoked_and_has_its_section() -> None:
    assert {name for *_, patterns in RUNS for name in patterns} | COURSES == {each.name for each in DIAGNOSES}
    headings = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {each.name for each in DIAGNOSES} <= set(headings)
    for name in headings:
        section = PAGE.read_text(encoding="utf-8").partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert all(f"**{part}**" in section for part in ("Symptom", "Check", "Fix")) and "\n$ " in section, name


def test_a_resumed_run_keeps_its_warnings_and_gives_none_twice(tmp_path: Path) -> None:
    first, run_dir = run(tmp_path, "sound", max_steps=5, stop_after=4, **TWO_TOKENS)
    assert [each.name for each in first] == ["truncated"]
    second = Ears()
    result = resume(run_dir, callbacks=(second,))
    assert second.findings == []
    assert [each["name"] for each in result.summary["warnings"]] == ["truncated"]
