"""Two ranks on the CPU are one, whole or in shards: same rollouts, loss and gradient up to the order of a sum."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import rank_runs
import torch
from heard import Heard
from launched_ranks import LESS_EXACT, STEPS, VARIANT, assert_one, edited, jobs, run_in
from resumed_runs import assert_same, config, log, rollouts
from safetensors.torch import load_file
from server_engines import sent_versions
from sharded_updates import CASES
from vllm_server import FakeVLLM, native_answers, serving

from grpo_core import resume, train
from grpo_core.config import EngineConfig
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.policy.ranks import Ranks

pytestmark = pytest.mark.timeout(300)

PLAIN: Mapping[str, Any] = {"variant": VARIANT, "settings": {"max_steps": STEPS}}
SHARDED: Mapping[str, Any] = {"variant": VARIANT, "settings": {"max_steps": STEPS, "sharding": "full"}}
AHEAD: Mapping[str, Any] = {**SHARDED, "variant": "sampled ahead"}


@pytest.fixture(scope="module")
def alone(straight: Callable[..., Path]) -> Path:
    return straight(VARIANT, max_steps=STEPS)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeVLLM]]:
    """One for each run, since a server belongs to one."""
    with ExitStack() as stack:
        names = ("served ahead, alone", "served ahead")
        yield {name: stack.enter_context(serving(native_answers(byte_tokenizer()))) for name in names}


@pytest.fixture(scope="module")
def together(folder: Path, servers: dict[str, FakeVLLM], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks make in one launch: folders with a run each, and the differences of `sharded_updates`.

    The last run fails on one rank, which ends the other, who waits for it in the middle of a pass.
    """
    path = tmp_path_factory.mktemp("together")
    engines = {name: {"name": "vllm", "url": fake.url} for name, fake in servers.items()}
    made = config(folder, path / "served ahead, alone", "sampled ahead", max_steps=STEPS)
    train(made.model_copy(update={"engine": EngineConfig(**engines["served ahead, alone"])}))
    with rank_runs.after_updates(3, lambda: signal.raise_signal(signal.SIGTERM)):  # inside the second step's batch
        stopped = train(config(folder, path / "one, then two in shards", VARIANT, max_steps=STEPS))
    assert stopped.interrupted
    edited(stopped.run_dir, "sharding: none", "sharding: full")
    failing = {"fail_at": 3, "settings": {"sharding": "full", "max_steps": 1000, "save_every": 1}}
    process = jobs(
        folder,
        {"updates": str(path / "updates.json")},
        {**PLAIN, "out": str(path / "whole")},
        {**SHARDED, "out": str(path / "sharded")},
        {**SHARDED, "out": str(path / "two in shards, then one"), "stop_at_update": 3, "gather_weights": True},
        {"resume": str(path / "one, then two in shards")},
        {**PLAIN, "variant": "plain", "out": str(path / "different GPUs"), "gpus": [(79.3, "8.0"), (15.7, "8.9")]},
        {**AHEAD, "out": str(path / "ahead")},
        {**AHEAD, "out": str(path / "ahead, stopped"), "stop_at_update": 2},
        {"resume": str(path / "ahead, stopped")},
        {**AHEAD, "out": str(path / "served ahead"), "engine": engines["served ahead"]},
        {**SHARDED, "variant": "LoRA", "out": str(path / "own server"), "engine": {"name": "vllm"}},
        {**AHEAD, "out": str(path / "failed"), **failing},
    )
    _, stderr = process.communicate(timeout=280)
    assert process.returncode != 0 and "this rank's accelerator fell off" in stderr, stderr
    assert stderr.count("the vLLM server of the run's own, up after") == 1
    return path


@pytest.mark.parametrize(("variant", "how"), [(VARIANT, "whole"), (VARIANT, "sharded"), ("sampled ahead", "ahead")])
def test_two_ranks_are_one(straight: Callable[..., Path], together: Path, variant: str, how: str) -> None:
    runs = straight(variant, max_steps=STEPS), run_in(together / how)
    assert_one(*runs)
    one, two = (json.loads((run / "summary.json").read_text())["tasks"] for run in runs)
    for name, number in one["tasks.letters"]["initial"].items():
        if isinstance(number, float):
            assert two["tasks.letters"]["initial"][name] == pytest.approx(number, rel=1e-5), name


