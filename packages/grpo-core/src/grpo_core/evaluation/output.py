"""The files of an evaluation: every completion, a table of rows, what it was, and all checkpoints side by side.

    eval_runs/RUN_TASK/
        eval_config.yaml                settings of the last evaluation
        summary.json                    its results
        consolidated_metrics.csv        a line for each checkpoint and sampling that is there
        step_K/temp0.7_p1.0_r8/
            records.jsonl.gz            a line for each completion
            metrics.csv                 a line for each row of the task
            run_meta.json               settings, identity, summary; written last, with the folder

A results folder appears whole, by one rename.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grpo_core.checkpoints import is_run, read_json, write_json
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.intervals import bounds_in
from grpo_core.evaluation.results import Evaluation, RowRates, TokenStatistics
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.callbacks import EvalPhase
from grpo_sdk.errors import UserError
from grpo_sdk.files import replace_file, written_whole
from grpo_sdk.records import yaml_text
from grpo_sdk.records.run_folder import flat

EVALUATION_FORMAT_VERSION = 1
"""Version of these files; changes are announced a minor version ahead."""

RECORDS, METRICS, META = "records.jsonl.gz", "metrics.csv", "run_meta.json"
CONSOLIDATED, SUMMARY, CONFIG = "consolidated_metrics.csv", "summary.json", "eval_config.yaml"

BASE = "base"
"""Name of the control's folder; those of checkpoints are `step_…`."""

FINAL = "step_final"

_STEP = re.compile(r"step_(\d+)")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARS = 120
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!(inf|[\d.]+(e[+-]?\d+)?)$)")
"""Start of a cell that a spreadsheet takes for a formula (OWASP, CSV Injection), but for numbers."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that is evaluated, with the name of its folder of results: `step_K`, `step_final`, `base` or `model`.

    Attributes:
        name: Name of the folder.
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: PEFT adapter on it.
        steps_done: Training steps of the model; None where that is not known.
    """

    name: str
    model: str
    adapter: str | None = None
    steps_done: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Description of a results folder.

    Attributes:
        run: Folder of the run; empty for a model by itself.
        step: `step_K`, `step_final` or `base`.
        model: Model that was loaded.
        adapter: Adapter that was put on the model.
        task: Spec of the task.
        identity: Identity of the task on these rows.
        settings: Settings that decide the numbers.
        summary: Numbers, as in summary.json.
        timing: Throughput and memory.
        conditions: Properties of the machine that the scores depended on.
        precision: Floating-point type of the model's products; empty where it is not known.
        steps_done: Training steps of the model; None where that is not known.
        version: Version of the format.
    """

    run: str
    step: str
    model: str
    adapter: str | None
    task: str
    identity: str
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    timing: Mapping[str, float]
    conditions: Mapping[str, str] = field(default_factory=dict)
    precision: str = ""
    steps_done: int | None = None
    version: int = EVALUATION_FORMAT_VERSION

    def differs_from(self, other: Mapping[str, Any]) -> str:
        """Describe the differences from the facts of another evaluation; empty where both can be compared."""
        facts = {**self.settings, "task": self.task, "identity": self.identity, "conditions": self.conditions}
        if is_run(Path(self.run)):  # else it was moved
            facts["run"] = str(Path(self.run).resolve())
        if self.step.startswith(BASE):
            facts["model"] = self.model
        elif self.steps_done is not None:
            facts["steps_done"] = self.steps_done
        if self.precision and other["precision"]:
            facts["precision"] = self.precision
        different = [name for name in facts if facts[name] != other[name]]
        return ", ".join(f"{name}={facts[name]!r} there, {other[name]!r} here" for name in different)


def write_results(folder: Path, evaluation: Evaluation, meta: Meta) -> None:
    """Write a results folder, whole or not at all; one that is there is replaced.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with written_whole(folder) as partial:
            with (partial / RECORDS).open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                for record in records(evaluation):
                    # Not orjson: an endpoint's text may hold lone surrogates, which this escapes.
                    packed.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            (partial / METRICS).write_text(csv_of(row_metrics(evaluation)), encoding="utf-8")
            write_json(partial / META, asdict(meta))
    except OSError as error:
        raise UserError(f"cannot write the evaluation to {folder}: {error.strerror}.") from error


