from pathlib import Path

import pytest

from grpo_core.config import RunConfig, load_config

CONFIGS = Path(__file__).parents[1] / "examples" / "configs"


def read(name: str) -> RunConfig:
    return load_config(config_file=CONFIGS / name, environ={}, dotenv_path=None).config


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_an_example_is_read_and_says_how_to_run_it(name: str) -> None:
    read(name)
    assert f"grpo run --config examples/configs/{name}\n" in (CONFIGS / name).read_text()


@pytest.mark.parametrize(("name", "steps", "save_every"), [("testconfig.yaml", 2, 1), ("overnight.yaml", 100, 10)])
def test_the_protocols_steps_and_checkpoints(name: str, steps: int, save_every: int) -> None:
    trainer = read(name).trainer
    assert (trainer.max_steps, trainer.save_every) == (steps, save_every)
