"""What the scripts `grpo` and `grpo-run` start: Ctrl-C is handled before anything that takes time is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run `grpo`; see `grpo_core.cli.main.main`."""
    try:
        from grpo_core.cli.main import main

        return main()
    except KeyboardInterrupt:
        return _stopped()


def main_run() -> int:
    """Run `grpo-run`, which is `grpo run`."""
    try:
        from grpo_core.cli.main import main_run

        return main_run()
    except KeyboardInterrupt:
        return _stopped()


def _stopped() -> int:
    print("stopped: interrupted.", file=sys.stderr)
    return 130  # as ExitCode.INTERRUPTED, whose module may be what was being imported
