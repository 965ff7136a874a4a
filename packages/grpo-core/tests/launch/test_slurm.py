"""`grpo launch slurm` without a cluster: the script, what sbatch is given, and what a job does at each start."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from grpo_core.checkpoints import CheckpointStore
from grpo_core.launch import slurm_job
from grpo_core.launch.processes import Machine, run_command
from grpo_core.launch.slurm import SlurmOptions, read_minutes, slurm_script
from grpo_core.launch.slurm_job import ONLY_CTRL_C
from grpo_sdk.cli.main import main
from grpo_sdk.errors import UserError

Call = Callable[..., Any]

SLURM = ("launch", "slurm")


def directives(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --").partition("=") for line in script.splitlines() if "#SBATCH" in line]
    return {name: value for name, _, value in lines}


def test_sbatch_gets_what_is_printed(
    sbatch: Path, check_shell: Callable[[str], None], call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--partition=gpu", "--time=1-2", "--gpus=4", "--setup=module load 'cuda/12'", "--sbatch=exclusive")
    words += ("--task", "math.arithmetic?size=100", "--output-dir", "runs of mine", "trainer.max_steps=3")
    assert main([*SLURM, *words, "--dry-run"]) == 0 and not [*sbatch.iterdir()]
    printed = capsys.readouterr().out
    check_shell(printed)
    call(*SLURM, *words)
    assert (sbatch / "script").read_text().strip() == printed.strip()
    given = directives(printed)
    assert (given["partition"], given["time"], given["gpus-per-node"]) == ("gpu", "1560", "4")
    assert {"exclusive", "requeue"} <= {*given} and given["signal"] == "USR2@120"
    assert f"# 0: {shlex.join(['grpo', 'run', '--task', 'math.arithmetic?size=100', 'trainer.max_steps=3'])}" in printed
    assert "\nmodule load 'cuda/12'\n" in printed

    facts = call(*SLURM, *words, "--dry-run")
    assert facts["script"].startswith("#!/bin/bash")
    assert facts["runs"] == [["run", "--task", "math.arithmetic?size=100", "trainer.max_steps=3"]]


def test_jobs_have_ids_folders_and_logs(sbatch: Path, tmp_path: Path, call: Call) -> None:
    jobs = call(*SLURM, "--seeds=1,2", "--each=trainer.beta=0", "--each=trainer.beta=0.1")
    assert [job["job"] for job in jobs] == [f"4711_{number}" for number in range(4)]
    assert jobs[3]["words"] == ["run", "--seed", "2", "trainer.beta=0.1"]
    assert jobs[3]["folder"] == str(tmp_path / "training_runs" / "slurm" / "4711_3")
    assert directives((sbatch / "script").read_text())["array"] == "0-3%4"
    assert [(Path(job["folder"]) / f"{job['job']}_submitted.pkl").is_file() for job in jobs] == [True] * 4


def test_a_refusal_is_one_line(sbatch: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setenv("REFUSES", "sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more information")
    refusal = call(*SLURM, "--partition=gpux", code=2)
    assert refusal == "error: sbatch refused the job: unrecognized option '--x'\n"


def test_time_limits_are_read_as_by_sbatch() -> None:
    limits = {"90": 90, "4:30": 5, "4:00:00": 240, "0:0:1": 1, "2-12": 3600, "1-0:30": 1470, "1-0:0:1": 1441}
    assert {text: read_minutes(text) for text in limits} == limits
    for text in ("", "0", "-1", "1h", "1:2:3:4", "1-", "9" * 30, "١"):
        with pytest.raises(UserError, match="--time"):
            read_minutes(text)


def test_hostile_words_stay_words(tmp_path: Path, check_shell: Callable[[str], None]) -> None:
    hostile = ["run", "--task", "$(touch hacked)`touch hacked`; touch hacked", "--model", "it's"]
    script = slurm_script([hostile], SlurmOptions(minutes=1), tmp_path / "$(touch hacked) '")
    check_shell(script)
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment).returncode == 0
    assert not (tmp_path / "hacked").exists()


def test_several_nodes_meet_at_the_first_one() -> None:
    assert run_command(["run"], 1, Machine(), python="python") == ["python", "-m", "grpo_core", "run"]
    assert run_command(["run"], 4, Machine(), python="python")[-3:] == ["run", "--nproc", "4"]
    several = run_command(["run"], 8, Machine(1, 2, "10.0.0.1", 20007, "7-0"), python="python")
    assert several[:3] == ["python", "-m", "torch.distributed.run"] and several[-3:] == ["-m", "grpo_core", "run"]
    assert {"--nnodes=2", "--nproc-per-node=8", "--rdzv-endpoint=10.0.0.1:20007", "--rdzv-conf=is_host=0"} <= {*several}


def saved_run(folder: Path, name: str, *steps: int | Literal["final"]) -> Path:
    """A run's folder with checkpoints."""
    run = folder / name
    (run / "logs").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 1\n")
    save(run, *steps)
    return run


