"""What a GPU profile and a preset set for a run: below everything that is given, never beyond the memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from loaded_configs import load

from grpo_core.config import ResolvedConfig, flatten, resolve
from grpo_core.config.hardware import machine_choice, memory_plan
from grpo_core.profiles.accelerator import GIB, Accelerator
from grpo_core.profiles.estimate import MemoryPlan, estimate
from grpo_core.profiles.model_shape import model_shape
from grpo_core.profiles.presets import PRESETS
from grpo_sdk.errors import UserError

SMALL, MEDIUM, LARGE = (f"Qwen/Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "7B"))

GPUS = {
    "V100": Accelerator("cuda", "Tesla V100-SXM2-16GB", int(15.8 * GIB), "7.0"),
    "T4": Accelerator("cuda", "Tesla T4", int(14.6 * GIB), "7.5"),
    "A100": Accelerator("cuda", "NVIDIA A100-SXM4-80GB", int(79.3 * GIB), "8.0"),
    "L4": Accelerator("cuda", "NVIDIA L4", int(22.0 * GIB), "8.9"),
    "RTX 4090": Accelerator("cuda", "NVIDIA GeForce RTX 4090", int(23.5 * GIB), "8.9"),
    "H100": Accelerator("cuda", "NVIDIA H100 80GB HBM3", int(79.1 * GIB), "9.0"),
    "slice": Accelerator("cuda", "NVIDIA H100 80GB HBM3 MIG 1g.20gb", int(19.6 * GIB), "9.0"),
}

Here = Callable[[str], Accelerator]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Make this machine's accelerator one of `GPUS`."""

    def install(name: str) -> Accelerator:
        monkeypatch.setattr("grpo_core.profiles.accelerator.detect", lambda device="auto": GPUS[name])
        return GPUS[name]

    return install


def resolved(**given: object) -> ResolvedConfig:
    loaded = load({name.replace("__", "."): value for name, value in given.items()})
    return resolve(loaded.config, loaded.sources)


def plan_of(config: ResolvedConfig, accelerator: Accelerator, prompt_tokens: int | None = None) -> MemoryPlan:
    shape = model_shape(config.config.model or "")
    assert shape is not None
    return memory_plan(config.config, shape, accelerator, prompt_tokens)


def of_profile(config: ResolvedConfig) -> dict[str, object]:
    values, by_size = flatten(config.config), "trainer.learning_rate"
    return {key: values[key] for key, source in config.sources.items() if source.kind == "profile" and key != by_size}


def test_the_accelerator_decides_and_the_source_names_it(here: Here) -> None:
    here("V100")
    config = resolved(model=MEDIUM, lora__enabled=True)
    assert of_profile(config) == {
        "precision": "float16", "engine.name": "native", "engine.max_batch_tokens": 65536, "eval.batch_size": 73,
        "trainer.max_completion_length": 384, "trainer.gradient_checkpointing": True,
        "trainer.micro_batch_tokens": config.config.trainer.micro_batch_tokens,
    }  # fmt: skip
    assert str(config.sources["precision"]).startswith("profile v100: Tesla V100, 16 or 32 GB")
    assert "Tesla V100-SXM2-16GB, 15.8 GiB, compute capability 7.0" in str(config.sources["precision"])
    assert "precision=float16" in [choice for choice in config.choices if choice.what == "settings"][-1].value


def test_a_profile_overrides_nothing_that_is_given(here: Here) -> None:
    here("A100")
    given = {
        "precision": "float32", "trainer.max_completion_length": 100, "trainer.gradient_checkpointing": False,
        "engine.max_batch_tokens": 5000, "eval.batch_size": 3,
    }  # fmt: skip
    config = resolved(model=SMALL, **given)
    values = flatten(config.config)
    assert {key: values[key] for key in given} == given
    assert {config.sources[key].kind for key in given} == {"command line"}


def test_a_model_s_own_recommendation_stands_above_the_profile_and_resolving_twice_changes_nothing(here: Here) -> None:
    here("H100")
    once = resolved(task="math.arithmetic", preset="ultra_small")
    config = once.config
    assert (config.model, config.trainer.max_completion_length, config.precision) == ("tiny", 64, "bfloat16")
    assert resolve(config, once.sources).config == config


def test_without_an_accelerator_no_value_changes_unless_a_profile_is_named() -> None:
    plain, without = resolved(model=SMALL), resolved(model=SMALL, profile=None)
    assert flatten(plain.config) | {"profile": None} == flatten(without.config)
    assert of_profile(plain) == {}
    named = resolved(model=MEDIUM, profile="h100")  # which counts with its own memory
    assert named.config.precision == "bfloat16"
    assert "for 79.2 GiB; here is CPU" in str(named.sources["precision"])


def test_what_fits_no_profile_is_sized_to_its_memory(here: Here) -> None:
    accelerator = here("slice")
    config = resolved(model=SMALL)
    assert str(config.sources["engine.name"]).startswith("profile unknown: An accelerator that fits no profile")
    assert "precision" not in of_profile(config), "which its capability decides"
    assert estimate(plan_of(config, accelerator)).total < 0.8 * accelerator.memory


