from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from grpo_core.algorithms.variant import Variant
from grpo_core.errors import PluginError, UnknownNameError, UserError
from grpo_core.plugins import variants as registry
from grpo_core.plugins.hooks import hookimpl
from grpo_core.plugins.host import PluginHost, default_host

SOURCE = """
from grpo_core.algorithms.variant import checked_by
from grpo_core.errors import UserError
def spo(rewards, groups, *, alpha: float = 0.1, levels: int = 3, mode: str = "a"): return rewards
spo.needs_group = False
def known(alpha):
    if alpha > 1: raise UserError("alpha=%g is above 1." % alpha)
@checked_by(known)
def careful(rewards, groups, *, mode: str = "a", alpha: float = 0.1): return rewards
def strict(rewards, groups, *, must: int): return rewards
def unreadable(rewards, *, x: "Nowhere" = 1): return rewards
"""


FREE = ("adaptive_shrink", "batch_mean", "ema", "none", "reinforce_pp", "remax", "role", "value")
"""The built-in baselines that work with one completion per prompt."""


@pytest.fixture
def variants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """A module `my_variants`, importable as a third party's would be."""
    (tmp_path / "my_variants.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_variants")
    del sys.modules["my_variants"]
    for kind in registry.BUILT_IN:
        registry._registered.pop(kind, None)


def plugin_giving(monkeypatch: pytest.MonkeyPatch, **plugins: Mapping[str, Mapping[str, str]]) -> None:
    """Install plugins that give these variants, by name."""
    points = []
    for name, given in plugins.items():
        module = ModuleType(f"plugin_{name}")
        module.grpo_variants = hookimpl(lambda given=given: given, specname="grpo_variants")  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points.append(metadata.EntryPoint(name, module.__name__, "grpo"))
    host = PluginHost(points)
    monkeypatch.setattr("grpo_core.plugins.host.default_host", lambda: host)


def test_every_built_in_name_is_listed() -> None:
    # A name that goes breaks configurations that are saved.
    assert registry.names("loss") == (
        "bnpo", "cispo", "dapo", "dppo", "dr_grpo", "dro", "gmpo", "gpg", "grpo", "gspo", "gspo_token", "luspo",
        "reinforce", "rloo", "sapo", "seq_ppo", "vespo",
    )  # fmt: skip
    assert registry.names("advantage") == (
        "adaptive", "adaptive_shrink", "batch_mean", "bnpo", "ema", "gdpo", "gpg", "group_mean", "group_median",
        "leave_one_out", "maxrl", "none", "opo", "pass_at_k", "pass_at_k_best", "reinforce_pp",
        "reinforce_pp_baseline", "remax", "role", "value",
    )  # fmt: skip
    assert registry.names("kl") == ("abs", "fkl", "fkl_k3", "full", "jeffreys", "k1", "k2", "k3")
    assert registry.names("kl_controller") == ("constant", "decay", "ppo_rule", "proportional", "step_rule")
    assert registry.names("entropy_controller") == ("adaptive", "constant", "decay")
    assert registry.names("schedule") == ("constant", "cosine", "none")


def test_every_built_in_variant_resolves() -> None:
    for kind in registry.BUILT_IN:
        for name in registry.BUILT_IN[kind]:
            assert callable(registry.resolve(kind, name)), (kind, name)


def test_baselines_that_work_without_a_group() -> None:
    assert registry.group_free_baselines() == FREE


def test_what_the_trainer_provides_is_no_setting() -> None:
    # Everything left is a plain value that a configuration can hold, with a default.
    for kind in registry.BUILT_IN:
        for name in registry.BUILT_IN[kind]:
            for argument, parameter in registry.arguments(kind, name).items():
                assert parameter.default is not parameter.empty, (kind, name, argument)
                assert isinstance(parameter.default, bool | int | float | str | None), (kind, name, argument)
    assert list(registry.arguments("kl", "full")) == ["direction"]
    assert list(registry.arguments("advantage", "gdpo")) == ["epsilon"]


