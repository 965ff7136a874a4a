"""What a sharded model promises its callers, in a world of one process; `test_ranks` has the worlds of two."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from small_policies import frozen, model, policy_of, settings
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.tensor import DTensor

from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.engines.servers.model import TrainedModel
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.policy.parts import gathered_state, whole
from grpo_core.policy.policy import Policy
from grpo_core.policy.sharding import ShardLayout
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.state import optimizer_tensors
from grpo_core.training.update import Updater
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import InfrastructureError, UserError

IDS = torch.tensor([[1, 2, 3, 4]])


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(network: torch.nn.Module | None = None) -> Policy:
    policy = policy_of(network or model(0))  # type: ignore[arg-type] # any model does
    policy.freeze_reference()
    policy.add_value_head(0)
    policy.shard()
    return policy


def hidden(policy: Policy) -> torch.Tensor:
    states = policy.states(IDS, torch.tensor([1]), torch.tensor([3]), [(0,)])
    return states.logprobs()[0]


def test_every_parameter_is_sharded_and_the_passes_are_the_same_also_while_they_are_whole() -> None:
    plain = policy_of(model(0))
    expected = hidden(plain).detach()
    policy = sharded()
    assert all(isinstance(parameter, DTensor) for parameter in policy.model.parameters())
    assert policy.value_head is not None
    assert all(isinstance(parameter, DTensor) for parameter in policy.value_head.parameters())
    with torch.no_grad(), policy.in_step():
        assert torch.equal(hidden(policy), expected)
        with policy.reference() as reference, policy.in_step():  # blocks may be nested
            assert torch.equal(hidden(reference), expected)
        with policy.whole(True):  # held so for many passes
            assert torch.equal(hidden(policy), expected)
            assert not any(isinstance(parameter, DTensor) for parameter in policy.model.parameters())
            assert torch.equal(hidden(policy), expected)
    assert all(isinstance(parameter, DTensor) for parameter in policy.model.parameters())  # nothing is left gathered
    with policy.in_step():  # layers are resharded after a pass again
        hidden(policy).sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())


def test_a_pass_outside_of_in_step_or_after_one_that_was_cut_off_would_wait_for_ever() -> None:
    policy = sharded()
    with pytest.raises(AssertionError, match="runs within in_step"):
        hidden(policy)
    with pytest.raises(StopRequested), policy.in_step(StopRequested):  # which is expected, and leaves it usable
        raise StopRequested

    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError

    with torch.no_grad(), policy.in_step():
        assert torch.isfinite(hidden(policy)).all()
        handle = policy.model.model.layers[1].mlp.register_forward_pre_hook(out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            hidden(policy)
        handle.remove()
        with pytest.raises(InfrastructureError, match=r"cut off on this rank.*Lower engine\.max_batch_tokens"):
            hidden(policy)


def test_an_empty_pass_draws_no_random_number_and_has_no_gradient() -> None:
    policy = sharded()
    assert policy.shards is not None
    before = torch.get_rng_state()
    policy.shards._run_empty(2)  # the policy's, with gradient
    assert torch.equal(torch.get_rng_state(), before)
    gradients = [parameter.grad for parameter in policy.model.parameters()]
    assert all(gradient is not None and not bool(whole(gradient).any()) for gradient in gradients)


def test_saved_weights_are_those_of_the_whole_model(tmp_path: Path) -> None:
    plain, policy = policy_of(model(0)), sharded()
    plain.tokenizer = policy.tokenizer = byte_tokenizer()
    plain.add_value_head(0)
    plain.save(tmp_path / "plain")
    policy.save(tmp_path / "sharded", policy.weights())
    policy.anchor.save(tmp_path / "reference", "x", policy.anchor.gathered_weights())
    for name in ("sharded/model.safetensors", "sharded/value_head.safetensors", "reference/model/model.safetensors"):
        ours, theirs = load_file(tmp_path / name), load_file(tmp_path / "plain" / Path(name).name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name


def test_gathered_weights_of_an_adapter_are_all_of_its_own() -> None:
    lora = LoraConfig(r=2, target_modules=["q_proj", "embed_tokens"], init_lora_weights=False)
    policy = sharded(get_peft_model(model(0), lora, autocast_adapter_dtype=False).double())
    weights, reference = policy.weights(), policy.anchor.gathered_weights()
    assert weights is not None and reference is not None
    trained = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    assert weights.model.keys() == trained and any("lora_embedding_B" in name for name in trained)
    assert {name.replace("reference", "default") for name in reference} == trained
    sent = TrainedModel(policy.model, None, gathered_state).trained_state()
    assert sent is not None and sent.keys() == trained


def test_tied_weights_are_gathered_once_and_a_model_that_does_not_name_its_layers_is_refused() -> None:
    network = model(0)
    network.config.tie_word_embeddings = True
    network.tie_weights()
    policy = sharded(network)
    state = gathered_state(policy.model)
    assert state["lm_head.weight"] is state["model.embed_tokens.weight"]
    nameless = model(0)
    nameless._no_split_modules = set()
    with pytest.raises(UserError, match=r"does not name its decoder layers.*trainer\.sharding=none"):
        sharded(nameless)


def updated(policy: Policy, *, steps: int = 2) -> list[torch.Tensor]:
    """Weights and moments after some optimizer steps, whole."""
    updater = Updater(policy, Algorithm.of(settings(prompts_per_step=4, learning_rate=1e-2)), steps)
    for _ in range(steps):
        updater.update(frozen(updater))
    return [*gathered_state(policy.model).values(), *optimizer_tensors(updater.optimizer.adam).values()]


@pytest.mark.parametrize(("device", "is_offloaded"), [
    ("cpu", True),
    pytest.param("cuda:0", True, marks=pytest.mark.gpu),
    pytest.param("cuda:0", False, marks=pytest.mark.gpu),
])  # fmt: skip
def test_shards_train_as_a_whole_model_also_from_host_memory(device: str, is_offloaded: bool) -> None:
    expected, policy = updated(policy_of(model(0))), policy_of(model(0))
    policy.device = torch.device(device)
    policy.shard(ShardLayout(is_offloaded=is_offloaded))
    assert policy.shards is not None and isinstance(policy.shards._offload, CPUOffloadPolicy) is is_offloaded
    assert causal_lm(policy.model).device == policy.device
    found = updated(policy)
    assert {parameter.device.type for parameter in policy.model.parameters()} == {"cpu" if is_offloaded else "cuda"}
    tolerance = 1e-12 if device == "cpu" else 1e-9
    assert all(torch.allclose(one.cpu(), other, atol=tolerance) for one, other in zip(found, expected, strict=True))
