"""`grpo run --dry-run`, `grpo profiles` and `grpo fetch`: what they print, in a terminal and as JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from grpo_core.profiles.accelerator import process_count

QWEN = "Qwen/Qwen2.5-1.5B-Instruct"

Grpo = Callable[..., str]


def dry_run(grpo: Grpo, *arguments: str) -> dict[str, str]:
    """Label -> text of each line."""
    out = grpo("run", "--dry-run", *arguments)
    return dict(line.split(None, 1) for line in out.splitlines()[1:])


def dry_run_data(grpo: Grpo, *arguments: str) -> Any:
    return json.loads(grpo("run", "--dry-run", "--json", "--model", QWEN, *arguments))


def test_a_dry_run_says_what_is_needed_and_why(grpo: Grpo) -> None:
    lines = dry_run(grpo, "--model", QWEN, "profile=consumer_24", "lora.enabled=true")
    assert lines["model"].startswith(f"{QWEN}, 1,543.7 M parameters (the published config.json)")
    assert lines["memory"].startswith("needs about ") and " GiB of 23.5: weights 8.6, " in lines["memory"]
    assert "precision=bfloat16" in lines["settings"] and "profile=consumer_24" in lines["settings"]
    assert "the mean of 1000" in lines["step"]


def test_a_dry_run_as_json_adds_up(grpo: Grpo) -> None:
    data = dry_run_data(grpo, "profile=a100", "trainer.beta=0.04")
    memory = data["memory"]
    assert data["choices"][0]["what"] == "platform" and "GPU profile a100" in data["choices"][0]["value"]
    assert memory["reference"] == 4 * data["parameters"]
    assert memory["total"] == pytest.approx(sum(size for name, size in memory.items() if name != "total"), abs=8)


@pytest.mark.parametrize("command", ["run --dry-run", "run --show-config", "sweep --dry-run seed=0,1"])
def test_a_setting_may_need_what_is_recommended_for_the_model(grpo: Grpo, command: str) -> None:
    words = [*command.split(), "task=games.kuhn_poker", "trainer.ref_model_sync_steps=30"]
    grpo(*words)
    assert "has no reference to move at trainer.beta=0" in grpo(*words, "trainer.beta=0", code=2)


@pytest.mark.parametrize("command", ["run --dry-run", "sweep --dry-run seed=0,1", "launch slurm --dry-run --gpus 0"])
def test_the_opponents_that_self_play_is_evaluated_against_fit_the_game(grpo: Grpo, command: str) -> None:
    words = ["task=games.connect_four?rows=6&columns=7", "model=games-tiny"]
    err = grpo(*command.split(), *words, code=2)
    assert "self-play is evaluated against any_perfect, too" in err and "at most 20 cells" in err
    assert "?opponent=random" in err


def test_what_is_tried_on_the_model_stays_auto(grpo: Grpo) -> None:
    setting = "trainer.micro_batch_size=auto"
    out = grpo("run", "--show-config", "--model", "tiny", setting)
    assert any("micro_batch_size" in line and "auto" in line for line in out.splitlines())
    passes = dry_run(grpo, "--model", QWEN, "profile=a100", setting)["passes"]
    assert passes.endswith(f"{setting} tries before the first step how many completions fit 0.8 of the memory")


@pytest.mark.parametrize(("settings", "said"), [
    (("engine.name=vllm", "engine.args.sleep=maybe"), "engine.args.sleep: Input should be a valid boolean"),
    (("trainer.loss_args.dual_clip=0.5",), "trainer.loss_args.dual_clip=0.5: must be above 1"),
    (("--nproc=4", "trainer.sharding=full", "trainer.cpu_offload=true"), "there is nothing to offload"),
])  # fmt: skip
def test_a_dry_run_refuses_what_the_run_would_with_torch(grpo: Grpo, settings: tuple[str, ...], said: str) -> None:
    assert said in grpo("run", "--dry-run", "device=cpu", *settings, code=2)


def test_the_device_of_a_run_has_to_be_here_and_that_of_a_named_profile_need_not(
    grpo: Grpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: False)
    refused = grpo("run", "--dry-run", "device=cuda", code=2)
    assert "device=cuda: this machine has no driver" in refused
    assert " GiB of 79.2: " in dry_run(grpo, "--model", QWEN, "profile=h100", "device=cuda")["memory"]


def test_a_dry_run_of_several_processes_is_that_of_each(grpo: Grpo) -> None:
    words = ("profile=h100", "--nproc", "4")
    machines = ("--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "node1:29500")
    alone, sharded = dry_run_data(grpo, *words), dry_run_data(grpo, *words, "trainer.sharding=full")
    hybrid = dry_run_data(grpo, *words, "trainer.sharding=hybrid", *machines)
    assert [each["processes"] for each in (alone, sharded, hybrid)] == [4, 4, 8]
    for each in (sharded, hybrid):  # half of a fourth would be what `full` takes on two machines
        for part in ("weights", "optimizer"):
            assert each["memory"][part] == pytest.approx(alone["memory"][part] / 4, rel=1e-6)
    assert dry_run(grpo, "--model", QWEN, *words)["processes"] == "4; passes and memory are those of each"
    assert process_count() == 1, "the plan is over"


def test_a_data_set_that_cannot_be_read_leaves_the_rest(grpo: Grpo, tmp_path: Path) -> None:
    lines = dry_run(grpo, "--task", f"math.gsm8k?path={tmp_path}/missing.jsonl", "--model", "tiny")
    assert "the limit: no file" in lines["step"]


def test_profiles_shows_which_one_is_here_and_what_one_sets(grpo: Grpo) -> None:
    assert "precision=bfloat16" in grpo("profiles", "h100", "--model", QWEN).splitlines()[-1]
    data = json.loads(grpo("profiles", "--json", "a100", "--model", "Qwen/Qwen2.5-7B-Instruct"))
    assert set(data) == {"profile", "why", "platform", "profiles", "settings"}
    assert "before its first activation" in data["settings"]["a100"]["Qwen/Qwen2.5-7B-Instruct"]


def test_fetch_says_when_there_is_no_network(grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_sdk.hub.network.offline_reason", lambda: "huggingface.co cannot be reached")
    err = grpo("fetch", "some/model", code=2)
    assert "nothing can be downloaded: huggingface.co cannot be reached" in err


@pytest.mark.parametrize("error", [ValueError("no JSON"), httpx2.ReadTimeout("too slow"), OSError("disk full")])
def test_a_download_that_fails_says_why(grpo: Grpo, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(name: str, allow_patterns: list[str]) -> str:
        raise error

    monkeypatch.setattr("grpo_sdk.hub.network.offline_reason", lambda: "")
    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    assert grpo("fetch", "some/model", code=2) == f"error: some/model cannot be downloaded: {error}\n"


def test_fetch_loads_both_splits_of_a_task_and_the_files_of_a_model(
    grpo: Grpo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[str]] = {}

    def download(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        (tmp_path / "model.safetensors").touch()
        return str(tmp_path)

    monkeypatch.setattr("grpo_sdk.hub.network.offline_reason", lambda: "")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    out = grpo("fetch", "some/model", "math.arithmetic?size=7")
    assert out.splitlines() == [f"some/model: {tmp_path}", "math.arithmetic?size=7: 7 rows of train, 7 rows of test"]
    assert list(asked) == ["some/model"]
    assert not any(pattern.endswith((".bin", ".pt", ".py")) for pattern in asked["some/model"])
