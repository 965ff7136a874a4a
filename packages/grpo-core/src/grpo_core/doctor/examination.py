"""The whole examination: the machine, the choices of a run, the extras, and each plugin with its own diagnoses.

Torch, whose import may hang on a driver, and plugins' diagnoses run in worker processes that can be killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

from grpo_core.config import RunConfig, load_config
from grpo_core.config.hardware import hardware_of
from grpo_core.doctor import machine
from grpo_core.errors import GrpoError, UserError
from grpo_core.killable import KillablePool, Outcome
from grpo_core.plugins.facts import Diagnosis, PluginFacts
from grpo_core.plugins.host import PluginHost, default_host
from grpo_core.plugins.loading import resolve
from grpo_core.profiles import accelerator as accelerators
from grpo_core.profiles import platforms
from grpo_core.profiles.accelerator import Accelerator
from grpo_core.task.calling import where_raised

PLUGIN_TIMEOUT_S = 20.0
"""Time limit for loading a plugin and for each of its diagnoses; whatever takes longer counts as hanging."""

TORCH_TIMEOUT_S = 60.0
"""Time limit for importing torch and querying the driver, on a cold network file system."""

AT_ONCE = 4
"""Worker processes; each request is mostly an import."""

OURS = machine.DISTRIBUTION

MAX_ROWS = 50
"""Longest diagnosis of a plugin, in rows: one screen."""

MAX_TEXT_CHARS = 500


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
    with KillablePool("grpo_core.doctor.examination:make", workers=AT_ONCE, memory_mib=None, name="doctor") as pool:

        def ask(timeout_s: float, **request: str) -> Future[Outcome]:
            return pool.submit(json.dumps(request).encode(), timeout_s)

        torch = ask(torch_timeout_s, ask="torch", device=config.device, precision=config.precision)
        accelerator = ask(torch_timeout_s, ask="accelerator", device=config.device)
        progress("looking at plugins", 0, 0)
        plugins = host.facts(anew=True, timeout_s=plugin_timeout_s)
        progress("looking at torch", 0, 0)
        diagnoses += _torch(torch.result(), torch_timeout_s)
        diagnoses += [_platform(), _profile(config, host, accelerator.result(), torch_timeout_s)]
        diagnoses += machine.extras()
        findings = [Finding(OURS, diagnosis) for diagnosis in diagnoses]
        requests: list[tuple[str, str, Future[Outcome]]] = []
        for report in host.reports():
            facts = plugins.get(report.name, PluginFacts(error=report.error))
            findings.append(Finding(report.distribution, _plugin(report.name, facts)))
            targets = () if facts.error else facts.diagnostics.values()
            requests += [(report.name, target, ask(plugin_timeout_s, ask="", target=target)) for target in targets]
        for done, (name, target, future) in enumerate(requests):
            progress("asking plugins", done, len(requests))
            for diagnosis in _diagnoses(target, future.result(), plugin_timeout_s):
                findings.append(Finding(host.distribution(name), diagnosis))
    return findings


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


def _plugin(name: str, facts: PluginFacts) -> Diagnosis:
    if facts.error:
        return Diagnosis(f"plugin {name}", "fail", facts.error)
    counts = {"task": len(facts.tasks), "model": len(facts.models)}
    contents = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    return Diagnosis(f"plugin {name}", "ok", ", ".join(contents) or "no tasks")


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


def make() -> Callable[[bytes], bytes]:
    """Return the handler of a worker, which takes a request as JSON and returns the result as JSON."""
    return _answer


def _answer(payload: bytes) -> bytes:
    request: Mapping[str, str] = json.loads(payload)
    if request["ask"] == "accelerator":
        return json.dumps(asdict(accelerators.detect(request["device"]))).encode()
    if request["ask"] == "torch":
        diagnoses = torch_and_device(request["device"], request["precision"])
    else:
        diagnoses = diagnosed(request["target"])
    return json.dumps([asdict(each) for each in diagnoses]).encode()


def torch_and_device(device: str, precision: str) -> Iterable[Diagnosis]:
    """Diagnose torch, and the device and precision that a run would compute with.

    Args:
        device: The setting `device`.
        precision: The setting `precision`.
    """
    import torch

    from grpo_core.policy.load import choose_device, choose_precision

    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    yield Diagnosis("torch", "ok", f"{torch.__version__}, {build}")
    try:
        chosen, why = choose_device(device)
    except UserError as error:
        yield Diagnosis("device", "fail", str(error))
        return
    where = str(chosen)
    if chosen.type == "cuda":
        facts = torch.cuda.get_device_properties(chosen)
        where += f" ({facts.name}, {facts.total_memory / 2**30:.1f} GiB; {torch.cuda.device_count()} of them)"
    is_idle = chosen.type == "cpu" and torch.version.cuda is not None and device == "auto"
    hint = "; this torch is made for CUDA: is a driver installed (nvidia-smi)?" if is_idle else ""
    yield Diagnosis("device", "ok", f"{where}: {why}{hint}")
    yield Diagnosis("precision", "ok", choose_precision(precision, chosen)[2])


def diagnosed(target: str) -> Iterable[Diagnosis]:
    """Call a plugin's diagnostic function; its errors become diagnoses, too.

    Args:
        target: "module:function".
    """
    try:
        diagnoses = list(resolve(target)())
    except (Exception, SystemExit) as error:  # the plugin's own code may raise anything
        text = " ".join(f"{target} raised {type(error).__name__} ({where_raised(error)}): {error}".split())
        return [Diagnosis("diagnosis", "fail", text[:MAX_TEXT_CHARS])]
    wrong = next((each for each in diagnoses if not isinstance(each, Diagnosis)), None)
    if wrong is not None:
        return [
            Diagnosis("diagnosis", "fail", f"{target} gave a {type(wrong).__name__}, it must give Diagnosis objects")
        ]
    return [Diagnosis(each.name, each.status, each.text[:MAX_TEXT_CHARS]) for each in diagnoses[:MAX_ROWS]]
