"""Weights of short seeded runs: `python tests/golden/recipes.py` compares their SHA-256 with recipes.json.

`--write` writes the file. The bits depend on torch's build and on the model of the processor, by which MKL chooses its
kernels, and which the file names: elsewhere there is nothing to compare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

FILE = Path(__file__).with_suffix(".json")

STEPS = 12
MATH = ("--task", "math.arithmetic", "--model", "tiny")
RUNS = {
    "grpo": (*MATH, "--recipe", "grpo"),
    "dr_grpo": (*MATH, "--recipe", "dr_grpo"),
    "dapo": (*MATH, "--recipe", "dapo"),
    "reinforce_pp": (*MATH, "--recipe", "reinforce_pp"),
    "spiral": ("--task", "games.tictactoe", "--recipe", "spiral"),
}


def machine() -> str:
    """What the bits depend on beside the code."""
    cpu = Path("/proc/cpuinfo")
    known = dict(re.findall(r"^(vendor_id|cpu family|model)\s*: (.*)$", cpu.read_text(), re.M)) if cpu.exists() else {}
    processor = " ".join(known.values()) or platform.processor()
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {processor}"


def weights_of(arguments: tuple[str, ...]) -> str:
    """SHA-256 of the weights after a run with these arguments."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "grpo_core", "run", *arguments, "--max-steps", str(STEPS), "--seed", "0")
        settings = ("eval.at_start=false", "eval.at_end=false", f"output_dir={folder}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.run((*command, *settings), env=environment, check=True, stdout=subprocess.DEVNULL)
        (weights,) = Path(folder).glob("*/training_state/step_final/model/model.safetensors")
        return hashlib.sha256(weights.read_bytes()).hexdigest()


def main() -> int:
    """Run all, and write or compare; the status is 1 where one differs, 2 where the file is of another machine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        found = {"machine": machine(), **{name: weights_of(arguments) for name, arguments in RUNS.items()}}
        FILE.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    expected = json.loads(FILE.read_text())
    if expected["machine"] != machine():
        print(f"the file is of {expected['machine']}; this is {machine()}")
        return 2
    found = {name: weights_of(arguments) for name, arguments in RUNS.items()}
    for name, value in found.items():
        print(f"{name:14s} {'same' if value == expected[name] else f'{value}, not {expected[name]}'}", flush=True)
    return int({"machine": machine(), **found} != expected)


if __name__ == "__main__":
    sys.exit(main())
