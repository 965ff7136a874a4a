"""Words of other trainers for settings of ours."""

from pathlib import Path
from typing import Any

import pytest
from loaded_configs import load, refusal, resolved, write

from grpo_core.config import LoadedConfig
from grpo_core.config.keys import _HINTS, ALIASES, REFUSED, find, keys, known_as, meaning


def at(loaded: LoadedConfig, key: str) -> Any:
    """The value of a key of the trainer, or of an argument of one of its variants."""
    _, name, *argument = key.split(".")
    value = getattr(loaded.config.trainer, name)
    return value[argument[0]] if argument else value


@pytest.mark.parametrize(("word", "text", "key", "value"), [
    ("k_samples", "4", "trainer.num_generations", 4),
    ("clip_+", "0.3", "trainer.epsilon_high", 0.3),
    ("kl_type", "forward", "trainer.kl", "k3"),
    ("baseline_type", "ema", "trainer.baseline", "ema"),
    ("lr_scheduler", "const", "trainer.lr_scheduler_type", "constant"),
])  # fmt: skip
def test_their_words_are_taken_wherever_ours_are(tmp_path: Path, word: str, text: str, key: str, value: object) -> None:
    file = write(tmp_path / "run.yaml", f"{word}: {text}\n")
    inside = write(tmp_path / "inside.yaml", f"trainer:\n  {word}: {text}\n")
    sources = {
        f"command line as {word}": load({word: text}),
        f"command line as trainer.{word}": load({f"trainer.{word}": text}),
        f"{file}:1 as {word}": load(config_file=file),
        f"{inside}:2 as trainer.{word}": load(config_file=inside),
        f"environment GRPO_{word.upper()} as {word}": load(environ={f"GRPO_{word.upper()}": text}),
    }
    for source, loaded in sources.items():
        assert at(loaded, key) == value
        assert type(at(loaded, key)) is type(value)
        assert str(loaded.sources[key]) == source


def test_a_setting_may_be_called_by_its_last_word() -> None:
    # That of `trainer`, of the only other section, or with the section and an underscore; other systems' words first.
    words = {
        **{"task": "task", "temperature": "trainer.temperature", "loss_args.delta": "trainer.loss_args.delta"},
        **{"workers": "scoring.workers", "eval_at_end": "eval.at_end", "batch_size": "trainer.prompts_per_step"},
        **{"enabled": "enabled", "nothing": "nothing"},  # of two sections, and of none
    }
    assert {word: meaning(word)[0] for word in words} == words
    assert [meaning(word, "eval")[0] for word in ("temperature", "batch_size")] == [
        "eval.temperature",
        "eval.batch_size",
    ]
    assert at(load({"warmup_ratio": "0.05"}), "trainer.warmup_ratio") == 0.05
    assert "trainer.beta is given twice: by command line" in refusal({"beta": "1", "trainer.beta": "1"})
    assert "no setting 'enabled'. Did you mean 'lora.enabled' or 'curriculum.enabled'?" in refusal({"enabled": "true"})


def test_words_that_need_another_setting() -> None:
    trainer = load({"kl_coef": "0.02", "adaptive_kl": "true", "kl_target": "0.05"}).config.trainer
    assert (trainer.kl_controller, trainer.kl_controller_args) == ("step_rule", {"target": 0.05})
    assert load({"adaptive_kl": "false"}).config.trainer.kl_controller == "constant"
    proportional = {"trainer.beta": "0.02", "trainer.kl_controller": "proportional", "kl_horizon": "50"}
    assert at(load(proportional), "trainer.kl_controller_args.horizon") == 50
    assert at(load({"baseline_type": "ema", "ema_alpha": "0.2"}), "trainer.advantage_args.alpha") == 0.2
    learned = load({"baseline_type": "learned", "trainer.value_head": "true", "use_gae": "true"}).config.trainer
    assert (learned.baseline, learned.use_gae) == ("value", True)
    # A biased variance of 0.01 or more is a deviation of 0.1 or more.
    sampled = load({"trainer.dynamic_sampling": "true", "reward_var_thresh": "0.01"}).config.trainer
    assert 0.1 > sampled.dynamic_sampling_min_std > 0.1 - 1e-15


@pytest.mark.parametrize(("cli", "message"), [
    ({"baseline_type": "learned"}, "trainer.baseline=value needs trainer.value_head=true"),
    ({"adaptive_kl": "yes"}, "adaptive_kl='yes': must be true or false."),
    ({"reward_var_thresh": "-1"}, "reward_var_thresh=-1: must be a number, 0 or more."),
    ({"k_samples": "x"}, "trainer.num_generations=x: must be a whole number"),
    ({"baseline_type": "role", "ema_alpha": "0.1"}, "trainer.baseline=ema or adaptive_shrink; it is role."),
    ({"kl_target": "0.1"}, "it is constant. Leave it out, or set trainer.kl_controller."),
    ({"kl_coef": "0.1", "adaptive_kl": "true", "kl_horizon": "9"}, "only with trainer.kl_controller=proportional"),
    ({"clip_range": "0.1", "clip_eps": "0.1"}, "as clip_range, and by command line as clip_eps"),
])  # fmt: skip
def test_a_wrong_value_and_two_of_one_setting_are_refused(cli: dict[str, str], message: str) -> None:
    assert message in refusal(cli)


@pytest.mark.parametrize("word", REFUSED)
def test_a_word_with_another_meaning_is_refused_with_the_reason(tmp_path: Path, word: str) -> None:
    for name in (word, f"trainer.{word}"):
        assert refusal({name: "1"}) == f"{name}: {REFUSED[word]}."
    assert refusal(environ={f"GRPO_{word.upper()}": "1"}).startswith(f"GRPO_{word.upper()}: {word}: ")
    assert f"run.yaml:2: {word}: " in refusal(config_file=write(tmp_path / "run.yaml", f"seed: 1\n{word}: 1\n"))


def test_places_are_named_by_the_word_that_was_written(tmp_path: Path) -> None:
    file = write(tmp_path / "run.yaml", "k_samples: 4\ntrainer:\n  num_generations: 4\n")
    assert f"given twice: by {file}:1 as k_samples, and by {file}:3" in refusal(config_file=file)
    write(file, "k_samples: 0\n")
    assert f"trainer.num_generations=0 ({file}:1 as k_samples): must be a whole" in refusal(config_file=file)
    write(file, "k_samples: 4\n")
    assert load({"trainer.num_generations": "6"}, config_file=file).config.trainer.num_generations == 6
    choices = {choice.what: choice for choice in resolved({}, config_file=file).choices}
    assert choices["trainer.num_generations"].value == "4"
    assert choices["trainer.num_generations"].why == "given by the name k_samples, which is this setting here"


def test_aliases_lead_to_settings_and_are_none() -> None:
    for word, alias in ALIASES.items():
        assert find(alias.key, "")
        assert known_as(word), "an option written with dashes is told its setting"
    assert not (set(ALIASES) & (set(keys()) | set(REFUSED) | set(_HINTS)) or set(REFUSED) & set(_HINTS))


def test_the_guide_lists_every_word() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    for word, alias in ALIASES.items():
        assert f"| `{word}` | `{alias.key}` | {alias.note}" in guide
    for word, why in REFUSED.items():
        assert f"| `{word}` | {why} |" in guide