@pytest.mark.parametrize("share", [0.8, 0.5])
def test_auto_is_estimated_with_what_it_will_take(here: Here, share: float) -> None:
    accelerator = here("L4")
    config = resolved(model=SMALL, trainer__micro_batch_size="auto", trainer__micro_batch_memory=share)
    total = estimate(plan_of(config, accelerator, 64)).total
    assert 0.5 * share * accelerator.memory < total <= share * accelerator.memory


def test_the_machine_is_named_with_the_reasons(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here("T4")
    monkeypatch.setattr("grpo_core.profiles.platforms.socket.gethostname", lambda: "a")
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    choice = machine_choice(resolved(model=SMALL).config)
    assert (choice.what, choice.value) == ("platform", "Colab, GPU profile t4")
    assert "is set; Tesla T4, 14.6 GiB, compute capability 7.5. The disk is lost with the session" in choice.why
    without = machine_choice(resolved(model=SMALL, profile=None).config)
    assert without.value == "Colab, no GPU profile" and "; profile=null. " in without.why


def test_the_completion_leaves_room_in_the_context_and_without_a_shape_has_none(here: Here, tmp_path: Path) -> None:
    here("T4")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    assert of_profile(resolved(model=str(tmp_path))) == {"precision": "float16"}
    here("A100")
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
    (tmp_path / "config.json").write_text(json.dumps(shape | {"max_position_embeddings": 768}))
    assert "trainer.max_completion_length" not in of_profile(resolved(model=str(tmp_path)))
    assert resolved(model=str(tmp_path), trainer__max_prompt_length=256).config.trainer.max_completion_length == 512


def test_what_can_not_fit_is_refused_with_the_arithmetic(here: Here) -> None:
    here("RTX 4090")
    expected = (
        r"needs 127\.\d GiB before its first activation, of 23\.5 on NVIDIA GeForce RTX 4090: "
        r"weights 42\.\d, optimizer 56\.7, gradients 28\.4, for 7\.6\d x 10\^9 parameters\. "
        r"Use lora\.enabled=true lora\.quantization=nf4, which needs \d\.\d"
    )
    with pytest.raises(UserError, match=expected):
        resolved(model=LARGE)
    assert resolved(model=LARGE, lora__enabled=True, lora__quantization="nf4").config.precision == "bfloat16"
    assert resolved(model=LARGE, trainer__sharding="full").config.trainer.sharding == "full", "shards may hold it"


def test_a_model_that_is_only_evaluated_needs_no_optimizer(here: Here) -> None:
    here("T4")
    loaded = load({"model": MEDIUM})
    with pytest.raises(UserError, match="before its first activation"):
        resolve(loaded.config, loaded.sources)
    assert resolve(loaded.config, loaded.sources, trains=False).config.precision == "float16"


def test_processes_divide_the_weights_and_offload_leaves_what_runs(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    accelerator = here("A100")

    def plan(**trainer: object) -> MemoryPlan:
        given = {f"trainer__{name}": value for name, value in trainer.items()}
        return plan_of(resolved(model=LARGE, **given), accelerator)

    assert [plan(sharding=each).shards for each in ("full", "hybrid")] == [16, 8]
    assert plan(sharding="hybrid", shard_size=4).shards == 4
    offloaded = estimate(plan(sharding="full", cpu_offload=True))
    assert offloaded.optimizer == offloaded.reference == 0.0
    # 7.6e9 parameters in 28 layers: embeddings and head have 1.09e9 of them, two layers 0.47e9; in bfloat16.
    assert offloaded.weights == pytest.approx(2 * 1.56e9, rel=0.02)


MEMORY = {"v100": 15.8, "a100": 79.3, "consumer_24": 23.5, "h200": 139.8}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("profile", MEMORY)
def test_every_preset_on_every_profile_resolves_or_says_the_arithmetic(preset: str, profile: str) -> None:
    for model in (SMALL, MEDIUM, LARGE):
        try:
            config = resolved(model=model, preset=preset, profile=profile)
        except UserError as error:
            assert all(words in str(error) for words in (f"{MEMORY[profile]} on {profile}", "weights", "Use "))
            continue
        values = flatten(config.config)
        for key, value in PRESETS[preset].options().items():
            assert (values[key], str(config.sources[key])) == (value, f"preset {preset}")
        assert config.config.trainer.rows_per_step % PRESETS[preset].batch == 0
        assert config.sources["precision"].kind == "profile"


@pytest.mark.parametrize("recipe", ["dr_grpo", "dapo", "gspo", "cispo", "rloo"])
def test_a_preset_goes_with_a_recipe(recipe: str) -> None:
    config = resolved(model=SMALL, preset="baseline", recipe=recipe)
    trainer = config.config.trainer
    assert (trainer.num_generations, trainer.rows_per_step) == (4, 16)  # gspo takes four steps from a generation
    assert trainer.loss_type == resolved(model=SMALL, recipe=recipe).config.trainer.loss_type
    assert config.sources["trainer.loss_type"].kind == "recipe"
    assert "baseline" in [choice.value for choice in config.choices if choice.what == "preset"]
    given = {"trainer__max_steps": 3, "trainer__learning_rate": 1e-5}
    trainer = resolved(model=SMALL, preset="baseline", recipe=recipe, **given).config.trainer
    assert (trainer.learning_rate, trainer.num_train_epochs) == (1e-5, None), "what the user says stands above both"
