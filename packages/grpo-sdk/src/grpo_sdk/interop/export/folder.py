"""The files of an export: rows in the trainer's format, its configuration and command line, and a README."""

from __future__ import annotations

import glob
import importlib
import io
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, get_args

import orjson

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import TaskAdapter, check_replayable
from grpo_sdk.interop.export.targets import Target
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Split
from grpo_sdk.task.spec import parse_task_specs

MAX_COMPLETION_LENGTH = 1024
"""Tokens of a completion where the task does not say."""

MAX_PROMPT_LENGTH = 1024
"""Tokens of a prompt."""

GROUP_SIZE = 8
"""Completions of a prompt."""

PATH_OPTIONS = ("path", "file")
"""Options of tasks that name a file or folder."""

FILE_NOTE = " It names a file, which has to lie there on every machine."
"""What the README says of a spec with a path."""

PRIME_STOP = (
    "\n\nThe task has stop strings, which this configuration does not set: completions go on after them, and\n"
    "what follows the first one is cut before scoring."
)
"""What the README for prime-rl says of a task with stop strings."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines that the command line is for.

    Attributes:
        nodes: Machines.
        gpus: GPUs of each.
    """

    nodes: int = 1
    gpus: int = 8


def export_files(
    target: Target, spec: str, model: str, cluster: Cluster, *, size: int | None = None, test_size: int | None = None
) -> dict[str, str | bytes]:
    """Make the files with which a trainer trains a task.

    Args:
        target: The trainer.
        spec: Spec of the task.
        model: Model as the trainer takes it: a name on the hub or a path.
        cluster: Machines that the command line is for.
        size: Rows to train on; by default the task's own number.
        test_size: Rows to test on.

    Returns:
        Name of a file -> its content.

    Raises:
        UserError: there is no such task, the trainer cannot train it, or rows or GPUs are missing.
    """
    if cluster.nodes * cluster.gpus < target.min_gpus:
        raise UserError(
            f"{target.title} needs {target.min_gpus} GPUs, and {cluster.nodes * cluster.gpus} is given: say "
            f"--gpus {target.min_gpus}, or choose another trainer."
        )
    model = _whole_path(model) if model.startswith((".", "~")) else model
    named = _with_whole_paths(spec)
    task = named.with_options(split=None, size=None)  # of which the rows of both splits are
    sizes = {"train": size or named.config.size, "test": test_size}
    splits = {split: task.with_options(split=split, size=number) for split, number in sizes.items()}
    rows = {split: _rows(target, task, part) for split, part in splits.items()}
    data = {f"{split}.{target.rows}": _encoded(target, records) for split, records in rows.items() if target.rows}
    values = _values(target, task, model, cluster, rows)
    values |= {f"{split}_spec_json": orjson.dumps(str(part.spec)).decode() for split, part in splits.items()}
    texts = {
        file.name.removesuffix(".in"): Template(file.read_text(encoding="utf-8")).substitute(values)
        for file in resources.files(__package__).joinpath("templates", target.name).iterdir()
        if file.name.endswith(".in")
    }
    readme = resources.files(__package__).joinpath("templates", "README.md.in").read_text(encoding="utf-8")
    notes = texts.pop("notes.md").strip()
    return {**data, **texts, "README.md": Template(readme).substitute(values, notes=notes)}


def _with_whole_paths(spec: str) -> BoundTask:
    """Load a task with absolute paths in place of those that other folders do not have."""
    name, mark, query = spec.partition("?")
    file, is_file, attribute = name.partition(".py:")
    name = f"{_whole_path(f'{file}.py')}:{attribute}" if is_file else name
    task = load_task(f"{name}{mark}{query}")
    return task.with_options(**{option: _whole_path(path) for option, path in _paths(task).items() if _is_local(path)})


def _paths(task: BoundTask) -> dict[str, str]:
    """The options of a task's spec that name files, or what else rows are read from."""
    (spec,) = parse_task_specs(task.spec)
    return {option: path for option, path in spec.options.items() if option in PATH_OPTIONS}


def _is_local(path: str) -> bool:
    """Whether a path, or the pattern of the splits' paths, is there: names of the hub and addresses are not."""
    places = [os.path.expanduser(path.replace("{split}", split)) for split in get_args(Split)]
    return any(os.path.exists(place) or glob.glob(place) for place in places)


def _whole_path(text: str) -> str:
    path = Path(os.path.expanduser(text))
    return str(path.parent.resolve() / path.name)  # a link keeps its name, whose suffix is the format of its rows


