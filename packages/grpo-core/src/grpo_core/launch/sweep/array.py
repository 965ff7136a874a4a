"""The runs of a sweep as an array of SLURM jobs, each in its folder of the sweep."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from grpo_core.checkpoints import read_json, write_json
from grpo_core.launch.slurm import SlurmOptions, submit_runs
from grpo_core.launch.sweep.folder import SweepFolder, SweepRun
from grpo_sdk.errors import UserError

SUBMITTED = "slurm.json"
"""File in the folder of a sweep: name of a run -> its last job."""


def submit(folder: SweepFolder, runs: Sequence[SweepRun], options: SlurmOptions) -> dict[str, str]:
    """Submit runs; a job goes on with what its run has saved before.

    Args:
        folder: Folder of the sweep, on a file system that the nodes share.
        runs: Runs to submit.
        options: What each asks for.

    Returns:
        Name of each run -> its job.

    Raises:
        UserError: there is no sbatch here, or it refuses the jobs.
    """
    path = folder.path.absolute()
    folders = [path / "runs" / run.name for run in runs]
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)
    submitted = submit_runs([folder.words_of(run) for run in runs], options, path, folders)
    jobs = {run.name: job.job_id for run, job in zip(runs, submitted, strict=True)}
    write_json(path / SUBMITTED, {**_submitted(folder), **jobs})
    return jobs


def queued(folder: SweepFolder) -> set[str]:
    """Return the names of the runs whose jobs wait or go on; none where there is no SLURM.

    Raises:
        UserError: SLURM does not answer.
    """
    jobs = _submitted(folder)
    if not jobs or shutil.which("squeue") is None:
        return set()
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"squeue failed, so that it is not known which runs wait: {done.stderr.strip()[:300]}")
    alive = set(done.stdout.split())
    return {name for name, job in jobs.items() if job in alive}


def _submitted(folder: SweepFolder) -> dict[str, str]:
    file = folder.path / SUBMITTED
    return {name: str(job) for name, job in read_json(file, "the list of jobs").items()} if file.exists() else {}