def test_two_ranks_that_sample_from_a_server_are_one(together: Path, servers: dict[str, FakeVLLM]) -> None:
    alone, two = (run_in(together / name) for name in servers)
    drawn = [[(line["step"], line["prompt_id"], line["text"]) for line in rollouts(run)] for run in (alone, two)]
    assert drawn[0] == drawn[1]
    for own, other in zip(log(two), log(alone), strict=True):
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-4, abs=1e-6)
        assert own["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    for fake in servers.values():
        assert sent_versions(fake) == [*range(STEPS - 1), STEPS], "no batch follows the last step but one"
        assert not Path(fake.folder).parent.exists()


def test_the_first_rank_starts_the_server_of_the_run(together: Path) -> None:
    assert [line["step"] for line in log(run_in(together / "own server"))] == [1, 2, 3]  # adapter and shards


def test_a_stopped_sharded_run_ends_bit_for_bit_as_it_would_have(together: Path) -> None:
    assert_same(run_in(together / "ahead"), run_in(together / "ahead, stopped"))


def test_a_rank_that_fails_ends_the_run_at_once(together: Path) -> None:
    assert (run_in(together / "failed") / "training_state" / "step_latest").resolve().name == "step_2"


def test_ranks_with_different_gpus_agree_before_the_first_step(together: Path) -> None:
    text = (run_in(together / "different GPUs") / "config.yaml").read_text()
    assert "# settings trainer.micro_batch_tokens=16384" in text
    assert "the smallest that fits every rank: a GPU, 79.3 GiB" in text


def test_a_checkpoint_of_shards_is_that_of_a_whole_model(alone: Path, together: Path) -> None:
    final = [run / "training_state" / "step_final" for run in (alone, run_in(together / "sharded"))]
    files = [sorted(str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()) for each in final]
    assert files[0] == files[1]
    for name in ("optimizer.safetensors", "model/model.safetensors"):
        ours, theirs = ({key: value.shape for key, value in load_file(each / name).items()} for each in final)
        assert ours == theirs
    assert len({(each / "model" / "config.json").read_text() for each in final}) == 1


def test_a_run_of_two_ranks_goes_on_in_one_process(alone: Path, together: Path) -> None:
    run = run_in(together / "two in shards, then one")
    with pytest.raises(Exception, match=r"sharding=full shares a model among processes, and this is the only one"):
        resume(run)
    edited(run, "sharding: full", "sharding: none")
    resume(run, callbacks=[said := Heard()])
    assert said.choices["ranks"].value == "1, where the checkpoint's were 2, sharded"
    assert_one(alone, run)


def test_a_run_of_one_process_goes_on_in_two_ranks(alone: Path, together: Path) -> None:
    run = run_in(together / "one, then two in shards")
    assert_one(alone, run, exact_steps=2)  # the second step's first half was taken alone, on the same rollouts
    state = json.loads((run / "training_state" / "step_final" / "trainer_state.json").read_text())
    assert len(state["random"]) == 2


# Single updates


@pytest.fixture(scope="module")
def differences(together: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((together / "updates.json").read_text())
    return found


def assert_whole(differences: dict[str, Any]) -> None:
    for name, case in differences.items():
        if name in LESS_EXACT:
            continue
        for ours, theirs in zip(case["sharded"], case["whole"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True), name
        assert max(case["weights"].values()) < 1e-12, name  # float64: the order of a sum


def assert_overflow_skipped(case: dict[str, Any]) -> None:
    for steps in (case["sharded"], case["whole"]):
        assert [step["loss_scale"] for step in steps] == [2.0**60, 2.0**59]
    assert max(case["weights"].values()) == 0.0, "no step was taken"


def test_sharded_updates_are_those_of_the_whole_model(differences: dict[str, Any]) -> None:
    assert len(differences) == len(CASES)
    assert_whole(differences)


def test_the_gradient_is_the_sum_over_ranks_and_not_their_mean(differences: dict[str, Any]) -> None:
    assert differences["plain"]["sharded"][0]["grad_norm"] == pytest.approx(0.469575, rel=1e-5)
    assert differences["nobody has"]["sharded"][0]["grad_norm"] == 0.0


def test_a_rank_holds_its_part_of_every_parameter(differences: dict[str, Any]) -> None:
    # Rows are cut in two: of 13 or 25 the first rank holds 7 or 13, and all of a single one (LoRA's r = 1).
    assert {round(share, 3) for share in differences["plain"]["held"]} == {0.5, round(7 / 13, 3), round(13 / 25, 3)}
    assert set(differences["LoRA"]["held"]) > {1.0}


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 2e-2), ("float16", 2e-3)])
def test_mixed_precision_is_close(differences: dict[str, Any], precision: str, tolerance: float) -> None:
    case = differences[precision]  # the first step: later ones amplify rounding through Adam
    for name in ("loss", "grad_norm", "entropy"):
        assert case["sharded"][0][name] == pytest.approx(case["whole"][0][name], rel=tolerance), name


