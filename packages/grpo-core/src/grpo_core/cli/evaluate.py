"""`grpo eval`: held-out evaluation of a model, of an endpoint, or of every checkpoint of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_core.cli.settings import SettingsCommand, only_results_on_stdout, read_settings
from grpo_core.display.results import evaluation_table
from grpo_sdk.cli.options import COUNT, HELP, SECONDS
from grpo_sdk.display import lines
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out
from grpo_sdk.errors import AbstentionLimitError, ExitCode, UserError
from grpo_sdk.paths import check_makeable, user_path

if TYPE_CHECKING:
    from grpo_core.config import Settings
    from grpo_core.evaluation.runs import RunEvaluation

EXAMPLES = """\b
Examples:
  grpo eval --task math.arithmetic --model tiny
  grpo eval --task math.gsm8k --model ./model --base Qwen/Qwen2.5-0.5B-Instruct --n 8
  grpo eval --run training_runs/run_2026-11-21_12-30-52 --steps all
  grpo eval --task math.gsm8k --endpoint http://localhost:8000/v1 --model NAME
"""

_EXPLICIT = ("command line", "environment", ".env")
"""Sources that the user sets for this evaluation, unlike the run's config.yaml, which was set for the run."""


@click.command("eval", cls=SettingsCommand, epilog=EXAMPLES, context_settings=HELP)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", metavar="TASK", help="Task, or several separated by commas.")
@click.option("--model", metavar="MODEL", help="Embedded name (tiny), hub id, folder (./model) or .gguf file.")
@click.option("--adapter", "--ckpt", "adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--base", metavar="MODEL", help="Control model, evaluated on the same rows for the difference.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file, as for grpo run.")
@click.option("--size", metavar="N", help="Rows per task; null is all of the split.")
@click.option("--subset-frac", metavar="F", help="Take this share of the rows, always the same ones.")
@click.option("--split", metavar="SPLIT", help="train, validation or test.")
@click.option("--n", metavar="N", help="Completions a row, for pass@k; sampled at temperature 0.7 from 2 on.")
@click.option("--temperature", metavar="T", help="0 is greedy.")
@click.option("--top-p", metavar="P", help="Nucleus sampling.")
@click.option("--batch-size", metavar="N", help="Rows per batch; by default as many as fit into memory.")
@click.option("--seed", metavar="N", help="Seed of sampling above temperature 0.")
@click.option("--run", "run_dir", metavar="RUN", help="Evaluate the checkpoints of this run.")
@click.option("--steps", metavar="STEPS", help="With --run: checkpoints, all or some: 1,5,final.  [default: all]")
@click.option("--eval-task", "eval_tasks", metavar="TASK", multiple=True, help="With --run: other task; repeatable.")
@click.option("--no-base", is_flag=True, help="With --run: leave out the model that the run started from.")
@click.option("--timeout-s", metavar="S", type=SECONDS, help="With --run: seconds for one checkpoint.  [default: 600]")
@click.option("--overwrite", is_flag=True, help="Repeat evaluations that have results; by default they are kept.")
@click.option("--eval-dir", metavar="FOLDER", help="Write completions and tables here; with --run: its eval_runs.")
@click.option("--endpoint", metavar="URL", help="Evaluate an OpenAI-compatible endpoint: http://host:8000/v1.")
@click.option("--concurrency", metavar="N", type=COUNT, help="Concurrent requests to the endpoint.  [default: 8]")
@click.option("--tool-choice", metavar="CHOICE", help="At an endpoint: auto, none, required, or a tool's name.")
@click.option("--tool-form", metavar="FORM", help="Tell an endpoint of tools: native or text.  [default: native]")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def evaluate(overrides: tuple[str, ...], config_file: str | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Evaluate a model on held-out rows of a task, with 95% intervals: one greedy completion a row, or --n.

    A task may have its own defaults for rows and sampling; options override them, and the values used are shown.

    With --run, evaluate every checkpoint of a run and the model that it started from, one after the other, on the
    rows and with the sampling of the run's own evaluations. Results are written to eval_runs/RUN_TASK, beside the
    folder of the runs. The exit code is 1 if a checkpoint fails; the others are evaluated all the same. With
    --endpoint, evaluate the model that an endpoint serves.
    """
    if options["eval_dir"] is not None:
        eval_dir = user_path(options["eval_dir"], "--eval-dir")
        check_makeable(eval_dir, f"--eval-dir {options['eval_dir']}")
        options["eval_dir"] = str(eval_dir.absolute())
    given = {f"eval.{name}": options[name] for name in _EVAL_OPTIONS}
    given |= {name: options[name] for name in ("task", "model", "adapter", "seed")}
    if options["run_dir"] is not None:
        models = ("model", "adapter", "endpoint", "concurrency", "tool_choice", "tool_form")
        _refuse(options, models, "--run takes the models of the run")
        if config_file is not None:
            raise UserError("--run takes the configuration of the run; --config does not go with it.")
        return _evaluate_run(given, overrides, options, as_json=as_json, quiet=quiet)
    _refuse(options, ("steps", "eval_tasks", "no_base", "timeout_s"), "without --run there are no checkpoints")
    if options["endpoint"] is None:
        _refuse(options, ("concurrency",), "it is for --endpoint")
    elif options["model"] is None:
        raise UserError(f"--endpoint {options['endpoint']} needs --model NAME: what the model is called there.")
    if options["overwrite"] and options["eval_dir"] is None:
        raise UserError("--overwrite: nothing is written without --eval-dir.")
    settings = read_settings(given, overrides, config_file, "eval")
    return _evaluate_model(settings, options, as_json=as_json, quiet=quiet)


_EVAL_OPTIONS = ("size", "subset_frac", "split", "n", "temperature", "top_p", "batch_size")


def run_evaluation(
    settings: Settings, options: Mapping[str, Any], progress: Waiting
) -> Mapping[str, Mapping[str, Any]]:
    """Evaluate a model with a configuration's values; what does it is imported here, since that takes long.

    Args:
        settings: The settings.
        options: Options that are not settings: base, endpoint, concurrency, tool_choice, tool_form, eval_dir,
            overwrite.
        progress: Display of progress and results.
    """
    from grpo_core.config import resolve
    from grpo_core.evaluation.held_out import check_evaluation
    from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
    from grpo_core.profiles.accelerator import check_device
    from grpo_sdk.plugins.models import check_model

    settings.add_recipe()
    names = [name for name in ("size", "split", "n", "temperature", "top_p") if f"eval.{name}" in settings.values]
    config = settings.validated().config if options["endpoint"] else resolve(settings, trains=False).config
    assert config.model is not None, "given by the user, or chosen by `resolve`"
    overrides = {name: getattr(config.eval, name) for name in names}
    if config.eval.max_completion_length is not None:
        overrides["max_completion_length"] = config.eval.max_completion_length
    defaults = EvaluationSettings(
        max_completion_length=config.trainer.max_completion_length,
        subset_frac=config.eval.subset_frac,
        seed=config.seed,
        batch_size=config.eval.batch_size,
        surprisal=config.eval.surprisal,
    )
    if options["endpoint"] is None:
        if options["base"] is not None:
            check_model(options["base"])
        check_model(config.model, config.adapter)
        check_device(config.device)
    check_evaluation(config.task, overrides, defaults)
    with only_results_on_stdout((progress,)) if options["endpoint"] is None else redirect_stdout(sys.stderr):
        from grpo_core.evaluation import one_model

        return one_model.evaluate_as(
            config.task,
            one_model.Candidate(
                model=config.model,
                adapter=config.adapter,
                base=options["base"],
                endpoint=options["endpoint"],
                concurrency=options["concurrency"] or 8,
                tool_choice=options["tool_choice"],
                tool_form=options["tool_form"] or "native",
            ),
            overrides,
            defaults,
            ModelOptions(
                device=config.device,
                precision=config.precision,
                engine=config.engine,
                scoring=config.scoring,
            ),
            output_dir=options["eval_dir"],
            overwrite=options["overwrite"],
            callbacks=(progress,),
        )


def run_run_evaluation(settings: Settings, options: Mapping[str, Any], progress: Waiting) -> RunEvaluation:
    """Call `evaluate_run` with the run's configuration, over which the user's options take precedence.

    Args:
        settings: Settings of the run, overridden by the user's options.
        options: Options that are not settings: run_dir, steps, base, no_base, eval_dir, overwrite, timeout_s.
        progress: Display of progress and results.
    """
    from grpo_core.evaluation.plan import SEVERAL_TEMPERATURE

    config = settings.validated().config  # before torch is imported, which takes seconds
    is_explicit = settings.source("eval.temperature").kind in _EXPLICIT
    if config.eval.n > 1 and config.eval.temperature == 0 and not is_explicit:
        # Several greedy completions of a row would be equal.
        sampling = config.eval.model_copy(update={"temperature": SEVERAL_TEMPERATURE})
        config = config.model_copy(update={"eval": sampling})
    with only_results_on_stdout((progress,)):
        from grpo_core.evaluation import runs

        return runs.evaluate_run(
            user_path(options["run_dir"], "--run"),
            steps=options["steps"] or "all",
            task=",".join(options["eval_tasks"]) or None,
            config=config,
            base=options["base"],
            with_base=not options["no_base"],
            output_dir=options["eval_dir"],
            overwrite=options["overwrite"],
            timeout_s=runs.TIMEOUT_S if options["timeout_s"] is None else options["timeout_s"],
            callbacks=(progress,),
        )


def print_results(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print an evaluation as a table on stdout, one task per row; a control precedes the model compared with it."""
    rows = []
    for name, result in results.items():
        if "base" in result:
            rows.append((f"{name} (base)", result["base"]))
        rows.append((name, result))
    print_out(evaluation_table("task", rows))


def _evaluate_model(settings: Settings, options: Mapping[str, Any], *, as_json: bool, quiet: bool) -> int:
    with Waiting(err(), quiet=quiet) as progress:
        results = run_evaluation(settings, options, progress)
        for result in results.values():
            progress.say("speed", _speed(result))
    if as_json:
        print_json(results)
    else:
        print_results(results)
    for name, result in results.items():
        _check_scored(name, [result])
    return ExitCode.DONE


def _check_scored(task: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Check that something of a task was scored.

    Raises:
        AbstentionLimitError: there are results, and none holds a score.
    """
    unscored = sum(result.get("abstained", 0) for result in results)
    if unscored and not any(result["n"] for result in results):
        raise AbstentionLimitError(
            f"task {task!r}: none of {unscored} completions could be scored, for the reasons above."
        )


def _evaluate_run(
    given: Mapping[str, Any], overrides: tuple[str, ...], options: Mapping[str, Any], *, as_json: bool, quiet: bool
) -> int:
    from grpo_core.checkpoints import check_run
    from grpo_core.tracking.events import at_start_of

    if options["no_base"] and options["base"] is not None:
        raise UserError("--base and --no-base contradict each other.")
    run_dir = user_path(options["run_dir"], "--run")
    check_run(run_dir)
    settings = read_settings(given, overrides, str(run_dir / "config.yaml"), "eval")
    # What is given here is of the working directory, what the run's settings say of where it began.
    is_given = options["eval_tasks"] or options["base"] or settings.source("task").kind in _EXPLICIT
    with (
        CheckpointProgress(err(), quiet=quiet) as progress,
        at_start_of(run_dir, reads_settings=not is_given) as (run_dir, directory),
    ):
        progress.on_choices(directory)
        evaluation = run_run_evaluation(settings, {**options, "run_dir": str(run_dir)}, progress)
        for folder in evaluation.folders.values():
            progress.say("saved", [_short(folder)])
    if as_json:
        print_json({"tasks": evaluation.results, "failures": evaluation.failures})
    else:
        _print_run(evaluation)
    from grpo_core.evaluation.output import phase_of  # it imports torch, after `only_results_on_stdout`

    for task, results in evaluation.results.items():
        # The control may have been scored before, and kept.
        _check_scored(task, [result for step, result in results.items() if phase_of(step) != "initial"])
    return ExitCode.FAILED if evaluation.failures else ExitCode.DONE


def _short(folder: Path) -> str:
    """Return a path relative to the working directory, if it lies below it."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


class CheckpointProgress(Waiting):
    """Progress of a run's evaluation: a line for each checkpoint and task."""

    def on_evaluation(self, task: str, phase: str, result: Mapping[str, Any]) -> None:
        """Print a result."""
        self.say(result["checkpoint"].removeprefix("step_"), [*lines.evaluation(result, task), *_speed(result)])


def _print_run(evaluation: RunEvaluation) -> None:
    tasks = [task for task, results in evaluation.results.items() for _ in results]
    steps = [step for results in evaluation.results.values() for step in results.items()]
    if steps:
        rows = [(step.removeprefix("step_"), result) for step, result in steps]
        print_out(evaluation_table("checkpoint", rows, tasks))


def _speed(result: Mapping[str, Any]) -> list[str]:
    timing = result.get("timing")
    if not timing:
        return []
    return [
        f"{timing['samples_per_s']:.1f} completions/s",
        lines.rate(timing["tokens_per_s"]),
        f"peak memory {timing['peak_memory_mib']:.0f} MiB",
    ]


def _refuse(options: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    for name in names:
        if options[name] not in (None, False, ()):
            option = {"eval_tasks": "eval-task"}.get(name, name.replace("_", "-"))
            raise UserError(f"--{option}: {why}.")
