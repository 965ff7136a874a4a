"""`grpo run --quick`: a model that sometimes succeeds, made where there is none, and a short training of it."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import count
from pathlib import Path

from grpo_core.cli.settings import only_results_on_stdout
from grpo_core.config import RunConfig, Settings, Source, resolve
from grpo_core.config.trainer import LIMITS
from grpo_core.training.checks import check_training
from grpo_core.training.warm_start_options import WarmStartOptions
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, visible
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs

STEPS = 200
"""Steps of the training, unless the user says when it ends."""

WARM_STEPS = 600
"""Steps of the fine-tuning at most."""

ENOUGH = 0.2
"""Share of solved completions at which the fine-tuning ends: five groups of six then hold right and wrong ones."""

LEARNABLE = 0.05
"""Share from which on a model is trained as it is."""

ROWS = 64
"""Rows of the validation split that a named model is tried on."""


def add_start(settings: Settings, *, quiet: bool) -> None:
    """Fine-tune a start where one is needed, and set what follows.

    Args:
        settings: Settings of the user, which are changed.
        quiet: Whether no progress is shown.

    Raises:
        UserError: rows have no gold to learn a start from, or TRL is missing.
    """
    source = Source("command line")
    of_recipe = settings.copy()
    of_recipe.add_recipe()
    if not any(name in of_recipe.values for name in LIMITS):
        settings.override("trainer.max_steps", STEPS, source)
    model = settings.text("model")
    has_default = any(bind(spec).task.default_model for spec in parse_task_specs(settings.text("task") or ""))
    if settings.values.get("adapter") is not None or (model is None and has_default):
        return  # a start that was made to be trained
    config = resolve(settings).config
    check_training(config)  # before minutes are spent on a start
    folder = _free_folder(Path(config.output_dir), config.task)
    WarmStartOptions(model=model, preset="tiny" if model is None else None).check(config.task, folder)
    if warm_model := _fine_tuned(config, folder, model, quiet=quiet):
        settings.override("model", warm_model, source)


def _fine_tuned(config: RunConfig, folder: Path, start: str | None, *, quiet: bool) -> str | None:
    """The folder of the fine-tuned model; None where the named one can learn as it is."""
    with Waiting(err(), quiet=quiet) as progress, only_results_on_stdout((progress,)):
        from grpo_core.evaluation.evaluate import evaluate
        from grpo_core.evaluation.held_out import held_out_tasks, labelled
        from grpo_core.training.warm_start import warm_start

        task, seed, device = config.task, config.seed, config.device
        held_out_tasks(config, labelled(map(bind, parse_task_specs(task))))  # refuses rows that are trained on
        if start is not None:
            tried = evaluate(
                task, start, size=ROWS, split="validation", temperature=1.0, seed=seed, device=device,
                surprisal=False, callbacks=(progress,),
            )  # fmt: skip
            solved = min(result["solved_rate"] or 0.0 for result in tried.values())
            if solved >= LEARNABLE:
                solves = f"{start} solves {solved:.2f} of {ROWS} sampled completions"
                progress.say("quick", [f"{solves}: it is trained as it is"])
                return None
        what = start or "a new model of the shape of tiny"
        how = f"until it solves {ENOUGH:g} of the completions that it samples for held-out rows"
        progress.say("quick", [visible(f"fine-tuning {what} on the golds of {task}, {how}")])
        record = warm_start(
            task, folder, model=start, preset=None if start else "tiny", max_steps=WARM_STEPS, until=ENOUGH, seed=seed,
            device=device, callbacks=(progress,),
        )  # fmt: skip
        rate = max(record["sampled_solved_rate"].values(), default=0.0)
        model = str(folder) if folder.is_absolute() else f"./{folder}"
        progress.say("quick", [visible(f"{record['steps']} steps, {rate:.2f} solved: {model}")])
        if record["interrupted"]:
            raise KeyboardInterrupt
    return model


def _free_folder(output_dir: Path, task: str) -> Path:
    """A new folder, named after the task; made here, so that two commands at once have two."""
    name = "warm_" + re.sub(r"[^A-Za-z0-9.]+", "_", task.partition("?")[0]).strip("._")[-40:]
    check_makeable(output_dir, f"output_dir={output_dir}")
    output_dir.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        with suppress(FileExistsError):
            (folder := output_dir / f"{name}_{number}").mkdir()
            return folder
    raise AssertionError("there is always another number")
