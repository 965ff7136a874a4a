"""Four ranks in two groups, each of which holds all shards, are one rank up to the order of a sum."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import rank_runs
from launched_ranks import (
    LESS_EXACT,
    STEPS,
    VARIANT,
    Said,
    assert_one,
    edited,
    jobs,
    launched,
    run_in,
)
from resumed_runs import assert_same, config, log, model_and_tasks
from sharded_updates import CASES

from grpo_core import train
from grpo_core.training.resume import resume
from grpo_core.training.stored_run import INFO_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # four ranks; test_ranks.py has two

OFFLOADED = ["plain", "KL against a copy", "LoRA", "value head", "clipped", "probes"]

HYBRID = {"sharding": "hybrid", "shard_size": 2, "max_steps": STEPS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_and_tasks(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(folder, tmp_path_factory.mktemp("alone"), VARIANT, max_steps=STEPS)).run_dir


@pytest.fixture(scope="module")
def together(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks make in one launch: folders with a run each, and the differences of `sharded_updates`."""
    path = tmp_path_factory.mktemp("hybrid")
    hybrid = {"variant": VARIANT, "settings": HYBRID}
    process = jobs(
        folder,
        {"updates": str(path / "updates.json"), "layout": {"size": 2}},
        {"updates": str(path / "offloaded.json"), "layout": {"size": 2, "is_offloaded": True}, "cases": OFFLOADED},
        {**hybrid, "out": str(path / "run")},
        {**hybrid, "out": str(path / "stopped"), "stop_at_update": 3},
        {"resume": str(path / "stopped")},
        {**hybrid, "out": str(path / "to be resumed"), "stop_at_update": 3, "gather_weights": True},
        size=4,
    )
    _, stderr = process.communicate(timeout=280)
    assert process.returncode == 0, stderr
    return path


@pytest.mark.parametrize(("file", "cases"), [("updates.json", len(CASES)), ("offloaded.json", len(OFFLOADED))])
def test_updates_are_those_of_the_whole_model(together: Path, file: str, cases: int) -> None:
    differences: dict[str, Any] = json.loads((together / file).read_text())
    assert len(differences) == cases
    for name, case in differences.items():
        if name in LESS_EXACT:
            continue
        for ours, theirs in zip(case["sharded"], case["whole"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True), name
        assert max(case["weights"].values()) < 1e-12, name  # float64: the order of a sum
    # A half of 13 or 25 rows, not a quarter.
    assert {round(share, 3) for share in differences["plain"]["held"]} == {0.5, round(7 / 13, 3), round(13 / 25, 3)}


def test_an_overflow_in_any_group_is_skipped_in_all(together: Path) -> None:
    case = json.loads((together / "updates.json").read_text())["float16 that overflows"]
    assert [step["loss_scale"] for step in case["sharded"]] == [2.0**60, 2.0**59]
    assert max(case["weights"].values()) == 0.0, "no step was taken"


def test_a_run_of_four_ranks_is_that_of_one(alone: Path, together: Path) -> None:
    assert_one(alone, run_in(together / "run"))


def test_a_run_that_was_stopped_ends_bit_for_bit_as_it_would_have(together: Path) -> None:
    assert_same(run_in(together / "run"), run_in(together / "stopped"))


def test_a_run_of_four_ranks_goes_on_in_one_process(alone: Path, together: Path) -> None:
    run = run_in(together / "to be resumed")
    edited(run, "sharding: hybrid", "sharding: none")
    edited(run, "  shard_size: 2\n", "")
    said = Said()
    resume(run, callbacks=[said])
    assert said.choices["ranks"].value == "1, where the checkpoint's were 4, sharded by 2"
    assert_one(alone, run)


@pytest.mark.slow  # launches of their own
@pytest.mark.parametrize("variant", ["sampled ahead", "LoRA", "value head", "a reference that moves"])
def test_four_ranks_are_one_with_every_variant(folder: Path, tmp_path: Path, variant: str) -> None:
    one = train(config(folder, tmp_path / "alone", variant, max_steps=STEPS)).run_dir
    process = jobs(folder, {"out": str(tmp_path / "hybrid"), "variant": variant, "settings": HYBRID}, size=4)
    _, stderr = process.communicate(timeout=230)
    assert process.returncode == 0, stderr
    assert_one(one, run_in(tmp_path / "hybrid"))


@pytest.mark.slow
@pytest.mark.parametrize("shard_size", [2, None])
def test_two_agents_of_two_ranks_share_within_each_and_are_one(
    folder: Path, alone: Path, tmp_path: Path, shard_size: int | None
) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    job = {"variant": VARIANT, "settings": {**HYBRID, "shard_size": shard_size}}
    todo = [
        {**job, "out": str(tmp_path / "run")},
        {**job, "out": str(tmp_path / "stopped"), "stop_at_update": 3},
        {"resume": str(tmp_path / "stopped")},
    ]
    options = ("--nnodes=2", f"--rdzv-endpoint=localhost:{port}", f"--rdzv-id={shard_size}", rank_runs.__file__)
    agents = [launched(*options, str(folder), json.dumps(todo)) for _ in range(2)]
    errors = [agent.communicate(timeout=230)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], errors
    assert_one(alone, run_in(tmp_path / "run"))
    assert_same(run_in(tmp_path / "run"), run_in(tmp_path / "stopped"))
    info = json.loads((run_in(tmp_path / "run") / "training_state" / "step_final" / INFO_FILE).read_text())
    assert (info["distributed_info"]["world_size"], info["distributed_info"]["shard_size"]) == (4, 2)


@pytest.mark.slow
def test_a_run_of_four_ranks_goes_on_in_two_that_share_all(folder: Path, tmp_path: Path) -> None:
    one = train(config(folder, tmp_path / "alone", VARIANT, max_steps=STEPS)).run_dir
    job = {"out": str(tmp_path / "hybrid"), "variant": VARIANT, "settings": HYBRID, "stop_at_update": 3}
    _, stderr = jobs(folder, job, size=4).communicate(timeout=230)
    run = run_in(tmp_path / "hybrid")
    assert len(log(run)) < STEPS, stderr
    edited(run, "sharding: hybrid", "sharding: full")
    edited(run, "  shard_size: 2\n", "")
    process = jobs(folder, {"resume": str(tmp_path / "hybrid")}, size=2)
    _, stderr = process.communicate(timeout=230)
    assert process.returncode == 0, stderr
    assert_one(one, run)
