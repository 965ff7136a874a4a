"""Two ranks on the CPU are one, whole or in shards: same rollouts, loss and gradient up to the order of a sum."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launched_ranks import (
    LESS_EXACT,
    STEPS,
    VARIANT,
    Said,
    assert_one,
    edited,
    jobs,
    run_in,
)
from rank_runs import after_updates
from resumed_runs import assert_same, config, log, model_and_tasks
from safetensors.torch import load_file

from grpo_core import train
from grpo_core.cli.main import main
from grpo_core.training.resume import resume

pytestmark = pytest.mark.timeout(240)

SHARDED = {"sharding": "full", "max_steps": STEPS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks")
    return model_and_tasks(path)


FAILING: Mapping[str, Any] = {"variant": "plain", "fail_at": 3}
UNTIL_KILLED = {"max_steps": 1000, "save_every": 1}


def assert_failed_at_once(run: Path, process: subprocess.Popen[str], stderr: str) -> None:
    assert process.returncode != 0
    assert "this rank's accelerator fell off" in stderr
    assert (run / "training_state" / "step_latest").resolve().name == "step_2"


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(folder, tmp_path_factory.mktemp("alone"), VARIANT, max_steps=STEPS)).run_dir


@pytest.fixture(scope="module")
def together(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks make in one launch: folders with a run each, and the differences of `sharded_updates`.

    The last run fails on one rank, which ends the other, who waits for it in the middle of a pass.
    """
    path = tmp_path_factory.mktemp("together")
    with after_updates(3, lambda: signal.raise_signal(signal.SIGTERM)):  # inside the second step's batch
        stopped = train(config(folder, path / "one, then two in shards", VARIANT, max_steps=STEPS))
    assert stopped.interrupted
    edited(stopped.run_dir, "sharding: none", "sharding: full")
    plain = {"variant": VARIANT, "settings": {"max_steps": STEPS}}
    sharded = {"variant": VARIANT, "settings": SHARDED}
    process = jobs(
        folder,
        {"updates": str(path / "updates.json")},
        {**plain, "out": str(path / "whole")},
        {**sharded, "out": str(path / "sharded")},
        {**sharded, "out": str(path / "stopped"), "stop_at_update": 3},
        {"resume": str(path / "stopped")},
        {**sharded, "out": str(path / "two in shards, then one"), "stop_at_update": 3, "gather_weights": True},
        {"resume": str(path / "one, then two in shards")},
        {**FAILING, "out": str(path / "failed"), "settings": {**SHARDED, **UNTIL_KILLED}},
    )
    _, stderr = process.communicate(timeout=230)
    failed = list((path / "failed").glob("run_*"))
    assert failed, stderr
    assert_failed_at_once(failed[0], process, stderr)
    return path


@pytest.mark.slow  # a launch of its own, whose second run fails
def test_ranks_with_different_gpus_agree_before_the_first_step(folder: Path, tmp_path: Path) -> None:
    a100, rtx, t4 = (79.3, "8.0"), (15.7, "8.9"), (14.6, "7.5")
    process = jobs(
        folder,
        {"out": str(tmp_path / "sizes"), "variant": "plain", "gpus": [a100, rtx], "settings": {"max_steps": 1}},
        {"out": str(tmp_path / "precisions"), "variant": "plain", "gpus": [a100, t4]},
    )
    _, stderr = process.communicate(timeout=120)
    text = (run_in(tmp_path / "sizes") / "config.yaml").read_text()
    assert "micro_batch_tokens: 16384" in text
    assert "# settings trainer.micro_batch_tokens=16384" in text
    assert "the smallest that fits every rank: a GPU, 79.3 GiB" in text
    assert process.returncode != 0
    assert "precision is another one on each kind of rank: bfloat16 (a GPU, 79.3 GiB" in stderr
    assert not (tmp_path / "precisions").exists()


