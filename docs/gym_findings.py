"""The page of what `grpo check` says of the data sets of reasoning-gym.

`python docs/gym_findings.py` checks those that `gym_findings.json` lacks, in half a minute each; remove entries of the
file to check them anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markdown_tables import table

from grpo_tasks_gym.reasoning_gym.catalogue import datasets
from grpo_tasks_gym.reasoning_gym.plugin import SLOW

RESULTS = Path(__file__).with_name("gym_findings.json")
CAUSES = Path(__file__).with_name("gym_findings.toml")

ROWS, SIZE, SLOW_SIZE = 4, 64, 8
MIXTURE = "composite?datasets=leg_counting:2,chain_sum"

INTRODUCTION = """\
# What grpo check finds in reasoning-gym

<!-- Written by docs/generate.py from docs/gym_findings.json, which docs/gym_findings.py makes. -->

Look up what [`grpo check`](../how-to/check-a-task.md) finds in the data sets of reasoning-gym {version}, which
[grpo-tasks-gym](https://pypi.org/project/grpo-tasks-gym/) makes available as {checked} tasks, among them the mixture
`reasoning_gym.{mixture}`. The command of each line is `grpo check 'reasoning_gym.NAME?size={size}' --rows {rows}`,
with {slow_size} rows if making one takes a tenth of a second or more. Six were checked with all their 1,000 rows.

{passed} pass every check that applies to them. The findings are faults of the data sets and their scorers. The tasks do
not change them, so rewards are those of reasoning-gym. Leave such a data set out of a mixture, or write your own task
with another validator: `grpo new legs --from-reasoning-gym leg_counting`.
"""

SCORERS = """\
## Answers that are executed

The scorers of `binary_matrix`, `n_queens`, `spiral_matrix` and `string_insertion` call `eval` on the completion, and
those of `countdown`, `puzzle24`, `polynomial_multiplication`, `simple_integration` and `intermediate_integration` call
`sympy.parse_expr`, which evaluates Python as well: with reasoning-gym alone, a completion can run code in the trainer.
The tasks here pass only literals and mathematical expressions to such a scorer, so `grpo check` finds nothing there.
"""

READ = """\
## What no check sees

Scorers of reasoning-gym {version}, seen by scripts of `findings/`; the tasks pay the same, but for what a line says:

| data set | paid though wrong | not paid though right |
| --- | --- | --- |
| `coin_flip` | `0` gets 1 for 187 of 200 questions | |
| `complex_arithmetic` | `nan` gets 1; invalid in the task here | the imaginary part first gets 0 |
| `decimal_arithmetic` | numbers within 0.001 of the gold get 1, though twelve digits are asked for | |
| `gsm_symbolic` | the gold with the other sign gets 1, and so does `GOLD or 7` | `18,000` and `2 * 3 = 6` get 0.01 |
| `prime_factorization` | the question's number gets 0.5 | `2 * 2 * 5` is not scored (`on_error=abstain`) |
| `puzzle24` | any four numbers of its range that make 24 get 1 | |
| `time_intervals` | an hour too long gets 0.96; `06:00` for every question earns 0.80 | |
| 33, as `lcm`, `gcd`, `aiw` | the gold's share of the text: `-2842` gets 0.8 for 2842 | `The answer is 5.` gets 0.06 |
"""

PASSED = """\
## Data sets without findings
"""


def findings_page() -> str:
    """The page."""
    results = json.loads(RESULTS.read_text())
    causes = tomllib.loads(CAUSES.read_text())
    tasks: Mapping[str, Mapping[str, Any]] = results["tasks"]
    findings = [
        (f"`{name}`", f"`{check}`", finding["text"], causes[name][check])
        for name, task in sorted(tasks.items())
        for check, finding in task["failed"].items()
    ]
    passed = sorted(name for name, task in tasks.items() if not task["failed"])
    skipped = Counter(check for task in tasks.values() for check in task["not_applicable"])
    described = {"version": results["version"], "mixture": MIXTURE, "size": SIZE, "slow_size": SLOW_SIZE, "rows": ROWS}
    return "\n".join(
        (
            INTRODUCTION.format(**described, checked=len(tasks), passed=len(passed)),
            "## Findings\n",
            table(("data set", "check", "what it says", "why"), findings),
            SCORERS,
            READ.format(version=results["version"]),
            PASSED,
            f"{', '.join(f'`{name}`' for name in passed)}.\n",
            f"Checks that do not apply: {', '.join(f'`{check}` to {n}' for check, n in sorted(skipped.items()))}.",
            "",
        )
    )


def check(name: str) -> dict[str, Any]:
    """What the checks say of a task of reasoning-gym."""
    size = SLOW_SIZE if name in SLOW else SIZE
    spec = f"reasoning_gym.{name}{'&' if '?' in name else '?'}size={size}"
    command = [sys.executable, "-m", "grpo_core", "check", spec, "--rows", str(ROWS), "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with exit code {ran.returncode}.")
    (task,) = json.loads(ran.stdout)["tasks"]
    return condensed(task)


def condensed(task: Mapping[str, Any]) -> dict[str, Any]:
    """What the page needs of a task's report."""
    results = task["results"]
    return {
        "failed": {
            result["check"]: {"text": result["text"], "example": result["example"]}
            for result in results
            if result["status"] == "failed"
        },
        "not_applicable": [result["check"] for result in results if result["status"] == "not applicable"],
    }


def main() -> None:
    """Check what is not in the file yet, and store each at once."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"tasks": {}}
    results["version"] = version("reasoning-gym")
    for name in [*datasets(), MIXTURE]:
        if name not in results["tasks"]:
            results["tasks"][name] = check(name)
            print(name, *results["tasks"][name]["failed"], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
