"""Time of writing, opening and filtering a report of many completions, in headless Chromium.

uv run python benchmarks/report.py [COMPLETIONS] [--json]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from arguments import command_line, count

SUPPORT = Path(__file__).parents[1] / "packages/grpo-core/tests/support"
sys.path.insert(0, str(SUPPORT))

from chromium import browser  # noqa: E402 # the path comes first
from reported_runs import make_run, rollouts  # noqa: E402

from grpo_core.report.data import report_data  # noqa: E402
from grpo_core.report.page import page  # noqa: E402

COMPLETIONS = 50_000
GROUPS, SAMPLES = 10, 5
PER_STEP = GROUPS * SAMPLES
SEARCHES = ("answer 3 of 99", "question 5", "exact 0", "no such text")
FILTER = """(text) => { const input = document.querySelector('#rollouts input'); input.value = text;
const start = performance.now(); input.dispatchEvent(new Event('input')); return performance.now() - start; }"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("completions", nargs="?", type=count, default=COMPLETIONS, help=f"at least {PER_STEP}")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    arguments = parser.parse_args()
    completions = arguments.completions
    if completions < PER_STEP:
        parser.error(f"completions={completions} must be at least {PER_STEP}: each step of the run has so many")
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        run = make_run(Path(folder) / "run", rollouts(completions // PER_STEP, groups=GROUPS, samples=SAMPLES))
        page(report_data([run], rollouts=0))  # the charts' library is bundled once and kept
        started = time.perf_counter()
        html = Path(folder) / "page.html"
        html.write_text(page(report_data([run], rollouts=completions)))
        seconds, size = time.perf_counter() - started, html.stat().st_size / 1e6
        opened = []
        for _ in range(3):
            shown = chromium.new_page()
            shown.goto(html.as_uri())
            opened.append(shown.evaluate("performance.getEntriesByName('grpo-report-ready')[0].startTime"))
        first = shown.evaluate(FILTER, "warm")
        searches = {text: statistics.median(shown.evaluate(FILTER, text) for _ in range(5)) for text in SEARCHES}
    numbers = {
        "completions": completions, "write_s": seconds, "megabytes": size, "open_ms": statistics.median(opened),
        "first_search_ms": first, "search_ms": searches,
    }  # fmt: skip
    if arguments.as_json:
        print(json.dumps(numbers))
        return
    print(f"wrote {completions} completions in {seconds:.1f} s: {size:.1f} MB")
    print(f"opened in {statistics.median(opened):.0f} ms (median of {len(opened)})")
    print(f"first search {first:.0f} ms")
    for text, spent in searches.items():
        print(f"search {text!r} {spent:.0f} ms")


if __name__ == "__main__":
    main()
