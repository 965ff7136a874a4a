"""Where to put a loss, a baseline, a KL estimator, a metric, a tracker and an engine: one plugin brings all of them."""

import importlib
import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from ears import Ears
from evaluation_runs import TASKS

from grpo_core import evaluate, train
from grpo_core.config import EngineConfig, EvalConfig, RunConfig, TrackingConfig, TrainerConfig, load_config
from grpo_core.evaluation.one_model import Candidate, evaluate_as
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.host import PluginHost


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The plugin, installed; its module of functions."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("programs"))
    host = PluginHost([metadata.EntryPoint("third", "third_party_plugin", "grpo")])
    monkeypatch.setattr("grpo_sdk.plugins.host.default_host", lambda: host)
    yield importlib.import_module("third_party")
    for name in ("third_party", "third_party_plugin"):
        sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def configured(folder: Path, metrics: tuple[str, ...]) -> RunConfig:
    return RunConfig(
        task=f"{folder / 'tasks.py'}:letters",
        model=str(folder / "model"),
        output_dir=str(folder / "runs"),
        device="cpu",
        trainer=TrainerConfig(
            max_steps=1, prompts_per_step=2, num_generations=2, max_completion_length=4, beta=0.1, loss_type="mine",
            loss_args={"scale": 2.0}, baseline="mine", advantage_args={"shift": -0.5}, kl="mine",
        ),
        eval=EvalConfig(at_start=False, at_end=False),
        engine=EngineConfig(name="mine"),
        tracking=TrackingConfig(trackers=("mine",), metrics=metrics),
    )  # fmt: skip


def test_a_plugin_brings_all_that_architecture_says(third_party: ModuleType, folder: Path) -> None:
    ears = Ears()
    result = train(configured(folder, ("mine", "broken")), callbacks=(ears,))
    assert dict(third_party.calls) == {"loss": 2.0, "baseline": -0.5, "kl": None, "tracker": 4.0, "engine": 1.0}
    (line,) = [json.loads(text) for text in (result.run_dir / "logs" / "train_log.jsonl").read_text().splitlines()]
    assert line["mine/rewards"] == 4.0 and 4 <= line["mine/tokens"] <= 16
    assert any("metric 'broken' raised ValueError (third_party.py:" in warning for warning in ears.said)


def test_an_engine_of_a_plugin_also_evaluates(third_party: ModuleType, folder: Path) -> None:
    task, settings = f"{folder / 'tasks.py'}:letters", EvaluationSettings(size=2, surprisal=False)
    candidate = Candidate(model=str(folder / "model"))
    (mine,) = evaluate_as(task, candidate, {}, settings, ModelOptions(engine=EngineConfig(name="mine"))).values()
    assert third_party.calls == [("engine", 0.0)]
    (native,) = evaluate(task, str(folder / "model"), size=2, surprisal=False).values()
    assert mine["mean_reward"] == native["mean_reward"], "it samples as ours does"


@pytest.mark.parametrize(("given", "message"), [
    ({"tracking.metrics": "mien"}, r"no metric 'mien'.*'mine'"),
    ({"engine.name": "mien"}, r"no engine 'mien'.*'mine'"),
    ({"tracking.metrics": "mine,mine"}, r"tracking\.metrics: mine is given twice"),
])  # fmt: skip
def test_a_name_that_no_plugin_registers_is_refused(third_party, given, message):
    with pytest.raises(UserError, match=message):
        load_config(given, environ={}, dotenv_path=None)
