"""What the script `grpo` starts: Ctrl-C is handled before anything that takes time is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run `grpo`; see `grpo_sdk.cli.main.main`."""
    try:
        from grpo_sdk.cli.main import main

        return main()
    except KeyboardInterrupt:
        return stopped()


def stopped() -> int:
    """Say that Ctrl-C was pressed; returns the exit code."""
    print("stopped: interrupted.", file=sys.stderr)
    return 130  # as ExitCode.INTERRUPTED, whose module may be what was being imported
