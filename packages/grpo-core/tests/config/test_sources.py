import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loaded_configs import load, refusal, write

from grpo_core.config import LoadedConfig, Profile, RunConfig, Settings, flatten, read_config, to_yaml
from grpo_core.config.keys import environment_name, keys
from grpo_sdk.display.text import MAX_SHOWN_CHARS, format_value
from grpo_sdk.environment import RESERVED_ENVIRONMENT
from grpo_sdk.errors import UserError


def above(profiles: Sequence[Profile] = (), **more: Any) -> LoadedConfig:
    """Load settings with recommended ones below them."""
    settings = read_config(more.pop("cli", {}), **{"environ": {}, "dotenv_path": None, **more})
    for profile in profiles:
        settings.add_below(Settings.of(profile.values, profile.source))
    return settings.validated()


def test_each_layer_wins_over_the_next(tmp_path: Path) -> None:
    layers: dict[str, Any] = {
        "cli": {"trainer.beta": "0.5"},
        "environ": {"GRPO_TRAINER__BETA": "0.4", "PATH": "/bin"},
        "dotenv_path": write(tmp_path / ".env", "GRPO_TRAINER__BETA=0.3\nWANDB_PROJECT=x\n"),
        "config_file": write(tmp_path / "run.yaml", "trainer:\n  beta: 0.2\n"),
        "profiles": [Profile("tiny", {"trainer.beta": 0.1}, "it learns fast"), Profile("cpu", {"trainer.beta": 0.05})],
    }
    expected = [
        (0.5, "command line"),
        (0.4, "environment GRPO_TRAINER__BETA"),
        (0.3, ".env GRPO_TRAINER__BETA"),
        (0.2, f"{tmp_path}/run.yaml:2"),
        (0.1, "profile tiny: it learns fast"),
    ]
    for (beta, source), layer in zip(expected, list(layers), strict=True):
        loaded = above(**layers)
        assert (loaded.config.trainer.beta, str(loaded.sources["trainer.beta"])) == (beta, source)
        del layers[layer]
    loaded = load()
    assert (loaded.config.trainer.beta, str(loaded.sources["trainer.beta"])) == (0.0, "default")
    assert set(loaded.sources) == set(keys())


@pytest.mark.parametrize(("key", "text", "value"), [
    ("trainer.learning_rate", "1e-5", 1e-5),  # YAML 1.1 would read text
    ("trainer.num_generations", "016", 16),  # and this as octal 14
    ("trainer.max_steps", "null", None),
    ("trainer.scale_rewards", "none", "none"),
    ("trainer.gradient_checkpointing", "true", True),
    ("model", "null", None),
    ("model", "./a: b", "./a: b"),
    ("output_dir", "true", "true"),
    ("curriculum.weights", "[2, 1, 0.5]", (2.0, 1.0, 0.5)),
    ("lora.target_modules", "[q_proj, v_proj]", ("q_proj", "v_proj")),
])  # fmt: skip
def test_text_is_read_by_what_the_key_holds(key: str, text: str, value: object) -> None:
    for loaded in (load({key: text}), load(environ={environment_name(key): text})):
        assert flatten(loaded.config)[key] == value
        assert type(flatten(loaded.config)[key]) is type(value)


@pytest.mark.parametrize("text", ['"2"', '"true"', "two", "2.5"])
def test_a_number_in_quotes_is_shown_with_them(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "run.yaml", f"trainer:\n  sharding: hybrid\n  shard_size: {text}\n")
    assert refusal(config_file=path).startswith(f"trainer.shard_size={text} ({path}:3): must be a whole number")


@pytest.mark.parametrize(("key", "text", "message"), [
    ("trainer.num_generations", "eight", "must be a whole number, 1 or more and at most 10^9. Default: 8."),
    ("model", "", "model is empty: give a value, or null, or leave it out. Default: null."),
    ("trainer.gradient_checkpointing", "yes", "must be true or false"),
    ("trainer.learning_rate", "9" * 5000, "must be a number"),
    ("trainer.max_completion_length", "0", "a completion of 0 tokens has nothing to score or train"),
    ("precision", "bfloat", "Did you mean 'bfloat16'?"),
    ("device", "gpu", "must be auto, cpu, cuda, cuda:N or mps"),
    ("curriculum.weights", "[1, 2]", "must be a list of 3 numbers"),
    ("trainer.loss_args", "5", "must be a number, text, true, false or null"),
    ("seed", "-1", "0 to 2^63 - 1"),
])  # fmt: skip
def test_a_wrong_value_says_what_is_wanted(key: str, text: str, message: str) -> None:
    assert message in refusal({key: text})


@settings(max_examples=50)  # each builds a whole configuration
@given(st.sampled_from(sorted(keys())), st.text(max_size=40))
def test_no_text_breaks_the_reader(key: str, text: str) -> None:
    # Either it is taken, or one line says why not.
    try:
        load({key: text})
    except UserError as error:
        assert str(error)


