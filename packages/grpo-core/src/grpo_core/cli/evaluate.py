"""`grpo eval`: held-out evaluation of a model, of an endpoint, or of every checkpoint of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_core.cli.options import COUNT, HELP, SECONDS
from grpo_core.cli.settings import only_results_on_stdout, read_settings
from grpo_core.errors import ExitCode, UserError
from grpo_core.paths import user_path

if TYPE_CHECKING:
    from grpo_core.callbacks import Callback
    from grpo_core.config import LoadedConfig
    from grpo_core.evaluation.runs import RunEvaluation

EXAMPLES = """\b
Examples:
  grpo eval --task math.arithmetic --model tiny
  grpo eval --task math.gsm8k --model ./model --base Qwen/Qwen2.5-0.5B-Instruct --n 8
  grpo eval --run training_runs/run_2026-11-21_12-30-52 --steps all
  grpo eval --task math.gsm8k --endpoint http://localhost:8000/v1 --model NAME
"""

_GIVEN = ("command line", "environment", ".env")
"""Kinds of source that mean that a user wants it now, where a run's config.yaml says what was wanted then."""


@click.command("eval", epilog=EXAMPLES, context_settings=HELP)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", metavar="TASK", help="Task, or several separated by commas.")
@click.option("--model", metavar="MODEL", help="Embedded name (tiny), hub id, folder (./model) or .gguf file.")
@click.option("--adapter", "--ckpt", "adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--base", metavar="MODEL", help="Control: evaluated on the same rows, for the difference over it.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file, as for grpo run.")
@click.option("--size", metavar="N", help="Rows per task; null is all of the split.")
@click.option("--subset-frac", metavar="F", help="Take this share of the rows, always the same ones.")
@click.option("--split", metavar="SPLIT", help="train, validation or test.")
@click.option("--n", metavar="N", help="Completions a row, for pass@k; sampled at temperature 0.7 from 2 on.")
@click.option("--temperature", metavar="T", help="0 is greedy.")
@click.option("--top-p", metavar="P", help="Nucleus sampling.")
@click.option("--batch-size", metavar="N", help="Rows answered at once; by default what the memory holds.")
@click.option("--seed", metavar="N", help="Seed of sampling above temperature 0.")
@click.option("--run", "run_dir", metavar="FOLDER", help="Evaluate the checkpoints of this run.")
@click.option("--steps", metavar="STEPS", help="Of a run: all (default), or some: 1,5,final.")
@click.option("--eval-task", "eval_tasks", metavar="TASK", multiple=True, help="Of a run: on this task; repeatable.")
@click.option("--no-base", is_flag=True, help="Of a run: leave out the model that it started from.")
@click.option("--timeout-s", metavar="S", type=SECONDS, help="Of a run: seconds for one checkpoint (600).")
@click.option("--overwrite", is_flag=True, help="Evaluate again what has results; otherwise they are kept.")
@click.option("--eval-dir", metavar="FOLDER", help="Write completions and tables here; of a run: its eval_runs.")
@click.option("--endpoint", metavar="URL", help="OpenAI-compatible endpoint that answers, as http://host:8000/v1.")
@click.option("--concurrency", metavar="N", type=COUNT, help="Requests to it in flight (8).")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def evaluate(overrides: tuple[str, ...], config_file: str | None, as_json: bool, quiet: bool, **given: Any) -> int:
    """Evaluate a model on held-out rows of a task, with 95% intervals: one greedy completion a row, or --n.

    A task may wish for other rows or another sampling; what you give stands above that, and what is taken is shown.

    With --run, every checkpoint of a run and the model that it started from, each in a process of its own, on the
    rows and with the sampling of the run's own evaluations; results go to eval_runs/RUN_TASK, beside the folder of
    the runs. With --endpoint, whatever answers there.
    """
    settings = {f"eval.{name}": given[name] for name in _EVAL_OPTIONS}
    settings |= {name: given[name] for name in ("task", "model", "adapter", "seed")}
    if given["run_dir"] is not None:
        _refuse(given, ("model", "adapter", "endpoint", "concurrency"), "--run takes the models of the run")
        return _evaluate_run(settings, overrides, config_file, given, as_json=as_json, quiet=quiet)
    _refuse(given, ("steps", "eval_tasks", "no_base", "timeout_s"), "without --run there are no checkpoints")
    if given["endpoint"] is None:
        _refuse(given, ("concurrency",), "it is for --endpoint")
    elif given["model"] is None:
        raise UserError(f"--endpoint {given['endpoint']} needs --model NAME: what the model is called there.")
    if given["overwrite"] and given["eval_dir"] is None:
        raise UserError("--overwrite: nothing is written without --eval-dir.")
    return _evaluate_model(settings, overrides, config_file, given, as_json=as_json, quiet=quiet)


