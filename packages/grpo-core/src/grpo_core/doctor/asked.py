"""What is asked in a process that may be killed: torch, whose import may hang on a driver, and plugins' diagnoses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from grpo_core.plugins.facts import Diagnosis
from grpo_core.plugins.loading import resolve
from grpo_core.task.calling import where_raised

MAX_ROWS = 50
"""Of one plugin's diagnosis: what fits a screen."""

MAX_TEXT_CHARS = 500


def make() -> Callable[[bytes], bytes]:
    """The handler of a worker: a question as JSON -> its answer as JSON."""
    return _answer


def _answer(payload: bytes) -> bytes:
    question: Mapping[str, str] = json.loads(payload)
    match question["ask"]:
        case "torch":
            found: Any = [asdict(each) for each in torch_and_device(question["device"], question["precision"])]
        case _:
            found = [asdict(each) for each in diagnosed(question["target"])]
    return json.dumps(found).encode()


def torch_and_device(device: str, precision: str) -> Iterable[Diagnosis]:
    """What a run would compute with.

    Args:
        device: As configured.
        precision: Likewise.
    """
    import torch

    from grpo_core.errors import UserError
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
    """What a plugin's function finds; what is wrong with it is a finding, too.

    Args:
        target: "module:function".
    """
    try:
        found = list(resolve(target)())
    except (Exception, SystemExit) as error:  # the plugin's own code: its crash is what there is to tell
        text = " ".join(f"{target} raised {type(error).__name__} ({where_raised(error)}): {error}".split())
        return [Diagnosis("diagnosis", "fail", text[:MAX_TEXT_CHARS])]
    wrong = next((each for each in found if not isinstance(each, Diagnosis)), None)
    if wrong is not None:
        return [
            Diagnosis("diagnosis", "fail", f"{target} gave a {type(wrong).__name__}, it must give Diagnosis objects")
        ]
    return [Diagnosis(each.name, each.status, each.text[:MAX_TEXT_CHARS]) for each in found[:MAX_ROWS]]
