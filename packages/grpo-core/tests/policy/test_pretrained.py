"""Models and adapters that somebody else saved: damaged ones are refused in one line, and none of their code runs."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from published_runs import make_run
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from grpo_core.config import LoraConfig
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.load import load_policy
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import UserError

Damage = Callable[[Path], None]

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `m`, a model, and `a`, an adapter on it."""
    folder = tmp_path_factory.mktemp("sound")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(folder / "m")
    tokenizer.save_pretrained(folder / "m")
    load_policy(str(folder / "m"), device="cpu", lora=LoraConfig(enabled=True, r=4)).save(folder / "a")
    return folder


@pytest.fixture
def here(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with copies `./m` and `./a` to damage."""
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(file: str = "config.json", **changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        found = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))

    return damage


def content(file: str, data: bytes | int) -> Damage:
    """Other bytes, or the first so many of those that are there."""

    def damage(folder: Path) -> None:
        path = folder / file
        path.write_bytes(path.read_bytes()[:data] if isinstance(data, int) else data)

    return damage


def without(file: str) -> Damage:
    return lambda folder: (folder / file).unlink()


def tensors(change: Callable[[dict[str, torch.Tensor]], object], file: str = WEIGHTS) -> Damage:
    def damage(folder: Path) -> None:
        weights = load_file(folder / file)
        change(weights)
        save_file(weights, folder / file, metadata={"format": "pt"})

    return damage


def pickled(file: str, pickle: str) -> Damage:
    def damage(folder: Path) -> None:
        torch.save(load_file(folder / file), folder / pickle)
        (folder / file).unlink()

    return damage


def code(file: str, **changes: Any) -> Damage:
    """A module in the folder that leaves a mark when it is imported, and the settings that ask for it."""

    def damage(folder: Path) -> None:
        (folder / "modeling_own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
        settings(file, **changes)(folder)

    return damage


def more_tokens(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save_pretrained(folder)


def a_model_too(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/else", "peft_type": "LORA"}')


OWN_MODEL = {"AutoConfig": "modeling_own.C", "AutoModelForCausalLM": "modeling_own.M"}
OWN_TOKENIZER = {"AutoTokenizer": ["modeling_own.T", None]}
LAYER = "model.layers.0.mlp.up_proj.weight"

MODELS: list[tuple[Damage, str]] = [
    (content(WEIGHTS, 1000), "model.safetensors is damaged or cut off"),
    (without(WEIGHTS), "the folder has no model.safetensors."),
    (pickled(WEIGHTS, "pytorch_model.bin"), "its weights are a pickle (pytorch_model.bin), which can run code"),
    (tensors(lambda weights: weights.pop(LAYER)), f"its weights lack {LAYER};"),
    (settings(hidden_size=128), "the shapes of its weights are not those"),
    (settings(num_hidden_layers=2), "its config.json has fewer layers than its weights, which also hold"),
    (settings(num_hidden_layers=10**9), "its config.json says num_hidden_layers=1000000000; a model has 1 to 10000."),
    (settings(num_attention_heads=0), "its configuration: ZeroDivisionError"),
    (settings(model_type="of_nobody"), "its configuration: The checkpoint you are trying to load has model type"),
    (settings(model_type="t5"), "its weights: Unrecognized configuration class"),
    (settings(attn_implementation="owner/kernel"), "its config.json asks for the kernel owner/kernel"),
    (settings(sub={"_attn_implementation": {"x": "a/b"}}), "its config.json asks for the kernel a/b"),
    (content("config.json", 20), "its configuration: It looks like the config file at"),
    (without("tokenizer.json"), "the folder has no tokenizer.json."),
    (content("tokenizer_config.json", b"[]"), "its tokenizer: AttributeError"),
    (more_tokens, "its tokenizer has tokens up to 259 ('</think>'), its embeddings 258 rows"),
    (a_model_too, "the folder holds both a model (config.json) and an adapter (adapter_config.json)"),
    (code("config.json", auto_map=OWN_MODEL, model_type="own"), "it needs code that comes with it, which is never run"),
    (code("tokenizer_config.json", auto_map=OWN_TOKENIZER, tokenizer_class="Own"), "it needs code that comes with it"),
]


def test_a_refusal_logs_nothing(here: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors(lambda weights: weights.pop(LAYER))(here / "m")
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [caplog.handler])
    with pytest.raises(UserError, match=LAYER):
        load_policy("./m", device="cpu")
    assert not caplog.records


def test_code_beside_a_model_that_does_without_it_is_left_alone(here: Path) -> None:
    code("config.json", auto_map=OWN_MODEL)(here / "m")  # llama, which transformers has itself

    assert load_policy("./m", device="cpu").model.config.model_type == "llama"
    assert not (here / "m" / "ran").exists()


def test_memory_that_ends_is_no_fault_of_the_model(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_policy("./m", device="cpu")


LORA = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
ADAPTER_WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def another_layer(weights: dict[str, torch.Tensor]) -> None:
    weights[LORA.replace("layers.0", "layers.9")] = weights[LORA].clone()


MEGATRON = {"megatron_config": {"tensor_model_parallel_size": 1}, "megatron_core": "antigravity"}
ADAPTERS: list[tuple[Damage, str]] = [
    (content(ADAPTER_WEIGHTS, 1000), "adapter_model.safetensors is damaged or cut off"),
    (without(ADAPTER_WEIGHTS), "the folder has no adapter_model.safetensors."),
    (pickled(ADAPTER_WEIGHTS, "adapter_model.bin"), "its weights are a pickle (adapter_model.bin)"),
    (tensors(lambda weights: weights.pop(LORA), ADAPTER_WEIGHTS), "its adapter: UserWarning: Found missing"),
    (tensors(another_layer, ADAPTER_WEIGHTS), "this model has no place for base_model.model.model.layers.9.mlp.up"),
    (settings(CONFIG, r=8), "the shapes of its adapter are not those that the configuration asks for."),
    (settings(CONFIG, target_modules=["none"]), "its adapter: Target modules {'none'} not found"),
    (settings(CONFIG, peft_type="IA3"), "its adapter_config.json says peft_type='IA3'"),
    (settings(CONFIG, **MEGATRON), "its adapter_config.json says megatron_config={"),
    (content(CONFIG, 9), "a/adapter_config.json: the adapter's settings cannot be read"),
]


DAMAGED = [*(("model", *each) for each in MODELS), *(("adapter", *each) for each in ADAPTERS)]


@pytest.mark.parametrize(("kind", "damage", "reason"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_model_or_adapter_is_refused_with_the_reason(
    here: Path, kind: str, damage: Damage, reason: str
) -> None:
    name = kind[0]
    damage(here / name)
    with pytest.raises(UserError) as caught:
        load_policy("./m", adapter="./a" if kind == "adapter" else None, device="cpu")
    assert str(caught.value).startswith(f"--{kind} ./{name} cannot be loaded: {reason}")
    assert "\n" not in str(caught.value)
    assert not (here / name / "ran").exists()


def test_an_adapter_that_is_the_model_is_named_as_the_model(here: Path) -> None:
    content(ADAPTER_WEIGHTS, 1000)(here / "a")
    settings("adapter_config.json", base_model_name_or_path="./m")(here / "a")
    with pytest.raises(UserError, match=r"^--model \./a cannot be loaded: adapter_model"):
        load_policy("./a", device="cpu")


COMMANDS = [
    "run --task math.arithmetic?size=8 --max-steps 1 --model ./m",
    "eval --task math.arithmetic --size 4 --model ./m",
    "warm-start --task math.arithmetic?size=8 --out ./out --model ./m",
    "warm-start --task math.arithmetic?size=8 --out ./out --preset tiny --tokenizer ./m",
    "publish run_1 ./out --merge",
    "chess play --model ./m --opponent random",
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(" ")[0])
def test_every_command_refuses_it_as_a_mistake(here: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    if "run_1" in command:
        make_run(here / "run_1", lora=True, model="./m")
        capsys.readouterr()
    content("tokenizer.json", b"{}")(here / "m")
    code = entry.main(command.split())
    out, err = capsys.readouterr()
    given = "--tokenizer ./m" if "--tokenizer" in command else "--model ./m"
    assert f"error: {given} cannot be loaded: its tokenizer: " in err
    assert (code, out) == (2, "") and "Traceback" not in err


def test_a_damaged_reference_is_named(here: Path) -> None:
    policy = load_policy("./m", device="cpu")
    policy.freeze_reference()
    policy.anchor.save(here / "reference", "x")
    content(WEIGHTS, 1000)(here / "reference" / "model")
    with pytest.raises(UserError, match="reference: the stored reference cannot be loaded: Error while deserializing"):
        policy.load_reference(here / "reference")
