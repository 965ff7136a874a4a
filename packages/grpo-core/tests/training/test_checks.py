"""Settings that tasks or models exclude, or that nothing reads, before torch is imported."""

from pathlib import Path
from typing import Any

import pytest
import small_games
from loaded_configs import resolved

from grpo_core.config import RunConfig
from grpo_core.engines.servers import process
from grpo_core.evaluation.held_out import limited_rows, trained_tasks
from grpo_core.training.checks import check_training, without_effect
from grpo_sdk import UserError, load_task

GAMES = Path(small_games.__file__).resolve()


def checked(given: dict[str, str]) -> None:
    check_training(resolved({"model": "tiny", **given}).config)


CISPO = "the loss cispo takes epsilon_high, epsilon_low, max_log_ratio"
MOVING = {"trainer.ref_model_sync_steps": "10", "trainer.beta": "0.1"}


@pytest.mark.parametrize(("settings", "message"), [
    ({**MOVING, "lora.enabled": "true"}, "an adapter's reference is the model that it was put on"),
    ({**MOVING, "task": f"{GAMES}:HEAP?opponent=base"}, "played against the policy at its start, which is the ref"),
    ({**MOVING, "trainer.backend": "trl"}, r"its own is trainer\.backend_args\.sync_ref_model"),
    ({"engine.name": "sglang", "engine.url": "http://localhost:8000"}, r"real server.*engine\.name=vllm"),
    ({"engine.name": "native", "engine.fallback": "vllm"}, "engine.fallback=vllm has no effect"),
    ({"trainer.off_policy_steps": "1", "task": f"{GAMES}:HEAP?opponent=base"}, "its opponent plays with the weights"),
    ({"task": f"{GAMES}:HEAP?opponent=perfetc"}, r"opponent=perfetc is none of self, random, .*, base"),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        checked(settings)


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=r"engine\.name=vllm needs vLLM, which is not installed here: pip install"):
        checked({"engine.name": "vllm"})
    checked({"engine.name": "vllm", "engine.fallback": "native"})
    checked({"engine.name": "vllm", "engine.url": "http://localhost:8000"})


def test_a_file_is_read_no_further_than_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    lines = [f'{{"question": "{number} + 1?", "answer": {number + 1}}}' for number in range(20)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join([*lines, "damaged"]) if split == "train" else "{}")
    task = f"core.qa?path={tmp_path}/{{split}}.jsonl&verifier=number"
    checked({"task": task, "trainer.train_size": "20"})
    with pytest.raises(UserError, match=r"train\.jsonl:21: not JSON"):
        checked({"task": task})


@pytest.mark.parametrize(("task", "settings", "unread"), [
    ("arithmetic", {"trainer": {"loss_type": "cispo", "epsilon": 0.05}}, {"trainer.epsilon": CISPO}),
    ("arithmetic", {"lora": {"r": 4, "alpha": 8}}, dict.fromkeys(("lora.r", "lora.alpha"), "lora.enabled is false")),
    ("arithmetic", {"lora": {"enabled": True, "r": 4}}, {}),
    ("arithmetic", {"curriculum": {"weights": (1, 2, 0)}}, {"curriculum.weights": "curriculum.enabled is false"}),
    ("arithmetic", {"curriculum": {"enabled": True, "weights": (1, 2, 0)}}, {}),
    ("arithmetic", {"curriculum": {"ladder_threshold": 0.5}}, {"curriculum.ladder_threshold": "no task is a ladder"}),
    ("ladder", {"curriculum": {"ladder_threshold": 0.5}}, {}),
])  # fmt: skip
def test_settings_that_nothing_reads_are_said(task: str, settings: dict[str, Any], unread: dict[str, str]) -> None:
    found = without_effect(RunConfig(**settings), {"t": load_task(f"math.{task}")})
    assert {choice.what: choice.why for choice in found} == unread
    assert {choice.value for choice in found} <= {"without effect"}


def test_the_part_of_a_file_that_is_used_is_said(tmp_path: Path) -> None:
    lines = ['{"question": "q", "answer": "a"}'] * 2 + ['{"question": "r", "answer": "b"}']
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, ""]))
    task = f"core.qa?path={tmp_path}/{{split}}.jsonl"
    limited = trained_tasks(RunConfig(task=task, trainer={"train_size": 2}))  # type: ignore[arg-type] # validated
    (choice,) = limited_rows(limited)
    assert choice.what == "rows" and "the first 2 of split train" in choice.value and "(99 bytes, hash" in choice.value
    assert "within the rows in use" in choice.why
    assert limited_rows({"core.qa": load_task(task), "math.echo": load_task("math.echo?size=3")}) == []
