"""What the scripts `grpo` and `grpo-run` start: Ctrl-C is handled before anything that takes time is imported."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run `grpo`; see `grpo_core.cli.main.main`."""
    try:
        if "_GRPO_COMPLETE" in os.environ:
            return _complete("grpo")
        from grpo_core.cli.main import main

        return main()
    except KeyboardInterrupt:
        return _stopped()


def main_run() -> int:
    """Run `grpo-run`, which is `grpo run`."""
    try:
        if "_GRPO_COMPLETE" in os.environ:
            return _complete("grpo-run")
        from grpo_core.cli.main import main_run

        return main_run()
    except KeyboardInterrupt:
        return _stopped()


def _complete(program: str) -> int:
    from grpo_core.cli import completion

    return completion.main(program)


def _stopped() -> int:
    print("stopped: interrupted.", file=sys.stderr)
    return 130  # as ExitCode.INTERRUPTED, whose module may be what was being imported