def test_a_value_from_elsewhere_is_refused_by_the_name_of_its_source(tmp_path: Path) -> None:
    assert "(environment GRPO_SEED)" in refusal(environ={"GRPO_SEED": "x"})
    assert "(.env GRPO_SEED)" in refusal(dotenv_path=write(tmp_path / ".env", "GRPO_SEED=x"))
    file = write(tmp_path / "a.yaml", "# comment\nseed: x\n")
    assert f"seed=x ({file}:2): must be" in refusal(config_file=file)
    with pytest.raises(UserError, match=r"\(profile tiny\)"):
        above([Profile("tiny", {"seed": "x"})])


def test_values_that_contradict_name_their_sources() -> None:
    message = refusal(environ={"GRPO_TRAINER__NUM_GENERATIONS": "1"})
    assert message.startswith("trainer.num_generations=1: the baseline group_mean needs a group")
    assert message.endswith("[trainer.num_generations: environment GRPO_TRAINER__NUM_GENERATIONS]")
    assert "[" not in refusal({"trainer.num_generations": "1"}), "what was just typed needs no source"


@pytest.mark.parametrize(("variable", "said"), [
    ("GRPO_TRAINER__LEARNING_RTE=1", "Did you mean 'GRPO_TRAINER__LEARNING_RATE'"),
    ("GRPO_PLUGIN=1", "Did you mean 'GRPO_PLUGINS'"),
    ("grpo_seed=1", "grpo_seed is written GRPO_SEED, in capitals"),
    ("GRPO_MODEL=", "GRPO_MODEL: model is empty"),
])  # fmt: skip
def test_a_wrong_variable_of_ours_is_refused(tmp_path: Path, variable: str, said: str) -> None:
    name, _, value = variable.partition("=")
    assert said in refusal(environ={name: value})
    assert said in refusal(dotenv_path=write(tmp_path / ".env", variable))


def test_reserved_and_foreign_variables_are_no_settings() -> None:
    reserved = set(RESERVED_ENVIRONMENT) - {"GRPO_LOG_DIR"}  # which moves output_dir
    loaded = load(environ={**dict.fromkeys(reserved, "x"), "grpo_dir": "x", "SEED": "x", "TRL_SEED": "1"})
    assert loaded.config == RunConfig()


@pytest.mark.parametrize(("text", "said"), [
    ("GRPO_SEED=1\nthis is no line\n", ".env:2: not NAME=value: this is no line"),
    ("A=1\nB='open\n", ".env:2: not NAME=value: B='open"),
    ("GRPO_SEED=1\n# twice\nGRPO_SEED=1\n", ".env:3: GRPO_SEED is given twice, first in line 1."),
    ("GRPO_SEED\n", ".env:1: GRPO_SEED has no value: write GRPO_SEED=value."),
    ("A=a\0b\n", ".env:1: A has no value"),
    ("A=" + "a" * 2**20, ".env: more than 1048576 bytes"),
])  # fmt: skip
def test_a_line_of_dotenv_that_says_nothing_clear_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(dotenv_path=write(tmp_path / ".env", text))


def test_dotenv_takes_what_dotenv_takes(tmp_path: Path) -> None:
    text = "\ufeff# a comment\n\nexport GRPO_SEED=3 # why\nGRPO_MODEL='tiny'\r\nOTHER=\"a\nb\"\n"
    loaded = load(dotenv_path=write(tmp_path / ".env", text))
    assert (loaded.config.seed, loaded.config.model) == (3, "tiny")


def test_arguments_of_variants_come_from_every_layer() -> None:
    loaded = above(
        [Profile("p", {"trainer.loss_args": {"a": 9, "c": "x"}})],
        cli={"trainer.loss_args.a": "1.5"},
        environ={"GRPO_TRAINER__LOSS_ARGS__B": "true"},
    )
    assert loaded.config.trainer.loss_args == {"a": 1.5, "b": True, "c": "x"}
    assert str(loaded.sources["trainer.loss_args.a"]) == "command line"
    assert str(loaded.sources["trainer.loss_args.c"]) == "profile p"
    assert load({"trainer.loss_args": "{a: 1}"}).config.trainer.loss_args == {"a": 1}


def test_of_two_that_exclude_each_other_the_higher_layer_wins(tmp_path: Path) -> None:
    # A saved configuration has num_train_epochs; `--config it --max-steps 40` must work.
    file = write(tmp_path / "a.yaml", "trainer: {num_train_epochs: 1.0, max_steps: null, warmup_steps: 5}")
    trainer = load({"trainer.max_steps": "40", "trainer.warmup_ratio": "0.1"}, config_file=file).config.trainer
    assert (trainer.max_steps, trainer.num_train_epochs) == (40, None)
    assert (trainer.warmup_steps, trainer.warmup_ratio) == (0, 0.1)
    # null is no value: it silences nothing.
    assert load({"trainer.max_steps": "null"}, config_file=file).config.trainer.num_train_epochs == 1.0
    assert "both" in refusal({"trainer.max_steps": "40", "trainer.num_train_epochs": "1"})


