"""Seconds and memory of one GRPO step against TRL's, on the same model, prompts, lengths and loss.

    python benchmarks/step.py [--vocabulary 258] [--steps 4] [--rounds 3] [--json]

Each side runs in a process of its own, in turn: ours, TRL, ours, TRL, …; the first step of each is not counted. The
model is a random Llama (hidden 128, 4 layers), 4 prompts x 8 completions of 48 tokens, float32, dr_grpo, beta 0.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPTS, GROUP, TOKENS = 4, 8, 48
TASK = f"{Path(__file__).parent / 'step_task.py'}:hashing"


def make_model(folder: Path, vocabulary: int) -> None:
    """A random model whose tokenizer writes bytes; tokens above them decode to nothing."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from grpo_core.policy.fresh import byte_tokenizer

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0,
        max_position_embeddings=512,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = tokenizer.pad_token  # rarely sampled: completions have their full length on both sides
    tokenizer.save_pretrained(folder)


def run_ours(folder: Path, steps: int, scratch: Path) -> list[float]:
    """Step seconds of our trainer."""
    from grpo_core import train
    from grpo_core.callbacks import Callback, StepRecord
    from grpo_core.config import EvalConfig, RunConfig, TrainerConfig

    seconds: list[float] = []

    class Clock(Callback):
        def on_step(self, record: StepRecord) -> None:
            seconds.append(record.metrics["step_s"])

    train(
        RunConfig(
            task=TASK, model=str(folder), output_dir=str(scratch), device="cpu", precision="float32",
            trainer=TrainerConfig(
                prompts_per_step=PROMPTS, num_generations=GROUP, max_completion_length=TOKENS, max_steps=steps,
                learning_rate=1e-6,
            ),
            eval=EvalConfig(at_start=False, at_end=False),
        ),
        callbacks=[Clock()],
    )  # fmt: skip
    return seconds


def run_trl(folder: Path, steps: int, scratch: Path) -> list[float]:
    """Step seconds of TRL's GRPOTrainer with the same task through our adapter."""
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_core.interop.trl import dataset, reward_funcs

    stamps: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: object, **kwargs: object) -> None:
            stamps.append(-time.perf_counter())

        def on_step_end(self, *args: object, **kwargs: object) -> None:
            stamps[-1] += time.perf_counter()

    trainer = GRPOTrainer(
        model=str(folder),
        reward_funcs=reward_funcs(TASK),
        train_dataset=dataset(TASK),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=str(scratch), max_steps=steps, per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP, max_completion_length=TOKENS, learning_rate=1e-6, beta=0.0, loss_type="dr_grpo",
            scale_rewards="none", temperature=1.0, use_cpu=True, bf16=False, gradient_checkpointing=False,
            report_to="none", save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        ),
    )  # fmt: skip
    trainer.train()
    return stamps


def child(side: str, folder: Path, steps: int) -> None:
    """Run one side and print its numbers."""
    run = {"ours": run_ours, "trl": run_trl}[side]
    with tempfile.TemporaryDirectory() as scratch:
        seconds = run(folder, steps, Path(scratch))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print("\n" + json.dumps({"seconds": seconds[1:], "peak_mib": peak_mib}))


def main() -> None:
    """Alternate the two sides and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=258)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]), options.steps)
        return
    found: dict[str, list[dict]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), options.vocabulary)
        for _ in range(options.rounds):
            for side, runs in found.items():
                command = [sys.executable, __file__, "--child", side, folder, "--steps", str(options.steps)]
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
                if done.returncode:
                    sys.exit(f"{side} failed:\n{done.stderr[-2000:]}")
                runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    per_round = [
        statistics.median(trl["seconds"]) / statistics.median(ours["seconds"])
        for ours, trl in zip(found["ours"], found["trl"], strict=True)
    ]
    result = {
        "vocabulary": options.vocabulary,
        "ours_s": statistics.median(s for run in found["ours"] for s in run["seconds"]),
        "trl_s": statistics.median(s for run in found["trl"] for s in run["seconds"]),
        "ratio_median": statistics.median(per_round),
        "ratio_min": min(per_round),
        "ratio_max": max(per_round),
        "ours_peak_mib": max(run["peak_mib"] for run in found["ours"]),
        "trl_peak_mib": max(run["peak_mib"] for run in found["trl"]),
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"vocabulary {options.vocabulary}, {PROMPTS} prompts x {GROUP} completions of {TOKENS} tokens, float32")
    print(f"ours   {result['ours_s']:.3f} s a step   peak {result['ours_peak_mib']:.0f} MiB")
    print(f"TRL    {result['trl_s']:.3f} s a step   peak {result['trl_peak_mib']:.0f} MiB")
    print(f"TRL / ours  {result['ratio_median']:.2f} ({result['ratio_min']:.2f} to {result['ratio_max']:.2f})")


if __name__ == "__main__":
    main()
