"""Every kind of PEFT adapter that a user can give, made on a small model and taken through a run."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from resumed_runs import TASKS, rollouts
from safetensors.torch import load_file
from small_policies import saved_model
from transformers import AutoModelForCausalLM

from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.policy.load import load_policy
from grpo_core.publish import publish
from grpo_core.training.resume import resume
from grpo_core.training.start import train
from grpo_sdk.errors import UserError

EMBEDDINGS = ["q_proj", "embed_tokens"]
KINDS: dict[str, dict[str, Any]] = {
    "LoRA": {},
    "rsLoRA": {"use_rslora": True},
    "DoRA": {"use_dora": True},
    "Gaussian start": {"init_lora_weights": "gaussian"},
    "orthogonal start": {"init_lora_weights": "orthogonal"},
    "EVA": {"init_lora_weights": "eva"},
    "MiCA": {"init_lora_weights": "mica"},
    "PiSSA": {"init_lora_weights": "pissa"},
    "OLoRA": {"init_lora_weights": "olora"},
    "embeddings, tied": {"target_modules": EMBEDDINGS},
    "embeddings, untied": {"target_modules": EMBEDDINGS},
    "embeddings, DoRA": {"target_modules": EMBEDDINGS, "use_dora": True},
    "embeddings, PiSSA": {"target_modules": EMBEDDINGS, "init_lora_weights": "pissa"},
    "whole embeddings": {"modules_to_save": ["embed_tokens"]},
    "whole output layer": {"modules_to_save": ["lm_head"]},
    "whole norms": {"modules_to_save": ["norm"]},
    "single tokens": {"trainable_token_indices": [101, 102]},
    "ranks by layer": {"rank_pattern": {"q_proj": 1}, "alpha_pattern": {"v_proj": 7}},
    "single parameters": {"target_modules": ["q_proj"], "target_parameters": ["mlp.up_proj.weight"]},
    "biases of the base, all": {"bias": "all"},
    "biases of the base, adapted layers": {"bias": "lora_only"},
    "bias of the adapter": {"lora_bias": True},
    "output layer": {"target_modules": ["q_proj", "lm_head"]},
    "embeddings with the output layer": {"target_modules": EMBEDDINGS, "ensure_weight_tying": True},
    "PiSSA, randomized": {"init_lora_weights": "pissa_niter_4"},
    "CorDA": {"init_lora_weights": "corda"},
    "LoftQ": {"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, "loftq_iter": 1}},
    "LoRA-GA": {"init_lora_weights": "lora_ga"},
    "aLoRA": {"alora_invocation_tokens": [101]},
    "replicated layers": {"layer_replication": [[0, 2], [1, 2]]},
    "KaSA": {"kasa_config": {"beta": 0.1}},
    "MonteCLoRA": {"monteclora_config": {"num_samples": 4}},
    "VeLoRA": {"velora_config": {"num_groups": 2}},
    "BD-LoRA": {"use_bdlora": {"nblocks": 2}},
    "Arrow": {"arrow_config": {"top_k": 1}},
    "QALoRA": {"use_qalora": True},
}
"""Name in docs/how-to/adapters.md -> settings beside r=2 on all linear layers."""

_WRITTEN = {"CorDA", "LoftQ", "LoRA-GA", "KaSA", "MonteCLoRA", "VeLoRA", "BD-LoRA", "Arrow", "QALoRA"}
"""Kinds that PEFT makes of data, or of other models: here they are LoRA's files under their name."""

_TIED_ONLY = {"embeddings, tied", "embeddings with the output layer"}
_UNTIED_ONLY = {"embeddings, untied"}


def ties(kind: str) -> list[bool]:
    """Whether embeddings and output layer of the base are one weight, of each base to try."""
    return [True] if kind in _TIED_ONLY else [False] if kind in _UNTIED_ONLY else [True, False]


def base_model(folder: Path, *, tied: bool, bias: bool = False) -> Path:
    """Write a small model and its tokenizer, and the task that it is trained on."""
    saved_model(folder, tied=tied, bias=bias)
    (folder / "tasks.py").write_text(TASKS)
    return folder


