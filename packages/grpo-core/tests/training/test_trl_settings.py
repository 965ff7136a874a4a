from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from loaded_configs import resolved

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.training.checks import check_training
from grpo_core.training.trl_settings import LOSSES, OURS, algorithm_arguments, rows_per_pass
from grpo_sdk.errors import UserError


def config_of(**settings: str) -> RunConfig:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return resolved({"model": "tiny", "trainer.backend": "trl", **given}).config


def test_what_trl_can_do_is_trained() -> None:
    for loss in LOSSES:
        check_training(config_of(trainer__loss_type=loss))
    check_training(config_of(task=f"{Path(__file__).parent / 'programs' / 'turns.py'}:turns", model="tiny"))
    check_training(config_of(trainer__backend="native", trainer__baseline="ema"))


@pytest.mark.parametrize(("settings", "message"), [
    ({"trainer__baseline": "ema"}, r"trainer\.baseline=ema: TRL cannot.*native, or trainer\.baseline=group_mean"),
    ({"trainer__aggregation": "token_mean"}, r"trainer\.aggregation=token_mean.*or trainer\.aggregation=constant"),
    ({"trainer__loss_args.dual_clip": "3"}, r"trainer\.loss_args\.dual_clip=3"),
    ({"trainer__beta": "0.1", "trainer__kl": "k2"}, r"trainer\.kl=k2"),
    ({"trainer__loss_type": "grpo", "trainer__std_ddof": "0"}, r"trainer\.std_ddof=0"),
    ({"trainer__micro_batch_size": "auto"}, r"trainer\.micro_batch_size=auto"),
    ({"trainer__num_generations": "1"}, r"num_generations=1"),
    ({"precision": "float64"}, "precision=float64"),
    ({"task": "games.nim?opponent=random", "model": "tiny"}, r"'games\.nim' is a game.*fixed.*TrlTask"),
    ({"task": "games.nim", "model": "tiny"}, r"is a game.*Use trainer\.backend=native\.$"),
    ({"trainer__backend_args.max_steps": "3"}, r"backend_args\.max_steps: .*decided here: trainer\.max_steps"),
    ({"trainer__backend_args.use_vllm": "true"}, r"backend_args\.use_vllm: .*engine\.name"),
    ({"trainer__backend": "native", "trainer__backend_args.deepspeed": "x"}, r"backend=native trains without it"),
])  # fmt: skip
def test_what_trl_cannot_do_is_refused_by_name(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_training(config_of(**settings))


def test_the_algorithm_as_trl_names_it() -> None:
    trainer = config_of(
        trainer__loss_type="gspo", trainer__beta="0.1", trainer__kl_placement="loss", trainer__loss_args="{delta: 2}"
    ).trainer
    expected: dict[str, Any] = {
        "loss_type": "grpo", "importance_sampling_level": "sequence", "delta": 2, "epsilon": 0.0003,
        "epsilon_high": 0.0004, "scale_rewards": "group", "beta": 0.1, "use_bias_correction_kl": False,
    }  # fmt: skip
    assert algorithm_arguments(trainer).items() >= expected.items()


def test_the_names_are_those_of_the_installed_trl() -> None:
    trl = pytest.importorskip("trl")
    trainer = config_of(trainer__loss_type="sapo", trainer__loss_args="{temperature_pos: 2}").trainer
    assert {each.name for each in fields(trl.GRPOConfig)} >= {*algorithm_arguments(trainer), *OURS}


@pytest.mark.parametrize(("settings", "size"), [
    ({}, 16),  # 16 completions of 100 tokens fit 8192
    ({"micro_batch_tokens": 900}, 8),  # 9 fit, and 8 divides 16
    ({"micro_batch_tokens": 99}, 1),
    ({"micro_batch_size": 2}, 2),
    ({"micro_batch_prompts": 1}, 4),
])  # fmt: skip
def test_completions_of_a_pass(settings: dict[str, Any], size: int) -> None:
    assert rows_per_pass(TrainerConfig(prompts_per_step=4, num_generations=4, **settings), 16, 100)[0] == size
