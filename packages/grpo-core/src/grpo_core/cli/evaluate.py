"""`grpo eval`: held-out evaluation of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from grpo_core.cli.settings import only_results_on_stdout, read_settings

if TYPE_CHECKING:
    from grpo_core.callbacks import Callback
    from grpo_core.config import RunConfig

EXAMPLES = """\b
Examples:
  grpo eval --task math.arithmetic --model tiny
  grpo eval --task math.gsm8k --model ./model --size 200
"""


@click.command("eval", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", metavar="TASK", help="Task, or several separated by commas.")
@click.option("--model", metavar="MODEL", help="Embedded name (tiny), hub id, folder (./model) or .gguf file.")
@click.option("--adapter", "--ckpt", "adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file, as for grpo run.")
@click.option("--size", metavar="N", help="Rows per task; null is all of the split.")
@click.option("--split", metavar="SPLIT", help="train, validation or test.")
@click.option("--temperature", metavar="T", help="0 is greedy.")
@click.option("--seed", metavar="N", help="Seed of sampling above temperature 0.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def evaluate(
    overrides: tuple[str, ...],
    config_file: str | None,
    size: str | None,
    split: str | None,
    temperature: str | None,
    as_json: bool,
    quiet: bool,
    **options: str | None,
) -> None:
    """Evaluate a model on held-out rows of a task: one greedy completion a row, with 95% intervals."""
    from grpo_core.config import resolve

    options = {**options, "eval.size": size, "eval.split": split, "eval.temperature": temperature}
    loaded = read_settings(options, overrides, config_file)
    config = resolve(loaded.config, loaded.sources).config
    results = _evaluate(config, quiet=quiet)
    if as_json:
        from grpo_core.cli.text import print_json

        print_json(results)
    else:
        print_results(results)


def run_evaluation(config: RunConfig, callbacks: tuple[Callback, ...]) -> Mapping[str, Mapping[str, Any]]:
    """`grpo_core.evaluate` with a configuration's values, imported when it is called: it brings torch."""
    assert config.model is not None  # `resolve` chose one
    with only_results_on_stdout(callbacks):
        from grpo_core.evaluation import evaluate as evaluation

        return evaluation.evaluate(
            config.task,
            config.model,
            adapter=config.adapter,
            size=config.eval.size,
            split=config.eval.split,
            temperature=config.eval.temperature,
            max_completion_length=config.eval.max_completion_length or config.trainer.max_completion_length,
            seed=config.seed,
            device=config.device,
            precision=config.precision,
            callbacks=callbacks,
        )


def print_results(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print an evaluation as a table on stdout, a task a row."""
    from grpo_core.cli.lines import interval, number
    from grpo_core.cli.text import print_out, table

    listing = table("task", "solved", "95% interval", "mean reward", "valid", "length", "truncated", "rows", "split")
    for name, result in results.items():
        temperature = result.get("temperature")
        listing.add_row(
            name,
            number(result.get("solved_rate")),
            interval(result.get("ci_low"), result.get("ci_high")),
            number(result.get("mean_reward")),
            number(result.get("valid_rate")),
            number(result.get("mean_length"), ".1f"),
            number(result.get("truncated_frac")),
            str(result.get("n", "-")) + (f" ({result['abstained']} not scored)" if result.get("abstained") else ""),
            str(result.get("split", "-")) + (f" at temperature {temperature:g}" if temperature else ""),
        )
    print_out(listing)


def _evaluate(config: RunConfig, *, quiet: bool) -> Mapping[str, Mapping[str, Any]]:
    from grpo_core.cli.progress import Waiting
    from grpo_core.cli.text import err

    with Waiting(err(), quiet=quiet) as progress:
        return run_evaluation(config, (progress,))