@pytest.mark.parametrize("how", ["whole", "sharded"])
def test_two_ranks_are_one(alone: Path, together: Path, how: str) -> None:
    assert_one(alone, run_in(together / how))


def test_a_sharded_run_that_was_stopped_inside_a_batch_ends_bit_for_bit_as_it_would_have(together: Path) -> None:
    assert_same(run_in(together / "sharded"), run_in(together / "stopped"))


def test_a_checkpoint_of_shards_is_that_of_a_whole_model(alone: Path, together: Path) -> None:
    final = [run / "training_state" / "step_final" for run in (alone, run_in(together / "sharded"))]
    files = [sorted(str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()) for each in final]
    assert files[0] == files[1]
    for name in ("optimizer.safetensors", "model/model.safetensors"):
        ours, theirs = (load_file(each / name) for each in final)
        assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}
    config_of = [json.loads((each / "model" / "config.json").read_text()) for each in final]
    assert config_of[0] == config_of[1]


def test_a_run_of_two_ranks_goes_on_in_one_process(alone: Path, together: Path) -> None:
    run = run_in(together / "two in shards, then one")
    with pytest.raises(Exception, match=r"sharding=full shares a model among processes, and this is the only one"):
        resume(run)
    edited(run, "sharding: full", "sharding: none")
    said = Said()
    resume(run, callbacks=[said])
    assert said.choices["ranks"].value == "1, where the checkpoint's were 2, sharded"
    assert said.choices["ranks"].why == "the same prompts, completions and denominators; sums round differently"
    assert_one(alone, run)


def test_a_run_of_one_process_goes_on_in_two_ranks(alone: Path, together: Path) -> None:
    run = run_in(together / "one, then two in shards")
    assert_one(alone, run, exact_steps=2)  # the second step's first half was taken alone, on the same rollouts
    state = json.loads((run / "training_state" / "step_final" / "trainer_state.json").read_text())
    assert len(state["random"]) == 2


