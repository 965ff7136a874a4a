"""Runs whose optimizer steps TRL takes, beside the same ones by our own trainer."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_policies import collated, rollout, turn

from grpo_core import resume, train
from grpo_core.config import RunConfig
from grpo_core.training.result import RunResult
from grpo_core.training.trl_backend import TrlBackend, completion_fields
from grpo_sdk.errors import NonFiniteError, UserError

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and accelerate's own warnings are not ours to fail on

TURNS = Path(__file__).parent / "programs" / "turns.py"


def run(folder: Path, task: str = "math.arithmetic", **settings: Any) -> RunResult:
    sizes = {"prompts_per_step": 4, "num_generations": 4, "max_steps": 2, "model": "tiny"}
    quiet = {"eval": {"size": 8, "at_start": False, "at_end": False}, "progress": False}
    return train(task, output_dir=str(folder), **{**sizes, **quiet, **settings})


def numbers(result: RunResult, *names: str) -> list[list[float]]:
    return [[record[name] for name in names] for record in result.metrics]


def assert_close(one: RunResult, other: RunResult, *names: str) -> None:
    for ours, theirs in zip(numbers(one, *names), numbers(other, *names), strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-5)


@pytest.mark.parametrize("settings", [
    {"micro_batch_size": 4},
    {"loss_type": "dapo", "soft_overlong_buffer": 4, "dynamic_sampling": True, "micro_batch_size": 4},
    {"loss_type": "grpo", "lora": {"enabled": True}, "beta": 0.1, "num_iterations": 2, "learning_rate": 1e-3},
], ids=["dr_grpo", "dapo", "grpo with LoRA and KL"])  # fmt: skip
def test_both_backends_take_the_same_steps(tmp_path: Path, settings: dict[str, Any]) -> None:
    ours, trl = (run(tmp_path, backend=backend, **settings) for backend in ("native", "trl"))
    names = ("reward", "completions/mean_length", "learning_rate", "advantage_std")
    assert numbers(trl, *names) == numbers(ours, *names)
    assert_close(trl, ours, "grad_norm", "loss")
    assert [line.text for line in trl.rollouts()] == [line.text for line in ours.rollouts()]
    assert trl.summary.keys() == ours.summary.keys()
    assert trl.summary["updates"] == ours.summary["updates"]


def test_turns_stop_strings_and_truncated_completions_are_trained_as_ours(tmp_path: Path) -> None:
    # A rate of 0: our optimizer takes no step where no completion has an advantage, TRL's one of zeros.
    settings = {"mask_truncated_completions": True, "learning_rate": 0.0}
    ours, trl = (run(tmp_path, f"{TURNS}:turns", backend=backend, **settings) for backend in ("native", "trl"))
    texts = [rollout.text for rollout in trl.rollouts()]
    assert texts == [rollout.text for rollout in ours.rollouts()]
    assert any(" no. " in text for text in texts)
    assert numbers(trl, "reward", "completions/truncated_frac") == numbers(ours, "reward", "completions/truncated_frac")
    assert_close(trl, ours, "grad_norm")
    assert any(norm > 0 for (norm,) in numbers(trl, "grad_norm"))


def test_what_was_not_scored_is_left_out(tmp_path: Path) -> None:
    settings = {"scoring": {"max_abstain_share": 1.0}, "max_steps": 3}
    ours, trl = (run(tmp_path, f"{TURNS}:faulty", backend=backend, **settings) for backend in ("native", "trl"))
    assert sum(abstained for (abstained,) in numbers(trl, "abstained")) > 0
    assert_close(trl, ours, "reward", "grad_norm")


@pytest.mark.parametrize("settings", [
    {"steps_per_generation": 2, "num_iterations": 2},
    {"lora": {"enabled": True, "dropout": 0.1}},
])  # fmt: skip
def test_a_stopped_run_ends_bit_for_bit_as_the_whole_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"backend": "trl", "max_steps": 3, "learning_rate": 1e-2, "save_every": 1, "beta": 0.1, **settings}
    whole = run(tmp_path, **settings)
    stopped = run(tmp_path, stop_after=1, **settings)
    assert stopped.interrupted and stopped.summary["steps"] == 1
    rest = resume(stopped.run_dir, progress=False)
    assert rest.summary["steps"] == 3 and rest.summary["updates"] == whole.summary["updates"]
    names = ("reward", "loss", "entropy", "grad_norm", "kl")
    assert numbers(rest, *names) == numbers(whole, *names)
    weights = [next((each.run_dir / "training_state/step_final/model").glob("*.safetensors")) for each in (rest, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert numbers(whole, "kl")[-1][0] > 1e-4  # the reference is not the model of the checkpoint


def test_a_loaded_adapter_is_its_own_reference_in_a_resumed_run(tmp_path: Path) -> None:
    first = run(tmp_path, lora={"enabled": True}, learning_rate=1e-2)
    adapter = str(first.run_dir / "training_state" / "step_final" / "model")
    settings = {"adapter": adapter, "beta": 0.1, "learning_rate": 1e-2}
    native = run(tmp_path, **settings)
    stopped = run(tmp_path, backend="trl", stop_after=1, **settings)
    assert numbers(native, "kl")[0][0] == pytest.approx(0.0, abs=1e-6)  # the base would be far from it
    assert_close(resume(stopped.run_dir, progress=False), native, "kl", "grad_norm")


def test_a_reference_that_followed_the_policy_is_none_that_a_resumed_run_has(tmp_path: Path) -> None:
    stopped = run(tmp_path, backend="trl", beta=0.1, stop_after=1, backend_args={"sync_ref_model": True})
    with pytest.raises(UserError, match=r"backend_args\.sync_ref_model: its reference has followed.*step_"):
        resume(stopped.run_dir, progress=False)


def test_a_rollout_of_several_sequences_is_refused() -> None:
    rollouts = [rollout(turn((1, 2), (7,)), turn((1, 2, 7, 3), (7,))), rollout(turn((1, 2), (7,)))]
    fields = completion_fields(collated(*rollouts), range(2))
    assert fields["completion_ids"] == [[7, 3, 7], [7]] and fields["env_mask"] == [[1, 0, 1], [1]]
    rewritten = collated(*rollouts, rollout(turn((1, 2), (7,)), turn((1, 3), (7,))))
    with pytest.raises(UserError, match="the chat template changes earlier turns"):
        completion_fields(rewritten, range(2))


def test_evaluations_limits_and_choices_are_those_of_a_run(tmp_path: Path) -> None:
    evaluation = {"size": 8, "interval_steps": 1}
    settings = {"early_stop_patience": 1, "learning_rate": 0.0, "keep_best": True, "max_steps": 3}
    result = run(tmp_path, backend="trl", eval=evaluation, **settings)
    entry = result.summary["tasks"]["math.arithmetic"]
    assert entry["initial"]["n"] == entry["final"]["n"] == 8
    # A learning rate of 0 changes nothing: the second evaluation is no better, and patience ends the run.
    assert result.summary["steps"] == 2 and result.summary["best"]["step"] == 1
    assert entry["final"]["delta"] == 0.0
    assert (result.run_dir / "training_state" / "step_final" / "model" / "model.safetensors").is_file()


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    setup = SimpleNamespace(config=RunConfig())
    updater = SimpleNamespace(optimizer=SimpleNamespace(updates=6))
    backend: Any = TrlBackend(setup, updater, *[None] * 8)  # type: ignore[arg-type] # what an update looks at
    with pytest.raises(NonFiniteError, match=r"optimizer step 7, and TRL skips none.*trainer\.backend=native"):
        backend._updated({"loss": math.nan, "grad_norm": 1.0})


def test_an_unknown_argument_of_trl_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"backend_args\.deepspede.*'deepspeed'"):
        run(tmp_path, backend="trl", backend_args={"deepspede": "x"})
