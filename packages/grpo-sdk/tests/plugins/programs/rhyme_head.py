"""The beginning of every plugin of test_plugins.py."""

from collections.abc import Iterable

from grpo_sdk import EmbeddedModel, GpuProfile, Row, Task, UserError, hookimpl, reward  # noqa: F401


def load(config) -> Iterable[Row]:
    return [Row(id="1", gold="yes")]


@reward()
def agrees(answer):
    return float(answer == "yes")


def task(name):
    return Task(name, load, lambda row: "say yes", lambda text, row: text, (agrees,))
