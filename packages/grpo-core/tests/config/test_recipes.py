"""Recipes: complete, taken as they are stated, and held to what defines them."""

import re
from pathlib import Path

import pytest
from loaded_configs import load, refusal, resolved, write

from grpo_core.config import RunConfig, TrainerConfig, flatten, resolve, to_yaml
from grpo_core.config.keys import find, keys
from grpo_core.config.recipes import _PLAIN, RECIPES, overlong_buffer
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.host import default_host


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete_and_its_values_are_taken(name: str) -> None:
    recipe = RECIPES[name]
    assert recipe.name == name and recipe.summary.endswith(".") and recipe.source
    for key in recipe.options:
        find(key, name)
    missing = {f"trainer.{key}" for key in _PLAIN} - set(recipe.options)
    assert missing <= {"trainer.warmup_steps"}, "another layer would decide these"
    assert ("trainer.warmup_steps" in missing) == ("trainer.warmup_ratio" in recipe.options)
    assert set(recipe.defining) <= set(recipe.options)
    run = resolved({"recipe": name})
    held = flatten(run.config)
    for key, value in recipe.options.items():
        assert str(run.sources[key]) == f"recipe {name}", key
        parent, _, last = key.rpartition(".")
        assert (held[key] if key in keys() else held[parent][last]) == value or key == "trainer.epsilon_high", key


def test_a_recipe_stands_between_the_file_and_the_model(tmp_path: Path) -> None:
    file = write(tmp_path / "run.yaml", "recipe: rookworld\ntrainer:\n  top_k: 20\n")
    run = resolved({"model": "tiny", "trainer.learning_rate": "3e-6"}, config_file=file)
    trainer = run.config.trainer
    assert (trainer.learning_rate, trainer.top_k, trainer.temperature) == (3e-6, 20, 0.8)
    assert str(run.sources["trainer.temperature"]) == "recipe rookworld"
    # The embedded model recommends 32 prompts and a number of steps; the recipe says 8 prompts and nothing of steps.
    recommended = default_host().models()["tiny"].defaults
    assert recommended["trainer.prompts_per_step"] == 32
    assert (trainer.prompts_per_step, trainer.max_steps) == (8, recommended["trainer.max_steps"])
    why = next(choice.why for choice in run.choices if choice.what == "settings")
    assert why.startswith("the recipe rookworld stands above what is recommended for the model tiny: ")
    assert "trainer.prompts_per_step=8, not 32" in why
    assert "learning_rate" not in why, "that one the user gave"
    said = next(choice for choice in run.choices if choice.what == "recipe")
    assert said.value == "rookworld" and said.why.startswith("RookWorld's stated defaults")


def test_a_recipe_is_a_setting_like_others(tmp_path: Path) -> None:
    file = write(tmp_path / "run.yaml", "recipe: gspo\n")
    for above, loss in (({}, "gspo"), ({"recipe": "rloo"}, "rloo"), ({"recipe": "null"}, "dr_grpo")):
        assert resolved(above, config_file=file).config.trainer.loss_type == loss
    config = RunConfig(recipe="gspo", model="owner/model", trainer=TrainerConfig(num_generations=4))
    trainer = resolve(config).config.trainer
    assert (trainer.loss_type, trainer.num_generations) == ("gspo", 4)


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
        said = refusal({"recipe": name, key: others[key]})
        assert f"the recipe {name} is {key}=" in said and f", but command line says {key}=" in said
        assert said.endswith(f"it would no longer be {name}. Leave out {key}, or the recipe.")
        load({"recipe": name, key: RECIPES[name].options[key]})  # saying the same is no contradiction


def test_a_defining_option_is_held_also_in_python_and_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the recipe dapo is trainer\.loss_type=dapo, but python says"):
        resolve(RunConfig(recipe="dapo", model="owner/model", trainer=TrainerConfig(loss_type="grpo")))
    file = write(tmp_path / "run.yaml", "trainer:\n  loss_type: grpo\n")
    assert "run.yaml:2 says trainer.loss_type=grpo" in refusal({"recipe": "dapo"}, config_file=file)


def test_what_does_not_define_a_recipe_can_be_changed() -> None:
    assert resolved({"recipe": "grpo", "trainer.beta": "0"}).config.trainer.beta == 0
    trainer = resolved({"recipe": "grpo", "trainer.warmup_ratio": "0.1"}).config.trainer
    assert (trainer.warmup_ratio, trainer.warmup_steps) == (0.1, 0)
    trainer = resolved({"recipe": "rl_practice", "trainer.micro_batch_size": "8"}).config.trainer
    assert (trainer.micro_batch_size, trainer.micro_batch_prompts) == (8, None)
    contradiction = refusal({"recipe": "rl_practice", "trainer.prompts_per_step": "5"})
    assert "[trainer.micro_batch_prompts: recipe rl_practice]" in contradiction


def test_the_overlong_penalty_goes_by_the_length() -> None:
    def buffer(recipe: str, **given: str) -> int | None:
        settings = {f"trainer.{name}": value for name, value in given.items()}
        return resolved({"recipe": recipe, **settings}).config.trainer.soft_overlong_buffer

    # A fifth of the longest completion: 4096 of 20480, 51.2 -> 51 of 256.
    assert overlong_buffer("dapo", 20480) == 4096 and overlong_buffer("dapo", 4) is None
    assert (buffer("dapo"), buffer("grpo")) == (51, None)
    assert (buffer("dapo", soft_overlong_buffer="null"), buffer("dapo", soft_overlong_buffer="7")) == (None, 7)


def test_the_configuration_of_a_run_repeats_it(tmp_path: Path) -> None:
    for name in RECIPES:
        once = resolved({"recipe": name, "model": "tiny"})
        file = write(tmp_path / "config.yaml", to_yaml(once.config))
        loaded = load(config_file=file)
        again = resolve(loaded.config, loaded.sources)
        assert (again.config, again.choices) == (once.config, ())
    assert "the recipe rookworld is " in refusal({"recipe": "rookworld"}, config_file=file)


def test_the_guide_lists_every_recipe_with_its_own_values() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    for name, recipe in RECIPES.items():
        section = guide.split(f"## `{name}`\n")[1].split("\n## ")[0]
        assert all(words in section for words in (recipe.summary, recipe.source, recipe.note))
        assert ("soft_overlong_buffer" in section) == recipe.has_overlong_penalty
        options = {key: f"{key}={format_value(value)}" for key, value in recipe.options.items()}
        assert set(re.findall(r"`([\w.]+=[^`]+)`", section)) <= set(options.values())
        for key, value in recipe.options.items():
            if _PLAIN.get(key.removeprefix("trainer."), object()) != value or key in recipe.defining:
                assert f"`{options[key]}`" in section, (name, key)
