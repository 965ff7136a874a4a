"""Settings that tasks or models exclude, refused before torch is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_games

from grpo_core.config import load_config, resolve
from grpo_core.engines.servers import products
from grpo_core.errors import UserError
from grpo_core.training.checks import check_training

GAMES = Path(small_games.__file__).resolve()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora.enabled": "true"}, "an adapter's reference is the model that it was put on, which does not move"),
        ({"task": f"{GAMES}:HEAP?opponent=base"}, "is played against the policy at its start, which is the reference"),
        ({"trainer.backend": "trl"}, r"its own is trainer\.backend_args\.sync_ref_model"),
    ],
)
def test_a_reference_moves_where_it_is_a_copy_and_nobodys_opponent(settings: dict[str, str], message: str) -> None:
    given = {"trainer.ref_model_sync_steps": "10", "trainer.beta": "0.1", "model": "tiny", **settings}
    loaded = load_config(given, environ={}, dotenv_path=None)
    with pytest.raises(UserError, match=message):
        check_training(resolve(loaded.config, loaded.sources).config)


def checked(given: dict[str, str]) -> None:
    loaded = load_config({"model": "tiny", **given}, environ={}, dotenv_path=None)
    check_training(resolve(loaded.config, loaded.sources).config)


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=r"engine\.name=vllm needs vLLM, which is not installed here: pip install"):
        checked({"engine.name": "vllm"})
    checked({"engine.name": "vllm", "engine.fallback": "native"})
    checked({"engine.name": "vllm", "engine.url": "http://localhost:8000"})


def test_sglang_is_refused_with_the_reason_and_the_way_with_vllm() -> None:
    with pytest.raises(UserError, match=r"never run against a real server.*engine\.name=vllm"):
        checked({"engine.name": "sglang", "engine.url": "http://localhost:8000"})


@pytest.mark.parametrize(("name", "fallback"), [("native", "vllm"), ("vllm", "vllm")])
def test_a_fallback_that_is_never_taken_is_refused(name: str, fallback: str) -> None:
    with pytest.raises(UserError, match=f"engine.fallback={fallback} has no effect with engine.name={name}"):
        checked({"engine.name": name, "engine.fallback": fallback})


def test_an_opponent_that_is_neither_a_player_nor_a_model() -> None:
    with pytest.raises(UserError, match=r"opponent=perfetc is none of self, random, .*, base, so it has to be a mod"):
        checked({"task": f"{GAMES}:HEAP?opponent=perfetc"})
    checked({"task": f"{GAMES}:HEAP?opponent=tiny"})
    checked({"task": f"{GAMES}:HEAP?opponent=http://localhost:1/v1%23model"})


def test_a_file_is_read_no_further_than_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    lines = [f'{{"question": "{number} + 1?", "answer": {number + 1}}}' for number in range(20)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join([*lines, "damaged"]) if split == "train" else "{}")
    task = f"core.qa?path={tmp_path}/{{split}}.jsonl&verifier=number"
    checked({"task": task, "trainer.train_size": "20"})
    with pytest.raises(UserError, match=r"train\.jsonl:21: not JSON"):
        checked({"task": task})


@pytest.mark.parametrize("options", ["size=7", "min_difficulty=2&max_difficulty=2"])
def test_more_rows_than_there_are(options: str) -> None:
    with pytest.raises(UserError, match=r"trainer\.train_size=5000: task math\.arithmetic has \d+ training rows"):
        checked({"task": f"math.arithmetic?{options}", "trainer.train_size": "5000"})
