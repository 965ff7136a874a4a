"""Other trainers score one batch by their own code, each in an environment of its own, as our scorer does.

    pytest -m peers tests/test_peers.py [-k verl]
    RECORD_PEERS=1 pytest …                          stores what they gave in tests/peers/results

A trainer that no registry has runs from a checkout that the environment names, e.g. SLIME_SOURCE=…/slime.
"""

import importlib.metadata
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from local_endpoint import Reply, serving, streamed_chat
from wheels import ROOT, build_wheels, call

PEERS = Path(__file__).with_name("peers")
sys.path.insert(0, str(PEERS))
from batch import make_batch  # noqa: E402 - a folder of scripts, no package

TABLE: dict[str, dict[str, Any]] = tomllib.loads((PEERS / "peers.toml").read_text())

OURS = ("grpo-core", "grpo-tasks-math", "grpo-tasks-code", "grpo-tasks-chess")

HEAVY = ("torch", "transformers", "datasets", "peft", "grpo-core")
"""What scoring does not need, and trainers bring in versions of their own."""

peers = [pytest.mark.network, pytest.mark.peers, pytest.mark.timeout(1200)]


def light_requirements() -> list[str]:
    """What our packages need for scoring."""
    files = [tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text()) for name in OURS]
    needed = [each for file in files for each in file["project"]["dependencies"]]
    return [each for each in needed if not each.startswith(HEAVY)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    samples = make_batch()
    assert {sample["kind"] for sample in samples if sample["value"] is None} == {"hang", "crash", "exit"}
    path = tmp_path_factory.mktemp("batch") / "batch.json"
    path.write_text(json.dumps(samples))
    return path, samples


def environment_of(name: str, folder: Path, wheels: Path) -> Path:
    """Make an environment with a trainer and our packages; returns its Python."""
    peer, python = TABLE[name], folder / "venv" / "bin" / "python"
    call("uv", "venv", "--python", "3.11", str(folder / "venv"), cwd=folder)
    torch = folder / "torch.txt"  # the version that this environment has: elsewhere, a build for CUDA of gigabytes
    torch.write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}")
    install = ("uv", "pip", "install", "--python", str(python), "--find-links", str(wheels), "--constraint", str(torch))
    ours = OURS if peer.get("full") else light_requirements()
    call(*install, *ours, *peer.get("install", ()), cwd=folder)
    if not peer.get("full"):
        call(*install, "--no-deps", *OURS, cwd=folder)
    if peer.get("bare"):
        call(*install, "--no-deps", *peer["bare"], cwd=folder)
    return python


@pytest.mark.parametrize("name", [pytest.param(name, marks=peers) for name in TABLE if "not_run" not in TABLE[name]])
def test_a_trainer_gives_what_our_scorer_gives(
    name: str, batch: tuple[Path, list[dict[str, Any]]], wheels: Path, tmp_path: Path
) -> None:
    source = TABLE[name].get("source")
    if source and source not in os.environ:
        pytest.skip(f"{source} names no checkout of {TABLE[name]['title']}")
    path, samples = batch
    python = environment_of(name, tmp_path, wheels)
    done = call(str(python), str(PEERS / "scripts" / f"run_{name}.py"), str(path), cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    for sample, answer in zip(samples, result["answers"], strict=True):
        where = f"{sample['task']} {sample['kind']} {sample['completion'][:30]!r}"
        if sample["value"] is None:
            assert answer["value"] is None and answer["unscored"], where
            continue
        assert answer["value"] == pytest.approx(sample["value"], rel=1e-6) and not answer["unscored"], where
        if answer["parts"] is not None:
            assert answer["parts"] == pytest.approx(sample["parts"], rel=1e-6), where
    summary = {
        "version": result["version"],
        "path": result["path"],
        "samples": len(samples),
        "parts": all(answer["parts"] is not None for answer in result["answers"] if answer["value"] is not None),
        "unscored": sorted({answer["unscored"] for answer in result["answers"]} - {""}),
    }
    stored = PEERS / "results" / f"{name}.json"
    if os.environ.get("RECORD_PEERS"):
        stored.write_text(json.dumps(summary, indent=1) + "\n")
    assert json.loads(stored.read_text()) == summary


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(1200)
def test_vf_eval_plays_episodes_with_an_endpoint(wheels: Path, tmp_path: Path) -> None:
    first, second = {"a": "a", "b": "x", "c": "x", "d": "crash"}, {"b": "b", "c": "x"}

    def respond(request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        word = messages[0]["content"].removeprefix("Say ").removesuffix(":")
        return streamed_chat((first if len(messages) == 1 else second)[word])

    program = environment_of("verifiers", tmp_path, wheels).with_name("vf-eval")
    with serving(respond) as server:
        client = ("--client.base-url", server.url, "--client.api-key-var", "NO_KEY")
        task = ("--env.taskset.spec", f"{PEERS / 'retried.py'}:task")
        call(str(program), "grpo-verifiers", *task, "--model", "m", *client, "--no-push", cwd=tmp_path, NO_KEY="none")
    (file,) = tmp_path.glob("outputs/*/traces.jsonl")
    episodes = map(json.loads, file.read_text().splitlines())
    traces = {episode["task"]["data"]["id"]: episode["traces"][0] for episode in episodes}
    scores = {row: (trace["rewards"]["reward"] or {}).get("score") for row, trace in traces.items()}
    assert scores == {"a": 1.0, "b": 1.0, "c": 0.0, "d": None}
    assert traces["b"]["metrics"] == {"solved": 1.0, "valid": 1.0, "right": 1.0}
    assert [error["type"] for error in traces["d"]["errors"]] == ["TaskError"]
    asked = [request["messages"][-1]["content"] for request in server.seen]
    assert sorted(asked) == [" Once more:", " Once more:", *(f"Say {word}:" for word in "abcd")]


def test_every_trainer_has_a_script_and_a_result_or_says_why_not() -> None:
    for name, peer in TABLE.items():
        files = PEERS / "scripts" / f"run_{name}.py", PEERS / "results" / f"{name}.json"
        assert [file.is_file() for file in files] == [("not_run" not in peer)] * 2, name
