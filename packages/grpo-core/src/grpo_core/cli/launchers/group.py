"""`grpo launch`: the group of its subcommands."""

from __future__ import annotations

import click

from grpo_core.cli.launchers.sky import sky
from grpo_core.cli.launchers.slurm import slurm
from grpo_core.cli.launchers.ssh import ssh
from grpo_sdk.cli.options import HELP


@click.group(context_settings=HELP)
def launch() -> None:
    """Start a run on another machine; options of grpo run follow those of the launcher.

    If both have an option of the same name, put -- before the options of grpo run.
    """


launch.add_command(slurm)
launch.add_command(ssh)
launch.add_command(sky)
