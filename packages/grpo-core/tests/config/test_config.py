from __future__ import annotations

from typing import get_args

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from grpo_core.config import CurriculumConfig, RunConfig, TrainerConfig, flatten
from grpo_core.config.keys import choices, environment_name, find, keys, known_as, members, near, sections
from grpo_core.config.trainer import divisors
from grpo_core.errors import UnknownNameError


def refusal(**values: object) -> str:
    """The message with which a trainer of these values is refused."""
    with pytest.raises(ValidationError) as caught:
        TrainerConfig(**values)  # type: ignore[arg-type] # wrong values are what is tested
    return str(caught.value)


def test_the_defaults_are_the_vetted_recipe() -> None:
    # The defaults that the project promises; a change here is a change of the recipe.
    trainer = RunConfig().trainer
    assert (trainer.num_generations, trainer.max_prompt_length, trainer.max_completion_length) == (8, 512, 256)
    assert (trainer.temperature, trainer.epsilon, trainer.num_iterations, trainer.beta) == (1.0, 0.2, 1, 0.0)
    assert (trainer.loss_type, trainer.baseline, trainer.scale_rewards) == ("dr_grpo", "group_mean", None)
    assert trainer.rows_per_step == 8 * 8


def test_configurations_are_frozen_and_closed() -> None:
    config = RunConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 1  # type: ignore[misc] # what is tested
    with pytest.raises(ValidationError, match="Extra inputs"):
        RunConfig(sed=1)  # type: ignore[call-arg] # what is tested


def test_types_are_not_converted_silently() -> None:
    assert TrainerConfig(learning_rate=1).learning_rate == 1.0  # a whole number is a number
    for wrong in ({"num_generations": "8"}, {"num_generations": 8.0}, {"num_generations": True}, {"beta": "0.1"}):
        refusal(**wrong)
    refusal(gradient_checkpointing=1)
    refusal(learning_rate=float("inf"))


def test_a_group_of_one_is_refused_where_the_baseline_needs_a_group() -> None:
    message = refusal(num_generations=1)
    assert (
        "trainer.num_generations=1: the baseline group_mean needs a group; alone, every advantage is 0. "
        "Use 2 or more (default 8), or a baseline that needs none: adaptive_shrink, batch_mean, ema, none, "
        "reinforce_pp, remax, role, value."
    ) in message
    assert TrainerConfig(num_generations=1, baseline="ema").rows_per_step == 8
    assert "standard deviation of one reward" in refusal(num_generations=1, baseline="ema", scale_rewards="group")


def test_a_batch_that_does_not_divide_is_refused_with_the_arithmetic() -> None:
    # 8 prompts / 3 steps = 2.667; 8 prompts x 8 generations = 64 rows, 64 / 7 = 9.143; over 2 steps 32 / 12 = 2.667.
    assert "8 / 3 = 2.667" in refusal(steps_per_generation=3)
    assert "8 prompts x 8 generations = 64 completions, 64 / 7 = 9.143" in refusal(micro_batch_size=7)
    assert "8 generations / 2 steps = 32 completions, 32 / 12 = 2.667" in refusal(
        steps_per_generation=2, micro_batch_size=12
    )
    assert TrainerConfig(steps_per_generation=4, micro_batch_size=16).rows_per_step == 16


def test_values_that_contradict_one_another_are_refused() -> None:
    assert "trainer.epsilon_high=0.1 is below trainer.epsilon=0.2" in refusal(epsilon_high=0.1)
    assert TrainerConfig(epsilon_high=0.2).epsilon_high == 0.2
    assert "both say when to stop" in refusal(max_steps=3, num_train_epochs=1.0)
    assert "Give one" in refusal(warmup_steps=3, warmup_ratio=0.1)
    assert "256 - 300 = -44" in refusal(soft_overlong_buffer=300)
    assert "write trainer.epsilon=" in refusal(loss_args={"epsilon": 0.3})


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        ("bnpo", "fits mean rewards within minimum and maximum, which a penalty would leave"),
        ("gdpo", "sees only what each reward function gave"),
        ("maxrl", "divides by the mean reward of a group, which a penalty could take to 0 or below"),
        ("pass_at_k", "sees only whether a completion is solved"),
    ],
)
def test_penalties_that_a_baseline_cannot_use_are_refused(baseline: str, why: str) -> None:
    said = f"and the baseline {baseline} {why}. "
    kl = refusal(baseline=baseline, beta=0.1, kl_placement="reward")
    assert f"trainer.kl_placement=reward takes the KL off the reward, {said}Use kl_placement=ratio_loss" in kl
    long = refusal(baseline=baseline, soft_overlong_buffer=64)
    assert f"trainer.soft_overlong_buffer=64 takes a penalty off the reward, {said}Leave it out (null)" in long
    assert TrainerConfig(baseline=baseline, beta=0.1).kl_placement == "ratio_loss"
    assert TrainerConfig(baseline=baseline, kl_placement="reward").beta == 0
    assert TrainerConfig(baseline="group_mean", beta=0.1, kl_placement="reward", soft_overlong_buffer=64)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_completion_length": 0},
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"beta": -0.1},
        {"top_p": 0.0},
        {"min_p": 1.0},
        {"max_steps": 0},
        {"num_generations": 0},
        {"warmup_ratio": 1.0},
    ],
)
def test_values_outside_their_limits_are_refused(wrong: dict[str, object]) -> None:
    assert next(iter(wrong)) in refusal(**wrong)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"loss_type": "drgrpo"}, "dr_grpo"),
        ({"kl": "k33"}, "k3"),
        ({"baseline": "group_men"}, "group_mean"),
        ({"lr_scheduler_type": "cosin"}, "cosine"),
    ],
)
def test_variants_are_checked_by_name(wrong: dict[str, str], meant: str) -> None:
    assert f"Did you mean '{meant}" in refusal(**wrong)


