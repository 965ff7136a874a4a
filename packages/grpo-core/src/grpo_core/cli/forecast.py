"""`grpo forecast`: predict from samples whether a run would learn, before compute is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grpo_core.cli.options import HELP, JSON
from grpo_core.cli.settings import only_results_on_stdout, read_settings
from grpo_core.errors import UserError

if TYPE_CHECKING:
    from grpo_core.config import RunConfig
    from grpo_core.display.progress import Waiting
    from grpo_core.evaluation.forecast import Forecast
    from grpo_core.task.bound import BoundTask

EXAMPLES = """\b
Examples:
  grpo forecast math.arithmetic
  grpo forecast math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct --samples 32
  grpo forecast "math.arithmetic?min_difficulty=1&max_difficulty=4" trainer.num_generations=4
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
    help="Prompts, drawn from the rows that the run would train on.",
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

    Settings are those of `grpo run`: sampling, length limit, generations per prompt and model are the run's. A group
    without signal has equal rewards, from which most baselines learn nothing. Every number has a 95% interval.
    """
    from grpo_core.config import resolve
    from grpo_core.display.progress import Waiting
    from grpo_core.display.text import err, print_json
    from grpo_core.evaluation.checks import check_model_and_device

    loaded = read_settings({**settings, "task": task}, overrides, config_file)
    config = resolve(loaded.config, loaded.sources).config
    bound = _task(config)
    generations = config.trainer.num_generations
    if samples is not None and samples < generations:
        raise UserError(
            f"--samples {samples}: the run's groups have {generations} completions. Sample at least as many, or give "
            f"the run fewer: trainer.num_generations={samples}."
        )
    count = samples or max(MIN_SAMPLES, generations)
    available = len(bound.rows())
    check_model_and_device(config)
    with Waiting(err(), quiet=quiet) as progress:
        _warn(config, bound, progress)
        result = _forecast(config, bound, count, min(prompts, available) / available, progress)
    if as_json:
        facts = {"task": bound.spec, "model": config.model, "temperature": config.trainer.temperature}
        print_json({**facts, **result.as_json()})
    else:
        from grpo_core.cli.forecast_text import print_forecast

        print_forecast(result, bound, config)


def _task(config: RunConfig) -> BoundTask:
    from grpo_core.plugins.tasks import bind
    from grpo_core.task.spec import parse_task_specs

    specs = parse_task_specs(config.task)
    if len(specs) != 1:
        raise UserError(f"a forecast is of one task; {config.task!r} names {len(specs)}. Run it for each.")
    bound = bind(specs[0])
    if bound.task.game is not None:
        raise UserError(f"task {bound.name!r} is a game, whose prompts depend on the moves; grpo eval plays it.")
    return bound


def _warn(config: RunConfig, bound: BoundTask, progress: Waiting) -> None:
    from grpo_core.plugins import variants as registry

    trainer = config.trainer
    if names := [spec.name for spec in bound.task.group_specs()]:
        progress.on_warning(
            f"rewards relative to the group are left out: {', '.join(names)}; more groups have a signal."
        )
    if trainer.top_k or trainer.min_p:
        progress.on_warning("trainer.top_k and trainer.min_p are not applied here: completions are more diverse.")
    if not registry.get("advantage", trainer.baseline).needs_group:
        progress.on_warning(f"the baseline {trainer.baseline} also learns from groups of equal rewards.")


def _forecast(config: RunConfig, bound: BoundTask, samples: int, share: float, progress: Waiting) -> Forecast:
    """Import torch and sample; what can be checked was checked before."""
    from grpo_core.callbacks import Callbacks
    from grpo_core.evaluation.settings import EvaluationSettings

    trainer = config.trainer
    with only_results_on_stdout((progress,)):
        from grpo_core.evaluation.forecasting import run_forecast
        from grpo_core.evaluation.setup import EvaluationTask

        settings: dict[str, Any] = {
            "n": samples,
            "temperature": trainer.temperature,
            "top_p": trainer.top_p,
            "max_completion_length": trainer.max_completion_length,
        }
        # Half a row more, so that rounding takes none away.
        rows = len(bound.rows())
        drawn = EvaluationSettings(
            size=None,
            split=bound.config.split,
            subset_frac=min(1.0, share + 0.5 / rows),
            seed=config.seed,
            surprisal=False,
            **settings,
        )
        return run_forecast(EvaluationTask(bound, drawn), bound.name, config, Callbacks((progress,)))
