"""`grpo archive` and `grpo restore`: runs in object stores and other folders."""

from __future__ import annotations

from pathlib import Path

import click

from grpo_core.launch.archive import archive_run, list_runs, restore_run
from grpo_sdk.cli.options import COUNT, HELP, JSON
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, table, visible
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.files import human_size
from grpo_sdk.paths import check_makeable, user_path

ARCHIVE_EXAMPLES = """\b
Examples:
  grpo archive training_runs/run_2026-11-21_10-02-11 s3://bucket/runs
  grpo archive RUN gs://bucket/runs --keep-latest 2
  grpo archive --list file:/mnt/backup
"""

RESTORE_EXAMPLES = """\b
Examples:
  grpo restore s3://bucket/runs/run_2026-11-21_10-02-11
  grpo restore file:/mnt/backup/run_2026-11-21_10-02-11 elsewhere
"""


@click.command(epilog=ARCHIVE_EXAMPLES, context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[RUN] URL")
@click.option("--keep-latest", type=COUNT, metavar="N", help="Keep the latest N checkpoints in the archive, no others.")
@click.option("--list", "is_listing", is_flag=True, help="List the runs in the archive at URL.")
@JSON
def archive(words: tuple[str, ...], keep_latest: int | None, is_listing: bool, as_json: bool) -> int:
    """Copy a run to s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or file:FOLDER, with checksums.

    Only files that the archive does not have are sent, so a second call continues an interrupted one, or adds what a
    run has written since. Keys are read from the environment or the files of the provider's own tools.
    """
    if len(words) != (1 if is_listing else 2):
        raise UserError("grpo archive takes a run and a URL (grpo archive RUN s3://bucket/runs), with --list a URL.")
    if is_listing:
        if keep_latest is not None:
            raise UserError("--list changes nothing: leave out --keep-latest.")
        _list(words[0], as_json=as_json)
        return ExitCode.DONE
    run, url = user_path(words[0], "RUN"), words[1]
    with Waiting(err(), quiet=as_json) as display:
        manifest, done = archive_run(run, url, keep_latest=keep_latest, progress=display.on_progress)
    where = f"{url.rstrip('/')}/{manifest.run}"
    if as_json:
        print_json({"url": where, **manifest.facts(), **done})
        return ExitCode.DONE
    new = f"{done['sent_files']} of them sent, {human_size(done['sent_bytes'])}"
    sent = new if done["sent_files"] else "nothing new to send"
    lines = [f"archived  {where}: {len(manifest.files)} files, {human_size(manifest.size)}; {sent}"]
    lines += [f"removed   {name}" for name in done["removed"]]
    lines += [f"left out  {reason}" for reason in done["left_out"]]
    for line in [*lines, f"next      grpo restore {where}"]:
        click.echo(visible(line))
    return ExitCode.DONE


@click.command(epilog=RESTORE_EXAMPLES, context_settings=HELP)
@click.argument("url", metavar="URL")
@click.argument("folder", metavar="[FOLDER]", required=False)
@JSON
def restore(url: str, folder: str | None, as_json: bool) -> int:
    """Copy an archived run back into FOLDER, by default the folder of new runs.

    Every file is verified against its checksum before the run appears. A second call continues an interrupted one.
    """
    if folder is None:
        from grpo_core.config import load_config

        directory = Path(load_config().config.output_dir)
    else:
        directory = user_path(folder, "FOLDER")
    check_makeable(directory, f"FOLDER {directory}")
    with Waiting(err(), quiet=as_json) as display:
        path = restore_run(url, directory, progress=display.on_progress)
    if as_json:
        print_json({"run": str(path)})
    else:
        click.echo(visible(f"restored  {path}: every file verified"))
    return ExitCode.DONE


def _list(url: str, *, as_json: bool) -> None:
    runs = list_runs(url)
    if as_json:
        unknown: dict[str, object] = {**dict.fromkeys(("created", "files", "bytes", "latest")), "checkpoints": []}
        print_json([
            {"url": each, **({"problem": run, **unknown} if isinstance(run, str) else {"problem": "", **run.facts()})}
            for each, run in runs.items()
        ])  # fmt: skip
        return
    if not runs:
        print_out(visible(f"{url} holds no archived runs."))
        return
    listing = table("run", "archived", "files", "size", "checkpoints")
    for each, run in runs.items():
        name = visible(each.rpartition("/")[2])
        if isinstance(run, str):
            listing.add_row(name, "-", "-", "-", visible(run), style="red")
            continue
        checkpoints = ", ".join(step.removeprefix("step_") for step in run.checkpoints) or "-"
        listing.add_row(name, run.created or "-", str(len(run.files)), human_size(run.size), checkpoints)
    print_out(listing)
