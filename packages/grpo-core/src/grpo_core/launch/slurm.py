"""Submission of runs to SLURM, through submitit."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_sdk.errors import UserError

if TYPE_CHECKING:
    from submitit import Job
    from submitit.slurm.slurm import SlurmExecutor

OWN_OPTIONS = {
    "array": "--seeds or --each",
    "error": "--output-dir",
    "nodes": "--nodes",
    "no-requeue": "--max-requeues 0",
    "ntasks": "--nproc",
    "ntasks-per-node": "--nproc",
    "open-mode": "--output-dir",
    "output": "--output-dir",
    "requeue": "--max-requeues",
    "signal": "--save-seconds",
    "time": "--time",
    "wrap": "the run's settings after the command",
}
"""Option of sbatch that the launcher sets itself -> what to give instead."""

MAX_LISTED = 32
"""Runs of an array that the script lists in comments."""

_LIMIT = re.compile(r"(?:(\d{1,4})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)
"""A time limit as sbatch takes it: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a job asks SLURM for.

    Attributes:
        minutes: Time limit of each start.
        nodes: Nodes of each run.
        gpus: GPUs of each node; 0 leaves the request out.
        processes: Processes of each node.
        save_seconds: Time before the limit at which the run is told to save itself.
        max_requeues: Times that a run may reach its time limit and go on.
        parallel: Runs of an array at a time.
        setup: Lines of the script before the run, such as `module load cuda`.
        sbatch: Other options of sbatch, without dashes; True for those without a value.
    """

    minutes: int
    nodes: int = 1
    gpus: int = 1
    processes: int = 1
    save_seconds: int = 120
    max_requeues: int = 100
    parallel: int = 256
    setup: Sequence[str] = ()
    sbatch: Mapping[str, str | bool] = field(default_factory=dict)


def read_minutes(text: str) -> int:
    """Read a time limit as sbatch does: `90`, `4:00:00`, `2-12`; seconds are rounded up to a minute.

    Raises:
        UserError: it is none.
    """
    match = _LIMIT.fullmatch(text)
    days, first, second, third = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    if match and (match[1] or match[4]):
        total = ((days * 24 + first) * 60 + second) * 60 + third
    else:
        total = first * 60 + second
    if not total:
        raise UserError(f"--time {text[:40]!r}: give minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS, as to sbatch.")
    return -(-total // 60)


def slurm_script(runs: Sequence[Sequence[str]], options: SlurmOptions, output_dir: Path) -> str:
    """Return the script that `submit_runs` gives to sbatch.

    Args:
        runs: Words after `grpo` of each run; several are an array.
        options: What each asks for.
        output_dir: Folder that receives `slurm/JOB`.
    """
    executor = _executor(runs, options, output_dir)
    if len(runs) > 1:
        executor.parameters["map_count"] = len(runs)
    return executor._make_submission_file_text(executor._submitit_command_str, "")


def submit_runs(
    runs: Sequence[Sequence[str]], options: SlurmOptions, output_dir: Path, folders: Sequence[Path] | None = None
) -> list[Job[None]]:
    """Submit runs as one job, or as one array.

    Args:
        runs: As for `slurm_script`.
        options: What each asks for.
        output_dir: Folder that receives `slurm/JOB`, on a file system that the nodes share.
        folders: Folder of each run, if that is not the one of its job.

    Returns:
        The job of each run, whose `job_id` is `123`, or `123_0` in an array.

    Raises:
        UserError: there is no sbatch or srun here, or sbatch refuses the job.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from grpo_core.launch.slurm_job import SlurmRun

    for program in ("sbatch", "srun"):  # submitit looks for srun before it submits an array
        if shutil.which(program) is None:
            raise UserError(
                f"there is no {program} here: submit from a machine of the cluster, such as its login node. --dry-run "
                "prints the script anywhere."
            )
    executor = _executor(runs, options, output_dir)
    places: Sequence[Path | None] = [None] * len(runs) if folders is None else folders
    try:
        with redirect_stderr(StringIO()), executor.batch():  # submitit copies there what the error says
            return [
                executor.submit(SlurmRun(words, options.processes, folder))
                for words, folder in zip(runs, places, strict=True)
            ]
    except (FailedJobError, FailedSubmissionError) as error:
        lines = str(error).splitlines()
        reason = next((line for line in reversed(lines) if "error:" in line), lines[0])
        reason = reason.strip().removeprefix("sbatch: ").removeprefix("error: ")
        raise UserError(f"sbatch refused the job: {reason}") from None


def check_sbatch_options(options: Mapping[str, str | bool]) -> None:
    """Check further options of sbatch.

    Raises:
        UserError: one is set by the launcher itself.
    """
    for name in options:
        if name in OWN_OPTIONS:
            raise UserError(f"--sbatch {name}: grpo launch slurm sets it itself; give {OWN_OPTIONS[name]}.")


def _executor(runs: Sequence[Sequence[str]], options: SlurmOptions, output_dir: Path) -> SlurmExecutor:
    from submitit.slurm.slurm import SlurmExecutor

    class Executor(SlurmExecutor):
        """Also prints scripts where there is no SLURM."""

        @classmethod
        def affinity(cls) -> int:
            return 2

    comments = [f"# {number}: grpo {shlex.join(words)}" for number, words in enumerate(runs[:MAX_LISTED])]
    comments += [f"# and {len(runs) - MAX_LISTED} more"] if len(runs) > MAX_LISTED else []
    executor = Executor(folder=output_dir / "slurm" / "%j", max_num_timeout=options.max_requeues)
    parameters: dict[str, Any] = {
        "time": options.minutes,
        "nodes": options.nodes,
        "ntasks_per_node": 1,
        "gpus_per_node": options.gpus or None,
        "signal_delay_s": options.save_seconds,
        "array_parallelism": options.parallel,
        "stderr_to_stdout": True,
        "wckey": None,  # submitit's own, which some clusters refuse
        "setup": [*comments, *options.setup],
        # submitit's names have underscores, and the last one of a name counts.
        "additional_parameters": {"requeue": True} | {name.replace("-", "_"): v for name, v in options.sbatch.items()},
    }
    executor.update_parameters(**parameters)
    return executor
