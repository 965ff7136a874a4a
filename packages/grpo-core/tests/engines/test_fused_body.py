"""The fused body computes what the model's own code does, or is not used."""

from typing import Any

import pytest
import torch
from small_models import TOKENIZER, sampled, small_model

from grpo_core.engines.fused_body import FusedBody
from grpo_core.engines.native import NativeEngine
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

SIZES = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": False},
    "llama-biases": {"kind": "llama", "mlp_bias": True},
    "llama3-rope": {"kind": "llama", "rope_parameters": LLAMA3, "head_dim": 32},
    "mistral": {"head_dim": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
}
SAMPLING = Sampling(max_completion_length=24)
REQUESTS = [
    Request((65 + prompt,) * (3 + 5 * prompt), SampleKey(0, 1, str(prompt), sample))
    for prompt in range(3)
    for sample in range(3)
]


def model(name: str = "llama", **changes: Any) -> Any:
    settings = {"kind": name, **SIZES, **FAMILIES.get(name, {}), **changes}
    made = small_model(settings.pop("kind"), torch.float32, std=None, **settings)
    for parameter_name, parameter in made.named_parameters():  # so that no norm or bias is that of a fresh model
        if "norm" in parameter_name or "bias" in parameter_name:
            torch.nn.init.normal_(parameter, 1.0 if "norm" in parameter_name else 0.0, 0.3)
    return made


def completions(made: Any, *, fuses: bool | None = None, **options: Any) -> list[Completion]:
    engine = NativeEngine(made, TOKENIZER, **options)
    engine._fuses = fuses
    found = sampled(engine, REQUESTS, SAMPLING)
    assert engine._fuses is not None, "decided with the first requests"
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_completions_are_those_of_the_models_own_code(name: str) -> None:
    made = model(name)
    own, fused = completions(made, fuses=False), completions(made)
    assert [each.token_ids for each in own] == [each.token_ids for each in fused]
    for one, other in zip(own, fused, strict=True):
        assert other.logprobs == pytest.approx(one.logprobs, abs=2e-6)


def test_it_is_used_and_follows_the_weights() -> None:
    made = model()
    engine = NativeEngine(made, TOKENIZER)
    before = sampled(engine, REQUESTS, SAMPLING)
    assert engine._fuses is True
    with torch.no_grad():
        made.model.layers[1].mlp.up_proj.weight.mul_(-3.0)
    after = sampled(engine, REQUESTS, SAMPLING)
    assert [each.token_ids for each in after] != [each.token_ids for each in before]
    assert after == completions(made)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.bfloat16, 5), (torch.float16, 20)], ids=["bfloat16", "float16"])
def test_it_is_used_in_the_mixed_precision_of_training(dtype: torch.dtype, scale: float) -> None:
    made = model(num_attention_heads=8, num_key_value_heads=8)
    with torch.no_grad():  # the layers of a fresh model change what they get too little to differ by rounding
        for name, parameter in made.named_parameters():
            parameter.mul_(1 if "norm" in name else scale)
    engine = NativeEngine(made, TOKENIZER)
    prompt = tuple(torch.randint(2, 258, (64,)).tolist())
    with torch.autocast("cpu", dtype=dtype):
        sampled(engine, [Request(prompt, SampleKey(0, 1, "0", 0))], SAMPLING)
    assert engine._fuses is True


def _hooked(made: Any) -> Any:
    made.model.layers[0].register_forward_hook(lambda module, arguments, output: None)
    return made


def _patched(made: Any) -> Any:
    layer = made.model.layers[0].mlp
    layer.forward = lambda x: type(layer).forward(layer, x)
    return made


@pytest.mark.parametrize("make", [
    lambda: model(lora=["q_proj"]).get_base_model(),
    lambda: model("phi3"),
    lambda: model().double(),
    lambda: model(hidden_act="gelu"),
    lambda: _hooked(model()),
    lambda: _patched(model()),
], ids=["adapter", "another shape", "float64", "another activation", "hook", "patched"])  # fmt: skip
def test_what_it_does_not_know_runs_its_own_code(make: Any) -> None:
    assert FusedBody.of(make().model, 4) is None


def test_a_version_that_computes_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    kind = type(made.model.layers[0].mlp)
    own = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: own(self, x) * 1.1)
    with pytest.warns(UserWarning, match=r"sampling runs the code of LlamaForCausalLM as it is: .*differs by"):
        found = completions(made)
    assert found == completions(made, fuses=False)
