"""`grpo forecast`: predict from samples whether a run would learn, before compute is spent."""

from __future__ import annotations

import click

from grpo_core.cli.settings import only_results_on_stdout, read_settings
from grpo_core.config import resolve
from grpo_core.evaluation.held_out import labelled
from grpo_core.training.checks import check_training
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs

EXAMPLES = """\b
Examples:
  grpo forecast math.arithmetic
  grpo forecast math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct --samples 32
  grpo forecast "math.arithmetic?min_difficulty=1&max_difficulty=4" trainer.num_generations=4
  grpo forecast math.arithmetic:2,math.comparison --model tiny --prompts 32
"""

MIN_SAMPLES = 16
"""Default completions per prompt, where the run's groups are not larger."""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", metavar="MODEL", help="Embedded name (tiny), hub id, folder (./model) or .gguf file.")
@click.option("--adapter", "--ckpt", "adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file, as for grpo run.")
@click.option(
    "--samples",
    metavar="K",
    type=click.IntRange(2, 10**4),
    help="Completions per prompt.  [default: 16, or trainer.num_generations if that is more]",
)
@click.option(
    "--prompts",
    metavar="N",
    default=64,
    show_default=True,
    type=click.IntRange(1, 10**6),
    help="Prompts of each task, those that the run would draw first.",
)
@click.option("--seed", metavar="N", help="Seed of sampling.")
@JSON
@click.option("--quiet", is_flag=True, help="No progress.")
def forecast(
    task: str,
    overrides: tuple[str, ...],
    config_file: str | None,
    samples: int | None,
    prompts: int,
    as_json: bool,
    quiet: bool,
    **settings: str | None,
) -> None:
    """Predict from samples whether a run would learn: groups without signal, solved rates, useful groups per hour.

    Settings are those of `grpo run`: tasks, sampling, length limit, generations per prompt and model are the run's. A
    group without signal has equal rewards, from which most baselines learn nothing. Every number has a 95% interval.
    """
    config = resolve(read_settings({**settings, "task": task}, overrides, config_file)).config
    tasks = labelled(map(bind, parse_task_specs(config.task)))
    generations = config.trainer.num_generations
    if samples is not None and samples < generations:
        raise UserError(
            f"--samples {samples}: the run's groups have {generations} completions. Sample at least as many, or give "
            f"the run fewer: trainer.num_generations={samples}."
        )
    check_training(config)
    with Waiting(err(), quiet=quiet) as progress:
        if not registry.get("advantage", config.trainer.baseline).needs_group:
            progress.on_warning(f"the baseline {config.trainer.baseline} also learns from groups of equal rewards.")
        with only_results_on_stdout((progress,)):
            from grpo_core.training.forecasting import run_forecast  # imports torch; what can be checked was checked

            samples = samples or max(MIN_SAMPLES, generations)
            result = run_forecast(config, prompts=prompts, samples=samples, callbacks=Callbacks((progress,)))
    if as_json:
        facts = {"task": config.task, "model": config.model, "temperature": config.trainer.temperature}
        print_json({**facts, **(result if len(tasks) > 1 else next(iter(result.tasks.values()))).as_json()})
    else:
        from grpo_core.cli.forecast_text import print_forecast

        print_forecast(result, tasks, config)
