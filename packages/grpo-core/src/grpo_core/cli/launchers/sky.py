"""`grpo launch sky`: a run on machines of a cloud, through SkyPilot."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path

import click

from grpo_core.cli.launchers.words import PASSED_ON, RUN_OPTIONS, read_run_words
from grpo_core.cli.options import COUNT
from grpo_core.errors import UserError
from grpo_core.launch.packages import named
from grpo_core.launch.sky import SkyOptions, task_yaml

EXAMPLES = """\b
Examples:
  grpo launch sky --gpus A100:8 --bucket s3://mine/runs --task math.gsm8k --model Qwen/Qwen2.5-7B-Instruct
  grpo launch sky --gpus H100:8 --nodes 2 --spot --bucket gs://mine --config run.yaml trainer.save_every=20
  grpo launch sky --dry-run --gpus L4 --task math.arithmetic > task.yaml
"""

INSTALL = "uv tool install 'skypilot[aws]' (or [gcp], [azure], [kubernetes], …)"

_GPUS = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,39})(?::(?P<count>[1-9]\d{0,3}))?", re.ASCII)
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")


@click.command(epilog=EXAMPLES, context_settings=PASSED_ON)
@RUN_OPTIONS
@click.option("--gpus", metavar="NAME[:N]", help="GPUs of each machine, such as A100:8; none by default.")
@click.option("--nodes", type=COUNT, default=1, show_default=True, metavar="N", help="Machines of the run.")
@click.option("--spot", is_flag=True, help="Cheaper machines that may be taken away; needs --bucket.")
@click.option("--bucket", metavar="URL", help="Bucket that keeps the run, such as s3://mine, and brings it back.")
@click.option(
    "--resource", multiple=True, metavar="NAME=VALUE", help="Other entry of SkyPilot's resources; repeatable."
)
@click.option(
    "--package", multiple=True, metavar="NAME", help="Package to install.  [default: those with plugins here]"
)
@click.option("--name", metavar="NAME", help="Name of the run; an earlier one is continued.  [default: by the time]")
@click.option("--dry-run", is_flag=True, help="Print the task, and start nothing.")
@click.pass_context
def sky(
    context: click.Context,
    words: tuple[str, ...],
    gpus: str | None,
    nodes: int,
    spot: bool,
    bucket: str | None,
    resource: tuple[str, ...],
    package: tuple[str, ...],
    name: str | None,
    dry_run: bool,
) -> int:
    """Train on machines of a cloud, which SkyPilot finds, prepares and takes down.

    The working folder is copied there, so that files in it are found. With --spot the run is a managed job: machines
    that are taken away are replaced, and the run continues from the bucket.
    """
    from grpo_core.training.rank_shares import check_shares

    run = read_run_words(words, context)
    match = _GPUS.fullmatch(gpus or "")
    if gpus and match is None:
        raise UserError(f"--gpus {gpus[:40]!r}: give a name and a number as in A100:8; sky gpus list has the names.")
    if spot and not bucket:
        raise UserError("--spot needs --bucket: what a machine has saved is lost when it is taken away.")
    name = name or datetime.now().strftime("grpo-%y%m%d-%H%M%S")
    if not _NAME.fullmatch(name):
        raise UserError(f"--name {name[:60]!r}: use lower-case letters, digits and -, beginning with a letter.")
    options = SkyOptions(
        accelerators=gpus or "",
        nodes=nodes,
        processes=run.nproc or int((match and match["count"]) or 1),
        bucket=bucket or "",
        spot=spot,
        resources=dict(_entry(word) for word in resource),
        packages=package or named(),
        name=name,
    )
    check_shares(run.config.trainer, options.nodes * options.processes, options.processes)
    text = task_yaml(run.words, options)
    if dry_run:
        click.echo(text, nl=False)
        return 0
    return _launch(text, options)


def _launch(text: str, options: SkyOptions) -> int:
    """Let SkyPilot start the task, in this terminal: it shows prices and asks."""
    if shutil.which("sky") is None:
        raise UserError(f"there is no sky here: {INSTALL}, then sky check. --dry-run prints the task anywhere.")
    with tempfile.TemporaryDirectory() as folder:
        (task := Path(folder) / "task.yaml").write_text(text, encoding="utf-8")
        command = ["sky", "jobs", "launch"] if options.spot else ["sky", "launch", "--cluster", options.name]
        return subprocess.run([*command, str(task)]).returncode


def _entry(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals or not value or not word.isprintable():
        raise UserError(f"--resource {word[:60]!r}: give NAME=VALUE as in --resource infra=aws/us-east-1.")
    return name, value
