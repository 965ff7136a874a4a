"""The environment for NeMo-RL without it; tests/test_peers.py runs it in NeMo-RL itself."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import GUESS, SCORED, SUMS, AnswerLaws, Played, adapter_of, sum_row

from grpo_sdk.errors import DataError, UserError

LADDERED = SUMS.replace(":hurried", ":laddered")


ACTORS: dict[str, str] = {}
ENVIRONMENTS: dict[str, str] = {}


adapter = adapter_of("nemo_rl", {
    "ray": {"remote": lambda **options: lambda actor: actor},
    "nemo_rl.distributed.ray_actor_environment_registry": {"ACTOR_ENVIRONMENT_REGISTRY": ACTORS},
    "nemo_rl.distributed.virtual_cluster": {"PY_EXECUTABLES": SimpleNamespace(SYSTEM="python")},
    "nemo_rl.environments.interfaces": {"EnvironmentInterface": object, "EnvironmentReturn": SimpleNamespace},
    "nemo_rl.environments.utils": {"register_env": ENVIRONMENTS.__setitem__},
})  # fmt: skip


def step(adapter: Any, *samples: tuple[str, str]) -> Any:
    """A step of completions with their labels."""
    logs = [[{"role": "user", "content": "…"}, {"role": "assistant", "content": text}] for text, _ in samples]
    return adapter.TaskSteps({}).step(logs, [{"ground_truth": label} for _, label in samples])


def label(spec: str = SUMS, row: str = "") -> str:
    return json.dumps({"task": spec, "row": row or sum_row()})


class TestNemoRL(AnswerLaws):
    trainer, logs_parts = "NeMo-RL", False

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        return Played(step(adapter, (texts[0], label(spec, row))).rewards.item())


def test_a_batch_of_several_tasks_has_the_reward_of_each_completion_in_order(adapter: Any) -> None:
    batch = [(text, label(spec)) for text in SCORED for spec in (SUMS, LADDERED)]
    answer = step(adapter, *batch)
    # Of graduated levels: 1 for what is right, 0.2 for an answer, -0.3 for none
    assert answer.rewards.tolist() == pytest.approx([2.0, 1.0, 0.0, 0.2, 0.0, -0.3])
    assert answer.terminateds.tolist() == [1.0] * 6 and answer.observations[0]["content"] == ""
    assert answer.metadata[0] == {"ground_truth": batch[0][1]}


def test_the_environment_is_registered_under_a_name_that_can_be_imported(adapter: Any) -> None:
    adapter.register()
    path = ENVIRONMENTS[adapter.ENVIRONMENT]
    assert {path: "python"} == ACTORS
    module, _, name = path.rpartition(".")
    assert getattr(__import__(module, fromlist=[name]), name) is adapter.TaskEnvironment


def test_written_rows_are_scored_and_others_are_refused(adapter: Any, tmp_path: Path) -> None:
    adapter.write_rows(SUMS, tmp_path / "train.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [line["input"] for line in lines] == [f"{a} + {a} =" for a in range(5)]
    assert step(adapter, ("4", lines[2]["output"])).rewards.tolist() == [2.0]
    with pytest.raises(DataError, match=r"interop\.nemo_rl\.write_rows"):
        step(adapter, ("4", "[]"))
    with pytest.raises(UserError, match="has several turns"):
        adapter.write_rows(GUESS, tmp_path / "turns.jsonl")
