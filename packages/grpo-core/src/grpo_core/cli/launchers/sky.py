"""`grpo launch sky`: a run on machines of a cloud, through SkyPilot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from datetime import datetime
from importlib import metadata, resources
from pathlib import Path
from shlex import join, quote
from urllib.parse import unquote

import click

from grpo_core.cli.launchers.words import PASSED_ON, RUN_OPTIONS, read_run_words
from grpo_core.training.rank_shares import check_shares
from grpo_sdk.cli.options import COUNT
from grpo_sdk.errors import UserError

EXAMPLES = """\b
Examples:
  grpo launch sky --gpus H100:8 --spot --bucket gs://mine --config run.yaml trainer.save_every=20
  grpo launch sky --dry-run --gpus L4 --task math.arithmetic > task.yaml
"""


@click.command(epilog=EXAMPLES, context_settings=PASSED_ON)
@RUN_OPTIONS
@click.option("--gpus", default="", metavar="NAME[:N]", help="GPUs of each machine, such as A100:8; none by default.")
@click.option("--nodes", type=COUNT, default=1, show_default=True, metavar="N", help="Machines; several need --volume.")
@click.option("--spot", is_flag=True, help="Cheaper machines that may be taken away; needs --bucket or --volume.")
@click.option(
    "--bucket", default="", metavar="URL", help="Archive of the run, s3://… or gs://…; it goes on from there."
)
@click.option("--volume", default="", metavar="NAME", help="SkyPilot's volume that holds the run, for all machines.")
@click.option("--name", default="", metavar="NAME", help="Name; an earlier run of it goes on.  [default: by the time]")
@click.option("--dry-run", is_flag=True, help="Print the task, and start nothing.")
@click.pass_context
def sky(context: click.Context, /, words: tuple[str, ...], nodes: int, spot: bool, dry_run: bool, **given: str) -> int:
    """Train on machines of a cloud, which SkyPilot finds, prepares and takes down.

    The working folder is copied there, so that files in it are found. With --spot the run is a managed job: machines
    that are taken away are replaced, and the run continues from the bucket or the volume.
    """
    from grpo_core.launch.storage import EXTRAS

    gpus, bucket, volume = given["gpus"], given["bucket"].rstrip("/"), given["volume"]
    name = given["name"] or datetime.now().strftime("grpo-%y%m%d-%H%M%S")
    scheme, separator, _ = bucket.partition("://")
    if bucket and (not separator or not EXTRAS.get(scheme)):
        raise UserError(f"--bucket {bucket!r:.80}: give s3://BUCKET/FOLDER or gs://BUCKET/FOLDER.")
    if spot and not bucket and not volume:
        raise UserError("--spot needs --bucket or --volume: a machine's disk is lost when it is taken away.")
    if nodes > 1 and (bucket or not volume):
        raise UserError(f"--nodes {nodes} needs --volume, and no --bucket: all machines of a run share its folder.")
    run = read_run_words(words, context)
    trainer, number = run.config.trainer, gpus.partition(":")[2]
    processes = run.nproc or int(number if number.isdecimal() else 1)
    check_shares(trainer, nodes * processes, processes)
    keeps_all = trainer.keep_best or (trainer.save_every is not None and trainer.keep_last is None)
    asked = {key: value for key, value in (("accelerators", gpus), ("use_spot", spot)) if value}
    values = {
        **{"name": json.dumps(name), "nodes": str(nodes), "resources": json.dumps(asked)},
        "volumes": json.dumps({"/runs": volume} if volume else {}),
        "packages": join(_packages(EXTRAS.get(scheme, ""))),
        "runs": f"{'/runs' if volume else '~/grpo-runs'}/{quote(name)}",
        "archive": quote(bucket and f"{bucket}/{name}"),
        "words": join(run.words),
        "keep": "" if keeps_all else f"--keep-latest {max(2, trainer.keep_last or 0)}",
        "processes": str(processes),
    }
    template = resources.files(__package__).joinpath("templates", "sky.yaml").read_text(encoding="utf-8")
    text = re.sub("@([a-z]+)@", lambda found: values[found[1]], template)
    if dry_run:
        click.echo(text, nl=False)
        return 0
    if shutil.which("sky") is None:
        raise UserError(
            "no sky here: uv tool install 'skypilot[aws]', then sky check. --dry-run prints the task anywhere."
        )
    with tempfile.TemporaryDirectory() as folder:
        (task := Path(folder) / "task.yaml").write_text(text, encoding="utf-8")
        command = ["sky", "jobs", "launch"] if spot else ["sky", "launch", "--cluster", name]
        return subprocess.run([*command, str(task)]).returncode


def _packages(extra: str) -> list[str]:
    """grpo-core and the installed packages with plugins, each as in the working folder or as an index has it."""
    here, names, wanted = Path.cwd().resolve().as_uri(), {"grpo-core"}, []
    names |= {entry.dist.name for entry in metadata.entry_points(group="grpo") if entry.dist is not None}
    for package in map(metadata.distribution, sorted(names)):
        extras = f"[{extra}]" if extra and package.name == "grpo-core" else ""
        origin = json.loads(package.read_text("direct_url.json") or '{"url": ""}')["url"]
        from_index, from_here = f"{package.name}{extras}=={package.version}", f".{unquote(origin[len(here) :])}{extras}"
        wanted.append(from_here if f"{origin}/".startswith(f"{here}/") else from_index)
    return wanted
