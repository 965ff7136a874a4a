"""Every loss of the installed TRL on the same numbers: its own `_compute_loss` runs, with a stand-in for the model."""

import inspect
import re
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_core.algorithms.aggregation import token_weights
from grpo_core.algorithms.losses import policy_loss
from grpo_sdk.plugins import variants

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside TRL and datasets, at import
    pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'"),
]

ROWS, TOKENS, MAX_COMPLETION_LENGTH = 6, 9, 16
TOLERANCE = 1e-6  # TRL chooses SAPO's temperature in float32


def batch(seed: int, spread: float) -> Any:
    """A random batch, off-policy enough that every clip has tokens on both sides of it."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    logp = -normal(ROWS, TOKENS).abs() - 0.1
    lengths = torch.tensor([TOKENS, 1, 4, 7, 2, 5])
    mask = torch.arange(TOKENS) < lengths[:, None]
    mask[3, 2] = False  # a token of a tool
    return SimpleNamespace(
        logp=logp.requires_grad_(),
        old=(logp + spread * normal(ROWS, TOKENS)).detach(),
        advantages=torch.tensor([1.5, -0.7, 0.4, -1.2, 0.0, 2.0], dtype=torch.float64),
        mask=mask,
    )


DEFAULTS: dict[str, Any] = {
    "loss_type": "grpo", "importance_sampling_level": "token", "beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.2,
    "off_policy_mask_threshold": None, "top_entropy_quantile": 1.0, "use_vllm": False,
    "vllm_importance_sampling_correction": True, "entropy_coef": 0.0, "delta": None, "use_bias_correction_kl": False,
    "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0, "steps_per_generation": 1, "report_to": [],
}  # fmt: skip
"""What TRL's configuration says, some of it through the trainer's attributes and some through its `args`."""


def trl_loss(trainer: type, data: Any, settings: dict[str, Any], **inputs: Tensor) -> Tensor:
    """`trainer._compute_loss` with `data.logp` as what its model says; `settings` are those of TRL's configuration."""
    from accelerate import Accelerator

    stand_in, settings = trainer.__new__(trainer), {**DEFAULTS, **settings}
    attributes = {
        **settings,
        "args": SimpleNamespace(**settings),
        "accelerator": Accelerator(cpu=True),
        "model": SimpleNamespace(training=True),
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "current_gradient_accumulation_steps": 1,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": settings["entropy_coef"] != 0,
        "use_adaptive_entropy": False,
        "_metrics": {"train": defaultdict(list)},
        "_get_per_token_logps_and_entropies": lambda *args, **kwargs: (data.logp, data.logp.detach().abs(), None),
    }
    for name, value in attributes.items():
        setattr(stand_in, name, value)
    tokens = torch.zeros(ROWS, TOKENS, dtype=torch.int64)
    given = {
        "prompt_ids": tokens[:, :1], "prompt_mask": tokens[:, :1] + 1, "completion_ids": tokens,
        "completion_mask": data.mask.long(), "advantages": data.advantages, "old_per_token_logps": data.old,
        "num_items_in_batch": data.mask.sum(),
    }  # fmt: skip
    loss = stand_in._compute_loss(None, {**given, **inputs})
    assert isinstance(loss, Tensor)
    return loss


CLIP = {"epsilon": 0.2, "epsilon_high": 0.2}
SEQUENCE = {"importance_sampling_level": "sequence"}


def our_loss(name: str, data: Any, options: dict[str, Any]) -> Tensor:
    how = variants.get("loss", name).aggregation
    assert how is not None
    weights = token_weights(data.mask, how, max_completion_length=MAX_COMPLETION_LENGTH)
    arguments = (data.logp, data.old, data.advantages, data.mask, weights)
    return policy_loss(variants.resolve("loss", name), *arguments, **options)


def assert_agree(ours: Tensor, theirs: Tensor, data: Any, *, in_value: bool = True) -> None:
    found, expected = (torch.autograd.grad(loss, data.logp, retain_graph=True)[0] for loss in (ours, theirs))
    assert expected.abs().max() > 1e-3  # or the comparison would show nothing
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    if in_value:
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], float]] = [
    ("grpo", CLIP, {"loss_type": "grpo"}, 0.4),
    ("dr_grpo", CLIP, {"loss_type": "dr_grpo"}, 0.4),
    ("dapo", {}, {"loss_type": "dapo", "epsilon_high": 0.28}, 0.4),
    ("bnpo", CLIP, {"loss_type": "bnpo"}, 0.4),
    ("cispo", {"epsilon_high": 1.3}, {"loss_type": "cispo", "epsilon_high": 1.3}, 0.4),
    ("sapo", {}, {"loss_type": "sapo"}, 0.4),
    ("luspo", {}, {"loss_type": "luspo", "epsilon_low": 2e-3, "epsilon_high": 2.5e-3, **SEQUENCE}, 0.4),
    ("vespo", {}, {"loss_type": "vespo"}, 0.1),  # whose weight of several tokens vanishes where they are far off
    ("gspo", {}, {"epsilon_low": 3e-4, "epsilon_high": 4e-4, **SEQUENCE}, 0.2),
    # with one advantage for a completion, GSPO-token is GSPO
    ("gspo_token", {"epsilon": 0.1, "epsilon_high": 0.1}, {"epsilon_low": 0.1, "epsilon_high": 0.1, **SEQUENCE}, 0.2),
    ("grpo", {**CLIP, "delta": 1.5}, {"delta": 1.5}, 1.0),
    ("gmpo", {}, {"epsilon_low": 0.4, "epsilon_high": 0.4}, 0.5),
]
"""Our loss and its options -> what TRL's configuration says for the same, and how far the batch is off-policy."""


def test_no_loss_type_of_trl_is_missing() -> None:
    from trl import GRPOTrainer

    lines = inspect.getsource(GRPOTrainer._compute_loss).splitlines()
    named = {word for line in lines if "self.loss_type" in line for word in re.findall(r'"(\w+)"', line)}
    assert named == {settings["loss_type"] for _, _, settings, _ in CASES if "loss_type" in settings}


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(("name", "options", "settings", "spread"), CASES)
def test_a_loss_and_its_gradient_are_those_of_trl(
    name: str, options: dict[str, Any], settings: dict[str, Any], spread: float, seed: int
) -> None:
    from trl import GRPOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    data, trainer = batch(seed, spread), GMPOTrainer if name == "gmpo" else GRPOTrainer
    assert_agree(our_loss(name, data, options), trl_loss(trainer, data, settings), data)


@pytest.mark.parametrize(("name", "is_on_policy"), [("seq_ppo", False), ("rloo", True)])
def test_rloo_clips_a_completions_ratio_and_on_policy_has_the_gradient_of_tokens(name: str, is_on_policy: bool) -> None:
    from trl import RLOOTrainer

    data = batch(10, spread=0.2)
    data.old = data.logp.detach() if is_on_policy else data.old
    theirs = trl_loss(RLOOTrainer, data, {}, old_logps=(data.old * data.mask).sum(dim=1))
    assert_agree(our_loss(name, data, CLIP), theirs, data, in_value=not is_on_policy)