def adapter(base: Path, folder: Path, kind: str, *, trained: bool = False) -> Path:
    """Write an adapter of a kind as PEFT does, fresh or with all that is trained moved a little."""
    torch.manual_seed(1)
    settings = {} if kind in _WRITTEN else KINDS[kind]
    config = LoraConfig(**{"task_type": "CAUSAL_LM", "r": 2, "target_modules": "all-linear", **settings})
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    if trained:
        disturb(model)
    model.save_pretrained(folder)
    if kind in _WRITTEN:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | KINDS[kind]))
    return folder


def disturb(model: Any) -> None:
    """Change everything that is trained."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))


def logits(model: Any) -> torch.Tensor:
    """[8, 32, V] over the whole vocabulary."""
    with torch.no_grad():
        found: torch.Tensor = model.eval()((torch.arange(256) % 258).view(8, 32)).logits
    return found


def with_adapter(base: Path, folder: Path) -> Any:
    """What PEFT itself makes of a base and an adapter."""
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder))


def run(base: Path, folder: Path, out: Path, **trainer: Any) -> Path:
    """Train two steps from an adapter."""
    options = {"max_steps": 2, "save_every": 1, "learning_rate": 1e-2, "max_completion_length": 5, **trainer}
    config = RunConfig(
        task=f"{base / 'tasks.py'}:letters", model=str(base), adapter=str(folder), output_dir=str(out), device="cpu",
        trainer=TrainerConfig(prompts_per_step=4, num_generations=4, **options),
        scoring=ScoringConfig(workers=1), eval=EvalConfig(size=4),
    )  # fmt: skip
    return train(config).run_dir


def completions(run_dir: Path) -> list[str]:
    """Texts of the first step."""
    return [each["text"] for each in rollouts(run_dir) if each["step"] == 1]


def outcome(kind: str, folder: Path, *, tied: bool) -> Mapping[str, str]:
    """The row of a kind in the table: what works on such a base (`yes`), and what is refused before the first step.

    Everything else is an error: another model than the one trained, or one that is refused later.
    """
    base = base_model(folder / "base", tied=tied, bias="bias" in kind and "without" not in kind)
    saved = adapter(base, folder / "adapter", kind)
    refused = dict.fromkeys(("run", "KL", "resume", "publish"), "refused")
    try:
        plain = run(base, saved, folder / "plain", beta=0.0)
    except UserError:
        assert not list((folder / "plain").glob("*/logs/rollouts.jsonl")), "it was refused after the first step"
        return refused
    anchored = _anchored(kind, base, saved)
    found, run_dir = {"run": "yes", "KL": "refused"}, plain
    if anchored:
        run_dir = run(base, saved, folder / "kl", beta=0.1)
        assert completions(run_dir) == completions(plain)
        found["KL"] = "yes"
    final = Path("training_state") / "step_final" / "model"
    copied = shutil.copytree(run_dir, folder / "copy")
    resume(copied, from_step=1)
    one, other = (load_file(each / final / "adapter_model.safetensors") for each in (run_dir, copied))
    assert one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
    found["resume"] = "yes"
    merged = AutoModelForCausalLM.from_pretrained(publish(run_dir, str(folder / "merged")).folder)
    trained = logits(with_adapter(base, run_dir / final))
    torch.testing.assert_close(logits(merged), trained, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(trained, logits(with_adapter(base, saved)), atol=1e-3), "nothing was trained"
    found["publish"] = "yes"
    return found


def _anchored(kind: str, base: Path, saved: Path) -> bool:
    """Whether there can be a reference; it leaves the policy as it is and stays its start, of new and trained ones."""
    for adapter_dir in (saved, adapter(base, base.parent / "trained", kind, trained=True)):
        policy = load_policy(str(base), adapter=str(adapter_dir), device="cpu")
        start = logits(policy.model)
        torch.testing.assert_close(start, logits(with_adapter(base, adapter_dir)), atol=1e-6, rtol=1e-6)
        try:
            policy.freeze_reference()
        except UserError:
            return False
        assert logits(policy.model).equal(start)
        disturb(policy.model)
        assert not logits(policy.model).equal(start)
        with policy.reference() as reference:
            assert torch.allclose(logits(reference.model), start, atol=1e-6)
    return True
