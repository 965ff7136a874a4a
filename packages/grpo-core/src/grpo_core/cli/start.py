"""What the script `grpo-run` starts: Ctrl-C is handled before anything that takes time is imported."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_sdk.cli.start import stopped


def main_run(arguments: Sequence[str] | None = None) -> int:
    """Run `grpo-run`, which is `grpo run`."""
    try:
        from grpo_core.cli.run import run
        from grpo_sdk.cli.main import run_command

        return run_command(run, arguments, "grpo-run")
    except KeyboardInterrupt:
        return stopped()
