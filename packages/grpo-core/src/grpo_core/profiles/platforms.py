"""Where a run happens: a cluster's job, a notebook service, a rented machine, or any other."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_CHARS = 80
"""Of a variable's value that is shown."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform and what a run should know of it.

    Attributes:
        name: `SLURM`, `Colab`, `Kaggle`, `Lambda` or `generic`.
        why: How it was recognised.
        advice: What it means for a run; may be empty.
    """

    name: str
    why: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.why}. {self.advice}" if self.advice else self.why


def detect(environ: Mapping[str, str] | None = None, hostname: str | None = None, cwd: Path | None = None) -> Platform:
    """The platform of this process.

    Args:
        environ: By default the process's.
        hostname: By default the machine's.
        cwd: By default the current folder.
    """
    environ = {name: value[:MAX_CHARS] for name, value in (os.environ if environ is None else environ).items()}
    hostname = socket.gethostname() if hostname is None else hostname
    cwd = Path.cwd() if cwd is None else cwd
    colab = next((name for name in ("COLAB_RELEASE_TAG", "COLAB_GPU") if environ.get(name)), None)
    if job := environ.get("SLURM_JOB_ID"):
        nodes = environ.get("SLURM_JOB_NUM_NODES", "")
        nodes = nodes if nodes.isdecimal() else "1"
        return Platform(
            "SLURM",
            f"SLURM_JOB_ID={job}, {nodes} node{'' if nodes == '1' else 's'}",
            "grpo launch slurm saves a run before the time limit, requeues it and goes on; a script of your own needs "
            "sbatch --signal=TERM@120, and grpo resume in the next job. Compute nodes often have no network: fill the "
            "cache on a login node with grpo fetch.",
        )
    if colab:
        advice = "The disk is lost with the session: put output_dir on a mounted Drive."
        return Platform("Colab", f"{colab} is set", advice)
    if "KAGGLE_KERNEL_RUN_TYPE" in environ:
        return Platform(
            "Kaggle",
            "KAGGLE_KERNEL_RUN_TYPE is set",
            "A session ends after 9 to 12 hours: set trainer.max_minutes. Only /kaggle/working is kept; without "
            "internet enabled in the settings, models come from an attached dataset or grpo fetch.",
        )
    if "lambda" in hostname.lower() or "lambda" in cwd.parts:
        why = f"the host is {hostname}" if "lambda" in hostname.lower() else f"the folder is {cwd}"
        return Platform("Lambda", why, "Only the mounted filesystem outlives the instance: put output_dir there.")
    return Platform("generic", "no sign of SLURM, Colab, Kaggle or Lambda")
