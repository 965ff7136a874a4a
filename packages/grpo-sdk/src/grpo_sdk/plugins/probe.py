"""Imports plugins in processes that may be killed: what hangs, crashes or exits at import harms nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import metadata

from grpo_sdk.errors import PluginError
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.plugins.facts import GROUP, PluginFacts
from grpo_sdk.plugins.loading import LoadedPlugin

AT_ONCE = 4
"""Plugins looked at together: each is mostly an import."""


def probe(plugins: Mapping[str, tuple[metadata.EntryPoint, str]], timeout_s: float) -> dict[str, PluginFacts]:
    """Import plugins in worker processes and return their contributions.

    Args:
        plugins: Plugin -> (entry point, name in messages).
        timeout_s: Limit for each plugin.
    """
    workers = min(len(plugins), AT_ONCE)
    with KillablePool("grpo_sdk.plugins.probe:make", workers=workers, memory_mib=None, name="plugins") as pool:
        looking = {
            name: pool.submit(json.dumps([point.name, point.value, who]).encode(), timeout_s)
            for name, (point, who) in plugins.items()
        }
        return {name: _found(looking[name].result(), who, timeout_s) for name, (_, who) in plugins.items()}


UNSEEN = "could not be looked at"
"""Part of the error of a plugin whose process could not be started: nothing is known of it or remembered."""


def _found(outcome: Outcome, who: str, timeout_s: float) -> PluginFacts:
    match outcome.status:
        case "ok":
            return PluginFacts.from_json(json.loads(outcome.value))
        case "timeout":
            reason = f"it takes longer than {timeout_s:g} s and was ended"
        case "crashed":
            reason = f"it ends the process that imports it ({outcome.why})"
        case "error":  # what only an interruption raises, and a user's own would look the same
            reason = outcome.why
        case _:
            return PluginFacts(error=f"{who} {UNSEEN}: {outcome.why}")
    return PluginFacts(error=f"{who} failed to load: {reason}", is_dangerous=True)


def make() -> Callable[[bytes], bytes]:
    """The handler of a worker: [plugin, entry point's value, name in messages] -> its facts."""
    return _facts


def _facts(payload: bytes) -> bytes:
    name, value, who = json.loads(payload)
    try:
        facts = LoadedPlugin(metadata.EntryPoint(name, value, GROUP), who).facts()
    except PluginError as error:
        facts = PluginFacts(error=str(error))
    return json.dumps(facts.to_json()).encode()
