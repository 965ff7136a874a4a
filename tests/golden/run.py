"""Run a file of golden cases through the public functions: `python tests/golden/run.py FILE.json [--dtype float32]`.

No formula of its own: each operation in `ops/` turns ragged lists into tensors, calls the product, and turns tensors
back. Prints every failing id with its largest error and, last, `N passed, M failed`; exits 1 on a failure.
"""

import argparse
import sys
from pathlib import Path

import orjson
import torch

sys.path.insert(0, str(Path(__file__).parent))

import compare
from ops import OPERATIONS

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def main(arguments: list[str] | None = None) -> int:
    """Run the file and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="float64")
    options = parser.parse_args(arguments)
    cases = orjson.loads(options.file.read_bytes())["cases"]
    failed = 0
    for case in cases:
        problem = run(case, DTYPES[options.dtype])
        if problem is not None:
            failed += 1
            print(f"{case['id']}: {problem}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


def run(case: dict, dtype: torch.dtype) -> str | None:
    """Run one case; return what is wrong with it, or None."""
    operation = OPERATIONS.get(case["op"])
    if operation is None:
        return f"no operation {case['op']!r}"
    try:
        result = operation(compare.decoded(case["inputs"]), dtype)
    except Exception as error:  # a case that raises is a failing case; the others still run
        return f"{type(error).__name__}: {error}"
    return compare.difference(result, compare.decoded(case["expected"]), compare.tolerance(case, dtype))


if __name__ == "__main__":
    sys.exit(main())
