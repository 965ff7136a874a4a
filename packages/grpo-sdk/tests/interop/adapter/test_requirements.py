import importlib
import importlib.util
import sys
from contextlib import nullcontext

import pytest

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import requires
from grpo_sdk.interop.openrlhf import agent_executor
from grpo_sdk.interop.trl import dataset
from grpo_sdk.plugins.loading import of_trainer

TRAINERS = {
    "art": "art",
    "atropos": "atroposlib",
    "inspect": "inspect_ai",
    "nemo_gym": "nemo_gym",
    "open_instruct": "open_instruct",
    "openenv": "openenv",
    "skyrl": "skyrl_gym",
    "tinker": "tinker_cookbook",
    "verifiers": "verifiers",
}


LAZY = {"areal": ("areal", "TaskWorkflow"), "nemo_rl": ("nemo_rl", "register"), "verl": ("verl", "TaskAgentLoop")}
"""Adapters whose rows are written without the trainer -> its package, and what of the adapter needs it."""


@pytest.mark.parametrize("name", TRAINERS)
def test_an_adapter_says_what_to_install(name: str) -> None:
    if importlib.util.find_spec(TRAINERS[name]) is not None:
        pytest.skip(f"{TRAINERS[name]} is installed")
    with pytest.raises(UserError, match=rf"needs the package {TRAINERS[name]}, which is not installed: (pip|clone) "):
        importlib.import_module(f"grpo_sdk.interop.{name}")


@pytest.mark.parametrize("name", LAZY)
def test_rows_are_written_without_the_trainer_and_what_needs_it_says_what_to_install(name: str) -> None:
    package, needs_it = LAZY[name]
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    adapter = importlib.import_module(f"grpo_sdk.interop.{name}")
    assert callable(adapter.record)
    with pytest.raises(UserError, match=rf"needs the package {package}, which is not installed: (pip|clone) "):
        getattr(adapter, needs_it)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        adapter.no_such_name  # noqa: B018


@pytest.mark.skipif(importlib.util.find_spec("openrlhf") is not None, reason="openrlhf is installed")
def test_an_agent_says_what_to_install() -> None:
    with pytest.raises(UserError, match=r"needs the package openrlhf, .*: pip install openrlhf"):
        agent_executor("math.echo")


def test_a_dataset_for_trl_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="needs the package datasets, which is not installed: pip install datasets"):
        dataset("core.qa?path=nothing.jsonl")


def test_what_needs_the_trainer_is_named_as_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^rollout_func needs the trainer, .*: pip install grpo-core"):
        of_trainer("grpo_core.training.trl_rollouts:Rollouts", "rollout_func")


def test_what_is_missing_within_a_trainer_is_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"), requires("grpo_core", "pip install it"):
        import no_such_dependency  # noqa: F401  # as a broken installation does


@pytest.mark.parametrize(
    ("oldest", "is_old"), [("2.9", False), ("2.10.3", False), ("2.10.4", True), ("2.11", True), ("10", True)]
)
def test_an_older_trainer_is_refused_by_version(oldest: str, is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"a_trainer": "2.10.3"}.__getitem__)
    why = rf"a_trainer {oldest} or newer, and 2\.10\.3 is installed: pip install it"
    expected = pytest.raises(UserError, match=why)
    with expected if is_old else nullcontext(), requires("a_trainer", "pip install it", oldest=oldest):
        pass