def _rows(target: Target, task: BoundTask, part: BoundTask) -> list[dict[str, Any]]:
    """The rows of a split as the trainer reads them, or as they are where it has them from the task."""
    with TaskAdapter(task, target.title, target.completes, takes_tools=target.takes_tools) as adapter:
        if target.rows is None:
            check_replayable(adapter)
            return [row.model_dump() for row in part.rows()]
        record = importlib.import_module(f"grpo_sdk.interop.{target.name.replace('-', '_')}").record
        if target.name == "openrlhf" and task.task.game is not None:
            raise UserError(f"task {task.name!r} is a game, which OpenRLHF cannot train: its turns are one sequence.")
        return [record(adapter, row) for row in part.rows()]


def _encoded(target: Target, records: list[dict[str, Any]]) -> bytes:
    if target.rows == "jsonl":
        return b"".join(orjson.dumps(record) + b"\n" for record in records)
    import pyarrow.parquet  # here: it takes a second

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), file)
    return file.getvalue()


def _values(
    target: Target, task: BoundTask, model: str, cluster: Cluster, rows: Mapping[str, list[dict[str, Any]]]
) -> dict[str, str]:
    """What the templates name."""
    counts = {split: len(records) for split, records in rows.items()}
    is_chat = any(isinstance(record.get("prompt"), list) for records in rows.values() for record in records)
    gpus = cluster.nodes * cluster.gpus
    prompts = max(gpus, min(128, counts["train"]) // gpus * gpus)
    length = task.task.max_completion_length or MAX_COMPLETION_LENGTH
    stop = list(task.task.stop)
    return {
        "title": target.title,
        "version": target.version,
        "install": target.install,
        "pip": target.pip,
        "file": FILE_NOTE if ".py:" in task.spec or any(map(os.path.isabs, _paths(task).values())) else "",
        "plugin": _distributions(task),
        "task": task.name,
        "spec": task.spec,
        "spec_repr": repr(task.spec),
        "model": shlex.quote(model),
        "model_json": orjson.dumps(model).decode(),
        "nodes": str(cluster.nodes),
        "gpus": str(cluster.gpus),
        "all_gpus": str(gpus),
        "half_gpus": str(max(1, gpus // 2)),
        "prompts": str(prompts),
        "samples": str(prompts * GROUP_SIZE),
        "group_size": str(GROUP_SIZE),
        "rows": f"{counts['train']} rows to train on, {counts['test']} to test on",
        "extension": target.rows or "",
        "prompt_length": str(MAX_PROMPT_LENGTH),
        "length": str(length),
        "response_length": str(length * (2 * task.max_turns - 1) if task.task.has_tools else length),
        "max_length": str(MAX_PROMPT_LENGTH + length * task.max_turns),
        "test_rows": str(counts["test"]),
        "val_batch": str(min(256, counts["test"])),
        "stop_or_null": orjson.dumps(stop or None).decode(),
        "stop_json": orjson.dumps(stop).decode(),
        "slime_stop": f"   --rollout-stop {shlex.join(stop)}\n" if stop else "",
        "slime_group": "   --group-rm\n" if task.task.group_specs() else "",
        "name_json": (name := orjson.dumps(task.name.rpartition(":")[2]).decode()),
        "prime_stop": PRIME_STOP if stop else "",
        "prime_deployment": _prime_deployment(
            cluster, name, orjson.dumps(f"{target.pip} {_distributions(task)}").decode()
        ),
        "openrlhf_chat": "    --data.apply_chat_template \\\n" if is_chat else "",
        "swift_stop": f"    --stop_words {shlex.join(stop)} \\\n" if stop else "",
    }


def _distributions(task: BoundTask) -> str:
    """What has to be installed wherever the task is scored."""
    distribution = default_host().distribution(task.plugin or "core")  # e.g. "grpo-tasks-math 0.1.0"
    return f"'{distribution.replace(' ', '==')}'"


def _prime_deployment(cluster: Cluster, task: str, install: str) -> str:
    """The tables of prime-rl's configuration that share out the GPUs; several machines need Slurm."""
    if cluster.nodes == 1:
        sampling = cluster.gpus // 2
        return (
            f"[deployment]\ngpus_per_node = {cluster.gpus}\n"
            f"num_train_gpus = {cluster.gpus - sampling}\nnum_infer_gpus = {sampling}\n"
        )
    sampling = cluster.nodes // 2
    return (
        f'[deployment]\ntype = "multi_node"\ngpus_per_node = {cluster.gpus}\n'
        f"num_train_nodes = {cluster.nodes - sampling}\nnum_infer_nodes = {sampling}\n\n"
        f"[slurm]\njob_name = {task}\npre_run_command = {install}  # `uv sync` of the job removes it\n"
    )
