"""The whole examination: the machine, the choices of a run, the extras, and each plugin with its own diagnoses.

Torch, whose import may hang on a driver, and plugins' diagnoses run in worker processes that can be killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from grpo_core.config import RunConfig, load_config
from grpo_core.config.hardware import hardware_of
from grpo_core.doctor import machine
from grpo_core.errors import GrpoError, UserError
from grpo_core.killable import KillablePool, Outcome
from grpo_core.plugins.facts import Diagnosis, PluginFacts
from grpo_core.plugins.host import PluginHost, default_host
from grpo_core.profiles import platforms
from grpo_core.profiles.accelerator import Accelerator

PLUGIN_TIMEOUT_S = 20.0
"""Time limit for loading a plugin and for each of its diagnoses; whatever takes longer counts as hanging."""

TORCH_TIMEOUT_S = 60.0
"""Time limit for importing torch and querying the driver, on a cold network file system."""

AT_ONCE = 4
"""Worker processes; each request is mostly an import."""

OURS = machine.DISTRIBUTION


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis and the package that it comes from.

    Attributes:
        source: Name and version of the package, or `grpo-core`.
        diagnosis: The diagnosis.
    """

    source: str
    diagnosis: Diagnosis


def examine(
    host: PluginHost | None = None,
    *,
    plugin_timeout_s: float | None = None,
    torch_timeout_s: float | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Finding]:
    """Examine everything in bounded time, whatever a plugin does.

    Args:
        host: Plugin host; by default that of the installed plugins. Plugins are loaded by name in other processes.
        plugin_timeout_s: Time limit for loading a plugin, and for each diagnosis; by default `PLUGIN_TIMEOUT_S`.
        torch_timeout_s: Time limit for torch; by default `TORCH_TIMEOUT_S`.
        progress: Called with (activity, done, total).
    """
    host = host or default_host()
    plugin_timeout_s = plugin_timeout_s or PLUGIN_TIMEOUT_S
    torch_timeout_s = torch_timeout_s or TORCH_TIMEOUT_S
    diagnoses = [machine.python(), machine.system(), machine.processor(), machine.memory()]
    config = RunConfig()
    try:
        config = load_config().config
    except GrpoError as error:  # a run would report the same; the rest can still be examined
        diagnoses.append(Diagnosis("configuration", "fail", str(error)))
    diagnoses.append(machine.disk(Path(config.output_dir)))
    # No memory limit: torch maps more address space than any worker may use.
    with KillablePool("grpo_core.doctor.worker:make", workers=AT_ONCE, memory_mib=None, name="doctor") as pool:

        def ask(timeout_s: float, **request: str) -> Future[Outcome]:
            return pool.submit(json.dumps(request).encode(), timeout_s)

        torch = ask(torch_timeout_s, ask="torch", device=config.device, precision=config.precision)
        accelerator = ask(torch_timeout_s, ask="accelerator", device=config.device)
        progress("looking at plugins", 0, 0)
        plugins = host.facts(timeout_s=plugin_timeout_s)
        failed = [name for name, facts in plugins.items() if facts.error]
        plugins |= host.facts(failed, anew=True, timeout_s=plugin_timeout_s)
        reports = host.reports()
        found = {report.name: plugins.get(report.name, PluginFacts(error=report.error)) for report in reports}
        # Asked at once: they run while torch is imported.
        requests = [(name, target, ask(plugin_timeout_s, ask="", target=target)) for name, target in _targets(found)]
        progress("looking at torch", 0, 0)
        diagnoses += _torch(torch.result(), torch_timeout_s)
        diagnoses += [_platform(), _profile(config, host, accelerator.result(), torch_timeout_s)]
        diagnoses += machine.extras()
        findings = [Finding(OURS, diagnosis) for diagnosis in diagnoses]
        findings += [
            Finding(
                report.distribution,
                _plugin(report.name, found[report.name], is_remembered=host.is_remembered(report.name)),
            )
            for report in reports
        ]
        for done, (name, target, future) in enumerate(requests):
            progress("asking plugins", done, len(requests))
            for diagnosis in _diagnoses(target, future.result(), plugin_timeout_s):
                findings.append(Finding(host.distribution(name), diagnosis))
    return findings


def _targets(plugins: Mapping[str, PluginFacts]) -> list[tuple[str, str]]:
    """(plugin, "module:function") of every diagnosis of a plugin that works."""
    return [
        (name, target) for name, facts in plugins.items() if not facts.error for target in facts.diagnostics.values()
    ]


def has_failed(findings: Sequence[Finding]) -> bool:
    """Whether any diagnosis reports a failure."""
    return any(finding.diagnosis.status == "fail" for finding in findings)


def _torch(outcome: Outcome, timeout_s: float) -> list[Diagnosis]:
    if outcome.status == "ok":
        return [Diagnosis(**each) for each in json.loads(outcome.value)]
    why = "is a driver in order?" if outcome.status == "timeout" else outcome.why
    return [Diagnosis("torch", "fail", f"{_failure(outcome, 'importing it', timeout_s)}: {why}")]


def _platform() -> Diagnosis:
    platform = platforms.detect()
    return Diagnosis("platform", "ok", f"{platform.name}: {platform}")


def _profile(config: RunConfig, host: PluginHost, outcome: Outcome, timeout_s: float) -> Diagnosis:
    """The GPU profile of a run, by the accelerator that a worker has detected."""
    name = "GPU profile"
    if outcome.status != "ok":
        return Diagnosis(name, "fail", f"{_failure(outcome, 'asking the driver', timeout_s)}: {outcome.why}")
    try:
        hardware = hardware_of(config, host, Accelerator(**json.loads(outcome.value)))
    except UserError as error:
        return Diagnosis(name, "fail", str(error))
    if hardware is None:
        return Diagnosis(name, "ok", "none: profile=null")
    return Diagnosis(name, "ok", f"{hardware.profile.name}: {hardware.why}. {hardware.profile.description}")


def _plugin(name: str, facts: PluginFacts, *, is_remembered: bool) -> Diagnosis:
    if facts.error:
        return Diagnosis(f"plugin {name}", "fail", facts.error)
    counts = {"task": len(facts.tasks), "model": len(facts.models)}
    contents = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    since = "; remembered, its files have not changed since" if is_remembered else ""
    return Diagnosis(f"plugin {name}", "ok", f"{', '.join(contents) or 'no tasks'}{since}")


def _diagnoses(target: str, outcome: Outcome, timeout_s: float) -> Iterator[Diagnosis]:
    if outcome.status != "ok":
        text = f"{_failure(outcome, target, timeout_s)}: {outcome.why}"
        yield Diagnosis("diagnosis", "fail", text)
        return
    for each in json.loads(outcome.value):
        yield Diagnosis(**each)


def _failure(outcome: Outcome, what: str, timeout_s: float) -> str:
    match outcome.status:
        case "timeout":
            return f"{what} took longer than {timeout_s:g} s and was ended"
        case "crashed":
            return f"{what} crashed the process"
        case _:
            return f"{what} failed"
