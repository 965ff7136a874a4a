from pathlib import Path

import pytest
import torch

from grpo_core.config import LoraConfig
from grpo_core.errors import UserError
from grpo_core.plugins.models import model_source
from grpo_core.policy.fresh import byte_tokenizer, fresh_model
from grpo_core.policy.load import choose_device, choose_precision, load_policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def logits(policy) -> torch.Tensor:
    with torch.no_grad():
        return policy.model(torch.tensor([[5, 6, 7, 8]])).logits


def test_an_unknown_name_suggests_the_near_one_and_loads_nothing() -> None:
    with pytest.raises(UserError, match=r"no model 'tinny'\. Did you mean 'tiny'\?"):
        model_source("tinny")


def test_a_folder_needs_a_config() -> None:
    with pytest.raises(UserError, match="no such folder"):
        model_source("./nowhere")
    with pytest.raises(UserError, match=r"no config\.json"):
        model_source("/")


def test_a_missing_gguf_file_is_named() -> None:
    with pytest.raises(UserError, match=r"no such GGUF file"):
        model_source("./model.gguf")


def test_what_a_name_means() -> None:
    assert model_source("Qwen/Qwen2.5-0.5B-Instruct").kind == "hub"
    assert model_source("tiny").kind == "embedded"


def test_a_hub_model_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"nobody/nothing.*--model \./folder"):
        load_policy("nobody/nothing", device="cpu")


def test_the_byte_tokenizer_writes_any_text_and_reads_it_back() -> None:
    tokenizer = byte_tokenizer()
    text = "57 + 38 = 95\n“π ≈ 3” 🎲"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == 258


def test_auto_precision_on_a_cpu_is_float32_and_says_why() -> None:
    device, why = choose_device("cpu")
    assert why == "asked for"
    assert choose_precision("auto", device)[:2] == (torch.float32, None)
    assert choose_precision("bfloat16", device)[:2] == (torch.float32, torch.bfloat16)
    assert choose_precision("float64", device)[:2] == (torch.float64, None)


@pytest.mark.parametrize(
    ("capability", "autocast"),
    [
        ((6, 1), torch.float16),
        ((7, 0), torch.float16),  # V100
        ((7, 5), torch.float16),  # T4
        ((8, 0), torch.bfloat16),  # A100
        ((8, 9), torch.bfloat16),
        ((9, 0), torch.bfloat16),
        ((12, 0), torch.bfloat16),
    ],
)
def test_auto_precision_goes_by_compute_capability(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], autocast: torch.dtype
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


def test_auto_precision_on_rocm_is_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert choose_precision("auto", torch.device("cuda"))[1] is torch.bfloat16


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"device=cuda: torch .* it has cpu"):
        choose_device("cuda")


def test_a_saved_policy_is_loaded_back_the_same(folder: Path, tmp_path: Path) -> None:
    policy = load_policy(str(folder), device="cpu")
    policy.save(tmp_path / "again")
    again = load_policy(str(tmp_path / "again"), device="cpu")
    assert torch.equal(logits(policy), logits(again))
    assert (tmp_path / "again" / "model.safetensors").is_file()


def test_a_fresh_adapter_trains_only_itself_and_its_reference_is_the_base(folder: Path) -> None:
    base = load_policy(str(folder), device="cpu")
    policy = load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, r=4))
    trained = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    policy.freeze_reference()
    disturb(policy)
    assert not torch.equal(logits(policy), logits(base))
    with policy.reference() as reference:
        assert torch.equal(logits(reference), logits(base))


def test_the_reference_of_a_loaded_adapter_is_that_adapter(folder: Path, tmp_path: Path) -> None:
    made = load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, r=4))
    disturb(made)
    made.save(tmp_path / "adapter")
    policy = load_policy(str(folder), device="cpu", adapter=str(tmp_path / "adapter"))
    start = logits(policy)
    trained_before = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    policy.freeze_reference()
    with policy.reference() as reference:
        assert torch.equal(logits(reference), start)  # KL is 0 at step 0 from a non-zero adapter
    disturb(policy)
    with policy.reference() as reference:
        assert torch.equal(logits(reference), start)
    assert not torch.equal(logits(policy), start)
    assert {name for name, p in policy.model.named_parameters() if p.requires_grad} == trained_before


def test_the_reference_of_a_full_fine_tune_is_a_copy(folder: Path) -> None:
    policy = load_policy(str(folder), device="cpu")
    start = logits(policy)
    policy.freeze_reference()
    disturb(policy)
    with policy.reference() as reference:
        assert torch.equal(logits(reference), start)


@pytest.mark.parametrize("kind", ["base", "adapter", "model"])
def test_the_stored_reference_is_the_same_anchor_in_another_process(folder: Path, tmp_path: Path, kind: str) -> None:
    lora = LoraConfig(enabled=True, r=4)
    options: dict = {} if kind == "model" else {"lora": lora}
    if kind == "adapter":
        start = load_policy(str(folder), device="cpu", lora=lora)
        disturb(start)
        start.save(tmp_path / "start")
        options = {"adapter": str(tmp_path / "start")}
    policy = load_policy(str(folder), device="cpu", **options)
    anchor = logits(policy)
    policy.freeze_reference()
    policy.save_reference(tmp_path / "reference")
    disturb(policy)
    policy.save(tmp_path / "later")

    location = str(tmp_path / "later") if kind == "model" else str(folder)
    adapter = {} if kind == "model" else {"adapter": str(tmp_path / "later")}
    resumed = load_policy(location, device="cpu", **adapter)
    resumed.load_reference(tmp_path / "reference")
    assert torch.equal(logits(resumed), logits(policy))
    with resumed.reference() as reference:
        assert torch.equal(logits(reference), anchor)
    assert torch.equal(logits(resumed), logits(policy))


def test_a_stored_reference_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    policy = load_policy(str(folder), device="cpu")
    with pytest.raises(UserError, match="no stored reference"):
        policy.load_reference(tmp_path)
    policy.freeze_reference()
    policy.save_reference(tmp_path / "reference")
    adapter = load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, r=4))
    with pytest.raises(UserError, match="is a model, and this policy trains an adapter"):
        adapter.load_reference(tmp_path / "reference")


def test_an_adapter_must_be_one(folder: Path) -> None:
    with pytest.raises(UserError, match="adapter_config"):
        load_policy(str(folder), device="cpu", adapter=str(folder))


def test_unknown_lora_targets_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"lora\.target_modules"):
        load_policy(str(folder), device="cpu", lora=LoraConfig(enabled=True, target_modules="nothing_like_it"))


def disturb(policy) -> None:
    """Change everything that is trained."""
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05)
