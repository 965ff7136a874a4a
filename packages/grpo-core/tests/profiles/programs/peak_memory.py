"""Peak resident memory of a short run, less that after imports, beside the estimate of the dry run.

    python peak_memory.py FOLDER '{"hidden_size": 768, …}'

The model is a random Llama; every completion has the full length and every group something to teach.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import psutil
import torch
import transformers.models.llama.modeling_llama
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.cli.dry_run import dry_run
from grpo_core.config import load_config, resolve
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.policy.memory_meter import memory_meter
from grpo_core.training.start import train
from grpo_sdk import Row, Task, TaskConfig, reward

PROMPT_CHARS = 48
COUNTER = itertools.count()


def load(config: TaskConfig) -> list[Row]:
    """Sixty-four prompts of one length."""
    return [Row(id=str(index)) for index in range(64)]


def prompt(row: Row) -> str:
    """The id, padded."""
    return f"{int(row.id):0{PROMPT_CHARS}d}"


@reward()
def counted(text: str) -> float:
    """Another number for each completion, whatever its text, so that every group teaches."""
    return next(COUNTER) % 8 / 8


long_texts = Task("long_texts", load, prompt, lambda text, row: text, (counted,), row=Row)


def main(folder: Path, shape: str) -> None:
    """Make the model in a process of its own, run two steps, and print both numbers in bytes."""
    model = folder / "model"
    if not model.exists():
        torch.manual_seed(0)
        config = LlamaConfig(
            **json.loads(shape), tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0,
            max_position_embeddings=2048,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(model)
        byte_tokenizer().save_pretrained(model)
        os.execv(sys.executable, [sys.executable, *sys.argv])  # the peak is then that of the run alone
    assert transformers.models.llama.modeling_llama.LlamaForCausalLM
    given = {
        "task": f"{__file__}:long_texts", "model": str(model), "trainer.max_steps": "2",
        "trainer.max_completion_length": "64", "trainer.prompts_per_step": "2", "eval.at_start": "false",
        "eval.at_end": "false", "output_dir": str(folder / "runs"), "scoring.workers": "1",
    }  # fmt: skip
    resolved = resolve(load_config(given, environ={}, dotenv_path=None).config)
    need = dry_run(resolved).need
    assert need is not None
    imported = psutil.Process().memory_info().rss
    train(resolved)
    peak = memory_meter(None).highest() - imported
    print(json.dumps({"estimate": int(need.total), "peak": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