def test_the_curriculum_is_checked() -> None:
    assert CurriculumConfig(boundaries=[0.1, 0.9]).boundaries == (0.1, 0.9)  # type: ignore[arg-type] # YAML has lists
    for boundaries in ((0.8, 0.2), (0.5, 0.5), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValidationError, match="0 <= first < second <= 1"):
            CurriculumConfig(boundaries=boundaries)
    for weights in ((0.0, 0.0, 0.0), (1.0, -1.0, 1.0)):
        with pytest.raises(ValidationError, match="none below 0"):
            CurriculumConfig(weights=weights)


def test_every_key_is_documented_once() -> None:
    for key in keys().values():
        assert key.description.endswith("."), f"{key.name} has no sentence"
        assert "\n" not in key.description
        assert key.allowed, key.name
    assert set(flatten(RunConfig())) == set(keys())
    assert sections() == ("trainer", "eval", "lora", "scoring", "curriculum", "engine", "tracking")


def test_every_number_has_two_bounds() -> None:
    fields = [
        (name, field)
        for model in (RunConfig, *(each.annotation for each in RunConfig.model_fields.values()))
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
        if {int, float} & set(members(field.annotation))
    ]
    assert len(fields) > 60
    for name, field in fields:
        inner = [each for arm in get_args(field.annotation) for each in getattr(arm, "__metadata__", ())]
        kinds = {type(limit) for limit in [*field.metadata, *(limit for each in inner for limit in each.metadata)]}
        assert kinds & {Ge, Gt} and kinds & {Le, Lt}, name


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
    words = {name: key.allowed for name, key in keys().items()}
    assert words["trainer.num_generations"] == "a whole number, 1 or more and at most 10^9"
    assert words["trainer.top_p"] == "a number above 0 and at most 1"
    assert words["trainer.min_p"] == "a number, 0 or more and below 1"
    assert words["trainer.max_steps"] == "a whole number, 1 or more and at most 10^9, or null"
    assert words["trainer.scale_rewards"] == "none, group or batch, or null"
    assert words["curriculum.boundaries"] == "a list of 2 numbers"
    assert words["trainer.lr_scheduler_type"] == "constant, cosine, none, or one that a plugin registers"
    assert words["trainer.std_ddof"] == "0 (of the population) or 1 (Bessel's)"
    assert words["lora.enabled"] == "true or false"
    assert choices(keys()["trainer.scale_rewards"].annotation) == ("none", "group", "batch")


def test_environment_names_follow_from_the_key() -> None:
    assert environment_name("trainer.learning_rate") == "GRPO_TRAINER__LEARNING_RATE"
    assert keys()["seed"].environment_name == "GRPO_SEED"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("lr", ("trainer.learning_rate",)),
        ("trainer.lr", ("trainer.learning_rate",)),
        ("learning_rate", ("trainer.learning_rate",)),
        ("trainer.num_generation", ("trainer.num_generations",)),
        ("trainer.size", ("eval.size",)),
        ("run.seed", ("seed",)),
        ("max_completion_length", ("trainer.max_completion_length", "eval.max_completion_length")),
        ("group_size", ("trainer.num_generations",)),
        ("trainr.beta", ("trainer.beta",)),
        ("curriculum.emaalpha", ("curriculum.ema_alpha",)),
        ("zzzzzz", ()),
    ],
)
def test_an_unknown_key_suggests_the_near_one(wrong: str, meant: tuple[str, ...]) -> None:
    assert near(wrong) == meant
    with pytest.raises(UnknownNameError) as caught:
        find(wrong, "run.yaml:3")
    assert str(caught.value).startswith(f"run.yaml:3: no setting {wrong!r}.")
    for name in meant:
        assert repr(name) in str(caught.value)


def test_words_of_other_trainers_lead_to_keys_that_exist() -> None:
    from grpo_core.config.keys import _HINTS

    for word, targets in _HINTS.items():
        assert known_as(word) == targets, f"{word} is a key itself: the hint is never given"
        assert all(target in keys() for target in targets)


def test_a_section_is_no_key() -> None:
    with pytest.raises(UnknownNameError, match=r"trainer is a section; set one of its keys.*num_generations"):
        find("trainer", "")


def test_arguments_of_variants_belong_to_their_key() -> None:
    assert find("trainer.loss_args.delta", "").name == "trainer.loss_args"
    with pytest.raises(UnknownNameError):
        find("trainer.loss_arg.delta", "")


@settings(deadline=None)  # a busy machine is slow, not wrong
@given(st.integers(1, 5000))
def test_divisors_are_all_and_only_those(number: int) -> None:
    assert divisors(number) == [candidate for candidate in range(1, number + 1) if number % candidate == 0]
