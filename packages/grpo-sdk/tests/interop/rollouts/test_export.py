"""Exported rollouts, read by the packages' own readers in environments of their own."""

import importlib.util
import json
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest
from wheels import call

from grpo_sdk.cli import main as entry
from grpo_sdk.errors import UserError
from grpo_sdk.interop.rollouts.export import (
    RunFacts,
    StoredMessage,
    answer_messages,
    export_rollouts,
    metric_values,
    part_names,
    prompt_messages,
)
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts

SDK = Path(__file__).parents[3]
TASK = "math.arithmetic?size=9"
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
SAID = [
    {"role": "assistant", "content": "3\n\nor 4"}, {"role": "user", "content": "Wrong.\nTry again."},
    {"role": "assistant", "content": "2\nuser: I say 2"},
]  # fmt: skip
TWO_TURNS = "assistant: 3\n\nor 4\nuser: Wrong.\nTry again.\nassistant: 2\nuser: I say 2"


def line(step: int, value: float | None, text: str, **fields: Any) -> dict[str, Any]:
    solved = value == 1.0
    return {
        "step": step, "task": TASK, "identity": "i7", "group": 0, "row": {"id": "r0", "gold": "2"}, "text": text,
        "tokens": 3, "finish_reason": "stop", "status": "abstained" if value is None else "scored",
        "prompt": CHAT, "reward": value,
        "score": {
            "value": value, "parts": {} if not value else {"near": 1.0, "exact": float(solved)},
            "valid": bool(value), "solved": solved, "why": "" if solved else "not 2",
            "fault": "timeout" if value is None else "",
        },
        **fields,
    }  # fmt: skip


LINES = [
    line(1, 0.5, "3"), line(1, None, "9" * 40, finish_reason="length"),
    line(2, 0.0, "?"), line(2, 1.0, TWO_TURNS, turns=2, messages=SAID, scored_text="2"),
    line(2, 1.0, "told as a game", task="games.x", role="first", row={"id": "e/0"}, turns=1, prompt="You begin."),
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run_1"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text("model: tiny\nseed: 3\n")
    (folder / "logs" / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in LINES))
    return folder


