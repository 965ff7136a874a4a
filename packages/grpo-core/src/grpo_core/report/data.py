"""What a report shows of runs, as plain data: `grpo report --json` prints it, and the page draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grpo_core.report.rollouts import MAX_ROLLOUTS, drawer, gather
from grpo_core.tracking.base import plain
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, MIN_ENTROPY, STARTING_STEPS, named
from grpo_core.tracking.events import read_branch
from grpo_core.tracking.observe import kl_target
from grpo_core.tracking.runs import RunView, is_number, read_run
from grpo_core.training.catalogue import CATALOGUE
from grpo_sdk import __version__
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import host
from grpo_sdk.records.jsonl import TRAIN_LOG, read_jsonl, read_lines, with_step

MAX_STEPS = 1000
"""Points of a metric; of more logged steps, means over equal numbers of them."""

PHASES = ("generate_s", "update_s")
"""Metrics of the time that a step spends in each phase; `step_s` is all of it."""


class TrainingLog:
    """Metrics of a run over its logged steps, and the seconds of its phases.

    Args:
        run: Folder of the run.
        missing: Receives what could not be read.

    Attributes:
        steps: Logged steps; of more than `MAX_STEPS`, the last of each of some blocks of equal length.
        seconds: Phase -> seconds over all steps, `other_s` among them.
    """

    def __init__(self, run: Path, missing: list[str]) -> None:
        self.steps: list[int] = []
        self.seconds: dict[str, float] = {}
        self._blocks: list[dict[str, tuple[float, int]]] = []  # metric -> sum and number of what is known
        self._length, self._lines = 1, 0
        for _, line in read_lines(run / TRAIN_LOG, with_step, missing):
            self._spend(line)
            self._add(line)
        if not self.steps:
            missing.append("no logged step yet: no metrics")

    def metrics(self) -> dict[str, list[float | None]]:
        """Metric -> its mean over each block; None where it was not logged or is not finite."""
        names = dict.fromkeys(name for block in self._blocks for name in block)
        return {name: [_mean(*block.get(name, (0.0, 0))) for block in self._blocks] for name in names}

    def _add(self, line: dict[str, Any]) -> None:
        if self._lines % self._length == 0:
            if len(self._blocks) == MAX_STEPS:
                self._halve()
            self._blocks.append({})
            self.steps.append(0)
        block = self._blocks[-1]
        for name, value in line.items():
            if name != "step" and is_number(value):
                total, count = block.get(name, (0.0, 0))
                block[name] = (total + value, count + 1)
        self.steps[-1] = line["step"]
        self._lines += 1

    def _halve(self) -> None:
        """Make one block of each two; `MAX_STEPS` is even, so all are of one length again."""
        self._blocks = [
            {
                name: (first.get(name, (0.0, 0))[0] + value, first.get(name, (0.0, 0))[1] + count)
                for name, (value, count) in {**dict.fromkeys(first, (0.0, 0)), **second}.items()
            }
            for first, second in zip(self._blocks[::2], self._blocks[1::2], strict=True)
        ]
        self.steps = self.steps[1::2]
        self._length *= 2

    def _spend(self, line: dict[str, Any]) -> None:
        spent = {name: line[name] for name in (*PHASES, "step_s") if is_number(line.get(name))}
        whole = spent.pop("step_s", math.fsum(spent.values()))
        for name, seconds in {**spent, "other_s": max(0.0, whole - math.fsum(spent.values()))}.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def _mean(total: float, count: int) -> float | None:
    return float(f"{total / count:.6g}") if count else None


Range = tuple[float | None, float | None]
"""Lowest and highest healthy value; None where there is no bound."""

RANGES: Mapping[str, Range] = {
    "frac_reward_zero_std": (0.1, 0.5),
    "completions/truncated_frac": (0, 0.1),
    "ratio_mean": (0.9, 1.1),
    "ratio_std": (0, 0.3),
    "ratio_max": (None, 10),
    "clip_ratio/region": (0, 0.2),
    "ess": (0.5, 1),
    "sampler_mismatch": (0, named("sampler-mismatch").threshold),
    "abstained": (0, 0),
}
"""Ranges that are the same in every run."""

DIAGNOSTICS = (
    "kl", "entropy", "ratio_mean", "ess", "gns/b_simple", "frac_reward_zero_std", "clip_ratio/region", "grad_norm",
    "sampler_mismatch", "completions/truncated_frac", "abstained", "loss/policy", "learning_rate",
)  # fmt: skip
"""Metrics that a report draws, in this order, where they were logged."""


def healthy_range(name: str, settings: Mapping[str, Any], values: Sequence[float | None]) -> Range | None:
    """Return the healthy range of a metric in a run, or None where it has none.

    Args:
        name: Name of the metric.
        settings: Settings of the run, by dotted key.
        values: Its values over the steps, for ranges that depend on where it began.
    """
    if name in RANGES:
        return RANGES[name]
    match name:
        case "kl":
            return (None, named("kl-high").threshold * _kl_target(settings))
        case "grad_norm":
            limit = _number(settings.get("trainer.max_grad_norm"), 0.0)
            return (0.0, limit) if limit > 0 else None
        case "entropy":
            first = [value for value in values if value is not None][:STARTING_STEPS]
            share = named("entropy-collapse").threshold
            return (min(MIN_ENTROPY, share * sum(first) / len(first)), None) if first else None
        case "gns/b_simple":  # within a factor of four of the batch: a single estimate is no better
            prompts = _number(settings.get("trainer.prompts_per_step"), 0.0)
            return (prompts / 4, prompts * 4) if prompts > 0 else None
    return None


def _kl_target(settings: Mapping[str, Any]) -> float:
    """KL per token from which the monitor warns, too; a controller that is not installed here has a known target."""
    section = "trainer.kl_controller_args."
    arguments = {name.removeprefix(section): value for name, value in settings.items() if name.startswith(section)}
    try:
        return kl_target(str(settings.get("trainer.kl_controller", "constant")), arguments)
    except UserError:
        return _number(arguments.get("target"), DEFAULT_KL_TARGET)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


REPORT_FORMAT_VERSION = 1
"""Version of the data; changes are announced a minor version ahead."""


def report_data(paths: Sequence[Path], *, rollouts: int = MAX_ROLLOUTS) -> dict[str, Any]:
    """Read everything that a report shows.

    Args:
        paths: Folders of the runs, the first one being that to which the others are compared.
        rollouts: Most completions of a run that are kept; 0 keeps none.

    Raises:
        UserError: a folder is not a run or is given twice, or its settings cannot be read.
    """
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UserError(f"{path} is given twice: give each run once.")
    problems: list[list[str]] = [[] for _ in paths]
    views = [read_run(path, found) for path, found in zip(paths, problems, strict=True)]
    each = max(1, rollouts // len(paths)) if rollouts else 0
    runs = [_run(*of, each) for of in zip(views, _names(resolved), problems, strict=True)]
    comparison = None
    if len(views) > 1:
        from grpo_core.report.compare import compare  # evaluations bring torch, which takes seconds

        comparison = compare(views, [run["name"] for run in runs])
    return {
        "version": REPORT_FORMAT_VERSION,
        "grpo_core": __version__,
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": runs,
        "comparison": comparison,
    }


def _names(paths: Sequence[Path]) -> list[str]:
    """Name of each run: that of its folder, with the parent where several have the same."""
    short = [path.name for path in paths]
    return [path.name if short.count(path.name) == 1 else f"{path.parent.name}/{path.name}" for path in paths]


def _run(view: RunView, name: str, missing: list[str], limit: int) -> dict[str, Any]:
    evaluations = _evaluations(view.path, missing)
    log = TrainingLog(view.path, missing)
    metrics = log.metrics()
    tasks: dict[str, Any] = {}
    kept = None
    if (view.path / "logs" / "rollouts.jsonl").is_file():
        tasks, kept, problems, last = gather(view.path, drawer(host.default_host().draw), limit)
        missing += problems
        if tasks and view.state != "running" and last < view.steps:
            missing.append(f"no completions of steps {last + 1} to {view.steps}: logs/rollouts.jsonl ends before them")
        if not tasks:
            missing.append("no completions yet: no curves with intervals, no distributions, no browser")
        elif kept is None:
            missing.append("completions are left out of this report, as --rollouts 0 says")
    else:
        missing.append("no completions (logs/rollouts.jsonl): no curves with intervals, no distributions, no browser")
    if kept and kept["logprobs"] and not any(kept["logprobs"]):
        missing.append("no log-probs of tokens: tracking.token_logprobs=true stores them")
    settings = view.settings
    return {
        "name": plain(name),
        "path": plain(str(view.path)),
        "state": view.state,
        "problem": view.problem,
        "steps": max([view.steps, *log.steps[-1:]]),
        "planned": view.planned,
        "updated": view.updated,
        **{key: settings.get(key) for key in ("task", "model", "seed")},
        "missing": missing,
        "metrics": {"steps": log.steps, "values": metrics},
        "diagnostics": _diagnostics(settings, metrics),
        "tasks": tasks,
        "evaluations": evaluations,
        "time": {"totals": _seconds(view.path, log, missing)},
        "settings": _settings(settings, view.sources),
        "choices": [{"what": what, "value": value, "why": why} for what, value, why in view.choices],
        "warnings": [{"step": step, "message": message} for step, message in view.warnings],
        "n_warnings": view.n_warnings,
        "rollouts": kept,
    }


def _diagnostics(settings: Mapping[str, Any], metrics: Mapping[str, list[float | None]]) -> list[dict[str, Any]]:
    described = {metric.name: metric for metric in CATALOGUE}
    drawn = []
    for name in DIAGNOSTICS:
        known = described[name]
        entry = {"name": name, "formula": known.formula, "healthy": known.healthy, "logged": name in metrics}
        drawn.append({**entry, "range": healthy_range(name, settings, metrics.get(name, ()))})
    return drawn


def _evaluations(run: Path, missing: list[str]) -> list[dict[str, Any]]:
    """Evaluations in the order in which they were made; of one that was made again, the last.

    Args:
        run: Folder of the run.
        missing: Receives which evaluations are missing.
    """
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for event in read_branch(run, []):  # read_run has noted what is damaged
        result = event.get("result")
        if event.get("kind") != "evaluation" or not isinstance(result, dict):
            continue
        phase = str(event.get("phase"))
        step = 0 if phase == "initial" else event.get("step", 0)
        key = (str(event.get("task")), phase, step if isinstance(step, int) else 0)
        found[key] = {"task": key[0], "phase": phase, "step": key[2], "result": _numbers(result)}
    if not found:
        missing.append("no held-out evaluation: nothing says whether the model got better on other problems")
    elif not any(each["phase"] == "initial" for each in found.values()):
        missing.append("no evaluation of the starting model: nothing to compare with")
    return list(found.values())


def _seconds(run: Path, log: TrainingLog, missing: list[str]) -> dict[str, float]:
    """Seconds of each phase: over all steps, and of the evaluations."""
    totals = dict(log.seconds)
    for line in read_jsonl(run / "logs" / "evaluations.jsonl", missing):
        seconds = math.fsum(
            value
            for name, value in line.items()
            if name.startswith("eval/") and name.endswith("/seconds") and is_number(value)
        )
        totals["evaluate_s"] = totals.get("evaluate_s", 0.0) + seconds
    return totals


def _settings(settings: Mapping[str, Any], sources: Mapping[str, Any]) -> list[list[str]]:
    """[key, value, source] of every setting; the source is empty in a run that did not store any.

    That of `trainer.loss_args.x` may be that of the mapping, `trainer.loss_args`.
    """
    listed = []
    for key, value in settings.items():
        of_mapping = (source for name, source in sources.items() if key.startswith(f"{name}."))
        source = sources.get(key) or next(of_mapping, None) or ("default" if sources else "")
        listed.append([key, plain(format_value(value)), str(source)])
    return listed


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of an evaluation, those of nested mappings too; what is not finite is left out."""
    return {
        name: _numbers(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if isinstance(value, Mapping) or is_number(value) or name == "split"
    }
