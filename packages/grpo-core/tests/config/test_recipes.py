from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_core.config import (
    LoadedConfig,
    ResolvedConfig,
    RunConfig,
    TrainerConfig,
    flatten,
    load_config,
    resolve,
    to_yaml,
)
from grpo_core.config.keys import find, keys
from grpo_core.config.layers import Layer, build, with_recipe
from grpo_core.config.recipes import _PLAIN, RECIPES, overlong_buffer
from grpo_core.errors import UnknownNameError, UserError
from grpo_core.plugins.host import default_host


def load(cli: dict[str, Any], **more: Any) -> LoadedConfig:
    """Load without this process's environment and folder."""
    return load_config(cli, **{"environ": {}, "dotenv_path": None, **more})


def run(cli: dict[str, Any], **more: Any) -> ResolvedConfig:
    """Load and resolve, with a model that recommends nothing unless another is given."""
    loaded = load({"model": "owner/model", **cli}, **more)
    return resolve(loaded.config, loaded.sources)


def test_the_names_are_those_that_are_promised() -> None:
    assert list(RECIPES) == [
        "grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_pp", "lite_ppo", "spiral", "rl_practice",
        "code_execution", "rookworld", "rookworld_gae",
    ]  # fmt: skip
    assert all(name == each.name and each.summary.endswith(".") and each.source for name, each in RECIPES.items())


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete_and_its_values_are_taken(name: str) -> None:
    recipe = RECIPES[name]
    for key in recipe.options:
        find(key, name)
    plain = {f"trainer.{key}" for key in _PLAIN}
    missing = plain - set(recipe.options)
    assert missing <= {"trainer.warmup_steps"}, "another layer would decide these"
    assert ("trainer.warmup_steps" in missing) == ("trainer.warmup_ratio" in recipe.options)
    assert set(recipe.defining) <= set(recipe.options)
    resolved = run({"recipe": name})
    for key, value in recipe.options.items():
        assert str(resolved.sources[key]) == f"recipe {name}", key
        parent, _, last = key.rpartition(".")
        held = flatten(resolved.config)
        assert (held[key] if key in keys() else held[parent][last]) == value or key == "trainer.epsilon_high", key


def test_rookworld_is_as_its_authors_state_it() -> None:
    trainer = run({"recipe": "rookworld"}).config.trainer
    assert (trainer.baseline, trainer.num_generations, trainer.epsilon, trainer.learning_rate) == (
        "group_mean", 8, 0.2, 1e-5,
    )  # fmt: skip
    assert (trainer.beta, trainer.kl_controller, trainer.kl_controller_args) == (0.02, "step_rule", {"target": 0.01})
    assert (trainer.entropy_coef, trainer.adam_beta1, trainer.adam_beta2) == (0.01, 0.9, 0.95)
    assert (trainer.temperature, trainer.top_k, trainer.top_p, trainer.max_completion_length) == (0.8, 50, 0.95, 144)
    assert not trainer.value_head
    gae = run({"recipe": "rookworld_gae"}).config.trainer
    assert (gae.value_head, gae.value_loss_coef, gae.use_gae, gae.baseline) == (True, 0.1, True, "value")
    assert (gae.gae_gamma, gae.gae_lambda) == (1.0, 0.95)
    changed = {name for name in type(trainer).model_fields if getattr(trainer, name) != getattr(gae, name)}
    assert changed == {"baseline", "value_head", "value_learning_rate", "use_gae"}, "all else is the same"


