"""Each diagnosis is provoked by a real run of the embedded model, and a sound run has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from ears import Ears

from grpo_core import resume, train
from grpo_core.callbacks import Callback, Callbacks, Finding
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.tracking.diagnoses import DIAGNOSES

TASKS = Path(__file__).parents[1] / "support" / "diagnosed_tasks.py"
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "troubleshooting.md"

FAST = {"learning_rate": 6e-4, "max_steps": 30, "prompts_per_step": 4, "num_generations": 8}
"""Learns within seconds, and nothing good."""

EIGHT, TWO_TOKENS = {"num_generations": 8}, {"max_completion_length": 2}
CLIPPED = {"num_iterations": 8, "epsilon": 0.001, "max_steps": 8}
REUSED = {"num_iterations": 2, "steps_per_generation": 2, "max_steps": 20}
UNFILLED = {"temperature": 0.02, "dynamic_sampling": True, "dynamic_sampling_attempts": 1}
LENGTHENING = {"max_steps": 24, "max_completion_length": 16, "temperature": 2.0}
DROPOUT = {"lora": {"enabled": True, "dropout": 0.5}}

Case = tuple[str, Mapping[str, Any], Mapping[str, Any], str]

CASES: dict[str, Case] = {
    # name of the diagnosis: task, settings of the trainer, other settings, pattern of what is seen
    "all-rewards-equal": ("unsolvable", {"max_steps": 1, "prompts_per_step": 8, **EIGHT}, {}, "all 64 .* earn 0"),
    "equal-rewards-in-groups": (
        "sound",
        {"max_steps": 5, "temperature": 0.1},
        {},
        r"% of the groups .* 5 logged steps",
    ),
    "zero-gradient": ("sound", {"max_steps": 6, **TWO_TOKENS, "mask_truncated_completions": True}, {}, "exactly 0"),
    "learning-rate-zero": ("sound", {"max_steps": 3, "learning_rate": 0.0}, {}, "rate is 0 for 3"),
    "skipped-updates": ("overflowing", {"max_steps": 8, **EIGHT}, {}, "not finite"),
    "abstained": (
        "buggy",
        {"max_steps": 2},
        {"scoring": {"max_abstain_share": 0.9}},
        r"scored \(diagnosed_.*\.buggy: \d",
    ),
    "answers-invalid": ("invalid", {"max_steps": 10}, {}, "answer in 0% of the completions for 10"),
    "task-without-signal": ("sound+unsolvable", {"max_steps": 10, **EIGHT}, {}, r"\.unsolvable: 100% of its groups"),
    "identical-completions": ("sound", {"max_steps": 5, "temperature": 0.01}, {}, "identical for 5"),
    "truncated": ("sound", {"max_steps": 3, **TWO_TOKENS}, {}, "every completion hit .*=2"),
    "empty-completions": ("empty", {"max_steps": 3}, {}, "every completion is empty"),
    "kl-high": ("one_answer", {**FAST, "kl_metric": True}, {}, r"nats per token from where it started"),
    "entropy-collapse": ("round_only", {**FAST, "max_steps": 40}, {}, "entropy has fallen to"),
    "gradient-spike": ("spiking", {"max_steps": 22, **EIGHT}, {}, r"\d+ times the median"),
    "clipping-high": ("sound", {**FAST, **CLIPPED, "learning_rate": 1e-3}, {}, r"\d+% of the tokens are clipped"),
    "clipping-never": (
        "sound",
        {**FAST, **REUSED, "learning_rate": 1e-7},
        {},
        "no token .* for 20 .* 4 optimizer steps",
    ),
    "sampler-mismatch": ("sound", {**FAST, "learning_rate": 1e-2, "max_steps": 6}, DROPOUT, "disagree by"),
    "dynamic-sampling-unfilled": (
        "sound",
        {"max_steps": 5, **UNFILLED},
        {},
        r"of 4 groups have equal rewards although",
    ),
    "evaluation-rows-in-training": (
        "overlapping",
        {"max_steps": 1},
        {"eval": {"at_end": True}},
        "4 of 8 held-out rows",
    ),
    "held-out-falls": ("mislabelled", FAST, {"eval": {"at_start": True, "interval_steps": 25}}, "has fallen from"),
    "part-falls": ("watched", {**FAST, "prompts_per_step": 8, "max_steps": 22}, {}, "watched part first_digit falls"),
    "part-dominates": ("round_only", {**FAST, "max_steps": 40}, {}, "round_number carries 100%"),
    "answers-alike": ("round_only", {**FAST, "max_steps": 40}, {}, "becoming alike"),
    "longer-without-reward": ("lengthening", {**FAST, **LENGTHENING}, {}, "have grown from"),
}


SMALL = {"prompts_per_step": 4, "num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-5}


def run(folder: Path, task: str, trainer: Mapping[str, Any], **settings: Any) -> tuple[list[Finding], Path]:
    ears = Ears()
    settings["eval"] = EvalConfig(**{"at_start": False, "at_end": False, "size": 64, **settings.get("eval", {})})
    spec = ",".join(f"{TASKS}:{name}" for name in task.split("+"))
    own = {"task": spec, "model": "tiny", "output_dir": str(folder), "device": "cpu"}
    config = RunConfig.model_validate({**own, "trainer": TrainerConfig(**SMALL | dict(trainer)), **settings})
    result = train(config, (ears,))
    return ears.findings, result.run_dir


RUNS: dict[str, list[str]] = {}
for _name, (*_run, _) in CASES.items():
    RUNS.setdefault(repr(_run), []).append(_name)


@pytest.mark.parametrize("names", RUNS.values(), ids=", ".join)
def test_a_real_run_provokes_it(tmp_path: Path, names: list[str]) -> None:
    task, trainer, settings, _ = CASES[names[0]]
    findings, run_dir = run(tmp_path, task, trainer, **settings)
    summary = orjson.loads((run_dir / "summary.json").read_bytes())
    assert summary["warnings"] == [each.as_json() for each in findings]
    events = [orjson.loads(line) for line in (run_dir / "logs" / "events.jsonl").read_bytes().splitlines()]
    for name in names:
        (finding,) = [each for each in findings if each.name == name]
        assert re.search(CASES[name][3], finding.seen), finding.seen
        assert finding.why and finding.fix
        logged = [(each["step"], each["message"]) for each in events if each.get("name") == name]
        assert logged == [(finding.step, str(replace(finding, step=0)))]


def test_a_sound_run_has_none(tmp_path: Path) -> None:
    findings, run_dir = run(tmp_path, "sound", {"max_steps": 25, "num_generations": 8})
    assert findings == []
    assert orjson.loads((run_dir / "summary.json").read_bytes())["warnings"] == []


def test_each_diagnosis_is_provoked_and_has_its_section() -> None:
    assert list(CASES) == [each.name for each in DIAGNOSES]
    headings = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {each.name for each in DIAGNOSES} <= set(headings)
    for name in headings:
        section = PAGE.read_text(encoding="utf-8").partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert all(f"**{part}**" in section for part in ("Symptom", "Check", "Fix")) and "\n$ " in section, name


def test_a_resumed_run_keeps_its_warnings_and_gives_none_twice(tmp_path: Path) -> None:
    settings = {"max_steps": 6, "max_completion_length": 2}
    first, run_dir = run(tmp_path, "sound", {**settings, "stop_after": 4})
    assert [each.name for each in first] == ["truncated"]
    second = Ears()
    result = resume(run_dir, callbacks=(second,))
    assert second.findings == []
    assert [each["name"] for each in result.summary["warnings"]] == ["truncated"]


def test_a_callback_without_the_method_gets_the_text() -> None:
    texts: list[str] = []
    only_warned = Callback()
    only_warned.on_warning = texts.append  # type: ignore[method-assign] # as a user's class would define it
    Callbacks([only_warned]).on_diagnosis(Finding("truncated", 3, "seen.", "why.", "fix."))
    assert texts == ["step 3: seen. why. Try: fix. See docs/how-to/troubleshooting.md#truncated"]
