"""`grpo launch ssh`: a run in a tmux session of another machine."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from importlib import resources

import click

from grpo_core.cli.launchers.words import PASSED_ON, RUN_OPTIONS, read_run_words
from grpo_core.training.rank_shares import check_shares
from grpo_sdk.display.text import visible
from grpo_sdk.errors import GrpoError, UserError

EXAMPLES = """\b
Examples:
  grpo launch ssh gpu1 --task math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct
  grpo launch ssh me@10.0.0.7 --ssh "ssh -p 2222" --session sums --config run.yaml --nproc 8
"""


@click.command(epilog=EXAMPLES, context_settings=PASSED_ON)
@click.argument("host", metavar="HOST")
@RUN_OPTIONS
@click.option("--session", default="run", show_default=True, metavar="NAME", help="Name of the tmux session.")
@click.option(
    "--folder", default="grpo", show_default=True, metavar="DIR", help="Working folder there, in the home folder."
)
@click.option("--ssh", "ssh_command", default="ssh", show_default=True, metavar="COMMAND", help="As in 'ssh -p 2222'.")
@click.option("--dry-run", is_flag=True, help="Print the script, and start nothing.")
@click.pass_context
def ssh(
    context: click.Context,
    /,
    host: str,
    words: tuple[str, ...],
    session: str,
    folder: str,
    ssh_command: str,
    dry_run: bool,
) -> None:
    """Train on another machine, in a tmux session that continues when the connection ends.

    The machine needs grpo, in DIR/.venv or on its PATH, and tmux. The run and its log are in DIR/NAME there.
    """
    if host.startswith("-"):
        raise UserError(
            f"{host[:60]!r} is not a host: the first word is a name of ssh's configuration, or USER@ADDRESS."
        )
    if not re.fullmatch(r"\w[\w-]{0,39}", session, re.ASCII):
        raise UserError(f"--session {session[:60]!r}: use letters, digits, - and _, at most 40.")
    try:
        shell = shlex.split(ssh_command)
    except ValueError as error:
        raise UserError(f"--ssh {ssh_command!r}: {error}.") from None
    run = read_run_words(words, context)
    check_shares(run.config.trainer, run.nproc or 1, run.nproc or 1)
    folder, processes = folder.removeprefix("~/"), ["--nproc", str(run.nproc)] if run.nproc else []
    script = resources.files(__package__).joinpath("templates", "ssh.sh").read_text(encoding="utf-8")
    script = f"folder={shlex.quote(folder)} session={session}\nset -- {shlex.join([*run.words, *processes])}\n{script}"
    if dry_run:
        click.echo(script, nl=False)
        return
    if not shell or shutil.which(shell[0]) is None:
        raise UserError(f"--ssh {ssh_command!r}: there is no such command here. Install OpenSSH's client.")
    if code := subprocess.run([*shell, host, "bash -s"], input=script, text=True).returncode:
        raise GrpoError(f"{shlex.join([*shell, host])} ended with exit code {code}: the run was not started.")
    place, new = f"{folder}/{session}", ["tmux", "new-session", "-d", "-s", session, "bash"]
    commands = {
        "log": [*shell, "-t", host, shlex.join(["tail", "-n", "100", "-F", f"{place}/log"])],
        "stop": [*shell, host, f'tmux send-keys -t "={session}:" C-c'],
        "resume": [*shell, host, shlex.join([*new, f"{place}/session.sh", "resume", *processes])],
        "pull": ["rsync", "-as", *(["-e", ssh_command] if shell != ["ssh"] else []), f"{host}:{place}/", session],
    }
    click.echo(visible(f"started   session {session} on {host}: its run and log are in {place}"))
    for name, command in commands.items():
        click.echo(visible(f"{name:<9} {shlex.join(command)}"))
