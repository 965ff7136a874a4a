"""`grpo publish`: publish a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk.cli.options import HELP, read_checkpoint
from grpo_sdk.display.invocation import program
from grpo_sdk.display.text import print_json, visible
from grpo_sdk.errors import UserError
from grpo_sdk.files import human_size

if TYPE_CHECKING:
    from grpo_core.publish import Published

EXAMPLES = """\b
Examples:
  grpo publish training_runs/run_2026-11-21_10-02-11 ./model
  grpo publish RUN ./adapter --step 40 --keep-adapter
  grpo publish RUN owner/name --private
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
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
def publish(run: str, target: str, step: str, private: bool, as_json: bool, **options: Any) -> None:
    """Write a run's model with tokenizer, generation settings and a model card into a folder, or upload it to the hub.

    DIR begins with . or / or is one word; owner/name is a hub id. Needs a hub login: hf auth login, or HF_TOKEN.
    """
    from grpo_core.publish.publication import parse_target

    if private and parse_target(target, Path(run)).repo_id is None:
        raise UserError(f"--private is for the hub, and {target} is a folder.")
    published = _publish(run, target, step=read_checkpoint(step, "--step"), private=private, **options)
    if as_json:
        facts = {name: getattr(published, name) for name in ("url", "form", "step", "bytes")}
        print_json({"folder": str(published.folder), **facts})
    else:
        _print(published)


def _publish(run: str, target: str, **options: Any) -> Published:
    """Call `grpo_core.publish.publish`; what libraries print meanwhile goes to stderr."""
    from grpo_core.cli.settings import only_results_on_stdout

    with only_results_on_stdout():
        from grpo_core.publish import CardFacts, publish

        facts = CardFacts(**{name: options.pop(name) for name in ("license", "datasets", "eval_dir")})
        return publish(run, target, facts=facts, **options)


def _print(published: Published) -> None:
    from grpo_core.publish.card import evaluation_command
    from grpo_sdk.display.lines import fold

    forms = {"full": "full model", "merged": "adapter merged into its base", "adapter": "adapter alone"}
    place = str(published.folder)
    if published.folder.is_relative_to(Path.cwd()):
        place = f"./{published.folder.relative_to(Path.cwd())}"
    facts = [published.url or place, f"step {published.step}", forms[published.form], human_size(published.bytes)]
    click.echo(visible(fold("published", facts, None)))
    if published.compared:
        click.echo(visible(fold("compared", [published.compared], None)))
    next_command = evaluation_command(published.source, place).removeprefix("grpo")
    click.echo(visible(fold("next", [f"{program()}{next_command}"], None)))
