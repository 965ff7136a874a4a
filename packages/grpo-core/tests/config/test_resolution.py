"""What a run is configured by that nobody said: its model, that model's settings, the loss's and the size's."""

import json
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_core.config import LoraConfig, RunConfig, TrainerConfig, load_config, read_config, resolve, to_yaml
from grpo_core.config.model_profiles import choose_model, profiles_of
from grpo_core.config.recipes import recipe
from grpo_core.config.resolution import ResolvedConfig, task_for_model
from grpo_core.config.sources import with_settings
from grpo_core.profiles.recommended import after_warm_start
from grpo_sdk import Row, Task, TaskConfig, reward
from grpo_sdk.errors import UnknownNameError, UserError
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.hooks import hookimpl
from grpo_sdk.plugins.host import PluginHost
from grpo_sdk.plugins.models import model_source

QWEN = "Qwen/Qwen2.5-0.5B-Instruct"

Run = Callable[..., ResolvedConfig]


class Styled(TaskConfig):
    style: str = "full"


def load_rows(config: TaskConfig) -> Iterable[Row]:
    return [Row(id="a", gold="a")]


@reward()
def right(answer: str) -> float:
    return 1.0


def task(name: str, default_model: str | None = None, **options: Any) -> Task:
    options["default_model"] = default_model
    return Task(name, load_rows, lambda row: "p", lambda text, row: text, (right,), **options)