_EVAL_OPTIONS = ("size", "subset_frac", "split", "n", "temperature", "top_p", "batch_size")


def run_evaluation(
    loaded: LoadedConfig, given: Mapping[str, Any], callbacks: tuple[Callback, ...]
) -> Mapping[str, Mapping[str, Any]]:
    """`grpo_core.evaluate` with a configuration's values, imported when it is called: it brings torch.

    Args:
        loaded: The configuration.
        given: The options that are no settings: base, endpoint, concurrency, eval_dir, overwrite.
        callbacks: Told of what happens.
    """
    from grpo_core.config import resolve

    config = loaded.config if given["endpoint"] else resolve(loaded.config, loaded.sources).config
    assert config.model is not None, "it was given, or `resolve` chose one"
    held = config.eval
    sampling = {name: getattr(held, name) for name in ("size", "split", "n", "temperature", "top_p")}
    said = {name: value for name, value in sampling.items() if loaded.sources[f"eval.{name}"].kind != "default"}
    if held.max_completion_length is not None:
        said["max_completion_length"] = held.max_completion_length
    with only_results_on_stdout(callbacks):
        from grpo_core.evaluation import evaluate as evaluation
        from grpo_core.evaluation.settings import EvaluationSettings
        from grpo_core.evaluation.setup import ModelOptions

        return evaluation.evaluate_as(
            config.task,
            evaluation.Candidate(
                model=config.model,
                adapter=config.adapter,
                base=given["base"],
                endpoint=given["endpoint"],
                concurrency=given["concurrency"] or 8,
            ),
            said,
            EvaluationSettings(
                max_completion_length=config.trainer.max_completion_length,
                subset_frac=held.subset_frac,
                seed=config.seed,
                batch_size=held.batch_size,
                surprisal=held.surprisal,
            ),
            ModelOptions(
                device=config.device,
                precision=config.precision,
                engine=config.engine.name,
                max_batch_tokens=config.engine.max_batch_tokens,
                scoring=config.scoring,
            ),
            output_dir=given["eval_dir"],
            overwrite=given["overwrite"],
            callbacks=callbacks,
        )


def run_run_evaluation(
    loaded: LoadedConfig, given: Mapping[str, Any], callbacks: tuple[Callback, ...]
) -> RunEvaluation:
    """`evaluate_run` with the run's configuration, in which what the user says now stands above what was said then.

    Args:
        loaded: The run's configuration, with what was given on top.
        given: The options that are no settings: run_dir, steps, base, no_base, eval_dir, overwrite, timeout_s.
        callbacks: Told of what happens.
    """
    with only_results_on_stdout(callbacks):
        from grpo_core.evaluation import runs
        from grpo_core.evaluation.plan import SEVERAL_TEMPERATURE

        config = loaded.config
        if config.eval.n > 1 and config.eval.temperature == 0 and loaded.sources["eval.temperature"].kind not in _GIVEN:
            sampled = config.eval.model_copy(update={"temperature": SEVERAL_TEMPERATURE})  # greedy ones would be equal
            config = config.model_copy(update={"eval": sampled})
        return runs.evaluate_run(
            user_path(given["run_dir"], "--run"),
            steps=given["steps"] or "all",
            task=",".join(given["eval_tasks"]) or None,
            config=config,
            base=given["base"],
            with_base=not given["no_base"],
            output_dir=given["eval_dir"],
            overwrite=given["overwrite"],
            timeout_s=runs.TIMEOUT_S if given["timeout_s"] is None else given["timeout_s"],
            callbacks=callbacks,
        )


