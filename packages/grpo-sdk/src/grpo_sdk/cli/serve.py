"""`grpo serve`: offer tasks to other trainers over HTTP."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk.cli.options import COUNT, HELP, JSON, SECONDS
from grpo_sdk.display.text import err, print_out, visible
from grpo_sdk.distributions import needs
from grpo_sdk.errors import ExitCode, GrpoError, UserError
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.tasks import bind, load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import parse_task_specs

if TYPE_CHECKING:  # what the extra brings is imported once `_check_extra` has looked for it
    from grpo_sdk.serve.server import TaskServer

TOKEN_VARIABLE = "GRPO_SERVE_TOKEN"

ALL = "all"

EXAMPLES = """\b
Examples:
  grpo serve math.gsm8k
  grpo serve all --port 8710 --workers 4
  GRPO_SERVE_TOKEN=… grpo serve math.gsm8k,code.mbpp --host 0.0.0.0 --ssl-certfile cert.pem --ssl-keyfile key.pem
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK|all")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8710, show_default=True, help="0 takes a free one.")
@click.option(
    "--workers", metavar="N", type=COUNT, help="Processes that score, for each task.  [default: one per CPU, up to 16]"
)
@click.option("--timeout-s", metavar="S", type=SECONDS, help="Seconds for one completion.  [default: the task's]")
@click.option("--token-file", metavar="FILE", type=Path, help=f"File of the token, in place of {TOKEN_VARIABLE}.")
@click.option("--ssl-certfile", metavar="FILE", type=Path, help="Serve https with this certificate (PEM).")
@click.option("--ssl-keyfile", metavar="FILE", type=Path, help="Its private key, unless that is in the same file.")
@click.option("--opponent-url", metavar="URL", help="Endpoint that plays opponents: http://host:port/v1#model.")
@click.option("--end-token", "end_tokens", metavar="TEXT", multiple=True, help="Removed from the end of completions.")
@click.option(
    "--grace-s",
    metavar="S",
    type=SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds for requests in progress when it stops.",
)
@JSON
def serve(
    task: str,
    host: str,
    port: int,
    token_file: Path | None,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    grace_s: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Offer tasks to other trainers over HTTP: OpenRLHF, slime, NeMo-Gym, OpenEnv, and a plain /score.

    TASK may be several separated by commas; `all` is every installed task. To listen on other addresses than this
    machine's own, the server needs a token. Ctrl-C or SIGTERM stops it after the requests in progress.
    """
    _check_extra()

    from grpo_sdk.serve import Certificate, read_token
    from grpo_sdk.serve.server import DEFAULT_BOUNDS, ServeOptions, TaskServer

    serving = ServeOptions(bounds=replace(DEFAULT_BOUNDS, grace_s=grace_s), **options)
    if ssl_keyfile is not None and ssl_certfile is None:
        raise UserError("--ssl-keyfile needs --ssl-certfile.")
    certificate = None if ssl_certfile is None else Certificate(ssl_certfile, ssl_keyfile)
    token = read_token(token_file, TOKEN_VARIABLE)
    tasks = _tasks(task)
    # uvicorn handles signals while it serves, and repeats them at its end.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.DONE))
    try:
        with TaskServer(tasks, token, host=host, port=port, options=serving, certificate=certificate) as server:
            if task != ALL:
                server.warm()
            _announce(server, has_token=bool(token), has_tls=certificate is not None, as_json=as_json)
            server.serve_forever()
    finally:
        signal.signal(signal.SIGTERM, before)
    return ExitCode.DONE


def _check_extra() -> None:
    """Check that the optional packages are installed.

    Raises:
        UserError: one is not.
    """
    for module in ("prometheus_client", "starlette", "uvicorn", "websockets"):
        if importlib.util.find_spec(module) is None:
            raise UserError(f"grpo serve {needs(module)}.")


def _tasks(spec: str) -> list[BoundTask]:
    """The tasks of a spec; of `all`, those that cannot be loaded are named on stderr and left out."""
    if spec != ALL:
        return [bind(each) for each in parse_task_specs(spec)]
    tasks = []
    for report in default_host().reports():
        if report.error:
            _warn(f"plugin {report.name} is not served: {report.error}")
        for name in report.tasks:
            try:
                tasks.append(load_task(name))
            except GrpoError as error:
                _warn(f"{name} is not served: {error}")
    if not tasks:
        raise UserError("no task is installed: pip install grpo-tasks-math.")
    return tasks


def _announce(server: TaskServer, *, has_token: bool, has_tls: bool, as_json: bool) -> None:
    """Say that the server is ready, where it is, and who can reach it."""
    from grpo_sdk.serve import is_loopback

    labels = list(server.tasks.by_label)
    facts: dict[str, Any] = {"url": server.address, "tasks": labels, "pid": os.getpid()}
    is_local = is_loopback(server.host)
    if not (is_local or has_tls):
        _warn("the token and all completions travel unencrypted; give --ssl-certfile, or listen on 127.0.0.1 behind a "
              "reverse proxy.")  # fmt: skip
    if as_json:
        click.echo(json.dumps(facts))
        return
    named = ", ".join(labels) if len(labels) <= 3 else f"{len(labels)} tasks, listed at {server.address}/tasks"
    who = "who has the token" if has_token else "this machine only"
    print_out(visible(f"serving {named} on {server.address} for {who}; Ctrl-C stops it"))


def _warn(text: str) -> None:
    err().print(visible(f"warning: {text}"), soft_wrap=True)