@pytest.fixture(scope="module")
def differences(together: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((together / "updates.json").read_text())
    return found


def test_sharded_updates_are_those_of_the_whole_model(differences: dict[str, Any]) -> None:
    assert len(differences) > 10
    for name, case in differences.items():
        if name in LESS_EXACT:
            continue
        for ours, theirs in zip(case["sharded"], case["whole"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True), name
        assert max(case["weights"].values()) < 1e-12, name  # float64: the order of a sum


def test_the_gradient_is_the_sum_over_ranks_and_not_their_mean(differences: dict[str, Any]) -> None:
    assert differences["plain"]["sharded"][0]["grad_norm"] == pytest.approx(0.469575, rel=1e-5)
    assert differences["nobody has"]["sharded"][0]["grad_norm"] == 0.0


def test_a_rank_holds_its_part_of_every_parameter(differences: dict[str, Any]) -> None:
    # Rows are cut in two: of 13 or 25 the first rank holds 7 or 13, and all of a single one (LoRA's r = 1).
    assert {round(share, 3) for share in differences["plain"]["held"]} == {0.5, round(7 / 13, 3), round(13 / 25, 3)}
    assert set(differences["LoRA"]["held"]) > {1.0}


AHEAD = "sampled ahead"


@pytest.fixture(scope="module")
def ahead(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks make that sample the next batch while they train: folders with a run each."""
    path = tmp_path_factory.mktemp("ahead")
    plain = {"variant": AHEAD, "settings": {"max_steps": STEPS}}
    sharded = {"variant": AHEAD, "settings": SHARDED}
    process = jobs(
        folder,
        {**plain, "out": str(path / "whole")},
        {**sharded, "out": str(path / "sharded")},
        {**sharded, "out": str(path / "stopped"), "stop_at_update": 2},
        {"resume": str(path / "stopped")},
        {"variant": AHEAD, "fail_at": 3, "out": str(path / "failed"), "settings": {**SHARDED, **UNTIL_KILLED}},
    )
    _, stderr = process.communicate(timeout=230)
    failed = list((path / "failed").glob("run_*"))
    assert failed, stderr
    assert_failed_at_once(failed[0], process, stderr)
    return path


@pytest.mark.parametrize("how", ["whole", "sharded"])
def test_two_ranks_that_sample_ahead_are_one(folder: Path, tmp_path: Path, ahead: Path, how: str) -> None:
    one = train(config(folder, tmp_path, AHEAD, max_steps=STEPS)).run_dir
    assert_one(one, run_in(ahead / how))


def test_ranks_that_sample_ahead_and_are_stopped_end_bit_for_bit_as_they_would_have(ahead: Path) -> None:
    assert_same(run_in(ahead / "sharded"), run_in(ahead / "stopped"))


@pytest.mark.slow
def test_memory_of_shards_stays_flat_over_two_hundred_steps(folder: Path, tmp_path: Path) -> None:
    job = {"out": str(tmp_path), "variant": VARIANT, "memory": str(tmp_path / "memory.json")}
    process = jobs(folder, {**job, "settings": {"sharding": "full", "max_steps": 200}})
    _, stderr = process.communicate(timeout=230)
    assert process.returncode == 0, stderr
    after = json.loads((tmp_path / "memory.json").read_text())
    assert max(after[150:]) < 1.05 * max(after[20:50])


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 2e-2), ("float16", 2e-3)])
def test_mixed_precision_is_close(differences: dict[str, Any], precision: str, tolerance: float) -> None:
    case = differences[precision]  # the first step: later ones amplify rounding through Adam
    for name in ("loss", "grad_norm", "entropy"):
        assert case["sharded"][0][name] == pytest.approx(case["whole"][0][name], rel=tolerance), name


def test_an_overflow_on_any_rank_is_skipped_on_all(differences: dict[str, Any]) -> None:
    case = differences["float16 that overflows"]
    for steps in (case["sharded"], case["whole"]):
        assert [step["loss_scale"] for step in steps] == [2.0**60, 2.0**59]
    assert max(case["weights"].values()) == 0.0, "no step was taken"


def test_a_loss_that_is_infinite_on_one_rank_skips_the_step_on_all(differences: dict[str, Any]) -> None:
    case = differences["one rank's loss is infinite"]
    assert [step["skipped_updates"] for step in case["sharded"]] == [1.0, 2.0]
    assert all("loss" not in step and "entropy" in step for step in case["sharded"])
    assert not any(name.startswith("adam.") for name in case["weights"]), "no step was taken"


@pytest.mark.slow  # in shards it is the last job of `together`
def test_a_rank_that_fails_ends_the_run_at_once_with_its_error(folder: Path, tmp_path: Path) -> None:
    process = jobs(folder, {**FAILING, "out": str(tmp_path), "settings": UNTIL_KILLED})
    _, stderr = process.communicate(timeout=120)
    assert_failed_at_once(run_in(tmp_path), process, stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "two iterations, two steps a batch",
        "dynamic sampling, noise scale",
        "LoRA",
        "value head",
        "curriculum",
        "a reference that moves",
    ],
)
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_ranks_are_one_with_every_variant(folder: Path, tmp_path: Path, variant: str, sharding: str) -> None:
    settings: dict[str, Any] = {"sharding": sharding}
    if variant.startswith("dynamic") and sharding == "full":
        settings["gradient_noise_scale"] = False  # which shards cannot measure
    unsharded = {**settings, "sharding": "none"}
    one = train(config(folder, tmp_path / "alone", variant, **unsharded)).run_dir
    process = jobs(folder, {"out": str(tmp_path / "together"), "variant": variant, "settings": settings})
    _, stderr = process.communicate(timeout=230)
    assert process.returncode == 0, stderr
    assert_one(one, run_in(tmp_path / "together"))


@pytest.mark.slow
def test_sharded_adapter_and_value_head_are_those_of_one_process_and_resume_bit_for_bit_from_an_archive(
    folder: Path, tmp_path: Path
) -> None:
    variant, archive = "LoRA and value head", f"file:{tmp_path / 'archive'}"
    one = train(config(folder, tmp_path / "alone", variant, max_steps=STEPS)).run_dir
    job = {"variant": variant, "settings": SHARDED}
    stopped = {**job, "out": str(tmp_path / "stopped"), "stop_at_update": 2}
    process = jobs(folder, {**job, "out": str(tmp_path / "whole")}, stopped)
    _, stderr = process.communicate(timeout=150)
    assert_one(one, run_in(tmp_path / "whole"))

    run = run_in(tmp_path / "stopped")
    assert len(log(run)) == 2, stderr
    assert main(["archive", str(run), archive]) == 0
    shutil.rmtree(run)
    assert main(["restore", f"{archive}/{run.name}", str(tmp_path / "restored")]) == 0
    process = jobs(folder, {"resume": str(tmp_path / "restored")})
    _, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert_same(run_in(tmp_path / "whole"), run_in(tmp_path / "restored"))


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_a_signal_stops_all_ranks_together_and_the_run_goes_on(folder: Path, tmp_path: Path, sharding: str) -> None:
    settings = {"max_steps": 2000, "sharding": sharding}
    process = jobs(folder, {"out": str(tmp_path), "variant": "plain", "settings": settings})
    log_file: list[Path] = []
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (log_file and log_file[0].stat().st_size):
        log_file = list(tmp_path.glob("run_*/logs/train_log.jsonl"))
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    run = run_in(tmp_path)
    stopped = (run / "training_state" / "step_latest").resolve()
    state = json.loads((stopped / "trainer_state.json").read_text())
    assert len(state["random"]) == 2  # of each rank
    assert [line["step"] for line in log(run)] == list(range(1, state["step"] + 1))
    if sharding == "full":
        edited(run, "sharding: full", "sharding: none")
    resume(run, additional_steps=1)
    assert log(run)[-1]["step"] == state["step"] + 1


def on_the_command_line(folder: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_core", "run", "--nproc", "2", "--output-dir", str(out)]
    command += ["--task", f"{folder / 'tasks.py'}:letters", "--model", str(folder / "model"), "eval.size=4", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150, check=False)


def test_the_command_line_starts_the_ranks_itself(folder: Path, tmp_path: Path) -> None:
    done = on_the_command_line(
        folder, tmp_path, "--json", "--max-steps", "1", "trainer.prompts_per_step=2", "trainer.num_generations=2",
        "trainer.max_completion_length=4", "trainer.sharding=full", "trainer.gradient_checkpointing=true",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1
    assert "ranks 2, gloo: started as several processes" in done.stderr
    assert "sharding 1 / 2 of the weights in each process" in done.stderr
    assert "device cpu, 1 thread: no accelerator found" in done.stderr


@pytest.mark.slow  # docs/how-to/several-processes.md, whose commands are tested, makes one, too
def test_a_mistake_in_several_processes_is_one_line_and_its_exit_code(folder: Path, tmp_path: Path) -> None:
    done = on_the_command_line(folder, tmp_path, "trainer.prompts_per_step=9")
    assert done.returncode == 2
    assert "2 ranks cannot share the 9 prompts of an optimizer step: 9 / 2 = 4.5" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow  # launches of their own; `test_first_rank` sees the error on each rank
@pytest.mark.parametrize("sharding", ["full", "none"])
def test_weights_that_cannot_be_read_are_one_line(folder: Path, tmp_path: Path, sharding: str) -> None:
    model = shutil.copytree(folder / "model", tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    done = on_the_command_line(folder, tmp_path / "out", "--model", str(model), f"trainer.sharding={sharding}")
    assert done.returncode == 2
    assert done.stderr.count("model.safetensors is damaged or cut off") == 1
    assert "Traceback" not in done.stderr
