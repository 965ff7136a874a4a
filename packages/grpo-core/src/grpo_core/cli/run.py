"""`grpo run`: train a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import grpo_core.training.start
from grpo_core.cli.nproc import Launch, display_words, end_with_launcher, launch_options, start, words_of
from grpo_core.cli.settings import SettingsCommand, only_results_on_stdout, read_settings
from grpo_core.config import flatten, resolve
from grpo_core.config.recipes import RECIPES
from grpo_core.display.progress import ProgressDisplay
from grpo_core.profiles.accelerator import node_process_count, planned_processes, process_count
from grpo_core.profiles.presets import PRESETS
from grpo_core.training.rank_shares import check_shares
from grpo_sdk.cli.options import COUNT, HELP
from grpo_sdk.display.text import err, format_value, print_json, print_out, table
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.launched import is_silent_rank
from grpo_sdk.paths import check_makeable

if TYPE_CHECKING:
    from grpo_core.config import ResolvedConfig
    from grpo_core.training.result import RunResult
    from grpo_sdk.callbacks import Callback

EXAMPLES = """\b
Examples:
  grpo run
  grpo run --task math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct lora.enabled=true
  grpo run --config run.yaml trainer.num_generations=16
  grpo run --recipe dapo trainer.prompts_per_step=64
"""


@click.command(cls=SettingsCommand, epilog=EXAMPLES, context_settings=HELP)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", metavar="TASK", help="Task or mixture: math.gsm8k?size=100, or math.echo:2,math.arithmetic:1.")
@click.option("--model", metavar="MODEL", help="Embedded name (tiny), hub id, folder (./model) or .gguf file.")
@click.option("--recipe", metavar="NAME", help=f"Settings of a paper or system: {', '.join(RECIPES)}.")
@click.option("--preset", metavar="NAME", help=f"Sizes of a run: {', '.join(PRESETS)}.")
@click.option("--adapter", "--ckpt", "adapter", metavar="FOLDER", help="PEFT adapter to start from.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file; a run's own config.yaml repeats it.")
@click.option("--backend", metavar="NAME", help="Trainer of the optimizer steps: native (ours) or trl.")
@click.option("--max-steps", metavar="N", help="Optimizer steps.")
@click.option("--max-minutes", metavar="M", help="Wall-clock limit.")
@click.option("--save-every", metavar="N", help="Save a checkpoint every N steps.")
@click.option(
    "--stop-after", metavar="N", help="Stop and save after N steps, as a signal would; grpo resume continues."
)
@click.option("--eval-task", "eval_tasks", metavar="TASK", multiple=True, help="Evaluate this task too; repeatable.")
@click.option("--seed", metavar="N", help="Random seed.")
@click.option("--output-dir", metavar="FOLDER", help="Folder that receives run_… folders.")
@click.option("--track", metavar="NAMES", help="Trackers, separated by commas: tensorboard, wandb, trackio.")
@launch_options
@click.option("--every", type=COUNT, metavar="N", help="Print a line of every N steps; in a pipe, of each by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, alone on stdout.")
@click.option("--show-config", is_flag=True, help="Print every setting with where it comes from, and stop.")
@click.option("--dry-run", is_flag=True, help="Print what the run would do and how much memory it needs, and stop.")
@click.option(
    "--quick",
    is_flag=True,
    help="Make a model that can learn the task where there is none (by the extra trl), and train it.",
)
@click.option("--quiet", is_flag=True, help="No progress; prints the run's folder.")
@click.version_option(package_name="grpo-core", message="%(package)s %(version)s")
def run(
    overrides: tuple[str, ...],
    config_file: str | None,
    every: int | None,
    as_json: bool,
    show_config: bool,
    dry_run: bool,
    quick: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Train a model on a task with GRPO; without options, the embedded model on math.arithmetic.

    Every setting can be given as KEY=VALUE (trainer.learning_rate=5e-6), as an environment variable
    (GRPO_TRAINER__LEARNING_RATE), in .env or in a YAML file; --show-config lists them all.
    """
    settings, launch = read_settings(settings_of(options), overrides, config_file), Launch(options)
    if quick:
        if show_config or dry_run or launch.is_needed:
            raise UserError("--quick is a run in this process: leave out --show-config, --dry-run and --nproc.")
        from grpo_core.cli.quick import add_start

        add_start(settings, quiet=quiet)
    with planned_processes(launch.size, launch.processes) if launch.is_needed else nullcontext():
        resolved = resolve(settings)
        if show_config:
            _show(resolved, as_json=as_json)
            return ExitCode.DONE
        if dry_run:
            _show_dry_run(resolved, as_json=as_json)
            return ExitCode.DONE
    if launch.is_needed:
        _check(resolved, launch.size, launch.processes)
        launch.check_stop(resolved.config.trainer.stop_after)
        shown = display_words(as_json=as_json, quiet=quiet, every=every)
        words = ["run", *words_of(click.get_current_context())]
        return start(launch, words, shown, save_every=resolved.config.trainer.save_every)
    output_dir, source = resolved.config.output_dir, resolved.sources["output_dir"]
    check_makeable(Path(output_dir), f"output_dir={output_dir} ({source})")
    end_with_launcher()
    with ProgressDisplay(err(), resolved.config, quiet=quiet or is_silent_rank(), every=every) as progress:
        result = train(resolved, (progress,))
    show_result(result, as_json=as_json, quiet=quiet)
    return ExitCode.INTERRUPTED if result.interrupted else ExitCode.DONE