def test_an_overflow_on_any_rank_is_skipped_on_all(differences: dict[str, Any]) -> None:
    assert_overflow_skipped(differences["float16 that overflows"])


def test_a_loss_that_is_infinite_on_one_rank_skips_the_step_on_all(differences: dict[str, Any]) -> None:
    case = differences["one rank's loss is infinite"]
    assert [step["skipped_updates"] for step in case["sharded"]] == [1.0, 2.0]
    assert all("loss" not in step and "entropy" in step for step in case["sharded"])
    assert not any(name.startswith("adam.") for name in case["weights"]), "no step was taken"


# Four ranks in two groups, each of which holds all shards

OFFLOADED = ["plain", "KL against a copy", "LoRA", "value head", "clipped", "probes"]

HYBRID = {"sharding": "hybrid", "shard_size": 2, "max_steps": STEPS}


@pytest.fixture(scope="module")
def four(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks make in one launch: folders with a run each, and the differences of `sharded_updates`."""
    path = tmp_path_factory.mktemp("hybrid")
    hybrid = {"variant": VARIANT, "settings": HYBRID}
    process = jobs(
        folder,
        {"updates": str(path / "updates.json"), "layout": {"size": 2}},
        {"updates": str(path / "offloaded.json"), "layout": {"size": 2, "is_offloaded": True}, "cases": OFFLOADED},
        {**hybrid, "out": str(path / "run")},
        {**hybrid, "variant": "sampled ahead", "out": str(path / "ahead")},
        {**hybrid, "out": str(path / "stopped"), "stop_at_update": 3},
        {"resume": str(path / "stopped")},
        {**hybrid, "out": str(path / "to be resumed"), "stop_at_update": 3, "gather_weights": True},
        size=4,
    )
    _, stderr = process.communicate(timeout=280)
    assert process.returncode == 0, stderr
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("file", "cases"), [("updates.json", len(CASES)), ("offloaded.json", len(OFFLOADED))])
def test_updates_are_those_of_the_whole_model(four: Path, file: str, cases: int) -> None:
    differences: dict[str, Any] = json.loads((four / file).read_text())
    assert len(differences) == cases
    assert_whole(differences)
    if file == "updates.json":
        assert_overflow_skipped(differences["float16 that overflows"])
    # A half of 13 or 25 rows, not a quarter.
    assert {round(share, 3) for share in differences["plain"]["held"]} == {0.5, round(7 / 13, 3), round(13 / 25, 3)}


@pytest.mark.slow
def test_a_run_of_four_ranks_is_that_of_one_and_goes_on(straight: Callable[..., Path], alone: Path, four: Path) -> None:
    assert_one(alone, run_in(four / "run"))
    assert_one(straight("sampled ahead", max_steps=STEPS), run_in(four / "ahead"))
    assert_same(run_in(four / "run"), run_in(four / "stopped"))


@pytest.mark.slow
def test_a_run_of_four_ranks_goes_on_in_one_process(alone: Path, four: Path) -> None:
    run = run_in(four / "to be resumed")
    edited(run, "sharding: hybrid", "sharding: none")
    edited(run, "  shard_size: 2\n", "")
    resume(run, callbacks=[said := Heard()])
    assert said.choices["ranks"].value == "1, where the checkpoint's were 4, sharded by 2"
    assert_one(alone, run)


def test_gradients_are_exchanged_in_buckets_of_one_dtype_and_25_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, **_: sent.append(tensor.nbytes))
    sizes = [(10, torch.float32), (15, torch.float32), (1, torch.float32), (1, torch.bfloat16), (30, torch.bfloat16)]
    parameters = [torch.nn.Parameter(torch.empty(mib * 2**20 // dtype.itemsize, dtype=dtype)) for mib, dtype in sizes]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    Ranks(size=2).sum_gradients(parameters)
    assert [size // 2**20 for size in sent[1:]] == [25, 1, 1, 30]  # the first counts the ranks with a gradient
