from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_core import Row, Task, reward
from grpo_core.config import LoraConfig, RunConfig, TrainerConfig, choose_model, load_config, resolve, to_yaml
from grpo_core.config.recipes import recipe
from grpo_core.config.resolution import profiles_of, task_for_model
from grpo_core.config.sources import with_settings
from grpo_core.errors import UnknownNameError, UserError
from grpo_core.plugins import variants as registry
from grpo_core.plugins.facts import EmbeddedModel
from grpo_core.plugins.hooks import hookimpl
from grpo_core.plugins.host import PluginHost
from grpo_core.plugins.models import model_source
from grpo_core.profiles.recommended import after_warm_start


def load_rows() -> Iterable[Row]:
    return [Row(id="a", gold="a")]


@reward()
def right(answer: str) -> float:
    return 1.0


def task(name: str, default_model: str | None) -> Task:
    return Task(name, load_rows, lambda row: "p", lambda text, row: text, (right,), default_model=default_model)


TINY = EmbeddedModel(
    "tiny",
    "/models/tiny",
    "small",
    {"trainer.learning_rate": 5e-5, "trainer.max_steps": 200, "eval.size": 100},
    task_defaults={"toy.also_small": {"trainer.max_steps": 50, "trainer.beta": 0.1}},
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A plugin `toy` with tasks that want different models, and an embedded model with recommended settings."""
    module = ModuleType("toy_plugin")
    tasks = [task("small", "tiny"), task("also_small", "tiny"), task("large", "owner/large"), task("any", None)]
    module.grpo_tasks = hookimpl(lambda: tasks, specname="grpo_tasks")  # type: ignore[attr-defined] # a module is made
    module.grpo_models = hookimpl(lambda: [TINY], specname="grpo_models")  # type: ignore[attr-defined] # as above
    monkeypatch.setitem(sys.modules, "toy_plugin", module)
    return PluginHost([metadata.EntryPoint("toy", "toy_plugin", "grpo")])


def test_the_model_is_the_tasks_default(host: PluginHost) -> None:
    resolved = resolve(RunConfig(task="toy.small,toy.also_small:2"), host=host)
    assert resolved.config.model == "tiny"
    choice = next(choice for choice in resolved.choices if choice.what == "model")
    assert choice.value == "tiny"
    assert "no --model given: the default of toy.small, toy.also_small" in choice.why
    assert "--model Qwen/" in choice.why
    assert resolved.sources["model"].kind == "chosen"


def test_different_default_models_ask_for_one(host: PluginHost) -> None:
    with pytest.raises(UserError, match=r"toy\.small -> tiny, toy\.large -> owner/large\)\. Say which: --model"):
        choose_model("toy.small,toy.large", host)
    with pytest.raises(UserError, match=r"toy\.small -> tiny, toy\.any -> none"):
        choose_model("toy.small,toy.any", host)
    model, why = choose_model("toy.any", host)
    assert model == "tiny" and why.startswith("no --model given and toy.any has no default; for a real one: --model ")
    assert resolve(RunConfig(task="toy.small,toy.large", model="owner/mine"), host=host).config.model == "owner/mine"


def test_an_unknown_task_is_named_before_anything_else(host: PluginHost) -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'toy\.small'"):
        resolve(RunConfig(task="toy.smal"), host=host)


def test_an_embedded_model_brings_its_recommended_settings(host: PluginHost) -> None:
    resolved = resolve(RunConfig(task="toy.small"), host=host)
    assert (resolved.config.trainer.learning_rate, resolved.config.trainer.max_steps) == (5e-5, 200)
    assert str(resolved.sources["trainer.learning_rate"]) == "profile tiny: recommended for the embedded model tiny"
    settings = next(choice for choice in resolved.choices if choice.what == "settings")
    assert settings.value == "trainer.learning_rate=5e-05, trainer.max_steps=200, eval.size=100"


def test_it_may_bring_others_for_a_task(host: PluginHost) -> None:
    def settings(task: str) -> tuple[float, int | None, float]:
        trainer = resolve(RunConfig(task=task), host=host).config.trainer
        return trainer.learning_rate, trainer.max_steps, trainer.beta

    beta = TrainerConfig().beta
    assert settings("toy.small") == (5e-5, 200, beta)
    assert settings("toy.also_small") == (5e-5, 50, 0.1)
    assert settings("toy.small,toy.also_small") == (5e-5, 200, beta), "in a mixture those of the model alone"
    source = resolve(RunConfig(task="toy.also_small"), host=host).sources["trainer.beta"]
    assert str(source) == "profile tiny: recommended for the embedded model tiny on toy.also_small"


def test_what_the_user_gave_is_not_changed(host: PluginHost) -> None:
    config = RunConfig(task="toy.small", trainer=TrainerConfig(learning_rate=1e-6, num_train_epochs=2.0))
    resolved = resolve(config, host=host).config
    assert resolved.trainer.learning_rate == 1e-6, "also when it equals the default"
    assert (resolved.trainer.num_train_epochs, resolved.trainer.max_steps) == (2.0, None), "they exclude each other"
    assert resolved.eval.size == 100


def test_other_models_bring_no_settings(host: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    (tmp_path / "tiny.gguf").write_bytes(b"")
    for model in ("owner/other", f"{tmp_path}/tiny", f"{tmp_path}/tiny.gguf"):
        assert resolve(RunConfig(task="toy.small", model=model), host=host).config.trainer.learning_rate == 1e-6


def test_a_model_that_is_not_there_is_said_at_once(host: PluginHost) -> None:
    with pytest.raises(UserError, match=r"no model 'tinny'\. Did you mean 'tiny'\?"):
        resolve(RunConfig(task="toy.small", model="tinny"), host=host)
    with pytest.raises(UserError, match=r"--model \./nowhere: there is no such folder"):
        resolve(RunConfig(task="toy.small", model="./nowhere"), host=host)


def test_a_folder_that_is_named_like_a_hub_model_is_told_how_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run/step_1/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"write \./run/step_1/model"):
        model_source("run/step_1/model")


def test_a_run_in_place_of_a_model_is_told_where_its_model_is(tmp_path: Path) -> None:
    model = tmp_path / "run/training_state/step_1/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    for folder in (tmp_path / "run", model.parent):
        with pytest.raises(UserError, match=f"This one holds a model: {model}"):
            model_source(str(folder))


def test_a_wrong_recommendation_is_named(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = EmbeddedModel("tiny", "/m", "", {"trainer.learning_rte": 1})
    monkeypatch.setattr(host, "model", lambda name: bad)
    with pytest.raises(UnknownNameError, match=r"tiny.*no setting 'trainer\.learning_rte'"):
        resolve(RunConfig(task="toy.small"), host=host)


@pytest.mark.parametrize(
    ("loss", "scale"),
    [("dr_grpo", "none"), ("grpo", "group"), ("dapo", "group"), ("gspo", "group"), ("rloo", "none"), ("gpg", "none")],
)
def test_reward_scaling_goes_by_the_loss(host: PluginHost, loss: str, scale: str) -> None:
    resolved = resolve(RunConfig(task="toy.small", trainer=TrainerConfig(loss_type=loss)), host=host)
    assert resolved.config.trainer.scale_rewards == scale
    choice = next(choice for choice in resolved.choices if choice.what == "trainer.scale_rewards")
    assert choice.value == scale
    assert choice.why


def test_null_leaves_a_value_open(host: PluginHost) -> None:
    trainer = TrainerConfig(loss_type="grpo", scale_rewards=None, max_steps=None, num_train_epochs=None)
    resolved = resolve(RunConfig(task="toy.large", trainer=trainer), host=host).config.trainer
    assert (resolved.scale_rewards, resolved.num_train_epochs) == ("group", 1.0)


def test_a_baseline_that_scales_itself_is_not_scaled_again(host: PluginHost) -> None:
    trainer = TrainerConfig(loss_type="grpo", baseline="maxrl")
    resolved = resolve(RunConfig(task="toy.small", trainer=trainer), host=host)
    assert resolved.config.trainer.scale_rewards == "none"
    assert "maxrl has a normalisation of its own" in str(resolved.choices)


def test_reward_scaling_as_given_is_no_choice(host: PluginHost) -> None:
    config = RunConfig(task="toy.small", trainer=TrainerConfig(loss_type="grpo", scale_rewards="none"))
    resolved = resolve(config, host=host)
    assert resolved.config.trainer.scale_rewards == "none"
    assert "trainer.scale_rewards" not in {choice.what for choice in resolved.choices}


def test_a_group_of_one_is_not_divided_by_its_deviation(host: PluginHost) -> None:
    trainer = TrainerConfig(loss_type="grpo", baseline="ema", num_generations=1)
    assert resolve(RunConfig(task="toy.small", trainer=trainer), host=host).config.trainer.scale_rewards == "none"


def test_a_loss_brings_its_own_clip(host: PluginHost) -> None:
    def clip(loss: str, **values: object) -> tuple[float, float | None]:
        trainer = TrainerConfig(loss_type=loss, **values)  # type: ignore[arg-type] # values of several types
        resolved = resolve(RunConfig(task="toy.small", trainer=trainer), host=host).config.trainer
        return resolved.epsilon, resolved.epsilon_high

    assert clip("grpo") == (0.2, None)
    assert (clip("dapo"), clip("dapo", epsilon=0.4), clip("dapo", epsilon_high=0.3)) == (
        (0.2, 0.28), (0.4, 0.4), (0.2, 0.3),
    )  # fmt: skip
    assert (clip("gspo"), clip("gspo", epsilon=0.1), clip("gspo", epsilon_high=0.3)) == (
        (3e-4, 4e-4), (0.1, 0.1), (3e-4, 0.3),
    )  # fmt: skip
    assert clip("cispo") == (0.2, 5.0)
    assert (clip("gmpo"), clip("gmpo", epsilon_high=0.3)) == ((0.4, None), (0.3, 0.3))


def test_the_clips_chosen_are_the_losses_own_defaults() -> None:
    for name in registry.BUILT_IN["loss"]:
        own = registry.arguments("loss", name)
        loss = registry.get("loss", name)
        low, high = loss.epsilon, loss.epsilon_high
        assert bool(loss.clip_why) == bool(loss.presets), name
        if "epsilon_high" in own:
            assert own["epsilon_high"].default == high, name
        if "epsilon" in own:  # cispo has no lower bound
            assert own["epsilon"].default == (TrainerConfig().epsilon if low is None else low), name


def test_something_always_ends_the_run(host: PluginHost) -> None:
    def ends(**values: object) -> tuple[object, ...]:
        trainer = TrainerConfig(**values)  # type: ignore[arg-type] # values of several types
        resolved = resolve(RunConfig(task="toy.large", trainer=trainer), host=host).config.trainer
        return (resolved.max_steps, resolved.num_train_epochs, resolved.max_minutes)

    assert ends() == (None, 1.0, None)
    assert ends(max_steps=3) == (3, None, None)
    assert ends(max_minutes=2.0) == (None, None, 2.0)


def test_a_time_limit_leaves_out_the_recommended_steps(host: PluginHost) -> None:
    resolved = resolve(RunConfig(task="toy.small", trainer=TrainerConfig(max_minutes=2.0)), host=host)
    assert resolved.config.trainer.max_steps is None
    source = resolved.sources["trainer.max_steps"]
    assert str(source) == (
        "chosen: trainer.max_minutes=2.0 says when to stop; 200 is recommended for the embedded model tiny"
    )
    assert any(choice.what == "trainer.max_steps" and choice.value == "null" for choice in resolved.choices)
    assert resolve(resolved.config, resolved.sources, host=host).config == resolved.config
    both = TrainerConfig(max_minutes=2.0, max_steps=7)
    assert resolve(RunConfig(task="toy.small", trainer=both), host=host).config.trainer.max_steps == 7
    epochs = TrainerConfig(num_train_epochs=2.0)
    assert resolve(RunConfig(task="toy.small", trainer=epochs), host=host).config.trainer.max_steps is None


def test_resolving_twice_changes_nothing(host: PluginHost, tmp_path: Path) -> None:
    once = resolve(RunConfig(task="toy.small", trainer=TrainerConfig(loss_args={"a": 1})), host=host)
    twice = resolve(once.config, once.sources, host=host)
    assert twice.config == once.config
    assert twice.choices == ()
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(once.config))
    loaded = load_config(config_file=file, environ={}, dotenv_path=None)
    again = resolve(loaded.config, loaded.sources, host=host)
    assert again.config == once.config
    assert again.choices == ()
    assert again.sources["trainer.learning_rate"].kind == "file"


MADE_FOR = """
from grpo_core import EmbeddedModel, Row, Task, TaskConfig, hookimpl, reward

class Styled(TaskConfig):
    style: str = "full"

def load(config) -> list[Row]:
    return [Row(id="a")]

@reward()
def right(answer):
    return 1.0

@hookimpl
def grpo_tasks():
    options = dict(load=load, prompt=lambda row: "p", validate=lambda text, row: text, rewards=(right,))
    return [Task("styled", config=Styled, **options), Task("plain", **options)]

@hookimpl
def grpo_models():
    return [EmbeddedModel("made", ".", "for short prompts", task_options={"style": "short", "of_another": "4"})]
"""


WHY_OF_A_CHECKPOINT = "style=short: recommended for the embedded model made, with which the run of {} started"


@pytest.mark.parametrize(
    ("task", "adapted"),
    [
        ("made.styled", "made.styled?style=short"),
        ("made.styled:2?size=3,made.plain", "made.styled:2?size=3&style=short,made.plain"),
        ("made.styled?style=full", "made.styled?style=full"),
        ("made.plain", "made.plain"),
    ],
)
def test_a_task_gets_the_options_that_its_embedded_model_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, adapted: str
) -> None:
    (tmp_path / "plugin_made_for.py").write_text(MADE_FOR)
    monkeypatch.syspath_prepend(tmp_path)
    host = PluginHost([metadata.EntryPoint("made", "plugin_made_for", "grpo")])
    resolved = resolve(RunConfig(task=task, model="made"), host=host)
    assert resolved.config.task == adapted
    said = [choice.why for choice in resolved.choices if choice.what == "task"]
    assert said == ([] if task == adapted else ["style=short: recommended for the embedded model made"])
    assert resolve(resolved.config, host=host).config.task == adapted
    checkpoints = [tmp_path / name / "training_state" / "step_final" / "model" for name in ("first", "second", "odd")]
    for checkpoint, start in zip(checkpoints, ("made", checkpoints[0], tmp_path / "moved"), strict=True):
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text("{}")
        (checkpoint.parents[2] / "config.yaml").write_text(f"model: {start}\na_later_setting: 1\n")
    again, why = task_for_model(task, str(checkpoints[1]), host)
    assert again == adapted
    assert why == ("" if task == adapted else WHY_OF_A_CHECKPOINT.format(checkpoints[1]))
    assert task_for_model(task, str(checkpoints[2]), host) == (task, "")
    trained = tmp_path / "first" / "config.yaml"  # the task of a run decides, and the last run on it
    trained.write_text("model: made\ntask: made.styled?style=chat&size=9,made.plain\n")
    again, why = task_for_model(task, str(checkpoints[1]), host)
    assert again == adapted.replace("style=short", "style=chat")
    assert why == ("" if task == adapted else f"the run of {checkpoints[1]} had style=chat")
    trained.write_text("model: made\ntask: made.styled\n")
    assert task_for_model(task, str(checkpoints[1]), host) == (task, "")
    trained.write_text("model: made\ntask: '??,'\n")
    assert task_for_model(task, str(checkpoints[0]), host)[0] == adapted
    foreign = checkpoints[0].parents[2] / "outputs" / "last" / "model"  # its config.yaml is another program's
    foreign.mkdir(parents=True)
    (foreign / "config.json").write_text("{}")
    (foreign.parents[2] / "config.yaml").write_text("model: &m made\nother: *m\n")
    assert task_for_model(task, str(foreign), host) == (task, "")


def test_a_model_s_size_decides_the_learning_rate_where_nobody_does(host: PluginHost, tmp_path: Path) -> None:
    def rate(**given: Any) -> tuple[float, str]:
        resolved = resolve(RunConfig(task="toy.small", **{"model": "Qwen/Qwen2.5-0.5B-Instruct", **given}), host=host)
        return resolved.config.trainer.learning_rate, str(resolved.sources["trainer.learning_rate"])

    where = "profile model size: for 494 M parameters, "
    chosen = "; set trainer.learning_rate for another"
    assert rate() == (1.7e-6, f"{where}all trained{chosen}")
    assert rate(lora=LoraConfig(enabled=True)) == (1.7e-5, f"{where}an adapter trained{chosen}")
    assert rate(trainer=TrainerConfig(learning_rate=1e-6)) == (1e-6, "python")
    assert rate(recipe="rloo")[1].startswith("recipe rloo") == ("trainer.learning_rate" in recipe("rloo").options)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert rate(model=str(tmp_path)) == (1e-6, "default")  # of unknown size


def test_an_adapter_does_not_take_the_rate_of_a_warm_start_which_is_for_all_weights(
    host: PluginHost, tmp_path: Path
) -> None:
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = {"model_type": "qwen2", "intermediate_size": 128, "vocab_size": 258, **shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "warm_start.json").write_text(json.dumps({"recommended": {"trainer.learning_rate": 1.2e-4}}))
    own = resolve(RunConfig(task="toy.small", model=str(tmp_path), lora=LoraConfig(enabled=True)), host=host)
    assert own.config.trainer.learning_rate == 1.5e-3
    assert not [choice for choice in own.choices if "1.2e-04" in choice.value]
    given = RunConfig(
        task="toy.small",
        model=str(tmp_path),
        lora=LoraConfig(enabled=True),
        trainer=TrainerConfig(learning_rate=3e-4),
    )
    assert resolve(given, host=host).config.trainer.learning_rate == 3e-4


def test_a_warm_start_brings_the_settings_that_it_recorded(host: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    record = tmp_path / "warm_start.json"
    values = after_warm_start(1_800_000)
    record.write_text(json.dumps({"recommended": values}))
    trainer = resolve(RunConfig(task="toy.small", model=str(tmp_path)), host=host)
    assert (trainer.config.trainer.learning_rate, trainer.config.trainer.prompts_per_step) == (1.2e-4, 32)
    assert "warm_start.json in the model's folder" in str(trainer.sources["trainer.prompts_per_step"])
    for text, message in {
        '{"recommended": {"output_dir": "/etc"}}': "must be an object with settings of trainer.adam_beta2, ",
        '{"recommended": []}': "must be an object",
        "[]": "must be an object",
        "{": "the record of the warm start cannot be read",
        '{"recommended": {"trainer.learning_rate": "high"}}': "trainer.learning_rate",
    }.items():
        record.write_text(text)
        with pytest.raises(UserError, match=message):
            resolve(RunConfig(task="toy.small", model=str(tmp_path)), host=host)
    record.write_text('{"task": "of a record without recommendations"}')
    assert profiles_of(str(tmp_path), "toy.small", host) == ()


def test_a_setting_may_need_what_is_recommended_for_the_model() -> None:
    def resolved(**settings: str) -> RunConfig:
        values = {"task": "games.kuhn_poker", "trainer.ref_model_sync_steps": "30", **settings}
        loaded = load_config(values, environ={}, dotenv_path=None, is_complete=False)
        return resolve(loaded.config, loaded.sources).config

    trainer = resolved().trainer
    assert (trainer.ref_model_sync_steps, trainer.beta) == (30, 0.3)
    of_python = with_settings(RunConfig(task="games.kuhn_poker"), {"ref_model_sync_steps": 30})
    assert resolve(of_python).config.trainer == trainer
    for contradiction in ({"trainer.beta": "0"}, {"task": "math.arithmetic"}):
        with pytest.raises(UserError, match=r"ref_model_sync_steps=30 has no reference to move at trainer\.beta=0"):
            resolved(**contradiction)


def test_a_controller_that_is_recommended_goes_with_its_coefficient() -> None:
    # games-tiny recommends entropy_coef=0.06, which decays with a half-life of 200, for tic-tac-toe.
    def trainer_of(**settings: str) -> TrainerConfig:
        values = {"task": "games.tictactoe", **settings}
        loaded = load_config(values, environ={}, dotenv_path=None, is_complete=False)
        return resolve(loaded.config, loaded.sources).config.trainer

    assert trainer_of().entropy_controller_args == {"half_life": 200}
    without = trainer_of(**{"trainer.entropy_coef": "0"})
    assert (without.entropy_controller, without.entropy_controller_args) == ("constant", {})
    of_python = with_settings(RunConfig(task="games.tictactoe"), {"entropy_coef": 0.0})
    assert resolve(of_python).config.trainer == without
    with pytest.raises(UserError, match=r"decay has nothing to halve at trainer\.entropy_coef=0"):
        trainer_of(**{"trainer.entropy_coef": "0", "trainer.entropy_controller": "decay"})
