"""The settings themselves: their defaults, bounds, names and words."""

import pytest
from pydantic import ValidationError

from grpo_core.config import RunConfig, flatten
from grpo_core.config.keys import _HINTS, choices, environment_name, find, keys, known_as, near, sections
from grpo_sdk.errors import UnknownNameError


def test_the_defaults_are_the_vetted_recipe_and_configurations_frozen_and_closed() -> None:
    # The defaults that the project promises; a change here is a change of the recipe.
    trainer = RunConfig().trainer
    assert (trainer.num_generations, trainer.max_prompt_length, trainer.max_completion_length) == (8, 512, 256)
    assert (trainer.temperature, trainer.epsilon, trainer.num_iterations, trainer.beta) == (1.0, 0.2, 1, 0.0)
    assert (trainer.loss_type, trainer.baseline, trainer.scale_rewards) == ("dr_grpo", "group_mean", None)
    assert trainer.rows_per_step == 8 * 8
    with pytest.raises(ValidationError, match="frozen"):
        RunConfig().seed = 1  # type: ignore[misc] # what is tested
    with pytest.raises(ValidationError, match="Extra inputs"):
        RunConfig(sed=1)  # type: ignore[call-arg] # what is tested


def test_every_key_is_documented_once() -> None:
    for key in keys().values():
        assert key.description.endswith(".") and "\n" not in key.description, key.name
        assert key.allowed, key.name
    assert set(flatten(RunConfig())) == set(keys())
    assert sections() == ("trainer", "eval", "lora", "scoring", "curriculum", "engine", "tracking")


@pytest.mark.parametrize("key", [name for name, key in keys().items() if "number" in key.allowed])
def test_no_number_is_too_large_for_what_comes_after(key: str) -> None:
    section, _, last = key.rpartition(".")
    huge: list[object] = [10**30, 1e300, 1e18]
    if key.startswith("curriculum.") and "list" in keys()[key].allowed:
        huge = [[each] * (2 if key.endswith("boundaries") else 3) for each in huge]
    for value in huge:
        with pytest.raises(ValueError):
            RunConfig.model_validate({section: {last: value}} if section else {last: value})


def test_a_key_knows_its_type_and_limits_in_words() -> None:
    words = {
        "trainer.num_generations": "a whole number, 1 or more and at most 10^9",
        "trainer.top_p": "a number above 0 and at most 1",
        "trainer.min_p": "a number, 0 or more and below 1",
        "trainer.scale_rewards": "none, group or batch, or null",
        "trainer.lr_scheduler_type": "constant, cosine, none, or one that a plugin registers",
        "trainer.std_ddof": "0 (of the population) or 1 (Bessel's)",
    }
    assert {name: keys()[name].allowed for name in words} == words
    assert choices(keys()["trainer.scale_rewards"].annotation) == ("none", "group", "batch")
    assert (environment_name("seed"), environment_name("trainer.beta")) == ("GRPO_SEED", "GRPO_TRAINER__BETA")


@pytest.mark.parametrize(("wrong", "meant"), [
    ("lr", ("trainer.learning_rate",)),
    ("trainer.num_generation", ("trainer.num_generations",)),
    ("max_completion_length", ("trainer.max_completion_length", "eval.max_completion_length")),
    ("zzzzzz", ()),
])  # fmt: skip
def test_an_unknown_key_suggests_the_near_one(wrong: str, meant: tuple[str, ...]) -> None:
    assert near(wrong) == meant
    with pytest.raises(UnknownNameError) as caught:
        find(wrong, "run.yaml:3")
    assert str(caught.value).startswith(f"run.yaml:3: no setting {wrong!r}.")
    for name in meant:
        assert repr(name) in str(caught.value)


def test_words_of_other_trainers_lead_to_keys_that_exist() -> None:
    for word, targets in _HINTS.items():
        assert known_as(word) == targets, f"{word} is a key itself: the hint is never given"
        assert all(target in keys() for target in targets)


def test_arguments_of_variants_belong_to_their_key_and_a_section_is_none() -> None:
    assert find("trainer.loss_args.delta", "").name == "trainer.loss_args"
    with pytest.raises(UnknownNameError):
        find("trainer.loss_arg.delta", "")
    with pytest.raises(UnknownNameError, match=r"trainer is a section; set one of its keys.*num_generations"):
        find("trainer", "")
