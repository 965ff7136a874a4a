from pathlib import Path
from typing import Any, cast

import adapter_kinds
import pytest
import resumed_runs
import torch
from safetensors.torch import load_file
from small_models import small_model
from small_policies import saved_model

from grpo_core import train
from grpo_core.algorithms import cpu_matmul
from grpo_core.config import LoraConfig
from grpo_core.policy.fresh import EOS_TOKEN, byte_tokenizer
from grpo_core.policy.load import choose_device, choose_precision, load_policy
from grpo_core.policy.sharding import Shards
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import model_source


@pytest.mark.parametrize(("name", "message"), [
    ("./nowhere", "no such folder"),
    ("/", r"no config\.json"),
    ("./model.gguf", "no such GGUF file"),
])  # fmt: skip
def test_a_model_that_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        model_source(name)


@pytest.mark.parametrize("emulated", [True, False])
def test_emulated_bfloat16_is_said_to_be_slow(emulated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_matmul, "has_onednn", lambda: True)
    monkeypatch.setattr(cpu_matmul, "multiplies_bfloat16", lambda: not emulated)
    for precision, slow in (("bfloat16", emulated), ("float16", False), ("float32", False)):
        assert ("slower than float32" in choose_precision(precision, torch.device("cpu"))[2]) == slow
    assert "slower" not in choose_precision("bfloat16", torch.device("cuda"))[2]
    device, why = choose_device("cpu")
    assert why == "asked for" and choose_precision("auto", device)[:2] == (torch.float32, None)
    assert choose_precision("bfloat16", device)[:2] == (torch.float32, torch.bfloat16)
    assert choose_precision("float64", device)[:2] == (torch.float64, None)


@pytest.mark.parametrize(("capability", "autocast"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])  # T4, A100
def test_auto_precision_goes_by_the_device(
    monkeypatch: Any, capability: tuple[int, int], autocast: torch.dtype
) -> None:
    # Every CUDA device says that it supports bfloat16: what it can't compute, torch emulates.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: asked.append(device) or capability)
    weights, chosen, why = choose_precision("auto", torch.device("cuda", 1))
    assert (weights, chosen) == (torch.float32, autocast)
    assert asked == [torch.device("cuda", 1)], "the device that is used, not the first one"
    assert f"compute capability {capability[0]}.{capability[1]}" in why
    assert ("scaled loss" in why) == (autocast is torch.float16)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert choose_precision("auto", torch.device("cuda"))[1] is torch.bfloat16, "on ROCm"


def test_what_is_no_adapter_and_unknown_targets_are_refused(tmp_path: Path) -> None:
    folder = saved_model(tmp_path)
    with pytest.raises(UserError, match="adapter_config"):
        load_policy(str(folder), device="cpu", adapter=str(folder))
    with pytest.raises(UserError, match=r"lora\.target_modules"):
        load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, target_modules="nothing_like_it"))


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_trained_biases_of_the_base_are_among_the_weights_of_a_sharded_adapter(tmp_path: Path) -> None:
    base = adapter_kinds.base_model(tmp_path / "base", tied=True, bias=True)
    saved = adapter_kinds.adapter(base, tmp_path / "adapter", "biases of the base, all")
    policy = load_policy(str(base), adapter=str(saved), device="cpu")
    adapter_kinds.disturb(policy.model)
    policy.shards = cast(Shards, object())  # ranks that share it would gather these weights
    policy.save(tmp_path / "saved", policy.weights())
    again = load_policy(str(base), adapter=str(tmp_path / "saved"), device="cpu")
    assert torch.equal(adapter_kinds.logits(again.model), adapter_kinds.logits(policy.model))


# --- GPT-2, as in jrahn/RookWorld-LM-124M; here small and random


def test_a_tied_head_without_a_pad_token_is_trained_as_the_embedding(tmp_path: Path) -> None:
    base = tmp_path / "model"
    (tmp_path / "tasks.py").write_text(resumed_runs.TASKS)
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = None
    small_model("gpt2", torch.float32).save_pretrained(base)
    tokenizer.save_pretrained(base)
    policy, before = load_policy(str(base), device="cpu"), load_file(base / "model.safetensors")
    assert "lm_head.weight" not in before
    assert policy.model.lm_head.weight is policy.model.transformer.wte.weight
    assert policy.tokenizer.pad_token == EOS_TOKEN == policy.tokenizer.eos_token
    assert len(policy.parameters()) == len(list(policy.model.parameters()))

    run = train(resumed_runs.config(tmp_path, tmp_path, "plain", max_steps=1, lr_scheduler_type="constant")).run_dir
    saved = run / "training_state" / "step_final" / "model"
    after = load_file(saved / "model.safetensors")
    assert before.keys() == after.keys()  # the head is still the embedding
    assert not [name for name in before if torch.equal(before[name], after[name])], "all of them moved"
    again = load_policy(str(saved), device="cpu").model
    assert again.lm_head.weight is again.transformer.wte.weight
