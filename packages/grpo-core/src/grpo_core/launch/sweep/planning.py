"""From a definition to a folder with planned runs; mistakes are found before anything is started."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from grpo_core.config import load_config, read_config, resolve
from grpo_core.launch.sweep.configurations import configurations, label
from grpo_core.launch.sweep.definition import Definition, Goal, Range, read_definition, text_of
from grpo_core.launch.sweep.folder import PLAN, SweepFolder, SweepRun
from grpo_core.training.checks import check_training
from grpo_core.training.rank_shares import check_shares
from grpo_sdk.errors import UserError
from grpo_sdk.paths import user_path

SWEEPS = "sweeps"
"""Holds the folders of sweeps, beside the folder of runs."""

MAX_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep that can be started.

    Attributes:
        folder: Its folder.
        definition: What it runs.
        config: YAML file of settings.
        settings: Varied settings of each configuration; empty where Optuna proposes them.
        is_begun: Whether it is all runs of its folder, whatever the definition that was last given.
    """

    folder: SweepFolder
    definition: Definition
    config: Path | None
    settings: Sequence[dict[str, str]]
    is_begun: bool = False

    @property
    def is_search(self) -> bool:
        """Whether Optuna proposes each run after the results of those before."""
        return self.definition.method == "optuna"

    def plan(self, threads: int | None = None) -> list[SweepRun]:
        """Return the runs that are known, every configuration with the first seed, then with the next one.

        The folder's plan has all of them; nothing is written before it is saved.
        """
        runs = self.folder.begin(self.definition, self.config, threads).runs
        if not self.is_begun and not self.is_search:
            runs = [run for settings in self.settings for run in self.folder.add(settings, self.definition.seeds)]
        seeds = [*dict.fromkeys(run.seed for run in runs)]
        return sorted(runs, key=lambda run: seeds.index(run.seed))


def read_sweep(
    words: Sequence[str], output_dir: str | None, config_file: str | None, metric: str | None, goal: Goal | None
) -> Sweep:
    """Read a sweep from the words of a command line.

    Args:
        words: The folder of a sweep that has begun; or a file, `KEY=VALUE` and `KEY=A,B,C`.
        output_dir: Folder of the sweep; by default one that its definition names.
        config_file: YAML file of settings.
        metric: Metric to compare.
        goal: Whether its maximum or minimum is best.

    Raises:
        UserError: something in it cannot be run.
    """
    if not words:
        raise UserError("nothing to run: give a file, or KEY=A,B,C, as in trainer.learning_rate=1e-5,3e-5.")
    config = None if config_file is None else user_path(config_file, "--config")
    if (user_path(words[0], "FILE") / PLAN).is_file():
        if len(words) > 1 or output_dir is not None or config is not None:
            raise UserError(f"{words[0]} is a sweep that has begun: it goes on as it is, without further settings.")
        folder = SweepFolder(user_path(words[0], "FILE"))
        assert folder.plan is not None
        update = {key: value for key, value in (("metric", metric), ("goal", goal)) if value is not None}
        definition = folder.definition.model_copy(update=update)
        config = None if folder.plan.config is None else Path(folder.plan.config)
        listed = {run.configuration: run.settings for run in folder.plan.runs}
        return Sweep(folder, definition, config, [] if definition.method == "optuna" else [*listed.values()], True)
    definition = read_definition(words, metric=metric, goal=goal)
    path = _default_folder(words, definition, config) if output_dir is None else None
    folder = SweepFolder(path or user_path(str(output_dir), "--output-dir"))
    settings = [] if definition.method == "optuna" else configurations(definition)
    return Sweep(folder, definition, config, settings)


def check(sweep: Sweep, size: int = 1, node_size: int = 1) -> None:
    """Check every configuration as `grpo run` would check it.

    Args:
        sweep: The sweep.
        size: Processes of each run.
        node_size: Those of each of its machines.

    Raises:
        UserError: the first one that is wrong; names it.
    """
    for number, settings in enumerate(sweep.settings or [_example(sweep.definition)], 1):
        seeds = {"seed": str(sweep.definition.seeds[0])} if sweep.definition.seeds else {}
        try:
            given = {**sweep.definition.fixed, **settings, **seeds}
            config = resolve(read_config(given, config_file=sweep.config)).config
            if config.trainer.is_sharded and size == 1:
                how = config.trainer.sharding
                raise UserError(
                    f"trainer.sharding={how} shares a model among processes, and each run of a sweep is one. "
                    "On a SLURM cluster it is N: --slurm '--gpus N'. Else use trainer.sharding=none."
                )
            check_shares(config.trainer, size, node_size)
            check_training(config)
        except UserError as error:
            where = f"configuration {number} ({label(settings)}): " if settings else ""
            raise type(error)(f"{where}{error}") from None


def _example(definition: Definition) -> dict[str, str]:
    """Return one of the configurations that Optuna may propose."""
    return {
        key: text_of(values.min if isinstance(values, Range) else values[0])
        for key, values in definition.parameters.items()
    }


def _default_folder(words: Sequence[str], definition: Definition, config: Path | None) -> Path:
    """The same folder for the same sweep, so that the same command goes on with it."""
    file = next((word for word in words if "=" not in word), None)
    keys = ["seed"] if not definition.parameters else [key.rpartition(".")[2] for key in definition.parameters]
    name = Path(file).stem if file else "-".join(keys)
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._-")[:MAX_NAME_CHARS] or "sweep"
    content = definition.model_dump(mode="json", exclude_unset=True, exclude={"metric", "goal"})
    digest = hashlib.sha256(orjson.dumps([content, str(config)], option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]
    return Path(load_config().config.output_dir).parent / SWEEPS / f"{name}_{digest}"
