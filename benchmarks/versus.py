"""A head-to-head that others can repeat: the same prompts, lengths and loss through us and TRL, in one table.

    python benchmarks/versus.py [--shapes bytes large smollm2] [--precisions float32] [--device cpu] [--json]

Random models, 4 prompts × 8 completions of 48 tokens, dr_grpo without a KL term, sampling at temperature 1, AdamW. The
sides run in turn, each in a process of its own. Not run: verl and OpenRLHF, which need CUDA and Ray; TRL with vLLM.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import replace
from importlib.metadata import version

import torch
from arguments import command_line, count, say
from workload import SHAPES, Workload, in_turn, ratios

PRECISIONS = ("float32", "bfloat16")
PACKAGES = ("grpo-core", "trl", "transformers", "torch", "accelerate")


def main() -> None:
    """Print the versions and a row for each shape and precision."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="SHAPE", help=", ".join(SHAPES)
    )
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=["float32"], metavar="TYPE", help=" or ".join(PRECISIONS)
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=count, default=3, help="steps counted in each round (3)")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of both sides (3)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else torch.cpu.get_capabilities()["cpu_name"]
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    if not options.json:
        say(", ".join(f"{name} {number}" for name, number in versions.items()))
        say(f"{machine}, {os.cpu_count()} CPU cores, OMP_NUM_THREADS {threads}")
        print()
        print("| model | type | s: ours | TRL | TRL / ours | MiB: ours | TRL |\n|---|---|---|---|---|---|---|")
    rows = []
    for shape in options.shapes:
        for precision in options.precisions:
            work = replace(Workload(), **SHAPES[shape], device=options.device, precision=precision)
            results = in_turn(work, steps=options.steps, rounds=options.rounds)
            seconds = {side: statistics.median(run.seconds for run in runs) for side, runs in results.items()}
            peaks = {side: max(run.peak_mib for run in runs) for side, runs in results.items()}
            each = ratios(results)
            rows.append({"shape": shape, "precision": precision, "seconds": seconds, "peak_mib": peaks, "ratios": each})
            if not options.json:
                print(
                    f"| {shape} {work.parameters / 1e6:.1f} M | {precision} | {seconds['ours']:.3g} "
                    f"| {seconds['trl']:.3g} | {statistics.median(each):.2f} ({min(each):.2f}–{max(each):.2f}) "
                    f"| {peaks['ours']:.0f} | {peaks['trl']:.0f} |",
                    flush=True,
                )
    if options.json:
        print(json.dumps({"versions": versions, "machine": machine, "threads": threads, "rows": rows}))


if __name__ == "__main__":
    main()
