from pathlib import Path

import pytest

from grpo_core.launch.sweep.configurations import configurations
from grpo_core.launch.sweep.definition import read_definition, validated
from grpo_sdk.errors import UserError

DRAWN = {
    "method": "random",
    "trials": 20,
    "parameters": {
        "trainer.learning_rate": {"min": 1e-6, "max": 1e-3, "log": True},
        "trainer.num_generations": {"min": 4, "max": 16, "step": 4},
        "trainer.beta": {"min": 0.0, "max": 0.1},
        "trainer.prompts_per_step": {"min": 1, "max": 4},
        "trainer.loss_type": ["grpo", "dapo"],
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_grid_has_every_combination_once() -> None:
    definition = read_definition(["trainer.beta=0,0.1,0", "lora.r=8,16", "task=math.echo", "seed=0,1"])
    assert configurations(definition) == [
        {"trainer.beta": beta, "lora.r": rank} for beta in ("0", "0.1") for rank in ("8", "16")
    ]
    assert (definition.fixed, definition.seeds) == ({"task": "math.echo"}, [0, 1])


def test_a_value_in_quotes_a_list_or_a_mapping_is_one_value() -> None:
    words = ["lora.target_modules=[q_proj, v_proj],all-linear", "trainer.loss_args={a: [1,2], b: 3}", "seed=0,1"]
    definition = read_definition([*words, 'task="math.echo:2,math.arithmetic:1", math.echo'])
    assert definition.parameters["lora.target_modules"] == ["[q_proj,v_proj]", "all-linear"]
    assert definition.parameters["task"] == ["math.echo:2,math.arithmetic:1", "math.echo"]
    assert definition.fixed == {"trainer.loss_args": "{a: [1,2],b: 3}"}


def test_too_many_configurations_are_refused_before_they_are_made() -> None:
    words = [f"trainer.{name}={','.join(map(str, range(100)))}" for name in ("beta", "epsilon", "max_steps", "seed2")]
    with pytest.raises(UserError, match="the grid has 100,000,000 runs"):
        configurations(read_definition(words))
    few = {"method": "random", "trials": 3, "parameters": {"lora.r": [8, 16]}}
    with pytest.raises(UserError, match="there are only 2 different configurations"):
        configurations(validated(few, ""))


def test_words_take_precedence_over_a_file() -> None:
    Path("sweep.yaml").write_text(
        "settings:\n  trainer: {beta: 0.1, max_steps: 5}\nparameters:\n  lora.r: [8, 16]\n  seed_of_none: [1]\n"
    )
    definition = read_definition(["sweep.yaml", "trainer.beta=0.2", "lora.r=32,64", "trainer.max_steps=1,2"])
    assert definition.fixed == {"trainer.beta": "0.2"}
    assert definition.parameters == {"seed_of_none": [1], "lora.r": ["32", "64"], "trainer.max_steps": ["1", "2"]}


@pytest.mark.parametrize(("word", "seeds"), [("seed=5", [5]), ("seed=5,6", [5, 6])])
@pytest.mark.parametrize("text", ["seeds: [0, 1]", "seeds: [0, 1]\nsettings: {seed: 7}"])
def test_a_seed_takes_precedence_over_those_of_a_file(word: str, seeds: list[int], text: str) -> None:
    Path("sweep.yaml").write_text(f"{text}\nparameters: {{lora.r: [8, 16]}}")
    definition = read_definition(["sweep.yaml", word])
    assert (definition.seeds, definition.fixed) == (seeds, {})


def test_a_word_takes_precedence_over_the_runs_of_a_list() -> None:
    Path("sweep.yaml").write_text(
        "method: list\nsettings: {trainer.beta: 0.5}\n"
        "runs:\n- {trainer: {beta: 0, epsilon: 0.1}}\n- {trainer.epsilon: 0.1, trainer.beta: 0.1}\n- {lora.r: 8}\n"
    )
    whole = configurations(read_definition(["sweep.yaml", "task=math.echo"]))
    assert whole[0] == {"trainer.beta": "0", "trainer.epsilon": "0.1"} and len(whole) == 3
    definition = read_definition(["sweep.yaml", "trainer.beta=0.2", "task=math.echo"])
    assert definition.fixed == {"task": "math.echo"}
    assert configurations(definition) == [
        {"trainer.beta": "0.2", "trainer.epsilon": "0.1"},
        {"lora.r": "8", "trainer.beta": "0.2"},
    ], "the first two have become one"


def test_draws_lie_in_their_ranges_and_do_not_depend_on_their_number() -> None:
    drawn = configurations(validated(DRAWN, ""))
    assert drawn[:5] == configurations(validated({**DRAWN, "trials": 5}, ""))
    assert drawn != configurations(validated({**DRAWN, "draw_seed": 1}, ""))
    rates = [float(each["trainer.learning_rate"]) for each in drawn]
    assert all(1e-6 <= rate <= 1e-3 for rate in rates)
    assert sum(rate < 3e-5 for rate in rates) > 4, "evenly on a logarithmic scale: half lie below its middle"
    assert {each["trainer.num_generations"] for each in drawn} <= {"4", "8", "12", "16"}
    assert {each["trainer.prompts_per_step"] for each in drawn} == {"1", "2", "3", "4"}
    assert {each["trainer.loss_type"] for each in drawn} == {"grpo", "dapo"}
    assert all(0 <= float(each["trainer.beta"]) <= 0.1 for each in drawn)


@pytest.mark.parametrize(("low", "high", "step", "values"), [
    (0.1, 0.3, 0.1, {"0.1", "0.2", "0.3"}),  # (0.3 - 0.1) / 0.1 is below 2 in binary
    (0.1, 0.35, 0.1, {"0.1", "0.2", "0.3"}),
])  # fmt: skip
def test_a_range_with_a_step_is_drawn_up_to_its_end(low: float, high: float, step: float, values: set[str]) -> None:
    parameters = {"trainer.beta": {"min": low, "max": high, "step": step}}
    definition = validated({"method": "random", "trials": len(values), "parameters": parameters}, "")
    assert {each["trainer.beta"] for each in configurations(definition)} == values


@pytest.mark.parametrize(("text", "message"), [
    ("", "empty"),
    ("metod: grid\nparameters: {lora.r: [1, 2]}", r"no key 'metod' in a sweep. Did you mean 'method'"),
    ("parameters: {lora.r: {min: 1, max: 4}}", "a range needs method: random"),
    ("method: random\nparameters: {lora.r: [1, 2]}", "trials is the number of draws"),
    ("method: random\ntrials: 2\nparameters: {lora.r: {min: 4, max: 1}}", "min=4 must be below max=1"),
    ("method: random\ntrials: 2\nparameters: {lora.r: {min: 0, max: 1, log: true}}", "a min above 0"),
    ("method: random\ntrials: 2\nparameters: {lora.r: {min: 0, max: 1, step: 2}}", "step=2 must be above 0"),
    ("parameters: {lora: {r: [1, 2]}}", r"parameters\.lora: .* A setting has its whole name"),
    (f"parameters: {{lora.r: [{10**30}, 1]}}", f"{10**30} is no value of a setting: Integer exceeds 64-bit range"),
    ("method: optuna\ntrials: 2\nseeds: [0, 1]\nparameters: {lora.r: [1, 2]}", "one seed"),
    ("method: list\nparameters: {lora.r: [1, 2]}", "from runs, and no parameters"),
    ("runs: [{lora.r: 1}]", "runs are the configurations of method: list"),
    ("parameters: {seed: [1, 2]}", r"seeds: \[0, 1, 2\]"),
    ("settings: {lora: {r: 1}}\nparameters: {lora.r: [1, 2]}", "both in settings and in parameters"),
    ("seeds: [0, 1]\nsettings: {seed: 5}", "sweep.yaml: seed is in settings, and seeds give each run its own"),
])  # fmt: skip
def test_mistakes_in_a_file(text: str, message: str) -> None:
    Path("sweep.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_definition(["sweep.yaml"])
