"""A step of two processes, predicted from the phases of one process and from the wire, beside the measured one.

One process is measured with all prompts of a step and with a quarter of them; a line through the two gives the phases
of half of them, which is the share of each of two processes. Reducing gradients is measured by itself, over gloo.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from arguments import say

PROMPTS, STEPS, SKIPPED = 32, 6, 2

WIRE = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
block = torch.zeros({parameters})
for _ in range(3):
    dist.all_reduce(block)
start = time.perf_counter()
for _ in range(10):
    dist.all_reduce(block)
if dist.get_rank() == 0:
    print((time.perf_counter() - start) / 10)
dist.destroy_process_group()
"""


def phases(prompts: int, ranks: int = 1) -> dict[str, float]:
    """Median seconds of the phases of a step, each process on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "grpo_core", "run", "--quiet", "--max-steps", str(STEPS), "--output-dir", folder,
            *(["--nproc", str(ranks)] if ranks > 1 else []), f"trainer.prompts_per_step={prompts}",
            "eval.at_start=false", "eval.at_end=false",
        ]  # fmt: skip
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
        (run,) = Path(folder).glob("run_*")
        lines = [json.loads(line) for line in (run / "logs" / "train_log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "step_s" in line][SKIPPED:]
    return {name: statistics.median(step[name] for step in steps) for name in ("generate_s", "update_s", "step_s")}


def wire(parameters: int) -> float:
    """Seconds of one reduction of gradients in float32."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "wire.py"
        script.write_text(WIRE.format(parameters=parameters))
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = subprocess.run([*command, str(script)], check=True, capture_output=True, text=True, env=environment)
    return float(ran.stdout.strip().splitlines()[-1])


def parameters() -> int:
    """Of the embedded model, which the runs train."""
    from safetensors import safe_open

    folder = resources.files("grpo_core.models") / "tiny"
    with resources.as_file(folder) as path, safe_open(path / "model.safetensors", "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def compare(*, rounds: int = 3, as_json: bool = False) -> None:
    """Print the prediction beside the measurement, in alternating rounds."""
    reduced = wire(parameters())
    results = []
    for _ in range(rounds):
        whole, quarter, measured = phases(PROMPTS), phases(PROMPTS // 4), phases(PROMPTS, ranks=2)
        half = {name: quarter[name] + (whole[name] - quarter[name]) / 3 for name in whole}
        predicted = half["step_s"] + reduced
        results.append({
            "one_process": whole, "half": half, "reduce_s": reduced, "predicted_s": predicted,
            "measured_s": measured["step_s"], "ratio": predicted / measured["step_s"],
        })  # fmt: skip
    if as_json:
        print(json.dumps(results))
        return
    for result in results:
        say(
            f"one process {result['one_process']['step_s']:.2f} s; two predicted {result['predicted_s']:.2f} s, "
            f"measured {result['measured_s']:.2f} s; predicted / measured {result['ratio']:.2f}"
        )