def test_names_are_checked_without_torch() -> None:
    code = (
        "import sys; from grpo_core.plugins import variants as registry\n"
        "registry.check('loss', 'dr_grpo'); registry.names('loss'); registry.get('advantage', 'ema').needs_group\n"
        "try: registry.check('loss', 'nope')\n"
        "except LookupError: pass\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_name_says_what_there_is_and_the_near_one() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no loss 'drgrpo'\. Did you mean 'dr_grpo'\? Available: bnpo, cispo, dapo"
    ):
        registry.check("loss", "drgrpo")
    with pytest.raises(UnknownNameError, match=r"no kind of variant 'los'\. Did you mean 'loss'\?"):
        registry.names("los")


def test_a_script_registers_a_variant(variants: ModuleType) -> None:
    registry.register("advantage", "spo", "my_variants:spo")
    assert "spo" in registry.names("advantage")
    assert registry.resolve("advantage", "spo") is variants.spo
    assert registry.get("advantage", "spo").needs_group is False
    assert registry.get("advantage", "spo").scales_itself is False, "it does not say"
    assert registry.group_free_baselines() == tuple(sorted((*FREE, "spo")))
    registry.register("advantage", "spo", "my_variants:spo")  # again, as a re-run notebook cell does
    registry.unregister("advantage", "spo")
    assert "spo" not in registry.names("advantage")


def test_a_baseline_that_does_not_say_needs_a_group(variants: ModuleType) -> None:
    registry.register("advantage", "strict", "my_variants:strict")
    assert registry.get("advantage", "strict").needs_group is True


def test_a_third_party_states_facts_without_an_import() -> None:
    variant = Variant("no_such_module:late", formula="r", needs_group=False, scales_itself=True)
    registry.register("advantage", "late", variant)
    try:
        assert registry.get("advantage", "late") == variant
        assert "late" in registry.group_free_baselines()
    finally:
        registry.unregister("advantage", "late")


def test_a_variant_may_have_defaults_of_its_own() -> None:
    # DAPO is the clipped surrogate of GRPO with a wider upper range.
    assert registry.get("loss", "dapo").target == registry.get("loss", "grpo").target
    assert registry.arguments("loss", "dapo")["epsilon_high"].default == 0.28
    assert registry.arguments("loss", "grpo")["epsilon_high"].default is None
    assert registry.validate_arguments("loss", "dapo", {}, "trainer.loss_args")["epsilon_high"] == 0.28


def test_a_taken_name_is_an_error_naming_both(variants: ModuleType) -> None:
    with pytest.raises(
        UserError, match=r"kl 'k3' is registered as grpo_core\.algorithms\.kl:k3 and as my_variants:spo"
    ):
        registry.register("kl", "k3", "my_variants:spo")


@pytest.mark.parametrize("target", ["my_variants", "my_variants:", ":spo", "my variants:spo", "a..b:c"])
def test_a_target_is_module_and_function(target: str) -> None:
    with pytest.raises(UserError, match="must be 'module:function'"):
        registry.register("kl", "mine", target)


def test_a_plugin_registers_a_variant(monkeypatch: pytest.MonkeyPatch, variants: ModuleType) -> None:
    plugin_giving(monkeypatch, one={"advantage": {"spo": "my_variants:spo"}})
    registry.check("advantage", "spo")
    assert registry.resolve("advantage", "spo") is variants.spo
    assert set(registry.names("loss")) == set(registry.BUILT_IN["loss"])


def test_two_plugins_with_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch, variants: ModuleType) -> None:
    plugin_giving(monkeypatch, one={"kl": {"x": "my_variants:spo"}}, two={"kl": {"x": "my_variants:strict"}})
    with pytest.raises(PluginError, match="kl 'x' is given by"):
        registry.resolve("kl", "x")
    assert "x" not in registry.names("kl") and "k3" in registry.names("kl"), "the others can be used"