TINY = EmbeddedModel(
    "tiny", "/models/tiny", "small", {"trainer.learning_rate": 5e-5, "trainer.max_steps": 200, "eval.size": 100},
    task_defaults={"toy.also_small": {"trainer.max_steps": 50, "trainer.beta": 0.1}},
)  # fmt: skip
RECOMMENDED = "style=short: recommended for the embedded model made"
MADE = EmbeddedModel("made", ".", "for short prompts", task_options={"style": "short", "of_another": "4"})


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A plugin `toy` with tasks that want different models, and embedded models with recommended settings."""
    module = ModuleType("toy_plugin")
    tasks = [
        task("small", "tiny"), task("also_small", "tiny"), task("large", "owner/large"), task("any"),
        task("styled", config=Styled),
    ]  # fmt: skip
    vars(module)["grpo_tasks"] = hookimpl(lambda: tasks, specname="grpo_tasks")
    vars(module)["grpo_models"] = hookimpl(lambda: [TINY, MADE], specname="grpo_models")
    monkeypatch.setitem(sys.modules, "toy_plugin", module)
    return PluginHost([metadata.EntryPoint("toy", "toy_plugin", "grpo")])


@pytest.fixture
def run(host: PluginHost) -> Run:
    """Resolve a run of a task with these settings of the trainer."""

    def resolved(task: str = "toy.small", model: str | None = None, **trainer: Any) -> ResolvedConfig:
        return resolve(RunConfig(task=task, model=model, trainer=TrainerConfig(**trainer)), host=host)

    return resolved


def chosen(config: ResolvedConfig, what: str) -> tuple[str, str]:
    """Value and reason of a choice."""
    (choice,) = (choice for choice in config.choices if choice.what == what)
    return choice.value, choice.why


def test_the_model_is_the_tasks_default(run: Run) -> None:
    resolved = run("toy.small,toy.also_small:2")
    assert resolved.config.model == "tiny" and resolved.sources["model"].kind == "chosen"
    value, why = chosen(resolved, "model")
    assert value == "tiny" and "no --model given: the default of toy.small, toy.also_small" in why
    assert "--model Qwen/" in why


def test_different_default_models_ask_for_one(host: PluginHost, run: Run) -> None:
    with pytest.raises(UserError, match=r"toy\.small -> tiny, toy\.large -> owner/large\)\. Say which: --model"):
        choose_model("toy.small,toy.large", host)
    with pytest.raises(UserError, match=r"toy\.small -> tiny, toy\.any -> none"):
        choose_model("toy.small,toy.any", host)
    model, why = choose_model("toy.any", host)
    assert model == "tiny" and why.startswith("no --model given and toy.any has no default; for a real one: --model ")
    assert run("toy.small,toy.large", "owner/mine").config.model == "owner/mine"


def test_an_embedded_model_brings_its_settings(host: PluginHost, run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    resolved = run()
    assert (resolved.config.trainer.learning_rate, resolved.config.trainer.max_steps) == (5e-5, 200)
    assert str(resolved.sources["trainer.learning_rate"]) == "profile tiny: recommended for the embedded model tiny"
    settings, _ = chosen(resolved, "settings")
    assert settings == "trainer.learning_rate=5e-05, trainer.max_steps=200, eval.size=100"
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    (tmp_path / "tiny.gguf").write_bytes(b"")
    for model in ("owner/other", f"{tmp_path}/tiny", f"{tmp_path}/tiny.gguf"):
        assert run(model=model).config.trainer.learning_rate == 1e-6, "other models bring none"
    monkeypatch.setattr(host, "model", lambda name: EmbeddedModel("tiny", "/m", "", {"trainer.learning_rte": 1}))
    with pytest.raises(UnknownNameError, match=r"tiny.*no setting 'trainer\.learning_rte'"):
        run()


def test_it_may_bring_others_for_a_task(run: Run) -> None:
    def settings(task: str) -> tuple[float, int | None, float]:
        trainer = run(task).config.trainer
        return trainer.learning_rate, trainer.max_steps, trainer.beta

    assert settings("toy.small") == (5e-5, 200, 0.0)
    assert settings("toy.also_small") == (5e-5, 50, 0.1)
    assert settings("toy.small,toy.also_small") == (5e-5, 200, 0.0), "in a mixture those of the model alone"
    source = run("toy.also_small").sources["trainer.beta"]
    assert str(source) == "profile tiny: recommended for the embedded model tiny on toy.also_small"


def test_what_the_user_gave_is_not_changed(run: Run) -> None:
    resolved = run(learning_rate=1e-6, num_train_epochs=2.0).config
    assert resolved.trainer.learning_rate == 1e-6, "also when it equals the default"
    assert (resolved.trainer.num_train_epochs, resolved.trainer.max_steps) == (2.0, None), "they exclude each other"
    assert resolved.eval.size == 100


def test_a_folder_that_is_no_model_is_told_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "run/training_state/step_1/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    for folder in (tmp_path / "run", model.parent):
        with pytest.raises(UserError, match=f"This one holds a model: {model}"):
            model_source(str(folder))
    monkeypatch.chdir(tmp_path)  # named like a hub model
    with pytest.raises(UserError, match=r"write \./run/training_state/step_1/model"):
        model_source("run/training_state/step_1/model")


@pytest.mark.parametrize(("trainer", "scale"), [
    ({"loss_type": "dr_grpo"}, "none"),
    ({"loss_type": "grpo"}, "group"),
    ({"loss_type": "gspo"}, "group"),
    ({"loss_type": "rloo"}, "none"),
    ({"loss_type": "grpo", "baseline": "maxrl"}, "none"),  # which has a normalisation of its own
    ({"loss_type": "grpo", "baseline": "ema", "num_generations": 1}, "none"),  # there is no deviation
])  # fmt: skip
def test_reward_scaling_goes_by_the_loss_unless_it_is_given(run: Run, trainer: dict[str, Any], scale: str) -> None:
    resolved = run(**trainer)
    assert resolved.config.trainer.scale_rewards == scale
    value, why = chosen(resolved, "trainer.scale_rewards")
    assert value == scale and why
    given = run(**{**trainer, "scale_rewards": "none"})
    assert given.config.trainer.scale_rewards == "none"
    assert "trainer.scale_rewards" not in {choice.what for choice in given.choices}


@pytest.mark.parametrize(("trainer", "ordinary"), [
    ({}, True), ({"loss_type": "dr_grpo"}, True), ({"loss_type": "grpo"}, False), ({"loss_type": "cispo"}, False),
])  # fmt: skip
def test_what_another_loss_brings_is_no_ordinary_default(run: Run, trainer: dict[str, Any], ordinary: bool) -> None:
    said = {choice.what for choice in run(**trainer).choices if not choice.is_ordinary}
    assert (not any(name.startswith("trainer.") for name in said)) is ordinary, said


@pytest.mark.parametrize(("loss", "given", "clip"), [
    ("grpo", {}, (0.2, None)),
    ("dapo", {}, (0.2, 0.28)),
    ("gspo", {}, (3e-4, 4e-4)),
    ("gspo", {"epsilon": 0.1}, (0.1, 0.1)),
    ("cispo", {}, (0.2, 5.0)),
    ("gmpo", {}, (0.4, None)),
])  # fmt: skip
def test_a_loss_brings_its_clip(run: Run, loss: str, given: dict[str, float], clip: tuple[float, float | None]) -> None:
    trainer = run(loss_type=loss, **given).config.trainer
    assert (trainer.epsilon, trainer.epsilon_high) == clip


@pytest.mark.parametrize(("task", "given", "ends"), [
    ("toy.large", {"max_steps": None, "num_train_epochs": None}, (None, 1.0, None)),
    ("toy.large", {"max_steps": 3}, (3, None, None)),
    ("toy.large", {"max_minutes": 2.0}, (None, None, 2.0)),
    ("toy.small", {"max_minutes": 2.0}, (None, None, 2.0)),  # not the recommended steps
    ("toy.small", {"max_minutes": 2.0, "max_steps": 7}, (7, None, 2.0)),
    ("toy.small", {"num_train_epochs": 2.0}, (None, 2.0, None)),
])  # fmt: skip
def test_something_always_ends_the_run(run: Run, task: str, given: dict[str, Any], ends: tuple[object, ...]) -> None:
    resolved = run(task, **given)
    trainer = resolved.config.trainer
    assert (trainer.max_steps, trainer.num_train_epochs, trainer.max_minutes) == ends
    if (task, ends) == ("toy.small", (None, None, 2.0)):
        assert "2.0 says when to stop; 200 is recommended" in str(resolved.sources["trainer.max_steps"])
        assert chosen(resolved, "trainer.max_steps")[0] == "null"


@pytest.mark.parametrize("trainer", [{"loss_args": {"a": 1}}, {"max_minutes": 2.0}])
def test_resolving_twice_changes_nothing(host: PluginHost, run: Run, tmp_path: Path, trainer: dict[str, Any]) -> None:
    once = run(**trainer)
    twice = resolve(once.config, once.sources, host=host)
    assert (twice.config, twice.choices) == (once.config, ())
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(once.config))
    loaded = load_config(config_file=file, environ={}, dotenv_path=None)
    again = resolve(loaded.config, loaded.sources, host=host)
    assert (again.config, again.choices) == (once.config, ())
    assert again.sources["trainer.learning_rate"].kind == "file"


@pytest.mark.parametrize(("task", "adapted"), [
    ("toy.styled", "toy.styled?style=short"),
    ("toy.styled:2?size=3,toy.any", "toy.styled:2?size=3&style=short,toy.any"),
    ("toy.styled?style=full", "toy.styled?style=full"),
    ("toy.any", "toy.any"),
])  # fmt: skip
def test_a_task_gets_the_options_of_its_embedded_model(host: PluginHost, run: Run, task: str, adapted: str) -> None:
    resolved = run(task, "made")
    assert resolved.config.task == adapted
    assert [each.why for each in resolved.choices if each.what == "task"] == [RECOMMENDED] * (task != adapted)
    assert resolve(resolved.config, host=host).config.task == adapted


def test_a_task_gets_the_options_of_the_runs_that_made_its_model(host: PluginHost, tmp_path: Path) -> None:
    def checkpoint(name: str, config: str, folder: str = "training_state/step_final") -> str:
        model = tmp_path / name / folder / "model"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text("{}")
        (tmp_path / name / "config.yaml").write_text(config)
        return str(model)

    def found(model: str) -> tuple[str, str]:
        return task_for_model("toy.styled", model, host)

    short, as_it_was = "toy.styled?style=short", ("toy.styled", "")
    first = checkpoint("first", "model: made\na_later_setting: 1\n")
    second = checkpoint("second", f"model: {first}\n")
    assert found(second) == (short, f"{RECOMMENDED}, with which the run of {second} started")
    assert found(checkpoint("odd", f"model: {tmp_path}/moved\n")) == as_it_was
    # The task of a run decides, and the last run on it.
    checkpoint("first", "model: made\ntask: toy.styled?style=chat&size=9,toy.any\n")
    assert found(second) == ("toy.styled?style=chat", f"the run of {second} had style=chat")
    checkpoint("first", "model: made\ntask: toy.styled\n")
    assert found(second) == as_it_was
    checkpoint("first", "model: made\ntask: '??,'\n")
    assert found(first)[0] == short
    foreign = checkpoint("foreign", "model: &m made\nother: *m\n", "outputs/last")  # another program's config.yaml
    assert found(foreign) == as_it_was


def test_a_model_s_size_decides_the_learning_rate_where_nobody_does(host: PluginHost, tmp_path: Path) -> None:
    def rate(model: str = QWEN, **given: Any) -> tuple[float, str]:
        resolved = resolve(RunConfig(task="toy.small", model=model, **given), host=host)
        return resolved.config.trainer.learning_rate, str(resolved.sources["trainer.learning_rate"])

    where, other = "profile model size: for 494 M parameters", "trained; set trainer.learning_rate for another"
    assert rate() == (1.7e-6, f"{where}, all {other}")
    assert rate(lora=LoraConfig(enabled=True)) == (1.7e-5, f"{where}, an adapter {other}")
    assert rate(trainer=TrainerConfig(learning_rate=1e-6)) == (1e-6, "python")
    assert rate(recipe="rloo")[1].startswith("recipe rloo") == ("trainer.learning_rate" in recipe("rloo").options)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert rate(str(tmp_path)) == (1e-6, "default")  # of unknown size
    # A warm start of all weights says nothing of an adapter.
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 258}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    (tmp_path / "warm_start.json").write_text(json.dumps({"recommended": {"trainer.learning_rate": 1.2e-4}}))
    value, source = rate(str(tmp_path), lora=LoraConfig(enabled=True))
    assert value == 1.5e-3 and source.startswith("profile model size: ")
    given = TrainerConfig(learning_rate=3e-4)
    assert rate(str(tmp_path), lora=LoraConfig(enabled=True), trainer=given) == (3e-4, "python")


def test_a_warm_start_brings_the_settings_that_it_recorded(host: PluginHost, run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    record = tmp_path / "warm_start.json"
    record.write_text(json.dumps({"recommended": after_warm_start(1_800_000)}))
    resolved = run(model=str(tmp_path))
    assert (resolved.config.trainer.learning_rate, resolved.config.trainer.prompts_per_step) == (1.2e-4, 32)
    assert "warm_start.json in the model's folder" in str(resolved.sources["trainer.prompts_per_step"])
    for text, message in {
        '{"recommended": {"output_dir": "/etc"}}': "must be an object with settings of trainer.adam_beta2, ",
        '{"recommended": []}': "must be an object",
        "[]": "must be an object",
        "{": "the record of the warm start cannot be read",
        '{"recommended": {"trainer.learning_rate": "high"}}': "trainer.learning_rate",
    }.items():
        record.write_text(text)
        with pytest.raises(UserError, match=message):
            run(model=str(tmp_path))
    record.write_text('{"task": "of a record without recommendations"}')
    assert profiles_of(str(tmp_path), "toy.small", host) == ()


def of_command_line(task: str, **trainer: str) -> TrainerConfig:
    values = {f"trainer.{name}": value for name, value in trainer.items()}
    return resolve(read_config({"task": task, **values}, environ={}, dotenv_path=None)).config.trainer


def of_python(task: str, **trainer: Any) -> TrainerConfig:
    return resolve(with_settings(RunConfig(task=task), trainer)).config.trainer


def test_a_setting_may_need_what_is_recommended_for_the_model() -> None:
    trainer = of_command_line("games.kuhn_poker", ref_model_sync_steps="30")
    assert (trainer.ref_model_sync_steps, trainer.beta) == (30, 0.3)
    assert of_python("games.kuhn_poker", ref_model_sync_steps=30) == trainer
    for task, beta in (("games.kuhn_poker", {"beta": "0"}), ("math.arithmetic", {})):
        with pytest.raises(UserError, match=r"ref_model_sync_steps=30 has no reference to move at trainer\.beta=0"):
            of_command_line(task, ref_model_sync_steps="30", **beta)


def test_a_controller_that_is_recommended_goes_with_its_coefficient() -> None:
    # games-tiny recommends entropy_coef=0.06, which decays with a half-life of 200, for tic-tac-toe.
    assert of_command_line("games.tictactoe").entropy_controller_args == {"half_life": 200}
    without = of_command_line("games.tictactoe", entropy_coef="0")
    assert (without.entropy_controller, without.entropy_controller_args) == ("constant", {})
    assert of_python("games.tictactoe", entropy_coef=0.0) == without
    with pytest.raises(UserError, match=r"decay has nothing to halve at trainer\.entropy_coef=0"):
        of_command_line("games.tictactoe", entropy_coef="0", entropy_controller="decay")
