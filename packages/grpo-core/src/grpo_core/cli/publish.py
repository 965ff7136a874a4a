"""`grpo publish`: a run's model for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from grpo_core.errors import UserError

if TYPE_CHECKING:
    from grpo_core.publish import Published

EXAMPLES = """\b
Examples:
  grpo publish training_runs/run_2026-11-21_10-02-11 ./model
  grpo publish RUN ./adapter --step 40 --keep-adapter
  grpo publish RUN owner/name --private
"""

MAX_STEP_DIGITS = 18
"""Of a step: int() refuses thousands of digits, and no run has 10^18 steps."""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", metavar="RUN")
@click.argument("target", metavar="DIR|HUB_ID")
@click.option(
    "--step", "--from-step", "step", default="latest", show_default=True, metavar="N", help="latest, final or a step."
)
@click.option(
    "--merge/--keep-adapter", default=None, help="An adapter: merged into its base, or alone.  [default: merged]"
)
@click.option("--private", is_flag=True, help="Make the hub repository private.")
@click.option("--license", metavar="ID", help="License of the model, as the hub writes it.  [default: the base's]")
@click.option(
    "--dataset", "datasets", multiple=True, metavar="ID", help="Hub dataset of the training rows; repeatable."
)
@click.option(
    "--eval-dir",
    metavar="FOLDER",
    help="Where grpo eval --run wrote results, which go into the card.  [default: the run's eval_runs]",
)
@click.option("--force", is_flag=True, help="Replace a folder, or add to a hub repository, that is not empty.")
@click.option("--json", "as_json", is_flag=True, help="Print what was published as JSON.")
def publish(
    run: str, target: str, step: str, datasets: tuple[str, ...], private: bool, as_json: bool, **options: Any
) -> None:
    """Write a run's model with tokenizer, generation settings and a model card into a folder, or upload it to the hub.

    DIR begins with . or / or is one word; owner/name is a hub id. Needs a hub login: hf auth login, or HF_TOKEN.
    """
    from grpo_core.cli.text import print_json

    if private and _is_folder(target, run):
        raise UserError(f"--private is for the hub, and {target} is a folder.")
    made = _publish(run, target, step=_step(step), private=private, datasets=datasets, **options)
    if as_json:
        print_json(
            {"folder": str(made.folder), "url": made.url, "form": made.form, "step": made.step, "bytes": made.bytes}
        )
    else:
        _print(made)


def _publish(run: str, target: str, **options: Any) -> Published:
    """`grpo_core.publish.publish`; what libraries print meanwhile goes to stderr."""
    from grpo_core.cli.settings import only_results_on_stdout

    with only_results_on_stdout():
        from grpo_core.publish import publish

        return publish(run, target, **options)


def _is_folder(target: str, run: str) -> bool:
    from pathlib import Path

    from grpo_core.publish.publication import parse_target

    return parse_target(target, Path(run)).repo_id is None


def _print(made: Published) -> None:
    from pathlib import Path

    from grpo_core.checkpoints.files import human_size
    from grpo_core.cli.lines import fold
    from grpo_core.cli.text import visible
    from grpo_core.publish.card import evaluation_command

    forms = {"full": "full model", "merged": "adapter merged into its base", "adapter": "adapter alone"}
    shown = made.folder
    if made.folder.is_relative_to(Path.cwd()):
        shown = Path(made.folder.relative_to(Path.cwd()))
    place = f"./{shown}" if not shown.is_absolute() else str(shown)
    facts = [made.url or place, f"step {made.step}", forms[made.form], human_size(made.bytes)]
    click.echo(visible(fold("published", facts, None)))
    click.echo(visible(fold("next", [evaluation_command(made.source, place)], None)))


def _step(given: str) -> int | Literal["latest", "final"]:
    if given == "latest":
        return "latest"
    if given == "final":
        return "final"
    if given.isascii() and given.isdigit() and len(given) <= MAX_STEP_DIGITS:
        return int(given)
    raise UserError(f"--step {given[:40]}: give latest, final or the number of a step.")
