"""`grpo eval` beside transformers' `generate`: the same prompts, each with the same examples before its question.

    python benchmarks/evaluation.py [--rows 64] [--examples 8] [--tokens 96] [--rounds 1] [--json]

Rows are sums of words, `examples` of them in every prompt, as `template=few_shot` writes them; the model is random, of
SmolLM2-135M's shape, with Qwen3's tokenizer (`uv sync --group tokenizers`), and draws no end token, so that all
completions have `--tokens` tokens, greedy. Ours is `evaluate(…)`, scores included: as it is, surprisal measured, and
with `surprisal=False`. `generate` gets the prompts in batches of as many rows, padded on the left. Each side runs in a
process of its own, in turn; times are those of the whole job, the loading of the model included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from agents import Work, make_model
from arguments import command_line, count

SIDES = ("ours", "ours without surprisal", "generate")
BATCH = 64
NAMES = ("Ann", "Ben", "Cem", "Dora", "Eli", "Fay", "Gus", "Hana")


def problem(number: int) -> tuple[str, str]:
    """A question in words, and its answer with a solution, of about the length that those of GSM8K have."""
    name, other = NAMES[number % 8], NAMES[(number // 8) % 8]
    a, b, c = 3 + number % 17, 2 + number % 5, 4 + number % 11
    question = (
        f"{name} has {a} boxes with {b} pencils in each. {other} gives {name} {c} more pencils, and then {name} puts "
        f"all of them on the table. How many pencils are on the table?"
    )
    return question, f"There are {a} * {b} = {a * b} pencils in boxes, and {c} more make {a * b + c}.\n#### {a * b + c}"


def prompts(rows: int, examples: int) -> list[str]:
    """Prompts of the rows, which begin with the same examples."""
    shown = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in map(problem, range(examples)))
    return [f"{shown}Question: {problem(number)[0]}\nAnswer:" for number in range(examples, examples + rows)]


def run_ours(folder: Path, rows: int, examples: int, tokens: int, surprisal: bool = True) -> int:
    """Evaluate; returns how many tokens were sampled."""
    from grpo_core import evaluate
    from grpo_sdk import Row, Task, reward

    texts = prompts(rows, examples)

    @reward(1.0)
    def long(answer: str) -> float:
        return float(len(answer) > 0)

    task = Task(
        "words", lambda: [Row(id=str(index)) for index in range(rows)], lambda row: texts[int(row.id)],
        lambda text: text, (long,), row=Row,
    )  # fmt: skip
    done: Any = evaluate(
        task, str(folder), size=rows, temperature=0.0, max_completion_length=tokens, surprisal=surprisal, device="cpu",
        precision="float32", batch_size=BATCH,
    )  # fmt: skip
    (found,) = done.values()
    return round(found["mean_length"] * rows)


def run_generate(folder: Path, rows: int, examples: int, tokens: int) -> int:
    """The same by `generate`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts, sampled = prompts(rows, examples), 0
    for start in range(0, rows, BATCH):
        batch = tokenizer(texts[start : start + BATCH], return_tensors="pt", padding=True)
        with torch.inference_mode():
            out = model.generate(**batch, do_sample=False, max_new_tokens=tokens)
        sampled += out.shape[0] * (out.shape[1] - batch["input_ids"].shape[1])
    return sampled


def child(side: str, options: dict[str, Any]) -> None:
    """Run one side and print what it took."""
    import torch

    torch.set_num_threads(options.pop("threads"))
    folder = Path(options.pop("folder"))
    started, cpu = time.perf_counter(), time.process_time()
    sides = (run_ours, partial(run_ours, surprisal=False), run_generate)
    sampled = dict(zip(SIDES, sides, strict=True))[side](folder, **options)
    wanted = options["rows"] * options["tokens"]
    if sampled != wanted:
        raise SystemExit(f"{side} sampled {sampled} tokens, not {wanted}")
    print(json.dumps({"s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}))


def main() -> None:
    """Run the sides in turn and print their times."""
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=count, default=64, help="held-out rows (64)")
    parser.add_argument("--examples", type=count, default=8, help="in every prompt (8)")
    parser.add_argument("--tokens", type=count, default=96, help="of a completion (96)")
    parser.add_argument("--layers", type=count, default=30, help="of the model (30)")
    parser.add_argument("--threads", type=count, default=2, help="of torch (2)")
    parser.add_argument("--rounds", type=count, default=1, help="rounds of both sides (1)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), Work(layers=options.layers))
        given = {name: getattr(options, name) for name in ("rows", "examples", "tokens", "threads")}
        variables = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        for _ in range(options.rounds):
            rounds.append({})
            for side in SIDES:
                command = [sys.executable, __file__, side, json.dumps({**given, "folder": folder})]
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
                if done.returncode:
                    raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
                rounds[-1][side] = json.loads(done.stdout.strip().splitlines()[-1])
    if options.json:
        print(json.dumps({**given, "layers": options.layers, "rounds": rounds}))
        return
    for each in rounds:
        for side, took in each.items():
            wall, cpu = (each["generate"][key] / took[key] for key in ("s", "cpu_s"))
            print(f"{options.rows} rows, {side}: {took['s']:.1f} s, {wall:.2f} times as fast, {cpu:.2f} by CPU time")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        child(sys.argv[1], json.loads(sys.argv[2]))
    else:
        main()
