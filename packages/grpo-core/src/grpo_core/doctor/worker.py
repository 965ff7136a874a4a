"""What a worker process of the examination does: torch, the accelerator, and plugins' diagnoses.

It imports little by itself, because every worker does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from grpo_core.errors import UserError
from grpo_core.plugins.facts import Diagnosis

MAX_ROWS = 50
"""Longest diagnosis of a plugin, in rows: one screen."""

MAX_TEXT_CHARS = 500


def make() -> Callable[[bytes], bytes]:
    """Return the handler of a worker, which takes a request as JSON and returns the result as JSON."""
    return _answer


def _answer(payload: bytes) -> bytes:
    request: Mapping[str, str] = json.loads(payload)
    if request["ask"] == "accelerator":
        from grpo_core.profiles import accelerator

        return json.dumps(asdict(accelerator.detect(request["device"]))).encode()
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

    from grpo_core.policy.device import EMULATED, choose_device, choose_precision

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
    why = choose_precision(precision, chosen)[2]
    yield Diagnosis("precision", "warn" if EMULATED in why else "ok", why)


def diagnosed(target: str) -> Iterable[Diagnosis]:
    """Call a plugin's diagnostic function; its errors become diagnoses, too.

    Args:
        target: "module:function".
    """
    from grpo_core.plugins.loading import resolve
    from grpo_core.task.calling import where_raised

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
