from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_core.config import LoadedConfig, load_config, resolve
from grpo_core.config.aliases import ALIASES, REFUSED
from grpo_core.config.keys import _HINTS, find, keys, known_as
from grpo_core.errors import UserError


def load(cli: dict[str, Any], **more: Any) -> LoadedConfig:
    """Load without this process's environment and folder."""
    return load_config(cli, **{"environ": {}, "dotenv_path": None, **more})


def at(loaded: LoadedConfig, key: str) -> Any:
    """The value of a key of the trainer, or of an argument of one of its variants."""
    _, name, *argument = key.split(".")
    value = getattr(loaded.config.trainer, name)
    return value[argument[0]] if argument else value


@pytest.mark.parametrize(
    ("word", "text", "key", "value"),
    [
        ("k_samples", "4", "trainer.num_generations", 4),
        ("clip_range", "0.1", "trainer.epsilon", 0.1),
        ("clip_eps", "0.1", "trainer.epsilon", 0.1),
        ("clip_+", "0.3", "trainer.epsilon_high", 0.3),
        ("kl_coef", "0.02", "trainer.beta", 0.02),
        ("kl_beta", "0.02", "trainer.beta", 0.02),
        ("kl_type", "forward", "trainer.kl", "k3"),
        ("kl_type", "reverse", "trainer.kl", "fkl_k3"),
        ("kl_type", "symmetric", "trainer.kl", "jeffreys"),
        ("kl_type", "full", "trainer.kl", "full"),
        ("baseline_type", "ema", "trainer.baseline", "ema"),
        ("baseline_type", "adaptive", "trainer.baseline", "adaptive"),
        ("entropy_coef", "0.01", "trainer.entropy_coef", 0.01),
        ("value_loss_coef", "0.1", "trainer.value_loss_coef", 0.1),
        ("gae_lambda", "0.9", "trainer.gae_lambda", 0.9),
        ("max_new_tokens", "144", "trainer.max_completion_length", 144),
        ("grad_clip", "0.5", "trainer.max_grad_norm", 0.5),
        ("lr", "1e-5", "trainer.learning_rate", 1e-5),
        ("lr_scheduler", "const", "trainer.lr_scheduler_type", "constant"),
        ("lr_scheduler", "cosine", "trainer.lr_scheduler_type", "cosine"),
        ("batch_size", "16", "trainer.prompts_per_step", 16),
        ("buffer_size", "32", "trainer.prompts_per_step", 32),
        ("microbatch_size", "2", "trainer.micro_batch_prompts", 2),
        ("per_device_train_batch_size", "8", "trainer.micro_batch_size", 8),
        ("ppo_epochs", "2", "trainer.num_iterations", 2),
        ("warmup_ratio", "0.05", "trainer.warmup_ratio", 0.05),
        ("steps", "20", "trainer.max_steps", 20),
        ("top_k", "50", "trainer.top_k", 50),
    ],
)
def test_a_word_of_theirs_is_taken_wherever_a_setting_is(
    tmp_path: Path, word: str, text: str, key: str, value: object
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"{word}: {text}\n")
    inside = tmp_path / "inside.yaml"
    inside.write_text(f"trainer:\n  {word}: {text}\n")
    sources = {
        f"command line as {word}": load({word: text}),
        f"command line as trainer.{word}": load({f"trainer.{word}": text}),
        f"{file}:1 as {word}": load({}, config_file=file),
        f"{inside}:2 as trainer.{word}": load({}, config_file=inside),
        f"environment GRPO_{word.upper()} as {word}": load({}, environ={f"GRPO_{word.upper()}": text}),
    }
    own = key.rpartition(".")[2] == word  # then, in its section, it is the name itself
    for source, loaded in sources.items():
        assert at(loaded, key) == value
        assert type(at(loaded, key)) is type(value)
        assert str(loaded.sources[key]) == (source.partition(" as ")[0] if own and "trainer." in source else source)


def test_words_that_need_another_setting() -> None:
    kl = {"kl_coef": "0.02", "adaptive_kl": "true", "kl_target": "0.05"}
    loaded = load(kl)
    assert loaded.config.trainer.kl_controller == "step_rule"
    assert loaded.config.trainer.kl_controller_args == {"target": 0.05}
    assert load({"adaptive_kl": "false"}).config.trainer.kl_controller == "constant"
    proportional = {"trainer.beta": "0.02", "trainer.kl_controller": "proportional", "kl_horizon": "50"}
    assert at(load(proportional), "trainer.kl_controller_args.horizon") == 50
    assert at(load({"baseline_type": "ema", "ema_alpha": "0.2"}), "trainer.advantage_args.alpha") == 0.2
    learned = load({"baseline_type": "learned", "trainer.value_head": "true", "use_gae": "true"})
    assert (learned.config.trainer.baseline, learned.config.trainer.use_gae) == ("value", True)
    # A biased variance of 0.01 or more is a deviation of 0.1 or more.
    least = at(
        load({"trainer.dynamic_sampling": "true", "reward_var_thresh": "0.01"}), "trainer.dynamic_sampling_min_std"
    )
    assert 0.1 > least > 0.1 - 1e-15


