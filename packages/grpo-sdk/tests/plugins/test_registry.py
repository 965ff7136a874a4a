import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from grpo_sdk.errors import PluginError, UnknownNameError, UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.hooks import hookimpl
from grpo_sdk.plugins.host import PluginHost
from grpo_sdk.plugins.variant import Variant

FREE = ("adaptive_shrink", "batch_mean", "ema", "none", "reinforce_pp", "remax", "role", "value")
"""The built-in baselines that work with one completion per prompt; docs/reference/algorithms.md has all of them."""
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def variants(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module `my_variants`, importable as a third party's would be, whose functions are registered."""
    monkeypatch.syspath_prepend(PROGRAMS)
    yield importlib.import_module("my_variants")
    del sys.modules["my_variants"]
    for kind in registry.BUILT_IN:
        registry._registered.pop(kind, None)


def test_what_the_trainer_provides_is_no_setting() -> None:
    # Everything left is a plain value that a configuration can hold, with a default.
    for kind in registry.BUILT_IN:
        for name in registry.BUILT_IN[kind]:
            assert callable(registry.resolve(kind, name)), (kind, name)
            for argument, parameter in registry.arguments(kind, name).items():
                assert isinstance(parameter.default, bool | int | float | str | None), (kind, name, argument)
    assert list(registry.arguments("kl", "full")) == ["direction"]
    assert list(registry.arguments("advantage", "gdpo")) == ["epsilon"]
    # role also takes `roles` and `state`: they are parameters, but no settings.
    assert list(registry.arguments("advantage", "role")) == ["alpha", "order"]
    assert list(registry.parameters("advantage", "role")) == ["roles", "state", "alpha", "order"]


def test_a_script_registers_a_variant(variants: ModuleType) -> None:
    registry.register("advantage", "spo", "my_variants:spo")
    registry.register("advantage", "strict", "my_variants:strict")
    assert "spo" in registry.names("advantage")
    assert registry.resolve("advantage", "spo") is variants.spo
    assert [registry.get("advantage", name).needs_group for name in ("spo", "strict")] == [False, True]
    assert registry.get("advantage", "spo").scales_itself is False, "it does not say"
    assert registry.group_free_baselines() == tuple(sorted((*FREE, "spo")))
    assert list(registry.arguments("advantage", "spo")) == ["alpha", "levels", "mode"]
    filled = registry.validate_arguments("advantage", "spo", {"alpha": 1}, "trainer.advantage_args")
    assert filled == {"alpha": 1.0, "levels": 3, "mode": "a"}
    registry.register("advantage", "spo", "my_variants:spo")  # again, as a re-run notebook cell does
    registry.unregister("advantage", "spo")
    assert "spo" not in registry.names("advantage")


def test_a_third_party_states_facts_without_an_import(variants: ModuleType) -> None:
    variant = Variant("no_such_module:late", formula="r", needs_group=False, scales_itself=True)
    registry.register("advantage", "late", variant)
    assert registry.get("advantage", "late") == variant
    assert "late" in registry.group_free_baselines()


def test_a_variant_may_have_defaults_of_its_own() -> None:
    # DAPO is the clipped surrogate of GRPO with a wider upper range.
    assert registry.get("loss", "dapo").target == registry.get("loss", "grpo").target
    assert registry.arguments("loss", "dapo")["epsilon_high"].default == 0.28
    assert registry.arguments("loss", "grpo")["epsilon_high"].default is None
    assert registry.validate_arguments("loss", "dapo", {}, "trainer.loss_args")["epsilon_high"] == 0.28


@pytest.mark.parametrize(("ask", "error", "message"), [
    (lambda: registry.check("loss", "drgrpo"), UnknownNameError, "no loss 'drgrpo'.*mean 'dr_grpo'.*bnpo, cispo, d"),
    (lambda: registry.names("los"), UnknownNameError, "no kind of variant 'los'.*mean 'loss'"),
    (lambda: registry.register("kl", "k3", "my_variants:spo"), UserError, "kl 'k3' .*core.*kl:k3 and .*ants:spo"),
    (lambda: registry.register("kl", "mine", "my variants:spo"), UserError, "must be 'module:function'"),
])  # fmt: skip
def test_a_name_that_cannot_be_is_refused(variants, ask, error, message):
    with pytest.raises(error, match=message):
        ask()


def test_a_plugin_registers_a_variant_but_replaces_none(monkeypatch: pytest.MonkeyPatch, variants: ModuleType) -> None:
    module = ModuleType("plugin_one")
    given = {"advantage": {"spo": "my_variants:spo"}, "kl": {"k3": "my_variants:spo"}}
    module.grpo_variants = hookimpl(lambda: given, specname="grpo_variants")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    host = PluginHost([metadata.EntryPoint("one", module.__name__, "grpo")])
    monkeypatch.setattr("grpo_sdk.plugins.host.default_host", lambda: host)
    registry.check("advantage", "spo")
    assert registry.resolve("advantage", "spo") is variants.spo
    assert set(registry.names("loss")) == set(registry.BUILT_IN["loss"])
    assert registry.conflicts() == [
        "kl 'k3' is given by grpo_core.algorithms.kl:k3 and my_variants:spo; rename or uninstall one."
    ]
    assert registry.resolve("kl", "k3") is not variants.spo


@pytest.mark.parametrize(("target", "message"), [
    ("my_variants:gone", "kl 'mine': cannot import my_variants:gone"),
    ("my_variants:unreadable", "the annotations of my_variants:unreadable cannot be read"),
])  # fmt: skip
def test_a_target_that_cannot_be_used_is_the_plugins_fault(variants: ModuleType, target: str, message: str) -> None:
    registry.register("kl", "mine", target)
    with pytest.raises(PluginError, match=message):
        registry.arguments("kl", "mine")


@pytest.mark.parametrize(("name", "given", "message"), [
    ("spo", {"alfa": 1}, r"trainer\.advantage_args\.alfa: the advantage mine has no argument .*mean 'alpha'"),
    ("spo", {"levels": 1.5}, r"trainer\.advantage_args\.levels: .*integer.*given 1\.5.*advantage mine"),
    ("spo", {"levels": True}, r"levels: .*integer"),
    ("spo", {"alpha": float("nan")}, r"alpha: .*finite"),
    ("strict", {}, r"trainer\.advantage_args\.must: Field required \(given nothing\)"),
    ("careful", {"alpha": 2}, r"^trainer\.advantage_args\.alpha=2 is above 1\.$"),  # it checks the value itself
])  # fmt: skip
def test_a_wrong_argument_is_refused(variants: ModuleType, name: str, given: dict[str, object], message: str) -> None:
    registry.register("advantage", "mine", f"my_variants:{name}")
    with pytest.raises(UserError, match=message):
        registry.bind("advantage", "mine", given, "trainer.advantage_args")
