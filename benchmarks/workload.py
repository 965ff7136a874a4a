"""The work that benchmarks give to several trainers: a random model, prompts and completions of fixed length, one loss.

Each side runs in a process of its own, in turn: ours, TRL, ours, TRL, …; the first step of each is not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from arguments import count

TASK = f"{Path(__file__).parent / 'step_task.py'}:hashing"
SIDES = ("ours", "trl")


@dataclass(frozen=True)
class Workload:
    """One GRPO step: prompts × group completions, each of `tokens` tokens, by a random Llama.

    Attributes:
        prompts: Prompts of a step, 48 tokens each.
        group: Completions of a prompt.
        tokens: Tokens of a completion.
        vocabulary: Entries of the vocabulary; the tokenizer writes bytes, and entries above them decode to nothing.
        hidden: Width of the model.
        intermediate: Width inside its MLP.
        layers: Layers.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        device: cpu or cuda.
        precision: float32 or bfloat16 (mixed precision, on both sides).
    """

    prompts: int = 4
    group: int = 8
    tokens: int = 48
    vocabulary: int = 258
    hidden: int = 128
    intermediate: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    device: str = "cpu"
    precision: str = "float32"

    @property
    def parameters(self) -> int:
        """Parameters of the model, whose embeddings are tied."""
        width = self.hidden // self.heads * self.kv_heads
        layer = 2 * self.hidden * (self.hidden + width) + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + self.hidden + self.vocabulary * self.hidden


SMOLLM2 = {"vocabulary": 49_152, "hidden": 576, "intermediate": 1536, "layers": 30, "heads": 9, "kv_heads": 3}
SHAPES: dict[str, dict[str, int]] = {"bytes": {}, "large": {"vocabulary": 49_152}, "smollm2": SMOLLM2}
"""Models by name: 0.9 M parameters, the same with a large vocabulary, and the shape of SmolLM2-135M."""


MIN_VOCABULARY = 258
CHOICES = {"device": ("cpu", "cuda"), "precision": ("float32", "bfloat16")}


def make_model(folder: Path, work: Workload) -> None:
    """A random model whose tokenizer writes bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from grpo_core.policy.fresh import byte_tokenizer

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=work.vocabulary, hidden_size=work.hidden, intermediate_size=work.intermediate,
        num_hidden_layers=work.layers, num_attention_heads=work.heads, num_key_value_heads=work.kv_heads,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0, max_position_embeddings=4096,
    )  # fmt: skip
    model, tokenizer = LlamaForCausalLM(config), byte_tokenizer()
    with torch.no_grad():
        # No layer writes to the first coordinate of a hidden state, so it stays positive, and only the end token's
        # embedding is negative there: it is never sampled, and completions have their full length on both sides.
        embeddings = model.get_input_embeddings().weight
        embeddings[:, 0], embeddings[tokenizer.eos_token_id, 0] = 0.5, -30.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run_ours(folder: Path, work: Workload, steps: int, scratch: Path) -> list[dict]:
    """Metrics of each step of our trainer."""
    from grpo_core import train
    from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
    from grpo_sdk.callbacks import Callback, StepRecord

    metrics: list[dict] = []

    class Clock(Callback):
        def on_step(self, record: StepRecord) -> None:
            check_full(record.metrics["completions/mean_length"], work)
            metrics.append({name: record.metrics[name] for name in ("step_s", "generate_s", "update_s")})

    train(
        RunConfig(
            task=TASK, model=str(folder), output_dir=str(scratch), device=work.device, precision=work.precision,
            trainer=TrainerConfig(
                prompts_per_step=work.prompts, num_generations=work.group, max_completion_length=work.tokens,
                max_steps=steps, learning_rate=1e-6,
            ),
            eval=EvalConfig(at_start=False, at_end=False),
        ),
        callbacks=[Clock()],
    )  # fmt: skip
    return metrics


