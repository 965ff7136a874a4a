"""Two machines of a run, as network namespaces joined by a cable, which is cut in the middle of the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from resumed_runs import TASKS

from grpo_core.checkpoints.reader import CheckpointReader
from grpo_core.policy.fresh import fresh_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

TIMEOUT_S = 10
"""`trainer.ddp_timeout` of the run."""

ENDS_S = TIMEOUT_S + 35
"""Beyond the timeout torchrun gives a process half a minute to end by itself."""


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """Names of two namespaces, whose addresses are 10.213.77.1 and 10.213.77.2."""
    if shutil.which("ip") is None:
        pytest.skip("ip (iproute2) is not installed")
    name = uuid.uuid4().hex[:6]
    names = (f"grpo{name}a", f"grpo{name}b")
    try:
        for namespace in names:
            if (done := ip("netns", "add", namespace)).returncode:
                pytest.skip(f"network namespaces are not allowed here: {done.stderr.strip()}")
        if (done := ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")).returncode:
            pytest.skip(f"a pair of virtual interfaces cannot be made here: {done.stderr.strip()}")
        for number, (end, namespace) in enumerate(zip("ab", names, strict=True), start=1):
            for words in (
                ("link", "set", f"{name}{end}", "netns", namespace),
                ("-n", namespace, "addr", "add", f"10.213.77.{number}/24", "dev", f"{name}{end}"),
                ("-n", namespace, "link", "set", f"{name}{end}", "up"),
                ("-n", namespace, "link", "set", "lo", "up"),
            ):
                done = ip(*words)
                assert done.returncode == 0, done.stderr
        yield names
    finally:
        for namespace in names:
            ip("netns", "del", namespace)


def test_both_machines_end_in_time_and_the_last_checkpoint_is_intact(machines: tuple[str, str], tmp_path: Path) -> None:
    for part in fresh_model("tiny", 0):
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "tasks.py").write_text(TASKS)
    command = [sys.executable, "-m", "grpo_core", "run", "--quiet", "--output-dir", str(tmp_path / "runs")]
    command += [
        "--task",
        f"{tmp_path / 'tasks.py'}:letters",
        "--model",
        str(tmp_path / "model"),
        "--max-steps",
        "100000",
    ]
    command += ["eval.size=4", "tracking.monitor=false", "scoring.workers=1", "trainer.max_completion_length=8"]
    command += [
        "trainer.prompts_per_step=4",
        "trainer.num_generations=2",
        "trainer.save_every=2",
        "trainer.keep_last=4",
    ]
    command += [f"trainer.ddp_timeout={TIMEOUT_S}", "--nnodes=2", "--rdzv-endpoint=10.213.77.1:29500"]
    running = []
    for number, namespace in enumerate(machines):
        interface = f"{namespace[4:]}"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
        running.append(
            subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command, "--node-rank", str(number)],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    deadline = time.monotonic() + 120
    while not [*tmp_path.glob("runs/run_*/training_state/step_4")] and time.monotonic() < deadline:
        assert all(process.poll() is None for process in running), [process.communicate() for process in running]
        time.sleep(0.05)
    assert ip("-n", machines[1], "link", "set", f"{machines[1][4:]}", "down").returncode == 0
    cut = time.monotonic()
    results = [process.communicate(timeout=150) for process in running]
    took = time.monotonic() - cut

    assert [process.returncode for process in running] == [1, 1], results
    assert took < ENDS_S, results
    (run,) = (tmp_path / "runs").glob("run_*")
    latest = CheckpointReader(run).path("latest")
    CheckpointReader(run).verify(latest)
    for _, stderr in results:
        assert "the processes of this machine have lost contact with the others" in stderr
        assert f"The last checkpoint is {latest}: grpo resume {run}" in stderr
