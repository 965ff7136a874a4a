"""Other trainers score one batch by their own code, each in an environment of its own, as our scorer does.

    pytest -m peers tests/test_peers.py [-k verl]
    RECORD_PEERS=1 pytest …                          stores what they gave in tests/peers/results

A trainer that no registry has runs from a checkout that the environment names, e.g. SLIME_SOURCE=…/slime.
"""

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import recorded_shop
from absent_trainers import as_results, written
from local_endpoint import Reply, serving, streamed_chat
from wheels import ROOT, call, new_environment, with_torch_of_here

from grpo_sdk.interop import export

PEERS = Path(__file__).with_name("peers")
sys.path.insert(0, str(PEERS))
from batch import make_batch  # noqa: E402 - a folder of scripts, no package

TABLE: dict[str, dict[str, Any]] = tomllib.loads((PEERS / "peers.toml").read_text())

OURS = ("grpo-sdk", "grpo-tasks-math", "grpo-tasks-code", "grpo-tasks-chess")

AREAL = (files(export) / "templates" / "areal" / "overrides.txt.in").read_text().split()


def peers(test: Any) -> Any:
    """Mark a test that installs packages of others."""
    return pytest.mark.network(pytest.mark.peers(pytest.mark.timeout(1200)(test)))


def requirements() -> list[str]:
    """What our packages need of others."""
    files = [tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text()) for name in OURS]
    needed = [each for file in files for each in file["project"]["dependencies"]]
    return [each for each in needed if not each.startswith("grpo-")]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    samples = make_batch()
    assert {sample["kind"] for sample in samples if sample["value"] is None} == {"hang", "crash", "exit"}
    path = tmp_path_factory.mktemp("batch") / "batch.json"
    path.write_text(json.dumps(samples))
    return path, samples


def environment_of(name: str, folder: Path, wheels: Path, key: str = "") -> Path:
    """Make an environment with a trainer and our packages; returns its Python.

    Args:
        name: The trainer.
        folder: Where.
        wheels: Our packages.
        key: Prefix of the entries of the table with further packages.
    """
    peer, torch = TABLE[name], with_torch_of_here(folder)
    needed = *peer.get("install", ()), *(peer.get(f"{key}install", ()) if key else ())
    ours = (*OURS, "grpo-core") if peer.get("full") else OURS
    python = new_environment(folder, wheels, *torch, *ours, *needed)
    if bare := (*peer.get("bare", ()), *(peer.get(f"{key}bare", ()) if key else ())):
        call("uv", "pip", "install", "--python", str(python), *torch, "--no-deps", *bare, cwd=folder)
    return python


def check_stored(name: str, summary: dict[str, Any]) -> None:
    """Check or store what the page says of a trainer."""
    stored = PEERS / "results" / f"{name}.json"
    if os.environ.get("RECORD_PEERS"):
        stored.write_text(json.dumps(summary, indent=1) + "\n")
    assert json.loads(stored.read_text()) == summary


@peers
@pytest.mark.parametrize("name", [name for name in TABLE if "not_run" not in TABLE[name]])
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
    parts = all(answer["parts"] is not None for answer in result["answers"] if answer["value"] is not None)
    unscored = sorted({answer["unscored"] for answer in result["answers"]} - {""})
    facts = {"version": result["version"], "path": result["path"], "samples": len(samples)}
    check_stored(name, {**facts, "parts": parts, "unscored": unscored})


TEXT_TOOLS = ("art", "atropos", "skyrl", "tinker", "verl")
"""Trainers whose policies call tools in text, or as their chat template does."""