def run_trl(folder: Path, work: Workload, steps: int, scratch: Path) -> list[dict]:
    """Seconds of each step of TRL's GRPOTrainer, with the same task through our adapter."""
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_sdk.interop.trl import dataset, reward_funcs

    stamps: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: object, **kwargs: object) -> None:
            finish(work)
            stamps.append(-time.perf_counter())

        def on_step_end(self, *args: object, **kwargs: object) -> None:
            finish(work)
            stamps[-1] += time.perf_counter()

    trainer = GRPOTrainer(
        model=str(folder),
        reward_funcs=reward_funcs(TASK),
        train_dataset=dataset(TASK),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=str(scratch), max_steps=steps, per_device_train_batch_size=work.prompts * work.group,
            num_generations=work.group, max_completion_length=work.tokens, learning_rate=1e-6, beta=0.0,
            loss_type="dr_grpo", scale_rewards="none", temperature=1.0, use_cpu=work.device == "cpu",
            bf16=work.precision == "bfloat16", gradient_checkpointing=False, report_to="none", save_strategy="no",
            disable_tqdm=True, dataloader_pin_memory=False, logging_steps=1,
        ),
    )  # fmt: skip
    trainer.train()
    for log in trainer.state.log_history:
        check_full(log.get("completions/mean_length", work.tokens), work)
    return [{"step_s": seconds} for seconds in stamps]


def check_full(length: float, work: Workload) -> None:
    """Check that completions have their full length, all but one in a thousand tokens; both sides then do as much."""
    if length < 0.999 * work.tokens:
        raise SystemExit(
            f"completions have {length:g} tokens on average, not {work.tokens}: the sides do unequal work."
        )


def finish(work: Workload) -> None:
    """Wait for what a GPU was given to do; our own steps end where the next one's tokens wait for it."""
    if work.device == "cuda":
        import torch

        torch.cuda.synchronize()


@dataclass(frozen=True)
class Measured:
    """What one process of one side measured: each counted step's metrics, and its peak memory."""

    steps: list[dict]
    peak_mib: float

    @property
    def seconds(self) -> float:
        """Median of a step."""
        return statistics.median(step["step_s"] for step in self.steps)


def measure(folder: Path, side: str, work: Workload, steps: int) -> Measured:
    """Run one side in a process of its own; its first step is not counted.

    Raises:
        SystemExit: it failed; with the end of what it printed.
    """
    command = [sys.executable, __file__, side, str(folder), str(steps), json.dumps(asdict(work))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


def in_turn(work: Workload, *, steps: int, rounds: int, sides: Sequence[str] = SIDES) -> dict[str, list[Measured]]:
    """Run the sides in turn, `rounds` times, on the same model; each step counted `steps` times."""
    results: dict[str, list[Measured]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), work)
        for _ in range(rounds):
            for side in sides:
                results[side].append(measure(Path(folder), side, work, steps + 1))
    return results


def ratios(results: dict[str, list[Measured]]) -> list[float]:
    """TRL's seconds over ours, of each round."""
    return [trl.seconds / ours.seconds for ours, trl in zip(results["ours"], results["trl"], strict=True)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that change the workload."""
    parser.add_argument("--shape", choices=SHAPES, default="bytes", help="model (bytes)")
    for field in fields(Workload):
        option, default = f"--{field.name.replace('_', '-')}", field.default
        if field.name in CHOICES:
            parser.add_argument(option, choices=CHOICES[field.name], help=f"({default})")
        else:
            parser.add_argument(option, type=count, metavar="N", help=f"({default})")


def workload_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Workload:
    """The workload that `add_arguments`' options describe; what cannot be ends with the parser's error."""
    given = {field.name: getattr(options, field.name) for field in fields(Workload)}
    work = Workload(**{**SHAPES[options.shape], **{name: value for name, value in given.items() if value is not None}})
    if work.group < 2:
        parser.error(f"group={work.group} must be at least 2: advantages compare completions of a prompt")
    if work.vocabulary < MIN_VOCABULARY:
        parser.error(f"vocabulary={work.vocabulary} must be at least {MIN_VOCABULARY}: all bytes, and two more")
    if work.hidden % (2 * work.heads):
        parser.error(f"hidden={work.hidden} must be a multiple of 2 x heads={work.heads}")
    if work.heads % work.kv_heads:
        parser.error(f"heads={work.heads} must be a multiple of kv_heads={work.kv_heads}")
    return work


def child(side: str, folder: Path, steps: int, work: Workload) -> None:
    """Run one side and print what it measured."""
    with tempfile.TemporaryDirectory() as scratch:
        run = {"ours": run_ours, "trl": run_trl}[side]
        metrics = run(folder, work, steps, Path(scratch))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    if work.device == "cuda":
        import torch

        from grpo_core.policy.memory_meter import peak_memory_mib

        peak_mib = peak_memory_mib(torch.device("cuda"))  # of the whole process: our trainer resets torch's own
    print("\n" + json.dumps({"steps": metrics[1:], "peak_mib": peak_mib}))


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Workload(**json.loads(sys.argv[4])))
