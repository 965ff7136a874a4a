"""`grpo launch ssh`: a run in a tmux session of another machine."""

from __future__ import annotations

import platform
import shlex
import tempfile
from pathlib import Path

import click

from grpo_core.cli.launchers.words import PASSED_ON, RUN_OPTIONS, read_run_words
from grpo_core.errors import UserError
from grpo_core.launch import ssh_scripts
from grpo_core.launch.ssh import Host, connected
from grpo_core.paths import check_makeable, user_path

EXAMPLES = """\b
Examples:
  grpo launch ssh gpu1 --bootstrap --task math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct
  grpo launch ssh gpu1 --tail
  grpo launch ssh gpu1 --pull training_runs/gpu1
"""


@click.command(epilog=EXAMPLES, context_settings=PASSED_ON)
@click.argument("host", metavar="HOST")
@RUN_OPTIONS
@click.option("--session", default="run", show_default=True, metavar="NAME", help="Name of the session.")
@click.option(
    "--folder", default="grpo", show_default=True, metavar="DIR", help="Working folder there, in the home folder."
)
@click.option("--send", multiple=True, metavar="PATH", help="File or folder to copy there first; repeatable.")
@click.option("--bootstrap", is_flag=True, help="Install uv and this machine's grpo packages there first.")
@click.option("--force", is_flag=True, help="Start also where a GPU is busy.")
@click.option("--attach", is_flag=True, help="Open the session; Ctrl-b d leaves it.")
@click.option("--tail", is_flag=True, help="Follow the session's log; Ctrl-C leaves it.")
@click.option("--stop", is_flag=True, help="Stop the session's run, saved, and wait for it.")
@click.option("--resume", is_flag=True, help="Start the session again: grpo resume of its newest run.")
@click.option("--pull", metavar="DIR", help="Copy the session's run and log into a folder of this machine.")
@click.option("--ssh", "ssh_command", default="ssh", show_default=True, metavar="COMMAND", help="As in 'ssh -p 2222'.")
@click.option("--dry-run", is_flag=True, help="Print the session's script, and start nothing.")
@click.pass_context
def ssh(
    context: click.Context,
    /,
    host: str,
    words: tuple[str, ...],
    session: str,
    folder: str,
    send: tuple[str, ...],
    bootstrap: bool,
    force: bool,
    pull: str | None,
    ssh_command: str,
    dry_run: bool,
    **actions: bool,
) -> None:
    """Train on another machine, in a tmux session that continues when the connection ends.

    Keys, agents and names are those of the system's ssh. The run and its log are in DIR/NAME on that machine.
    """
    from grpo_core.training.rank_shares import check_shares

    try:
        ssh_words = shlex.split(ssh_command)
    except ValueError as error:
        raise UserError(f"--ssh {ssh_command!r}: {error}.") from None
    target = Host(host, folder, session, ssh_words)
    for path in send:
        if not user_path(path, "--send").exists():
            raise UserError(f"--send {path}: there is no such file or folder.")
    if pull:
        check_makeable(user_path(pull, "--pull"), f"--pull {pull}")
    chosen = [name for name, is_asked in {**actions, "pull": pull}.items() if is_asked]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in chosen)}: give one of them.")
    if chosen and (words or send or bootstrap):
        raise UserError(f"--{chosen[0]} is given alone, without a run's options.")
    action = chosen[0] if chosen else None
    if action in ("attach", "tail"):
        _watch(target, action)
    run = None if action else read_run_words(words, context)
    if run is not None:
        check_shares(run.config.trainer, run.nproc or 1, run.nproc or 1)
    started = None if run is None else [*run.words, *(["--nproc", str(run.nproc)] if run.nproc else [])]
    if dry_run:
        click.echo(ssh_scripts.run_script(folder, session, "grpo", started), nl=False)
        return
    with connected(target) as remote:
        if pull:
            remote.run(ssh_scripts.place_script(folder, session))
            remote.pull(user_path(pull, "--pull"))
            click.echo(f"pulled    {remote.place} of {host} to {pull}")
        elif action == "stop":
            _stop(remote)
        else:
            _start(remote, started, send=send, bootstrap=bootstrap, force=force)


def _watch(host: Host, action: str) -> None:
    """Show the session in this terminal, which ends this process."""
    attach, tail = ssh_scripts.attach_script(host.session), ssh_scripts.tail_script(host.folder, host.session)
    host.become(f"bash -c {shlex.quote(attach if action == 'attach' else tail)}")


def _stop(host: Host) -> None:
    click.echo(f"stopping  {host.place} of {host.name}: the run is saved first", err=True)
    answer = host.run(ssh_scripts.stop_script(host.folder, host.session)).strip().rpartition("\n")[2]
    click.echo(f"stopped   exit code {answer}" if answer.isdigit() else f"session   {answer}")


def _start(host: Host, words: list[str] | None, *, send: tuple[str, ...], bootstrap: bool, force: bool) -> None:
    from grpo_core.display.invocation import command
    from grpo_core.display.text import visible

    if send:
        host.run(f"mkdir -p -- {shlex.quote(host.folder)}\n")
        host.send(send)
    if bootstrap:
        _bootstrap(host)
    facts = host.facts()
    if facts.missing:
        raise UserError(f"{host.name} has no {' and no '.join(facts.missing)}: install it there.")
    if not facts.grpo:
        raise UserError(f"{host.name} has no grpo in {host.folder}/.venv or on its PATH: --bootstrap installs it.")
    if facts.session == "running":
        raise UserError(
            f"{host.name} has a session {host.session} already: --tail shows it, --stop ends it, --session gives "
            "another one a name."
        )
    if facts.busy and not force:
        raise UserError(f"{host.name} is busy: {visible('; '.join(facts.busy))}. Wait, or start anyway: --force.")
    if words is not None:
        host.run(ssh_scripts.check_script(host.folder, facts.grpo, words))
    host.run(ssh_scripts.start_script(host.folder, host.session, facts.grpo, words))
    options = {
        "--ssh": (shlex.join(host.ssh), "ssh"),
        "--folder": (host.folder, "grpo"),
        "--session": (host.session, "run"),
    }
    own = [word for name, (value, usual) in options.items() if value != usual for word in (name, value)]
    base = command("launch", "ssh", host.name, *own)
    click.echo(f"started   session {host.session} on {host.name}: its run and log are in {host.place}")
    click.echo(f"next      {base} --tail   {base} --stop   {base} --pull DIR")


def _bootstrap(host: Host) -> None:
    from grpo_core.launch.packages import requirements

    with tempfile.TemporaryDirectory() as folder:
        wanted = requirements(Path(folder), "wheels")
        click.echo(f"install   {', '.join(Path(each).name for each in wanted)}", err=True)
        host.run(f"mkdir -p -- {shlex.quote(host.folder)}\n")
        host.send_into(Path(folder), "wheels")
    python = ".".join(platform.python_version_tuple()[:2])
    host.run(ssh_scripts.bootstrap_script(host.folder, python, wanted), shows=True)
