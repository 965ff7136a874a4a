"""`grpo doctor`: diagnose this machine and the choices a run would make on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.text import Text

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, table, visible
from grpo_sdk.doctor.examination import Finding, examine, has_failed
from grpo_sdk.errors import ExitCode

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}

EXAMPLES = """\b
Examples:
  grpo doctor
  grpo doctor --json
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@JSON
def doctor(as_json: bool) -> int:
    """Show what this machine can do, what a run would choose on it and why, and what is broken.

    Examines Python, processor, memory and disk, torch and the device, optional packages, and every plugin, which may
    add findings of its own. The exit code is 1 if something is broken. A check that hangs is ended after a timeout.
    """
    with Waiting(err()) as display, display.ticking("examining") as progress:
        findings = examine(progress=progress)
    if as_json:
        listed = [{"source": source, **asdict(diagnosis)} for source, diagnosis in findings]
        print_json({"findings": listed, "failed": has_failed(findings)})
    else:
        _print(findings)
    return ExitCode.FAILED if has_failed(findings) else ExitCode.DONE


def _print(findings: Sequence[Finding]) -> None:
    listing = table("what", "state", "found", "from")
    for source, diagnosis in findings:
        status = Text(diagnosis.status, style=STYLES[diagnosis.status])
        listing.add_row(visible(diagnosis.name), status, visible(diagnosis.text), visible(source))
    print_out(listing)
