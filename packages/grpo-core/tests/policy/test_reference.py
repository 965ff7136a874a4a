import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import adapter_kinds
import pytest
import torch
from adapter_kinds import disturb
from small_policies import logits, saved_model

from grpo_core.config import LoraConfig
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_sdk.errors import UserError

pytestmark = [  # PEFT warns about an adapter of embeddings
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers` to `True`:UserWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("model"))


MODULES: dict[str, Any] = {
    "linear layers": "all-linear", "embeddings": ["embed_tokens"], "both": ["q_proj", "embed_tokens"],
}  # fmt: skip
"""Modules of an adapter; PEFT names those of embeddings in another way."""


@pytest.fixture
def policy(folder: Path) -> Policy:
    return load_policy(str(folder), device="cpu")


def adapted(folder: Path, modules: Any = "all-linear") -> Policy:
    return load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, r=4, target_modules=modules))


def of_reference(policy: Policy) -> torch.Tensor:
    with policy.reference() as reference:
        return logits(reference)


@pytest.mark.parametrize(("kind", "modules"), [("model", ""), *itertools.product(("base", "reference"), MODULES)])
def test_the_reference_is_the_start_also_in_another_process(
    folder: Path, tmp_path: Path, kind: str, modules: str
) -> None:
    policy = load_policy(str(folder), device="cpu") if kind == "model" else adapted(folder, MODULES[modules])
    if kind == "reference":  # else one that is new, whose start is the base
        disturb(policy.model)
        policy.save(tmp_path / "start")
        policy = load_policy(str(folder), device="cpu", adapter=str(tmp_path / "start"))
    anchor, trained = logits(policy), [parameter.requires_grad for parameter in policy.model.parameters()]
    policy.freeze_reference()
    assert policy.anchor.kind == kind
    policy.anchor.save(tmp_path / "reference", policy.source.name)
    disturb(policy.model)
    assert torch.equal(of_reference(policy), anchor)
    assert not torch.equal(logits(policy), anchor)
    names = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    assert len(names) == sum(trained) and not any("reference" in name for name in names)
    assert kind == "model" or all("lora_" in name for name in names)

    later = str(tmp_path / "later")
    policy.save(tmp_path / "later")
    place = {"name": later} if kind == "model" else {"name": str(folder), "adapter": later}
    resumed = load_policy(**place, device="cpu")
    resumed.load_reference(tmp_path / "reference")
    assert torch.equal(logits(resumed), logits(policy))
    assert torch.equal(of_reference(resumed), anchor)
    assert torch.equal(logits(resumed), logits(policy))


def test_the_reference_goes_into_an_adapter_of_another_library(folder: Path) -> None:
    policy = adapted(folder, MODULES["both"])
    disturb(policy.model)
    start = logits(policy)
    policy.freeze_reference()
    policy.model.add_adapter("theirs", policy.model.peft_config["default"])
    policy.anchor.into_adapter("theirs")
    policy.model.set_adapter("theirs")
    assert torch.equal(logits(policy), start)


def test_a_stored_reference_that_does_not_fit_is_refused(folder: Path, policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no stored reference"):
        policy.load_reference(tmp_path)
    policy.freeze_reference()
    policy.anchor.save(tmp_path / "reference", policy.source.name)
    with pytest.raises(UserError, match="is a model, and this policy trains an adapter"):
        adapted(folder).load_reference(tmp_path / "reference")


def test_a_copy_moves_towards_the_policy_by_a_share(policy: Policy) -> None:
    policy.freeze_reference()
    before = [parameter.clone() for parameter in policy.model.parameters()]
    disturb(policy.model)
    policy.anchor.move(0.25)
    with policy.reference() as reference:
        for moved, start, trained in zip(reference.model.parameters(), before, policy.parameters(), strict=True):
            assert torch.allclose(moved, torch.lerp(start, trained, 0.25))
            assert not moved.requires_grad
    policy.anchor.move(1.0)
    assert torch.equal(of_reference(policy), logits(policy))


def test_a_reference_that_would_change_the_policy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = adapter_kinds.base_model(tmp_path / "base", tied=True)
    saved = str(adapter_kinds.adapter(base, tmp_path / "adapter", "PiSSA"))
    monkeypatch.setattr("grpo_core.policy.reference.copied_as_it_is", lambda model: nullcontext())
    with pytest.raises(UserError, match=r"its reference is another model .*trainer\.beta=0"):
        load_policy(str(base), adapter=saved, device="cpu").freeze_reference()


def test_tokens_that_were_trained_are_part_of_the_reference(tmp_path: Path) -> None:
    base = adapter_kinds.base_model(tmp_path / "base", tied=True)
    saved = adapter_kinds.adapter(base, tmp_path / "adapter", "single tokens")
    policy = load_policy(str(base), adapter=str(saved), device="cpu")
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "trainable_tokens_delta" in name:
                parameter.add_(1.0)  # while every LoRA factor is as new
    start = adapter_kinds.logits(policy.model)
    policy.freeze_reference()
    with policy.reference() as reference:
        assert torch.equal(adapter_kinds.logits(reference.model), start)