def test_a_plugin_cannot_replace_a_built_in_variant(monkeypatch: pytest.MonkeyPatch, variants: ModuleType) -> None:
    plugin_giving(monkeypatch, one={"kl": {"k3": "my_variants:spo"}})
    assert registry.conflicts() == [
        "kl 'k3' is given by grpo_core.algorithms.kl:k3 and my_variants:spo; rename or uninstall one."
    ]
    assert registry.resolve("kl", "k3") is not variants.spo


def test_a_target_that_cannot_be_imported_names_itself(variants: ModuleType) -> None:
    registry.register("kl", "gone", "my_variants:gone")
    with pytest.raises(PluginError, match=r"kl 'gone': cannot import my_variants:gone"):
        registry.resolve("kl", "gone")
    registry.register("kl", "nowhere", "no_such_module_anywhere:f")
    with pytest.raises(PluginError, match=r"cannot import no_such_module_anywhere:f"):
        registry.resolve("kl", "nowhere")


def test_arguments_are_the_keyword_only_parameters(variants: ModuleType) -> None:
    registry.register("advantage", "spo", "my_variants:spo")
    assert list(registry.arguments("advantage", "spo")) == ["alpha", "levels", "mode"]
    # role also takes `roles` and `state`, which the trainer provides: they are parameters, but no settings.
    assert list(registry.arguments("advantage", "role")) == ["alpha", "order"]
    assert list(registry.parameters("advantage", "role")) == ["roles", "state", "alpha", "order"]


def test_arguments_are_validated_and_defaults_filled_in(variants: ModuleType) -> None:
    registry.register("advantage", "spo", "my_variants:spo")
    assert registry.validate_arguments("advantage", "spo", {"alpha": 1}, "trainer.advantage_args") == {
        "alpha": 1.0,
        "levels": 3,
        "mode": "a",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"alfa": 1},
            r"trainer\.advantage_args\.alfa: the advantage spo has no argument 'alfa'\. Did you mean 'alpha'\?",
        ),
        ({"levels": 1.5}, r"trainer\.advantage_args\.levels: .*integer.*given 1\.5.*advantage spo"),
        ({"levels": True}, r"levels: .*integer"),
        ({"alpha": float("nan")}, r"alpha: .*finite"),
        ({"keys": ["a"]}, r"has no argument 'keys'"),
    ],
)
def test_a_wrong_argument_is_refused(variants: ModuleType, given: dict[str, object], message: str) -> None:
    registry.register("advantage", "spo", "my_variants:spo")
    with pytest.raises(UserError, match=message):
        registry.validate_arguments("advantage", "spo", given, "trainer.advantage_args")


def test_a_missing_argument_is_refused(variants: ModuleType) -> None:
    registry.register("advantage", "strict", "my_variants:strict")
    with pytest.raises(UserError, match=r"trainer\.advantage_args\.must: Field required \(given nothing\)"):
        registry.validate_arguments("advantage", "strict", {}, "trainer.advantage_args")


def test_a_third_party_checks_the_values_of_its_arguments(variants: ModuleType) -> None:
    registry.register("advantage", "careful", "my_variants:careful")
    assert registry.bind("advantage", "careful", {"alpha": 1}, "trainer.advantage_args").arguments["alpha"] == 1
    with pytest.raises(UserError, match=r"^trainer\.advantage_args\.alpha=2 is above 1\.$"):
        registry.bind("advantage", "careful", {"alpha": 2}, "trainer.advantage_args")


def test_annotations_that_cannot_be_read_are_the_plugins_fault(variants: ModuleType) -> None:
    registry.register("kl", "unreadable", "my_variants:unreadable")
    with pytest.raises(PluginError, match=r"the annotations of my_variants:unreadable cannot be read"):
        registry.arguments("kl", "unreadable")


def test_the_shared_host_is_what_is_asked() -> None:
    # The built-in names must not depend on what happens to be installed.
    assert default_host() is default_host()
    assert set(registry.BUILT_IN["loss"]) <= set(registry.names("loss"))
