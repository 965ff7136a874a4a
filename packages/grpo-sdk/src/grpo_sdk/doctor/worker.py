"""What a worker process of the examination does: the diagnoses of plugins.

It imports little by itself, because every worker does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict

from grpo_sdk.plugins.facts import Diagnosis

MAX_ROWS = 50
"""Longest diagnosis of a plugin, in rows: one screen."""

MAX_TEXT_CHARS = 500


def make() -> Callable[[bytes], bytes]:
    """Return the handler of a worker, which takes the target of a diagnosis and returns its diagnoses as JSON."""
    return lambda target: json.dumps([asdict(each) for each in diagnosed(target.decode())]).encode()


def diagnosed(target: str) -> Iterable[Diagnosis]:
    """Call a plugin's diagnostic function; its errors become diagnoses, too.

    Args:
        target: "module:function".
    """
    from grpo_sdk.plugins.loading import resolve
    from grpo_sdk.task.calling import where_raised

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