def test_a_recipe_stands_between_the_file_and_the_model(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("recipe: rookworld\ntrainer:\n  top_k: 20\n")
    resolved = run({"model": "tiny", "trainer.learning_rate": "3e-6"}, config_file=file)
    trainer = resolved.config.trainer
    assert (trainer.learning_rate, trainer.top_k, trainer.temperature) == (3e-6, 20, 0.8)
    assert str(resolved.sources["trainer.temperature"]) == "recipe rookworld"
    # The embedded model recommends 32 prompts and a number of steps; the recipe says 8 prompts and nothing of steps.
    recommended = default_host().models()["tiny"].defaults
    assert recommended["trainer.prompts_per_step"] == 32
    assert (trainer.prompts_per_step, trainer.max_steps) == (8, recommended["trainer.max_steps"])
    why = next(choice.why for choice in resolved.choices if choice.what == "settings")
    assert why.startswith("the recipe rookworld stands above what is recommended for the model tiny: ")
    assert "trainer.prompts_per_step=8, not 32" in why
    assert "learning_rate" not in why, "that one the user gave"
    said = next(choice for choice in resolved.choices if choice.what == "recipe")
    assert said.value == "rookworld"
    assert said.why.startswith("RookWorld's stated defaults")


def test_a_recipe_comes_from_every_source(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GRPO_RECIPE=gspo\n")
    (tmp_path / "run.yaml").write_text("recipe: gspo\n")
    for more in (
        {"environ": {"GRPO_RECIPE": "gspo"}},
        {"dotenv_path": tmp_path / ".env"},
        {"config_file": tmp_path / "run.yaml"},
    ):
        assert run({}, **more).config.trainer.loss_type == "gspo"
        assert run({"recipe": "rloo"}, **more).config.trainer.loss_type == "rloo", "the higher place wins"
        assert run({"recipe": "null"}, **more).config.trainer.loss_type == "dr_grpo"
    config = RunConfig(recipe="gspo", model="owner/model", trainer=TrainerConfig(num_generations=4))
    resolved = resolve(config).config
    assert (resolved.trainer.loss_type, resolved.trainer.num_generations) == ("gspo", 4)


def test_an_unknown_recipe_says_what_there_is() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no recipe 'dappo'\. Did you mean 'dapo'\? Available: cispo, code_exec"
    ):
        load({"recipe": "dappo"})


@pytest.mark.parametrize("name", RECIPES)
def test_what_defines_a_recipe_cannot_be_changed(name: str) -> None:
    others = {
        "trainer.loss_type": "vespo", "trainer.aggregation": "token_sum", "trainer.baseline": "opo",
        "trainer.value_head": not RECIPES[name].options["trainer.value_head"],
        "trainer.use_gae": not RECIPES[name].options["trainer.use_gae"],
        "trainer.dynamic_sampling": False, "trainer.kl_placement": "loss",
        "trainer.scale_rewards": "batch" if name != "lite_ppo" else "group",
    }  # fmt: skip
    for key in RECIPES[name].defining:
        with pytest.raises(UserError, match=f"the recipe {name} is {key}=.*, but command line says {key}=") as caught:
            load({"recipe": name, key: others[key]})
        assert str(caught.value).endswith(f"it would no longer be {name}. Leave out {key}, or the recipe.")
        load({"recipe": name, key: RECIPES[name].options[key]})  # saying the same is no contradiction


def test_a_defining_option_is_held_also_in_python_and_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the recipe dapo is trainer\.loss_type=dapo, but python says"):
        resolve(RunConfig(recipe="dapo", model="owner/model", trainer=TrainerConfig(loss_type="grpo")))
    file = tmp_path / "run.yaml"
    file.write_text("trainer:\n  loss_type: grpo\n")
    with pytest.raises(UserError, match=r"run\.yaml:2 says trainer\.loss_type=grpo"):
        load({"recipe": "dapo"}, config_file=file)


def test_what_does_not_define_a_recipe_can_be_changed() -> None:
    assert run({"recipe": "grpo", "trainer.beta": "0", "trainer.num_generations": "4"}).config.trainer.beta == 0
    trainer = run({"recipe": "grpo", "trainer.warmup_ratio": "0.1"}).config.trainer
    assert (trainer.warmup_ratio, trainer.warmup_steps) == (0.1, 0)
    trainer = run({"recipe": "rl_practice", "trainer.micro_batch_size": "8"}).config.trainer
    assert (trainer.micro_batch_size, trainer.micro_batch_prompts) == (8, None)


def test_a_contradiction_with_a_recipes_value_names_the_recipe() -> None:
    with pytest.raises(UserError, match=r"\[trainer\.micro_batch_prompts: recipe rl_practice\]"):
        load({"recipe": "rl_practice", "trainer.prompts_per_step": "5"})


def test_the_overlong_penalty_goes_by_the_length() -> None:
    # A fifth of the longest completion: 4096 of 20480, 51.2 -> 51 of 256.
    assert overlong_buffer("dapo", 20480) == 4096
    assert run({"recipe": "dapo"}).config.trainer.soft_overlong_buffer == 51
    assert run({"recipe": "dapo", "trainer.soft_overlong_buffer": "null"}).config.trainer.soft_overlong_buffer is None
    assert run({"recipe": "dapo", "trainer.soft_overlong_buffer": "7"}).config.trainer.soft_overlong_buffer == 7
    assert run({"recipe": "grpo"}).config.trainer.soft_overlong_buffer is None
    assert overlong_buffer("dapo", 4) is None, "too short for a buffer"


def test_the_configuration_of_a_run_repeats_it(tmp_path: Path) -> None:
    for name in RECIPES:
        once = run({"recipe": name, "model": "tiny"})
        file = tmp_path / "config.yaml"
        file.write_text(to_yaml(once.config))
        loaded = load({}, config_file=file)
        again = resolve(loaded.config, loaded.sources)
        assert again.config == once.config
        assert again.choices == ()
    with pytest.raises(UserError, match=r"the recipe rookworld is .*config\.yaml:\d+ says"):
        load({"recipe": "rookworld"}, config_file=file)


def test_layers_without_a_recipe_stay_as_they_are() -> None:
    layer = Layer()
    assert with_recipe([layer]) == (layer,)
    assert build(with_recipe([layer])).config == RunConfig()


def test_the_guide_lists_every_recipe_with_its_own_values() -> None:
    from grpo_core.config.layers import format_value

    guide = (Path(__file__).parents[4] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    for name, recipe in RECIPES.items():
        assert f"## `{name}`" in guide
        section = guide.split(f"## `{name}`\n")[1].split("\n## ")[0]
        assert recipe.summary in section
        assert recipe.source in section
        assert recipe.note in section
        assert ("soft_overlong_buffer" in section) == recipe.has_overlong_penalty
        for key, value in recipe.options.items():
            if _PLAIN.get(key.removeprefix("trainer."), object()) != value or key in recipe.defining:
                assert f"`{key}={format_value(value)}`" in section, (name, key)
