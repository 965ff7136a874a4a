"""`grpo run --dry-run`, `grpo profiles` and `grpo fetch`: what they print, in a terminal and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from grpo_core.cli.main import main
from grpo_core.profiles.accelerator import process_count

QWEN = "Qwen/Qwen2.5-1.5B-Instruct"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_dry_run_says_what_is_needed_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "run", "--dry-run", "--model", QWEN, "profile=consumer_24", "lora.enabled=true")
    lines = dict(line.split(None, 1) for line in out.splitlines()[1:])
    assert code == 0
    assert lines["model"].startswith(f"{QWEN}, 1,543.7 M parameters (the published config.json)")
    assert lines["memory"].startswith("needs about ") and " GiB of 23.5: weights 8.6, " in lines["memory"]
    assert "precision=bfloat16" in lines["settings"] and "profile=consumer_24" in lines["settings"]
    assert "the mean of 1000" in lines["step"]


@pytest.mark.parametrize("command", ["run --dry-run", "run --show-config", "sweep --dry-run seed=0,1"])
def test_a_setting_may_need_what_is_recommended_for_the_model(capsys: pytest.CaptureFixture[str], command: str) -> None:
    words = [*command.split(), "task=games.kuhn_poker", "trainer.ref_model_sync_steps=30"]
    assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words, "trainer.beta=0")
    assert code == 2 and "ref_model_sync_steps=30 has no reference to move at trainer.beta=0" in err


@pytest.mark.parametrize("command", ["run --dry-run", "sweep --dry-run seed=0,1", "launch slurm --dry-run --gpus 0"])
def test_the_opponents_that_self_play_is_evaluated_against_fit_the_game(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, _, err = run(capsys, *command.split(), "task=games.connect_four?rows=6&columns=7", "model=games-tiny")
    assert code == 2
    assert "self-play is evaluated against any_perfect, too" in err and "at most 20 cells" in err
    assert "?opponent=random" in err


def test_what_is_tried_on_the_model_stays_auto(capsys: pytest.CaptureFixture[str]) -> None:
    setting = "trainer.micro_batch_size=auto"
    _, out, _ = run(capsys, "run", "--show-config", "--model", "tiny", setting)
    assert any("micro_batch_size" in line and "auto" in line for line in out.splitlines())
    _, out, _ = run(capsys, "run", "--dry-run", "--model", QWEN, "profile=a100", setting)
    lines = dict(line.split(None, 1) for line in out.splitlines()[1:])
    assert lines["passes"].endswith(f"{setting} tries before the first step how many completions fit 0.8 of the memory")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("engine.name=vllm", "engine.args.sleep=maybe"), "engine.args.sleep: Input should be a valid boolean"),
        (("trainer.loss_args.dual_clip=0.5",), "trainer.loss_args.dual_clip=0.5: must be above 1"),
        (("eval.n=4", "eval.temperature=0"), "eval.n=4 at temperature 0"),
        (("eval.task=math.ech",), "no task 'math.ech'. Did you mean 'math.echo'?"),
        (("tracking.trackers=nothing",), "no tracker 'nothing'"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(
    capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], said: str
) -> None:
    code, _, err = run(capsys, "run", "--dry-run", *settings)
    assert code == 2 and said in err


def test_a_server_that_stays_in_memory_is_added_to_training(capsys: pytest.CaptureFixture[str]) -> None:
    def memory(*settings: str) -> dict[str, int]:
        _, out, _ = run(capsys, "run", "--dry-run", "--json", "--model", QWEN, "profile=a100", *settings)
        found: dict[str, int] = json.loads(out)["memory"]
        return found

    small = "engine.max_batch_tokens=1024"
    elsewhere = memory("engine.name=vllm", "engine.url=http://localhost:8000", small)
    stays = memory("engine.name=vllm", "engine.args.sleep=false", small)
    assert "sampling" not in elsewhere
    assert stays["sampling"] > 2 * 1_543_700_000  # its weights, in bfloat16
    assert memory("engine.name=vllm", small)["total"] < stays["total"]


def test_a_dry_run_as_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "run", "--dry-run", "--json", "--model", QWEN, "profile=a100", "trainer.beta=0.04")
    data = json.loads(out)
    memory = data["memory"]
    assert code == 0
    assert data["choices"][0]["what"] == "platform" and "GPU profile a100" in data["choices"][0]["value"]
    assert memory["reference"] == 4 * data["parameters"]
    assert memory["total"] == pytest.approx(sum(size for name, size in memory.items() if name != "total"), abs=8)


def test_a_dry_run_of_several_processes_is_that_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "--dry-run", "--model", QWEN, "profile=h100", "--nproc", "4")

    def plan(*more: str) -> dict[str, Any]:
        code, out, err = run(capsys, *words, *more, "--json")
        assert code == 0, err
        return json.loads(out)

    alone, sharded = plan(), plan("trainer.sharding=full")
    machines = ("--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "node1:29500")
    hybrid = plan("trainer.sharding=hybrid", *machines)
    assert [each["processes"] for each in (alone, sharded, hybrid)] == [4, 4, 8]
    for each in (sharded, hybrid):  # half of a fourth would be what `full` takes on two machines
        for part in ("weights", "optimizer"):
            assert each["memory"][part] == pytest.approx(alone["memory"][part] / 4, rel=1e-6)
    _, out, _ = run(capsys, *words, "trainer.sharding=full")
    assert "4; passes and memory are those of each" in out
    assert process_count() == 1, "the plan is over"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("trainer.sharding=hybrid", "trainer.shard_size=3"), "4 processes cannot be divided into groups of 3"),
        (("trainer.prompts_per_step=6",), "4 ranks cannot share the 6 prompts"),
        (("trainer.sharding=full", "trainer.cpu_offload=true", "device=cpu"), "there is nothing to offload"),
    ],
)
def test_a_dry_run_is_refused_as_the_processes_would_be(
    capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, "run", "--dry-run", "--nproc", "4", "--model", "tiny", *settings)
    assert (code, out) == (2, "") and message in err
    assert err.count("\n") == 1


def test_a_model_is_not_shared_by_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "run", "--dry-run", "--model", "tiny", "trainer.sharding=full")
    assert code == 2 and "this is the only one. Start several (--nproc N" in err


def test_sizes_that_no_model_has_are_not_believed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    huge = 2**31 - 1
    config = {"hidden_size": huge, "num_hidden_layers": huge, "num_attention_heads": 4, "vocab_size": huge}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, out, _ = run(capsys, "run", "--dry-run", "--json", "--model", str(tmp_path))
    assert code == 0 and json.loads(out)["memory"] is None
    code, out, _ = run(capsys, "run", "--dry-run", "--model", str(tmp_path))
    assert "of unknown size: it names no sizes, or sizes that no model has" in " ".join(out.split())


def test_a_dry_run_loads_no_torch() -> None:
    script = (
        "import sys; from grpo_core.cli.main import main\n"
        "assert main(['run', '--dry-run', 'device=cpu']) == 0\n"
        "print(*(name for name in ('torch', 'transformers') if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_what_cannot_fit_ends_with_a_user_s_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "run", "--dry-run", "--model", "Qwen/Qwen2.5-7B-Instruct", "profile=t4")
    assert code == 2 and out == ""
    assert "before its first activation, of 14.6 on t4" in err


def test_a_data_set_that_cannot_be_read_leaves_the_rest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    code, out, _ = run(capsys, "run", "--dry-run", "--task", f"math.gsm8k?path={missing}", "--model", "tiny")
    assert code == 0
    assert "the limit: no file" in out


def test_profiles_shows_which_one_is_here_and_what_one_sets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "profiles", "h100", "--model", QWEN)
    assert code == 0
    assert "precision=bfloat16" in out.splitlines()[-1]
    code, out, _ = run(capsys, "profiles", "--json", "a100", "--model", "Qwen/Qwen2.5-7B-Instruct")
    data = json.loads(out)
    assert set(data) == {"profile", "why", "platform", "profiles", "settings"}
    assert "before its first activation" in data["settings"]["a100"]["Qwen/Qwen2.5-7B-Instruct"]
    code, _, err = run(capsys, "profiles", "a100", "--model", "./missing")
    assert code == 2 and "no such folder" in err
    code, _, err = run(capsys, "profiles", "a1000")
    assert code == 2 and "Did you mean 'a100'" in err


def test_fetch_refuses_what_is_here_and_says_when_there_is_no_network(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, "fetch", "./folder/x")
    assert code == 2
    monkeypatch.setattr("grpo_core.hub.network.offline_reason", lambda: "huggingface.co cannot be reached")
    code, _, err = run(capsys, "fetch", "some/model")
    assert code == 2 and "nothing can be downloaded: huggingface.co cannot be reached" in err


@pytest.mark.parametrize("name", ["a b/c", "own/-bad", "own/a--b", "own/x?revision=1", "own/a\nb", "x" * 300 + "/y"])
def test_a_name_that_the_hub_cannot_have_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for arguments in (["fetch", name], ["run", "--dry-run", "--model", name]):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and out == "" and err.count("\n") == 1
        assert "is no hub id: " in err and len(err) < 400


@pytest.mark.parametrize("error", [ValueError("no JSON"), httpx2.ReadTimeout("too slow"), OSError("disk full")])
def test_a_download_that_fails_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(name: str, allow_patterns: list[str]) -> str:
        raise error

    monkeypatch.setattr("grpo_core.hub.network.offline_reason", lambda: "")
    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    code, _, err = run(capsys, "fetch", "some/model")
    assert code == 2 and err == f"error: some/model cannot be downloaded: {error}\n"


def test_fetch_loads_both_splits_of_a_task_and_the_files_of_a_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, list[str]]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        (tmp_path / "model.safetensors").touch()
        return str(tmp_path)

    monkeypatch.setattr("grpo_core.hub.network.offline_reason", lambda: "")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    code, out, _ = run(capsys, "fetch", "some/model", "math.arithmetic?size=7")
    assert code == 0
    assert [name for name, _ in asked] == ["some/model"]
    assert not any(pattern.endswith((".bin", ".pt", ".py")) for _, patterns in asked for pattern in patterns)
    assert out.splitlines() == [f"some/model: {tmp_path}", "math.arithmetic?size=7: 7 rows of train, 7 rows of test"]


def test_a_preset_s_rows_must_be_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(
        capsys, "run", "--preset", "ultra_small", "--task", "math.arithmetic?size=7", f"--output-dir={tmp_path}"
    )
    assert code == 2
    assert "trainer.train_size=20: task math.arithmetic has 7 training rows, 13 fewer" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--task", "math.arithmetic?size=50", "--preset", "baseline"],
            "trainer.train_size=100: task math.arithmetic has 50 training rows, 50 fewer",
        ),
        (["device=cuda"], "device=cuda: this machine has no driver"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: False)
    code, out, err = run(capsys, "run", "--dry-run", *arguments)
    assert (code, out) == (2, "") and words in err


def test_the_device_of_a_named_profile_need_not_be_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: False)
    code, out, _ = run(capsys, "run", "--dry-run", "--model", QWEN, "profile=h100", "device=cuda")
    assert code == 0 and " GiB of 79.2: " in out


def test_memory_that_cannot_be_known_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    code, out, _ = run(capsys, "run", "--dry-run", "--model", str(model))
    lines = dict(line.split(None, 1) for line in out.splitlines()[1:])
    assert code == 0 and lines["memory"] == "unknown, as the size of the model is"


def test_an_unknown_profile_is_repeated_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "run", "--dry-run", f"profile={'a' * 5000}")
    assert code == 2 and len(err) < 600


@pytest.mark.parametrize("model", ["tiny", QWEN])
def test_an_endpoint_that_the_hub_cannot_be_imported_with_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://[::")
    code, _, err = run(capsys, "run", "--dry-run", "--model", model)
    assert code == 2 and err.startswith("error: HF_ENDPOINT='http://[::' is no address of a server")
