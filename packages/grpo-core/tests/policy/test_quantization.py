"""QLoRA: an adapter on a base in 4 bits, trained, stopped, resumed, and merged into what it was trained on."""

import sys
from pathlib import Path
from typing import Any

import pytest
import resumed_runs
import torch
from adapter_kinds import disturb
from pydantic import ValidationError
from small_models import small_model

from grpo_core import resume, train
from grpo_core.checkpoints import read_json
from grpo_core.config import LoraConfig, RunConfig
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_core.policy.quantization import QUANTIZATION_FILE, Quantization
from grpo_core.publish import publish
from grpo_sdk.errors import UserError

pytest.importorskip("bitsandbytes")

IDS = torch.tensor([[5, 17, 40, 9, 33, 8]])
NF4 = LoraConfig(enabled=True, r=2, quantization="nf4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantization")
    (path / "tasks.py").write_text(resumed_runs.TASKS)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": True, "eos_token_id": 256}
    small_model("llama", torch.float32, std=None, **sizes).save_pretrained(path / "model")
    byte_tokenizer().save_pretrained(path / "model")
    return path


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = policy.model.eval()(IDS.to(policy.device)).logits
    return found


def test_only_the_adapter_is_trained_and_the_reference_is_the_base_without_it(folder: Path) -> None:
    policy = load_policy(str(folder / "model"), lora=NF4, device="cpu")
    assert type(policy.model.base_model.model.model.layers[0].mlp.up_proj.base_layer).__name__ == "Linear4bit"
    assert all((".lora_" in name) == p.requires_grad for name, p in policy.model.named_parameters())
    policy.freeze_reference()
    start = logits(policy)
    disturb(policy.model)
    assert not torch.equal(logits(policy), start)
    with policy.reference() as reference:
        assert torch.equal(logits(reference), start)
    assert [each.value for each in policy.choices if each.what == "base"] == ["4 bits (nf4, double), frozen"]


def test_an_adapter_brings_its_base_and_dequantizing_that_changes_nothing(folder: Path, tmp_path: Path) -> None:
    policy = load_policy(str(folder / "model"), lora=NF4, device="cpu")
    disturb(policy.model)
    policy.save(tmp_path / "adapter")
    name, adapter = str(folder / "model"), str(tmp_path / "adapter")
    again = load_policy(name, adapter=adapter, device="cpu")  # nothing says nf4 but the adapter's folder
    assert torch.equal(logits(again), logits(policy))
    assert torch.equal(logits(load_policy(adapter, device="cpu")), logits(policy))
    plain = load_policy(name, adapter=adapter, device="cpu", dequantizes=True)
    assert torch.allclose(logits(plain), logits(policy), atol=1e-5)
    (tmp_path / "adapter" / QUANTIZATION_FILE).unlink()
    on_float = load_policy(name, adapter=adapter, device="cpu")
    assert float((logits(on_float) - logits(policy)).abs().max()) > 1e-3  # another model: 4 bits are coarse


def config(folder: Path, out: Path, **trainer: Any) -> RunConfig:
    options = {"max_steps": 3, "learning_rate": 1e-2, "beta": 0.1, "gradient_checkpointing": True, **trainer}
    return resumed_runs.config(folder, out, "plain", **options).model_copy(update={"lora": NF4})


def test_a_run_is_resumed_bit_for_bit_and_published_merged(folder: Path, tmp_path: Path) -> None:
    straight = train(config(folder, tmp_path / "straight")).run_dir
    stopped = train(config(folder, tmp_path / "stopped", stop_after=1)).run_dir
    resumed_runs.assert_same(straight, resume(stopped).run_dir)
    adapter = straight / "training_state" / "step_final" / "model"
    assert read_json(adapter / QUANTIZATION_FILE, "") == {"kind": "nf4", "double": True}
    trained = load_policy(str(folder / "model"), adapter=str(adapter), device="cpu")
    moved = [name for name, p in trained.model.named_parameters() if ".lora_B." in name and bool(p.any())]
    assert moved  # it has learnt something to merge

    merged, kept = tmp_path / "merged", tmp_path / "kept"
    assert publish(straight, str(merged)).form == "merged"
    assert not (merged / QUANTIZATION_FILE).exists()
    assert torch.allclose(logits(load_policy(str(merged), device="cpu")), logits(trained), atol=1e-5)
    publish(straight, str(kept), merge=False)
    assert (kept / QUANTIZATION_FILE).is_file()


def test_without_bitsandbytes_one_line_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UserError, match=r"lora\.quantization=nf4 needs the package bitsandbytes: .*grpo-core\[qlora\]"):
        load_policy(str(folder / "model"), lora=NF4, device="cpu")


@pytest.mark.parametrize(("settings", "message"), [
    ({"lora": {"quantization": "nf4"}}, r"freezes the model in 4 bits.*Set lora\.enabled=true"),
    ({"lora": NF4, "trainer": {"sharding": "full"}}, r"with trainer\.sharding=full: FSDP2 shards.*sharding=none"),
    ({"lora": NF4, "precision": "float64"}, r"precision=float64: bitsandbytes computes"),
    ({"lora": NF4, "model": "./x.gguf"}, r"\./x\.gguf is quantized in its own way"),
])  # fmt: skip
def test_what_cannot_be_combined_is_refused_before_anything_is_loaded(settings: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RunConfig(**settings)


@pytest.mark.parametrize("text", ['{"kind": "int3", "double": true}', '{"kind": "nf4", "double": 1}'])
def test_a_base_of_an_unknown_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / QUANTIZATION_FILE).write_text(text)
    with pytest.raises(UserError, match="newer version, or damaged"):
        Quantization.of(None, str(tmp_path))


@pytest.mark.gpu
def test_on_an_accelerator_it_trains_and_takes_a_fraction_of_the_memory(folder: Path, tmp_path: Path) -> None:
    made = config(folder, tmp_path).model_copy(update={"device": "cuda"})
    run = train(made).run_dir
    adapter = run / "training_state" / "step_final" / "model"
    on_device, on_cpu = (
        load_policy(str(folder / "model"), adapter=str(adapter), device=device, precision="float32")
        for device in ("cuda", "cpu")
    )
    assert torch.allclose(logits(on_device).cpu(), logits(on_cpu), atol=1e-3)
    layer = on_device.model.base_model.model.model.layers[0].mlp.up_proj.base_layer
    assert layer.weight.nbytes == layer.in_features * layer.out_features // 2
