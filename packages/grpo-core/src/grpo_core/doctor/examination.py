"""The whole examination: the machine, what a run would choose, the extras, each plugin and what it says itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from grpo_core.config import load_config
from grpo_core.doctor import machine
from grpo_core.errors import GrpoError
from grpo_core.killable import KillablePool, Outcome
from grpo_core.plugins.facts import Diagnosis, PluginFacts
from grpo_core.plugins.host import PluginHost, default_host

PLUGIN_TIMEOUT_S = 20.0
"""Of loading a plugin, and of each thing that it has asked: longer is a hang, or a doctor that nobody waits for."""

TORCH_TIMEOUT_S = 60.0
"""Of importing torch and asking the driver, on a cold network file system."""

AT_ONCE = 4
"""Questions in flight: each is mostly an import."""

OURS = machine.DISTRIBUTION


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis and whose it is.

    Attributes:
        source: Name and version of the package that says so, or `grpo-core`.
        diagnosis: What it says.
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
    """Look at everything, in bounded time, whatever a plugin does.

    Args:
        host: Whose plugins; by default what is installed. Plugins are loaded in other processes, by name.
        plugin_timeout_s: For each plugin to load, and for each of its diagnoses; by default `PLUGIN_TIMEOUT_S`.
        torch_timeout_s: For torch; by default `TORCH_TIMEOUT_S`.
        progress: Told (what, done, all).
    """
    host = host or default_host()
    plugin_timeout_s = plugin_timeout_s or PLUGIN_TIMEOUT_S
    torch_timeout_s = torch_timeout_s or TORCH_TIMEOUT_S
    found = [machine.python(), machine.system(), machine.processor(), machine.memory()]
    settings = {"device": "auto", "precision": "auto", "output_dir": "training_runs"}
    try:
        config = load_config().config
        settings = {name: getattr(config, name) for name in settings}
    except GrpoError as error:  # what a run would say, and the rest can be looked at all the same
        found.append(Diagnosis("configuration", "fail", str(error)))
    found.append(machine.disk(Path(settings["output_dir"])))
    # No limit of memory: torch maps more than any worker would.
    with KillablePool("grpo_core.doctor.asked:make", workers=AT_ONCE, memory_mib=None, name="doctor") as pool:

        def ask(timeout_s: float, **question: str) -> Future[Outcome]:
            return pool.submit(json.dumps(question).encode(), timeout_s)

        torch = ask(torch_timeout_s, ask="torch", device=settings["device"], precision=settings["precision"])
        progress("looking at plugins", 0, 0)
        plugins = host.facts(anew=True, timeout_s=plugin_timeout_s)
        progress("looking at torch", 0, 0)
        found += _torch(torch.result(), torch_timeout_s)
        found += machine.extras()
        findings = [Finding(OURS, diagnosis) for diagnosis in found]
        asked: list[tuple[str, str, Future[Outcome]]] = []
        for report in host.reports():
            facts = plugins.get(report.name, PluginFacts(error=report.error))
            findings.append(Finding(report.distribution, _plugin(report.name, facts)))
            targets = () if facts.error else facts.diagnostics.values()
            asked += [(report.name, target, ask(plugin_timeout_s, ask="", target=target)) for target in targets]
        for done, (name, target, future) in enumerate(asked):
            progress("asking plugins", done, len(asked))
            for diagnosis in _said(target, future.result(), plugin_timeout_s):
                findings.append(Finding(host.distribution(name), diagnosis))
    return findings


def has_failed(findings: Sequence[Finding]) -> bool:
    """Whether something is broken."""
    return any(finding.diagnosis.status == "fail" for finding in findings)


def _torch(outcome: Outcome, timeout_s: float) -> list[Diagnosis]:
    if outcome.status == "ok":
        return [Diagnosis(**each) for each in json.loads(outcome.value)]
    why = "is a driver in order?" if outcome.status == "timeout" else outcome.why
    return [Diagnosis("torch", "fail", f"{_what_became(outcome, 'importing it', timeout_s)}: {why}")]


def _plugin(name: str, facts: PluginFacts) -> Diagnosis:
    if facts.error:
        return Diagnosis(f"plugin {name}", "fail", facts.error)
    counts = {"task": len(facts.tasks), "model": len(facts.models)}
    gives = [f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
    return Diagnosis(f"plugin {name}", "ok", ", ".join(gives) or "no tasks")


def _said(target: str, outcome: Outcome, timeout_s: float) -> Iterator[Diagnosis]:
    if outcome.status != "ok":
        text = f"{_what_became(outcome, target, timeout_s)}: {outcome.why}"
        yield Diagnosis("diagnosis", "fail", text)
        return
    for each in json.loads(outcome.value):
        yield Diagnosis(**each)


def _what_became(outcome: Outcome, what: str, timeout_s: float) -> str:
    match outcome.status:
        case "timeout":
            return f"{what} took longer than {timeout_s:g} s and was ended"
        case "crashed":
            return f"{what} crashed the process"
        case _:
            return f"{what} failed"
