"""`grpo doctor`: diagnose this machine, the extras, and each plugin with its own diagnoses.

The diagnoses of plugins, among them grpo-core with torch, whose import may hang on a driver, run in worker processes
that can be killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import click
from rich.text import Text

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, table, visible
from grpo_sdk.distributions import SDK
from grpo_sdk.doctor import machine
from grpo_sdk.errors import ExitCode
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.plugins.facts import Diagnosis, PluginFacts
from grpo_sdk.plugins.host import default_host

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}

DIAGNOSIS_TIMEOUT_S = 60.0
"""Time limit for each diagnosis of a plugin: importing torch and querying the driver, on a cold network file system."""

AT_ONCE = 4
"""Worker processes; each request is mostly an import."""


Finding = tuple[str, Diagnosis]
"""Name and version of a package, or `grpo-sdk`, and a diagnosis that comes from it."""


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
    has_failed = any(diagnosis.status == "fail" for _, diagnosis in findings)
    if as_json:
        listed = [{"source": source, **asdict(diagnosis)} for source, diagnosis in findings]
        print_json({"findings": listed, "failed": has_failed})
    else:
        _print(findings)
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def _print(findings: Sequence[Finding]) -> None:
    listing = table("what", "state", "found", "from")
    for source, diagnosis in findings:
        status = Text(diagnosis.status, style=STYLES[diagnosis.status])
        listing.add_row(visible(diagnosis.name), status, visible(diagnosis.text), visible(source))
    print_out(listing)


def examine(
    *,
    plugin_timeout_s: float | None = None,
    diagnosis_timeout_s: float = DIAGNOSIS_TIMEOUT_S,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Finding]:
    """Examine everything in bounded time, whatever a plugin does.

    Args:
        plugin_timeout_s: Time limit for loading a plugin; by default as for a list of tasks.
        diagnosis_timeout_s: Time limit for each diagnosis.
        progress: Called with (activity, done, total).
    """
    host = default_host()
    diagnoses = [machine.python(), machine.system(), machine.processor(), machine.memory()]
    progress("looking at plugins", 0, 0)
    plugins = host.facts(timeout_s=plugin_timeout_s)
    failed = [name for name, facts in plugins.items() if facts.error]
    plugins |= host.facts(failed, anew=True, timeout_s=plugin_timeout_s)
    reports = host.reports()
    found = {report.name: plugins.get(report.name, PluginFacts(error=report.error)) for report in reports}
    findings: list[Finding] = [(SDK, diagnosis) for diagnosis in (*diagnoses, *machine.extras())]
    for report in reports:
        is_remembered = host.is_remembered(report.name)
        findings.append((report.distribution, _plugin(report.name, found[report.name], is_remembered=is_remembered)))
    # No memory limit: torch maps more address space than any worker may use.
    with KillablePool("grpo_sdk.doctor.worker:make", workers=AT_ONCE, memory_mib=None, name="doctor") as pool:
        requests = [
            (name, target, pool.submit(target.encode(), diagnosis_timeout_s))
            for name, facts in found.items()
            if not facts.error
            for target in facts.diagnostics.values()
        ]
        for done, (name, target, future) in enumerate(requests):
            progress("asking plugins", done, len(requests))
            for diagnosis in _diagnoses(target, future.result(), diagnosis_timeout_s):
                findings.append((host.distribution(name), diagnosis))
    return findings


def _plugin(name: str, facts: PluginFacts, *, is_remembered: bool) -> Diagnosis:
    if facts.error:
        return Diagnosis(f"plugin {name}", "fail", facts.error)
    counts = {"task": len(facts.tasks), "model": len(facts.models)}
    contents = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    since = "; remembered, its files have not changed since" if is_remembered else ""
    return Diagnosis(f"plugin {name}", "ok", f"{', '.join(contents) or 'no tasks'}{since}")


def _diagnoses(target: str, outcome: Outcome, timeout_s: float) -> Iterator[Diagnosis]:
    if outcome.status != "ok":
        ends = {"timeout": f"took longer than {timeout_s:g} s and was ended", "crashed": "crashed the process"}
        yield Diagnosis("diagnosis", "fail", f"{target} {ends.get(outcome.status, 'failed')}: {outcome.why}")
        return
    for each in json.loads(outcome.value):
        yield Diagnosis(**each)