def read_meta(folder: Path) -> Meta:
    """Read the description of a results folder.

    Raises:
        UserError: it is damaged, or of a newer version.
    """
    content = read_json(folder / META, "the evaluation")
    if content.get("version") != EVALUATION_FORMAT_VERSION:
        raise UserError(
            f"{folder / META} has format version {content.get('version')!r}; this version of grpo-core reads "
            f"{EVALUATION_FORMAT_VERSION}. Give another --eval-dir, or --overwrite."
        )
    try:
        return Meta(**content)
    except TypeError as error:
        raise UserError(f"{folder / META} is damaged: {error}. --overwrite replaces it.") from None


def read_rates(folder: Path) -> RowRates:
    """Read the rates of each row, for a paired comparison.

    Raises:
        UserError: the table is damaged.
    """
    try:
        with (folder / METRICS).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        return RowRates(
            tuple(_read(line["row"]) for line in lines),
            tuple(float(line["solved_rate"]) if line["solved_rate"] else None for line in lines),
            tuple(float(line["reward"]) if line["reward"] else None for line in lines),
            bounds_in(read_meta(folder).summary),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / METRICS} is damaged: {error}. --overwrite replaces it.") from None


def records(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """A line of records.jsonl.gz for each completion, those of a row side by side."""
    for index, score in enumerate(evaluation.scores):
        row = evaluation.rows[index // evaluation.n]
        record = {
            "row": row.model_dump(mode="json"),
            "sample": index % evaluation.n,
            "text": evaluation.texts[index],
            "length": evaluation.lengths[index],
            "truncated": evaluation.truncated[index],
            "score": score.as_json(),
        }
        known = evaluation.certainty[index] if evaluation.certainty else None
        if known is not None:
            record |= {"surprisal": known.surprisal._asdict(), "entropy": known.entropy._asdict()}
        yield record


def row_metrics(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A line of metrics.csv for each row of the task; what does not exist is empty."""
    n, rates = evaluation.n, evaluation.rates()
    parts = {f"part/{name}": evaluation.part(name) for name in evaluation.part_names()}
    passes = {f"pass@{k}": evaluation.pass_at(k) for k in evaluation.ks()} if n > 1 else {}
    lines = []
    for index, (row, (scored, solved)) in enumerate(zip(evaluation.rows, evaluation.counts(), strict=True)):
        samples = slice(index * n, (index + 1) * n)
        kept = [score for score in evaluation.scores[samples] if not score.abstained]
        lengths = [length for length in evaluation.lengths[samples] if length is not None]
        line: dict[str, Any] = {
            "row": row.id,
            "difficulty": row.difficulty,
            "completions": n,
            "scored": scored,
            "solved": solved,
            "solved_rate": rates.solved[index],
            **{name: values[index] for name, values in passes.items()},
            "reward": rates.reward[index],
            **{name: values[index] for name, values in parts.items()},
            "valid_rate": sum(score.valid for score in kept) / len(kept) if kept else None,
            "any_valid": int(any(score.valid for score in kept)),
            **_spread("length", lengths),
            "truncated_frac": sum(evaluation.truncated[samples]) / n,
        }
        measured = [certainty for certainty in evaluation.certainty[samples] if certainty is not None]
        for name in ("surprisal", "entropy") if measured else ():
            numbers = TokenStatistics.over([getattr(certainty, name) for certainty in measured])
            line |= {f"{name}_{statistic}": value for statistic, value in numbers._asdict().items()}
        lines.append(line)
    return lines


class EvaluationFolder:
    """`eval_runs/RUN_TASK`: the evaluations of one run's checkpoints on one task.

    Args:
        output_dir: Holds the folders of all runs.
        run: Name of the run.
        label: Task label.

    Attributes:
        path: The folder.
    """

    def __init__(self, output_dir: Path, run: str, label: str) -> None:
        self.path = output_dir / f"{safe_name(run)}_{safe_name(label)}"

    def results(self, step: str, settings: EvaluationSettings) -> Path:
        """The folder of one checkpoint's results."""
        return self.path / step / settings.folder

    def write(
        self,
        evaluation: Evaluation,
        held: HeldOutTask,
        entry: Mapping[str, Any],
        model: NamedModel,
        *,
        run: str = "",
        precision: str = "",
    ) -> None:
        """Write the results of a model; see `write_results`.

        Args:
            evaluation: The completions.
            held: The task.
            entry: Entry made by `entry_of`.
            model: The model.
            run: Folder of its run.
            precision: Floating-point type of its products, where that is known.
        """
        meta = Meta(
            run=run,
            step=model.name,
            model=model.model,
            adapter=model.adapter,
            task=held.task.spec,
            identity=held.task.identity,
            settings=held.settings.deciding(),
            summary=entry,
            timing=evaluation.timing(),
            conditions=held.task.conditions,
            precision=precision,
            steps_done=model.steps_done,
        )
        write_results(self.results(model.name, held.settings), evaluation, meta)

    def write_config(self, facts: Mapping[str, Any]) -> None:
        """Write the settings of the evaluation."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_file(self.path / CONFIG, yaml_text.dump(dict(facts)).encode())

    def consolidate(self, settings: EvaluationSettings, control: str | None) -> dict[str, dict[str, Any]]:
        """Put every checkpoint's numbers into one table, with the difference over the control where there is one.

        Args:
            settings: The sampling whose numbers are returned.
            control: Folder of the control.

        Returns:
            Checkpoint -> summary, of this sampling, in order.
        """
        lines, summaries = [], {}
        for step in self.steps():
            for folder in sorted(path for path in (self.path / step).iterdir() if (path / META).is_file()):
                try:
                    summary = self._compared(folder, step, control)
                except UserError:
                    continue  # `check_kept` refuses a damaged folder by name where it is asked for
                lines.append({"step": step.removeprefix("step_"), "sampling": folder.name, **flat(summary)})
                if folder.name == settings.folder:
                    summaries[step] = summary
        replace_file(self.path / CONSOLIDATED, csv_of(lines).encode())
        return summaries

    def steps(self) -> list[str]:
        """The checkpoints that have a folder: base, then by number, then final."""
        names = [path.name for path in self.path.iterdir() if path.is_dir() and not path.name.startswith(".")]
        return sorted(names, key=step_order)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        write_json(self.path / SUMMARY, summary, null_for_nan=True)

    def _compared(self, folder: Path, step: str, control: str | None) -> dict[str, Any]:
        meta = read_meta(folder)
        summary = {**meta.summary, "identity": meta.identity, "timing": dict(meta.timing)}
        other = self.path / (control or "") / folder.name
        if control is None or step == control or not (other / META).is_file():
            return summary
        base = read_meta(other)
        if (base.settings, base.identity) != (meta.settings, meta.identity):
            return summary  # other rows, or other sampling
        delta = read_rates(folder).paired_delta(read_rates(self.path / control / folder.name))
        return {**summary, **delta}


def check_kept(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether a results folder exists and holds the wanted evaluation.

    Args:
        folder: Folder of one checkpoint's results.
        wanted: Facts of the evaluation, as `Meta.differs_from` compares them.

    Raises:
        UserError: the folder holds another evaluation; nothing is overwritten.
    """
    if not folder.exists():
        return False
    different = read_meta(folder).differs_from(wanted)
    if different:
        raise UserError(
            f"{folder} holds another evaluation: {different}. Give another --eval-dir, or --overwrite to replace it."
        )
    return True


def step_order(name: str) -> tuple[int, int, str]:
    """Base first, then by number, then final."""
    match = _STEP.fullmatch(name)
    if match:
        return (1, int(match[1]), name)
    return (0 if name.startswith(BASE) else 2, 0, name)


def phase_of(name: str) -> EvalPhase:
    """When in a run the checkpoint of this name was evaluated."""
    return "initial" if name.startswith(BASE) else "final" if name == FINAL else "interval"


def safe_name(name: str) -> str:
    """A name as part of a folder's: `math.gsm8k?template=r1` is `math.gsm8k_template_r1`."""
    return _NOT_IN_NAMES.sub("_", name).strip("_.")[-_MAX_NAME_CHARS:] or "unnamed"


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys((f"{name}_min", f"{name}_max", f"{name}_mean", f"{name}_std"))
    return {
        f"{name}_min": min(values),
        f"{name}_max": max(values),
        f"{name}_mean": float(np.mean(values)),
        f"{name}_std": float(np.std(values)),
    }


def csv_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """CSV with every column that a line has, in the order of their first appearance; None and NaN are empty.

    Texts that a spreadsheet would run as formulas get an apostrophe in front.
    """
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: "" if _is_missing(value) else _inert(value) for name, value in line.items()})
    return text.getvalue()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _read(cell: str) -> str:
    """Undo `_inert`."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell[1:]) else cell


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
