"""Seconds and memory of one GRPO step against TRL's, on the same model, prompts, lengths and loss (dr_grpo, beta 0).

    python benchmarks/step.py [--shape bytes|large|smollm2] [--tokens 48] … [--steps 4] [--rounds 3] [--json]

The two sides run in turn; the ratio is that of each round. OMP_NUM_THREADS sets the threads of both; without it our
trainer computes small models on one thread, and TRL on all.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict

from arguments import command_line, count, say
from workload import add_arguments, in_turn, ratios, workload_of


def main() -> None:
    """Run both sides in turn and print their ratio."""
    parser = command_line(__doc__)
    add_arguments(parser)
    parser.add_argument("--steps", type=count, default=3, help="steps counted in each round (3)")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of both sides (3)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    work = workload_of(parser, options)
    results = in_turn(work, steps=options.steps, rounds=options.rounds)
    per_round = ratios(results)
    seconds = {side: statistics.median(run.seconds for run in runs) for side, runs in results.items()}
    peaks = {side: max(run.peak_mib for run in runs) for side, runs in results.items()}
    if options.json:
        print(json.dumps({**asdict(work), "seconds": seconds, "peak_mib": peaks, "ratios": per_round}))
        return
    say(
        f"{work.parameters / 1e6:.1f} M parameters, vocabulary {work.vocabulary}, {work.precision}, {work.device}; "
        f"{work.prompts} prompts x {work.group} completions of {work.tokens} tokens"
    )
    for side in results:
        print(f"{side:5}{seconds[side]:8.3f} s a step   peak {peaks[side]:.0f} MiB")
    print(f"TRL / ours  {statistics.median(per_round):.2f} ({min(per_round):.2f} to {max(per_round):.2f})")


if __name__ == "__main__":
    main()