@pytest.mark.parametrize(("text", "message"), [
    ("trainer:\n  num_generation: 4\n", "{file}:2: no setting 'trainer.num_generation'. Did you mean 'trainer.num"),
    ("seed: 1\nseed: 2\n", "{file}:2: 'seed' is given twice, first in line 1."),
    ("trainer.beta: 1\ntrainer:\n  beta: 2\n", "trainer.beta is given twice: by {file}:1, and by {file}:3."),
    ("trainer: 5\n", "trainer is a section"),
    ("- a\n- b\n", "this file is a list"),
    ("a: [1,\n", "{file}:2: not YAML"),
    ("seed: !!python/object/apply:os.system ['true']\n", "{file}:1: could not determine a constructor"),
    ("seed: &a 1\nmodel: *a\n", "{file}:2: not YAML that can be read here: aliases"),
    ("[1]: 2\n", "{file}:1: a key is a word, not a list"),
    ("seed: " + "9" * 5000, "{file}:1: "),
    ("a: " + "[" * 3000, "nested too deeply"),
    ("trainer: {loss_args: {a: 1, a: 2}}", "{file}:1: 'a' is given twice"),
])  # fmt: skip
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "run.yaml", text)
    assert message.format(file=file) in refusal(config_file=file)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    write(tmp_path / "train.yaml", "")
    (tmp_path / "bytes").write_bytes(b"seed: \xff\xfe")
    (tmp_path / "big").write_bytes(b"#" * (1 << 20) + b"\n")
    os.mkfifo(tmp_path / "pipe")
    for file, said in {
        tmp_path / "trian.yaml": f"Did you mean '{tmp_path}/train.yaml'?",
        tmp_path: "it is a folder",
        tmp_path / "bytes": "not UTF-8",
        tmp_path / "big": "more than 1048576 bytes",
        tmp_path / "pipe": "it is a pipe; give a file",
        "-": "standard input and output are not used here",
        "a" * 5000: "out of reach (File name too long)",
    }.items():
        assert said in refusal(config_file=file)
    assert "not UTF-8" in refusal(dotenv_path=tmp_path / "bytes")
    assert "is a pipe, and settings are read from a file" in refusal(dotenv_path=tmp_path / "pipe")
    assert load(dotenv_path=tmp_path).config == RunConfig(), "a virtual environment may be called .env"


def test_a_file_may_use_sections_or_dots_and_be_in_a_home_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # which no shell expands here
    write(tmp_path / "run.yaml", "seed: 3\ntrainer.beta: 0.1\ntrainer:\n  kl: k2\neval:\nlora: {enabled: true}\n")
    config = load(config_file="~/run.yaml").config
    assert (config.seed, config.trainer.beta, config.trainer.kl, config.lora.enabled) == (3, 0.1, "k2", True)
    assert "no such home folder" in refusal(config_file="~nobody-of-this-name/run.yaml")


def test_a_saved_configuration_is_read_back_equal(tmp_path: Path) -> None:
    texts = {"model": "1e5", "adapter": "no", "lora.target_modules": "[q, v]"}  # which YAML could take for others
    numbers = {"trainer.learning_rate": "1e-6", "trainer.loss_args.a": "0.5", "curriculum.weights": "[2, 1, 1]"}
    config = load({**texts, **numbers, "task": "math.echo:2,math.arithmetic?size=3"}).config
    assert load(config_file=write(tmp_path / "config.yaml", to_yaml(config))).config == config
    assert load(config_file=write(tmp_path / "empty.yaml", "# nothing\n")).config == RunConfig()


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=30).filter(str.isprintable), st.floats(0, 1, width=64), st.integers(0, 2**63 - 1))
def test_any_settings_survive_yaml(tmp_path_factory: pytest.TempPathFactory, text: str, beta: float, seed: int) -> None:
    config = RunConfig.model_validate({"model": text, "seed": seed, "trainer": {"beta": beta}})
    file = write(tmp_path_factory.getbasetemp() / "any.yaml", to_yaml(config))
    assert load(config_file=file).config == config


def test_values_are_shown_as_they_are_written() -> None:
    assert [format_value(value) for value in (None, True, 1e-6, [1, "a"], {"a": None}, "x")] == [
        "null", "true", "1e-06", "[1, a]", "{a: null}", "x",
    ]  # fmt: skip
    assert format_value("") == "''"
    assert format_value("a\x1b[31mb") == "'a\\x1b[31mb'"
    assert len(format_value("x" * 1000)) == MAX_SHOWN_CHARS
    assert format_value(10**5000) == "(a huge number)"


def test_the_folder_of_logs_is_where_runs_go_that_nobody_puts_elsewhere(tmp_path: Path) -> None:
    variables = {"GRPO_LOG_DIR": "/logs/job_7"}
    loaded = load(environ=variables)
    assert loaded.config.output_dir == "/logs/job_7/training_runs"
    assert str(loaded.sources["output_dir"]) == "environment GRPO_LOG_DIR"
    file = write(tmp_path / "run.yaml", "output_dir: mine\n")
    for chosen in (
        load(config_file=file, environ=variables),
        load({"output_dir": "mine"}, environ=variables),
        load(environ={**variables, "GRPO_OUTPUT_DIR": "mine"}),
    ):
        assert chosen.config.output_dir == "mine"
    assert load(environ={"GRPO_LOG_DIR": ""}).config.output_dir == "training_runs"