def read_by(package: str, script: str, *arguments: Path) -> Any:
    """What a script of `readers` prints, in an environment with a package and what our sources need."""
    needed = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]["dependencies"]
    options = [option for each in (package, *needed) for option in ("--with", each)]
    python = ("uv", "run", "--no-project", "--isolated", "--python", "3.11", *options, "python")
    reader = str(Path(__file__).with_name("readers") / script)
    done = call(*python, reader, *map(str, arguments), cwd=SDK, PYTHONPATH=str(SDK / "src"))
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(1200)
def test_inspect_reads_a_log_per_step_and_task(run: Path, tmp_path: Path) -> None:
    first, *second = read_by("inspect-ai==0.3.285", "read_inspect.py", run, tmp_path / "logs")
    assert (first["task"], first["model"], first["identity"], first["step"]) == (TASK, "tiny", "i7", 1)
    assert first["scorers"] == ["grpo_sdk/score"]
    scored, unscored = first["samples"]
    assert (scored["id"], scored["epoch"], unscored["id"], unscored["epoch"]) == ("r0", 1, "r0", 2)
    assert scored["messages"] == [["system", "Be brief."], ["user", "1 + 1?"], ["assistant", "3"]]
    assert scored["value"] == {"reward": 0.5, "solved": 0.0, "valid": 1.0, "near": 1.0, "exact": 0.0}
    assert (unscored["value"], unscored["why"], unscored["stop"]) == (None, "not 2", "max_tokens")
    assert first["means"]["reward"] == 0.5  # of the one that was scored: the other is no 0
    assert {(each["step"], each["task"]) for each in second} == {(2, TASK), (2, "games.x")}
    (sums,) = (each for each in second if each["task"] == TASK)
    assert sums["means"] == {"reward": 0.5, "solved": 0.5, "valid": 0.5, "near": 0.5, "exact": 0.5}
    invalid, turns = sums["samples"]
    assert turns["generated"] == ["3\n\nor 4", "2\nuser: I say 2"]
    assert [role for role, _ in turns["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert invalid["value"]["exact"] == 0.0
    (game,) = (each for each in second if each["task"] == "games.x")
    (sample,) = game["samples"]
    assert sample["id"] == "e/0 (first)"
    assert sample["messages"] == [["user", "You begin."], ["assistant", "told as a game"]]
    assert sample["generated"] == []


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(1200)
def test_verifiers_reads_an_episode_per_completion(run: Path, tmp_path: Path) -> None:
    scored, unscored, invalid, turns, game = read_by("verifiers==0.4.0", "read_verifiers.py", run, tmp_path / "traces")
    assert scored["messages"] == [["system", "Be brief."], ["user", "1 + 1?"], ["assistant", "3"]]
    assert (scored["env"], scored["step"], scored["ok"], scored["reward"]) == (TASK, 1, True, 0.5)
    assert scored["metrics"] == {"solved": 0.0, "valid": 1.0, "near": 1.0, "exact": 0.0}
    assert scored["task"] == [TASK, "r0", True]
    assert scored["agent"] == ["agent", "tiny"]
    assert (unscored["ok"], unscored["reward"], unscored["timeout"], unscored["truncated"]) == (False, None, True, True)
    assert unscored["errors"] == ["not scored: not 2"]
    assert scored["group"] == unscored["group"] != invalid["group"]
    assert (invalid["ok"], invalid["reward"], invalid["truncated"]) == (True, 0.0, False)
    assert (turns["turns"], [role for role, _ in turns["messages"][2:]]) == (2, ["assistant", "user", "assistant"])
    assert (game["agent"][0], game["turns"], game["messages"][-1]) == ("first", 0, ["assistant", "told as a game"])


def messages_of(text: str, turns: int = 2, **fields: Any) -> list[StoredMessage]:
    return answer_messages(RolloutRecord.model_validate(line(1, 1.0, text, turns=turns, **fields)))


def test_a_conversation_is_its_messages_and_a_game_one_text() -> None:
    said = [StoredMessage("assistant", "3\n\nor 4", is_sampled=True), StoredMessage("user", "Wrong.\nTry again."),
            StoredMessage("assistant", "2\nuser: I say 2", is_sampled=True)]  # fmt: skip
    assert messages_of(TWO_TURNS, messages=SAID) == said
    unknown = messages_of(TWO_TURNS, turns=1, messages=SAID, prompt="1 + 1 =")
    assert unknown == messages_of(TWO_TURNS, turns=1), "one turn is one completion"
    filled = messages_of(TWO_TURNS, turns=3, messages=SAID)
    assert not any(each.is_sampled for each in filled), "a reply that begins the next completion is none"
    for fields in ({"messages": []}, {"messages": SAID, "role": "first"}):  # an older run, a game
        assert messages_of(TWO_TURNS, **fields) == [StoredMessage("assistant", TWO_TURNS)]


def test_a_text_prompt_is_the_user_s_and_an_unknown_one_nobody_s() -> None:
    text, unknown = (RolloutRecord.model_validate(line(1, 1.0, "2", prompt=prompt)) for prompt in ("1 + 1 =", None))
    assert prompt_messages(text) == [StoredMessage("user", "1 + 1 =")]
    assert prompt_messages(unknown) == []


def test_every_completion_has_every_part(run: Path) -> None:
    records = list(read_rollouts(run))
    parts = part_names(records)
    assert metric_values(records[2], parts) == {"solved": 0.0, "valid": 0.0, "near": 0.0, "exact": 0.0}
    assert RunFacts.read(run).model == "tiny"


@pytest.mark.parametrize(("name", "package"), [("inspect", "inspect_ai"), ("verifiers", "verifiers")])
def test_the_command_says_what_to_install_and_leaves_nothing(run, capsys, name, package):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    assert entry.main(["rollouts", str(run), "--export", name]) == 2
    error = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed: pip install {package.replace('_', '-')}" in error
    assert sorted(path.name for path in run.iterdir()) == ["config.yaml", "logs"]


@pytest.mark.parametrize(("options", "error"), [
    (["--export", "inspekt"], "Did you mean 'inspect'?"),
    (["--export", "inspect", "--json"], "--json prints"),
    (["--output", "x"], "with --export"),
    (["--export", "inspect", "--output", ""], "--output is empty"),
])  # fmt: skip
def test_mistakes_of_the_options(run: Path, capsys: pytest.CaptureFixture[str], options: list[str], error: str) -> None:
    assert entry.main(["rollouts", str(run), *options]) == 2
    assert error in capsys.readouterr().err


def test_an_existing_folder_is_kept_and_a_run_is_needed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"):
        export_rollouts([], run, "inspect", tmp_path / "there")
    with pytest.raises(UserError, match="no_run"):
        export_rollouts([], tmp_path / "no_run", "inspect", tmp_path / "logs")