OPTION_KEYS = {
    **{name: name for name in ("task", "model", "recipe", "preset", "adapter", "seed", "output_dir")},
    **{name: f"trainer.{name}" for name in ("backend", "max_steps", "max_minutes", "save_every", "stop_after")},
    "track": "tracking.trackers",
}
"""Name of an option's parameter -> dotted key of its setting."""


def settings_of(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Return dotted key -> value of the options that are settings, None where one is not given."""
    settings = {key: options[name] for name, key in OPTION_KEYS.items()}
    return {**settings, "eval.task": ",".join(options["eval_tasks"]) or None}


def show_result(result: RunResult, *, as_json: bool, quiet: bool) -> None:
    """Print a run's result on stdout: its summary with --json, its folder with --quiet."""
    if is_silent_rank():
        return
    if as_json:
        print_json(result.summary)
    elif quiet:
        click.echo(str(result.run_dir))


def _check(resolved: ResolvedConfig, processes: int, on_this_machine: int) -> None:
    """Report a mistake once, before processes are started and torch is imported, which takes seconds."""
    from grpo_core.training.checks import check_training

    check_shares(resolved.config.trainer, processes, on_this_machine)
    check_training(resolved.config)


def train(config: ResolvedConfig, callbacks: Sequence[Callback]) -> RunResult:
    """Call `grpo_core.train`."""
    _check(config, process_count(), node_process_count())
    with only_results_on_stdout(callbacks):
        return grpo_core.training.start.train(config, callbacks=callbacks)


def _show_dry_run(resolved: ResolvedConfig, *, as_json: bool) -> None:
    from grpo_core.cli.dry_run import as_data, dry_run, report

    dry = dry_run(resolved)
    if as_json:
        print_json(as_data(resolved, dry))
        return
    print_out(table("plan", "", rows=report(resolved, dry)))


def _show(resolved: ResolvedConfig, *, as_json: bool) -> None:
    values: dict[str, Any] = flatten(resolved.config)
    sources = {key: str(source) for key, source in resolved.sources.items()}
    for key, value in list(values.items()):  # each argument of a variant has its own source
        if isinstance(value, dict):
            values |= {f"{key}.{name}": inner for name, inner in value.items()}
    if as_json:
        print_json({key: {"value": value, "source": sources[key]} for key, value in values.items()})
        return
    rows = ((key, format_value(value), sources[key]) for key, value in values.items())
    print_out(table("setting", "value", "from", rows=rows))