def save(run: Path, *steps: int | Literal["final"]) -> None:
    for step in steps:
        with CheckpointStore(run).writing(step) as checkpoint:
            (checkpoint / "weights").write_text("1")


def test_a_start_goes_on_where_the_last_one_was_saved(tmp_path: Path) -> None:
    first = ["run", "--output-dir", str(tmp_path)]
    assert slurm_job.next_words(tmp_path, ["run"]) == first
    saved_run(tmp_path, "run_1")  # ended before its first checkpoint
    assert slurm_job.next_words(tmp_path, ["run"]) == first
    run = saved_run(tmp_path, "run_2", 1, 12)
    saved_run(tmp_path, "run_3")
    assert slurm_job.next_words(tmp_path, ["run"]) == ["resume", str(run), "--allow", "hardware"]
    ended = saved_run(tmp_path, "run_4", "final")
    (ended / "logs" / "events.jsonl").write_text('{"kind": "end", "interrupted": false}\n')
    (ended / "summary.json").write_text('{"steps": 20, "interrupted": false}')
    assert slurm_job.next_words(tmp_path, ["run"]) == []


def test_a_run_is_requeued_while_it_gets_on_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = SimpleNamespace(paths=SimpleNamespace(folder=tmp_path / "jobs"))
    monkeypatch.setattr("submitit.slurm.slurm.SlurmJobEnvironment", lambda: environment)
    for job, folder in (
        (slurm_job.SlurmRun(["run"], 1), tmp_path / "jobs"),
        (slurm_job.SlurmRun(["run"], 1, tmp_path / "own"), tmp_path / "own"),  # of a sweep
    ):
        run = saved_run(folder, "run_1", 3)
        assert job.checkpoint() and job.checkpoint()
        save(run, 4)
        assert job.checkpoint() and job.checkpoint()
        assert job.checkpoint() is None


@pytest.mark.parametrize(("number", "copies"), [(signal.SIGUSR2, 1), (signal.SIGTERM, 0)])
def test_a_run_is_told_once_to_stop(number: signal.Signals, copies: int, tmp_path: Path) -> None:
    """SLURM signals every process: the run gets SIGTERM by itself, and ignores SIGUSR2."""
    run = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
os.kill(os.getppid(), int(sys.argv[1]))
time.sleep(0.7)
sys.exit(10 + len(told))
"""
    code, received = slurm_job._supervise([sys.executable, "-c", run, str(int(number))], has_ranks=False)
    assert (code, received) == (10 + copies, True)


def test_ranks_are_told_and_their_launcher_waits_for_them(tmp_path: Path) -> None:
    rank = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
print("up", flush=True)
time.sleep(60)
"""
    launcher = """
import os, signal, subprocess, sys
assert os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] == "SIGINT"
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
rank.stdout.readline()
os.kill(os.getpid(), signal.SIGTERM)  # as SLURM does; it must not end before its rank
os.kill(os.getppid(), signal.SIGTERM)
sys.exit(rank.wait())
"""
    assert slurm_job._supervise([sys.executable, "-c", launcher, rank], has_ranks=True) == (130, True)


def test_torchrun_leaves_sigterm_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.run import config_from_args, parse_args

    for name, value in ONLY_CTRL_C.items():
        monkeypatch.setenv(name, value)
    config, *_ = config_from_args(parse_args(["--nnodes=2", "--nproc-per-node=2", "-m", "grpo_core", "run"]))
    assert getattr(config, "signals_to_handle", "SIGINT") == "SIGINT"