def print_results(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print an evaluation as a table on stdout, a task a row; a control stands above what is compared with it."""
    from grpo_core.cli.text import print_out

    rows = []
    for name, result in results.items():
        if "base" in result:
            rows.append((f"{name} (base)", result["base"]))
        rows.append((name, result))
    print_out(_table("task", rows))


def _evaluate_model(
    settings: Mapping[str, Any],
    overrides: tuple[str, ...],
    config_file: str | None,
    given: Mapping[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from grpo_core.cli.progress import Waiting
    from grpo_core.cli.text import err, print_json

    loaded = read_settings(settings, overrides, config_file)
    with Waiting(err(), quiet=quiet) as progress:
        results = run_evaluation(loaded, given, (progress,))
        for result in results.values():
            progress.say("speed", _speed(result))
    if as_json:
        print_json(results)
    else:
        print_results(results)
    return ExitCode.DONE


def _evaluate_run(
    settings: Mapping[str, Any],
    overrides: tuple[str, ...],
    config_file: str | None,
    given: Mapping[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from grpo_core.checkpoints import check_run
    from grpo_core.cli.text import err, print_json

    if config_file is not None:
        raise UserError("--run takes the configuration of the run; --config does not go with it.")
    if given["no_base"] and given["base"] is not None:
        raise UserError("--base and --no-base contradict each other.")
    run_dir = user_path(given["run_dir"], "--run")
    check_run(run_dir)
    loaded = read_settings(settings, overrides, str(run_dir / "config.yaml"))
    with _checkpoint_progress()(err(), quiet=quiet) as progress:
        found = run_run_evaluation(loaded, given, (progress,))
        for folder in found.folders.values():
            progress.say("saved", [_short(folder)])
    if as_json:
        print_json({"tasks": found.results, "failures": found.failures})
    else:
        _print_run(found)
    return ExitCode.DONE if found.has_any else ExitCode.FAILED


def _short(folder: Path) -> str:
    """A path as it is written from the working directory, where it lies below that."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _checkpoint_progress() -> Any:
    """The class of what a run's evaluation shows: it brings rich, so it is made when it is needed."""
    from grpo_core.cli import lines
    from grpo_core.cli.progress import Waiting

    class CheckpointProgress(Waiting):
        def on_evaluation(self, task: str, phase: str, result: Mapping[str, Any]) -> None:
            self.say(result["checkpoint"].removeprefix("step_"), [*lines.evaluation(result, task), *_speed(result)])

    return CheckpointProgress


def _print_run(found: RunEvaluation) -> None:
    from grpo_core.cli.text import print_out

    rows = [
        (step.removeprefix("step_"), task, result)
        for task, results in found.results.items()
        for step, result in results.items()
    ]
    if rows:
        print_out(_table("checkpoint", [(step, result) for step, _, result in rows], [task for _, task, _ in rows]))


def _table(first: str, rows: Iterable[tuple[str, Mapping[str, Any]]], tasks: list[str] | None = None) -> Any:
    """Evaluations, one a row; columns that none of them has are left out."""
    from grpo_core.cli.lines import interval, number
    from grpo_core.cli.text import table, visible

    rows = list(rows)
    ks = sorted(
        {int(name[5:]) for _, result in rows for name in result if name.startswith("pass@") and "_" not in name}
    )
    has_delta = any(result.get("delta") is not None for _, result in rows)
    columns = [first, *(["task"] if tasks else []), "solved", "95% interval"]
    columns += [*(["over base", "95% interval"] if has_delta else []), *(f"pass@{k}" for k in ks if k > 1)]
    listing = table(*columns, "mean reward", "valid", "length", "truncated", "rows", "split")
    for index, (name, result) in enumerate(rows):
        cells = [visible(name), *([visible(tasks[index])] if tasks else [])]
        cells += [number(result.get("solved_rate")), interval(result.get("ci_low"), result.get("ci_high"))]
        if has_delta:
            over = interval(result.get("delta_ci_low"), result.get("delta_ci_high"))
            cells += [number(result.get("delta"), "+.2f"), over]
        cells += [number(result.get(f"pass@{k}")) for k in ks if k > 1]
        listing.add_row(
            *cells,
            number(result.get("mean_reward")),
            number(result.get("valid_rate")),
            number(result.get("mean_length"), ".1f"),
            number(result.get("truncated_frac")),
            str(result.get("n", "-")) + (f" ({result['abstained']} not scored)" if result.get("abstained") else ""),
            _how(result),
        )
    return listing


def _how(result: Mapping[str, Any]) -> str:
    temperature, several = result.get("temperature"), result.get("completions_per_row", 1)
    how = str(result.get("split", "-"))
    how += f", {several} completions a row" if several > 1 else ""
    return how + (f" at temperature {temperature:g}" if temperature else "")


def _speed(result: Mapping[str, Any]) -> list[str]:
    from grpo_core.cli.lines import rate

    timing = result.get("timing")
    if not timing:
        return []
    return [
        f"{timing['samples_per_s']:.1f} completions/s",
        rate(timing["tokens_per_s"]),
        f"peak memory {timing['peak_memory_mib']:.0f} MiB",
    ]


def _refuse(given: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    for name in names:
        if given[name] not in (None, False, ()):
            option = {"eval_tasks": "eval-task"}.get(name, name.replace("_", "-"))
            raise UserError(f"--{option}: {why}.")