@pytest.mark.parametrize(
    ("cli", "message"),
    [
        ({"baseline_type": "learned"}, "trainer.baseline=value needs trainer.value_head=true"),
        ({"adaptive_kl": "yes"}, "adaptive_kl='yes': must be true or false."),
        ({"reward_var_thresh": "-1"}, "reward_var_thresh=-1: must be a number, 0 or more."),
        ({"reward_var_thresh": "0.01"}, "trainer.dynamic_sampling=false keeps every group"),
        ({"k_samples": "x"}, "trainer.num_generations=x: must be a whole number"),
        ({"ema_alpha": "0.1"}, "only with trainer.baseline=ema or adaptive_shrink; it is group_mean."),
        ({"baseline_type": "role", "ema_alpha": "0.1"}, "it is role."),
        ({"kl_target": "0.1"}, "it is constant. Leave it out, or set trainer.kl_controller."),
        ({"kl_coef": "0.1", "adaptive_kl": "true", "kl_horizon": "9"}, "only with trainer.kl_controller=proportional"),
        ({"kl_type": "forwards"}, "no kl 'forwards'"),
    ],
)
def test_a_wrong_value_is_refused(cli: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(cli)
    assert message in str(caught.value)


@pytest.mark.parametrize("word", REFUSED)
def test_a_word_with_another_meaning_is_refused_with_the_reason(tmp_path: Path, word: str) -> None:
    for name in (word, f"trainer.{word}"):
        with pytest.raises(UserError) as caught:
            load({name: "1"})
        assert str(caught.value) == f"{name}: {REFUSED[word]}."
    with pytest.raises(UserError, match=f"^GRPO_{word.upper()}: {word}: "):
        load({}, environ={f"GRPO_{word.upper()}": "1"})
    file = tmp_path / "run.yaml"
    file.write_text(f"seed: 1\n{word}: 1\n")
    with pytest.raises(UserError, match=rf"run\.yaml:2: {word}: "):
        load({}, config_file=file)


def test_both_names_in_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load({"k_samples": "4", "trainer.num_generations": "4"})
    assert str(caught.value) == (
        "trainer.num_generations is given twice: by command line as k_samples, and by command line."
    )
    with pytest.raises(UserError, match="by command line as clip_range, and by command line as clip_eps"):
        load({"clip_range": "0.1", "clip_eps": "0.1"})
    file = tmp_path / "run.yaml"
    file.write_text("k_samples: 4\ntrainer:\n  num_generations: 4\n")
    with pytest.raises(UserError, match=r"given twice: by .*run\.yaml:1 as k_samples, and by .*run\.yaml:3"):
        load({}, config_file=file)
    file.write_text("k_samples: 4\n")
    assert load({"trainer.num_generations": "6"}, config_file=file).config.trainer.num_generations == 6


def test_the_name_of_the_setting_is_a_choice_with_its_reason() -> None:
    loaded = load({"k_samples": "4", "model": "owner/model"})
    choices = {choice.what: choice for choice in resolve(loaded.config, loaded.sources).choices}
    assert choices["trainer.num_generations"].value == "4"
    assert choices["trainer.num_generations"].why == "given by the name k_samples, which is this setting here"


def test_an_error_of_a_value_names_the_word_that_was_written(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("k_samples: 0\n")
    with pytest.raises(UserError, match=r"trainer\.num_generations=0 \(.*run\.yaml:1 as k_samples\): must be a whole"):
        load({}, config_file=file)


def test_aliases_lead_to_settings_and_are_none() -> None:
    for word, alias in ALIASES.items():
        assert word == alias.word
        assert word not in keys()
        assert find(alias.key, "")
        assert known_as(word), "an option written with dashes is told its setting"
        assert word not in REFUSED
        assert word not in _HINTS
    assert not set(REFUSED) & set(_HINTS)


def test_the_guide_lists_every_word() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    for word, alias in ALIASES.items():
        assert f"| `{word}` | `{alias.key}` | {alias.note}" in guide
    for word, why in REFUSED.items():
        assert f"| `{word}` | {why} |" in guide