@peers
@pytest.mark.parametrize("name", TEXT_TOOLS)
def test_a_trainer_plays_recorded_episodes_with_tools(name: str, wheels: Path, tmp_path: Path) -> None:
    texts = [[written(turn) for turn in each["asked"]] for each in recorded_shop.EPISODES]
    episodes = [{**each, "texts": own} for each, own in zip(recorded_shop.EPISODES, texts, strict=True)]
    (tmp_path / "episodes.json").write_text(json.dumps({"spec": recorded_shop.SPEC, "episodes": episodes}))
    python = environment_of(name, tmp_path, wheels, "tools_")
    script = PEERS / "scripts" / f"tools_{name}.py"
    done = call(str(python), str(script), str(tmp_path / "episodes.json"), cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    for each, own, answer in zip(recorded_shop.EPISODES, texts, result["answers"], strict=True):
        where, score = each["name"], each["score"]
        if score["value"] is None:
            assert answer["value"] is None and f"tool {score['named']}()" in answer["why"], where
            continue
        parts = {part: score["parts"].get(part, 0.0) for part in ("looked", "spent")}
        parts |= {fact: float(score[fact]) for fact in ("solved", "valid")}
        assert (answer["value"], answer["parts"]) == (pytest.approx(score["value"]), pytest.approx(parts)), where
        assert answer["trained"] == "".join(f"{text}<|im_end|>" for text in own), where
        for told, turn in zip(answer["told"], each["turns"], strict=False):
            results = [f"<tool_result>{call['result']}</tool_result>" for call in turn["calls"]]
            found = re.findall("<tool_result>.*?</tool_result>", as_results(told), re.DOTALL)
            assert found == results, where
        assert len(answer["told"]) == len(each["turns"]) - 1, where
    check_stored(f"tools_{name}", {"version": result["version"], "path": result["path"], "episodes": len(episodes)})


RESOLVED = [
    # page, what it says, Python, requirements, overrides, what uv answers
    ("nemo-gym", "needs Python 3.13.14", "3.13.13", ["nemo-gym>=0.7"], [], "depends on Python>=3.13.14"),
    ("nemo-gym", "gets NeMo-Gym 0.4", "3.13.13", ["nemo-gym"], [], "\nnemo-gym==0.4."),
    ("nemo-gym", "gets Hydra 0.11", "3.13.14", [OURS, "nemo-gym>=0.7"], [], "\nhydra-core==0.11."),
    ("nemo-gym", "'hydra-core>=1.3'", "3.13.14", [OURS, "nemo-gym>=0.7", "hydra-core>=1.3"], [], "\nnemo-gym==0.7."),
    ("areal", "pins cuDNN 9.10.2.21", "3.12", ["areal[sglang]==1.0.4"], [], "==9.10.2.21"),
    ("areal", "extra pins 9.16.0.29", "3.12", ["areal[sglang]==1.0.4"], [],
     "==9.16.0.29 and you require areal[sglang]"),
    ("areal", "chooses one version of each", "3.12", [OURS, "areal[sglang]==1.0.4"], AREAL, "\nareal==1.0.4"),
    ("art", "names no upper bound", "3.11", ["openpipe-art==0.5.18"], [], "\nopenai==3."),
    ("tinker-cookbook", "0.6.1 needs", "3.11", ["tinker-cookbook==0.6.1"], [],
     "only tml-renderers<=0.2.1 is available"),
    ("tinker-cookbook", "0.5.8 is", "3.11", [OURS, "tinker-cookbook"], [], "\ntinker-cookbook==0.5.8\n"),
]  # fmt: skip
"""Where a release changes what uv answers, the page is to change, too."""


@peers
@pytest.mark.parametrize(("page", "says", "python", "needed", "overrides", "answer"), RESOLVED)
def test_a_page_says_what_the_registry_resolves(
    page: str, says: str, python: str, needed: list[Any], overrides: list[str], answer: str, tmp_path: Path
) -> None:
    assert says in (ROOT / f"docs/how-to/trainers/{page}.md").read_text().replace("\n", " ")
    lines = [line for each in needed for line in (requirements() if each is OURS else [each])]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    (tmp_path / "overrides.txt").write_text("\n".join(overrides))
    options = ("-q", "--no-annotate", "--python-version", python, "--overrides", "overrides.txt")
    done = call("uv", "pip", "compile", *options, "in.txt", cwd=tmp_path, check=False)
    assert answer in done.stdout + done.stderr.replace("\n         ", " "), done.stderr or done.stdout


PINNED = {
    each.partition("==")[0]: each
    for peer in TABLE.values()
    for each in (*peer.get("install", ()), *peer.get("bare", ()))
    if "==" in each
}
"""Package -> the requirement with its version."""

SEVEN = ("areal", "inspect-ai", "ms-swift", "openrlhf", "skyrl-gym", "verifiers", "verl")

BROUGHT_BY_NONE_OF_OURS = {"torch", "transformers", "datasets", "peft", "scipy", "trl"}


@peers
@pytest.mark.parametrize("name", SEVEN)
def test_beside_a_trainer_our_packages_change_none_of_its_versions(name: str, tmp_path: Path) -> None:
    resolved = []
    for ours in ((), ("grpo-sdk", "grpo-tasks-math")):
        (tmp_path / "in.txt").write_text("\n".join([PINNED[name], *(str(ROOT / "packages" / each) for each in ours)]))
        options = ("-q", "--no-annotate", "--no-header", "--python-version", "3.12")
        done = call("uv", "pip", "compile", *options, "in.txt", cwd=tmp_path)
        resolved.append({line for line in done.stdout.splitlines() if "==" in line})
    alone, beside = resolved
    added = {each.partition("==")[0] for each in beside - alone}
    assert PINNED[name] in alone and alone <= beside and not BROUGHT_BY_NONE_OF_OURS & added
    stored = PEERS / "resolved" / f"{name}.json"
    if os.environ.get("RECORD_PEERS"):
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(
            json.dumps({"requirement": PINNED[name], "packages": len(alone), "added": sorted(added)}, indent=1) + "\n"
        )
    assert json.loads(stored.read_text())["requirement"] == PINNED[name]


def traces_of_vf_eval(
    spec: str, respond: Callable[[dict[str, Any]], Reply], wheels: Path, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Row -> what vf-eval wrote of its episode with a model that answers so, and what the model was asked."""
    program = environment_of("verifiers", folder, wheels).with_name("vf-eval")
    with serving(respond) as server:
        client = ("--client.base-url", server.url, "--client.api-key-var", "NO_KEY")
        words = ("--env.taskset.spec", spec, "--model", "m", *client, "--no-push")
        call(str(program), "grpo-verifiers", *words, cwd=folder, NO_KEY="none")
    (file,) = folder.glob("outputs/*/traces.jsonl")
    episodes = map(json.loads, file.read_text().splitlines())
    return {each["task"]["data"]["id"]: each["traces"][0] for each in episodes}, server.seen


@peers
def test_vf_eval_plays_episodes_with_an_endpoint(wheels: Path, tmp_path: Path) -> None:
    first, second = {"a": "a", "b": "x", "c": "x", "d": "crash"}, {"b": "b", "c": "x"}

    def respond(request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        word = messages[0]["content"].removeprefix("Say ").removesuffix(":")
        return streamed_chat((first if len(messages) == 1 else second)[word])

    traces, seen = traces_of_vf_eval(f"{PEERS / 'retried.py'}:task", respond, wheels, tmp_path)
    scores = {row: (trace["rewards"]["reward"] or {}).get("score") for row, trace in traces.items()}
    assert scores == {"a": 1.0, "b": 1.0, "c": 0.0, "d": None}
    assert traces["b"]["metrics"] == {"solved": 1.0, "valid": 1.0, "right": 1.0}
    assert [error["type"] for error in traces["d"]["errors"]] == ["TaskError"]
    asked = [request["messages"][-1]["content"] for request in seen]
    assert sorted(asked) == [" Once more:", " Once more:", *(f"Say {word}:" for word in "abcd")]


CALL_TOOLS = {
    "verifiers": "vf-eval, with GrpoToolset, the harness null and its gate",
    "inspect": "inspect_ai.eval, inspect_ai.score, execute_tools",
    "openenv": "create_app, MCPToolClient",
}
"""Trainers whose messages have calls and results -> what plays the recorded episodes."""


def check_recorded(name: str) -> None:
    """Check or store what the page says of a trainer that has played the recorded episodes."""
    version = TABLE[name]["install"][0].replace("==", " ")
    episodes = len(recorded_shop.EPISODES)
    check_stored(f"tools_{name}", {"version": version, "path": CALL_TOOLS[name], "episodes": episodes})


def check_episode(episode: dict[str, Any], seen: dict[str, Any]) -> None:
    """Compare what a trainer gave for a recorded episode with tools: reward, parts, results, and the broken tool."""
    score, name = episode["score"], episode["name"]
    assert seen["value"] == score["value"], name
    if score["value"] is None:
        assert f"tool {score['named']}()" in seen["why"], name
    known = score["parts"] | {"solved": float(score["solved"]), "valid": float(score["valid"])}
    parts = seen.get("parts") or {}
    assert parts == {each: known[each] for each in parts}, name
    results = [call["result"] for turn in episode["turns"] for call in turn.get("calls", ())]
    assert seen["told"][: len(results)] == results[: len(seen["told"])], name
    if "turns" in seen and score["value"] is not None:
        assert seen["turns"] == episode["turns"], name


@peers
def test_vf_eval_plays_the_recorded_episodes_with_tools(wheels: Path, tmp_path: Path) -> None:
    asked = {episode["name"]: episode["asked"] for episode in recorded_shop.EPISODES}

    def respond(request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        place = sum(message["role"] == "assistant" for message in messages)
        turn = asked[messages[0]["content"].partition(":")[0]][place]
        return streamed_chat(turn["text"], turn["calls"])

    played, seen = traces_of_vf_eval(recorded_shop.EPISODES_SPEC, respond, wheels, tmp_path)
    for episode in recorded_shop.EPISODES:
        trace = played[episode["name"]]
        messages = [node["message"] for node in trace["nodes"]]
        assert messages[0]["content"].endswith("Buy cups. The shop is open.")  # as reset() says
        check_episode(
            episode,
            {
                "value": (trace["rewards"]["reward"] or {}).get("score"),
                "parts": trace["metrics"],
                "told": [message["content"] for message in messages if message["role"] == "tool"],
                "why": "".join(error["message"] for error in trace["errors"] if error["type"] == "TaskError"),
                "turns": json.loads(trace["info"].get("episode") or '{"turns": null}')["turns"],
            },
        )
    offered = {tool["function"]["name"]: tool["function"]["description"] for tool in seen[0]["tools"]}
    assert offered["look_up"] == "Look up a price." and offered["undescribed"] == "undescribed"
    check_recorded("verifiers")


OTHERWISE = {"unknown tool", "wrong arguments", "thrifty", "several calls"}
"""Episodes that are others where Inspect makes the calls: it refuses "2" for a number, and each call is a turn."""


@peers
def test_inspect_plays_the_recorded_episodes_with_tools(wheels: Path, tmp_path: Path) -> None:
    python = environment_of("inspect", tmp_path, wheels)
    script = PEERS / "scripts" / "tools_inspect.py"
    done = call(str(python), str(script), recorded_shop.EPISODES_SPEC, str(recorded_shop.RECORDED), cwd=tmp_path)
    logs = json.loads(done.stdout.splitlines()[-1])
    for episode in recorded_shop.EPISODES:
        name = episode["name"]
        check_episode(episode, logs["play"][name])
        if episode["score"]["value"] is None:
            assert logs["again"][name]["value"] is None
        else:
            check_episode(episode, logs["again"][name])
        if name not in OTHERWISE:
            check_episode(episode, {**logs["own"][name], "turns": episode["turns"]})
    check_recorded("inspect")


@peers
def test_openenv_plays_the_recorded_episodes_with_tools(wheels: Path, tmp_path: Path) -> None:
    python, script = environment_of("openenv", tmp_path, wheels), PEERS / "scripts" / "tools_openenv.py"
    done = call(str(python), str(script), recorded_shop.SPEC, str(recorded_shop.RECORDED), cwd=tmp_path)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["tools"]["look_up"] == "Look up a price." and seen["tools"]["undescribed"] == "undescribed"
    assert seen["beside"] == "3 coins"
    for episode in recorded_shop.EPISODES:
        check_episode(episode, seen["turns"][episode["name"]])
        if episode["name"] != "several calls":  # more than the task has turns
            check_episode(episode, seen["calls"][episode["name"]])
    check_recorded("openenv")


def test_every_trainer_has_a_script_and_a_result_or_says_why_not() -> None:
    for name in (*TEXT_TOOLS, *CALL_TOOLS):
        assert (PEERS / "results" / f"tools_{name}.json").is_file() and TABLE[name]["tools"], name
    for name, peer in TABLE.items():
        files = PEERS / "scripts" / f"run_{name}.py", PEERS / "results" / f"{name}.json"
        assert [file.is_file() for file in files] == [("not_run" not in peer)] * 2, name
