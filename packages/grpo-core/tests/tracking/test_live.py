"""A run followed while it grows, is resumed, and disappears."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from growing_run import GrowingRun

from grpo_core.display.live_text import events_text
from grpo_core.tracking import follow, presence
from grpo_core.tracking.follow import FollowedLog
from grpo_core.tracking.live import LiveRun


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "run_1")


def poll(followed: LiveRun) -> LiveRun:
    while followed.poll():
        pass
    return followed


def test_of_a_long_log_the_end_is_read(run: GrowingRun) -> None:
    run.append("rollouts.jsonl", *({"step": i, "text": "x" * 100} for i in range(100)))
    found: list[dict[str, Any]] = []
    log = FollowedLog(run.logs / "rollouts.jsonl", found.append, found.clear, tail_bytes=1000)
    assert not log.read() and [line["step"] for line in found] == list(range(92, 100))
    found.clear()
    run.append("rollouts.jsonl", *({"step": i, "text": "x" * 100} for i in range(100, 200)))
    assert not log.read()
    assert [line["step"] for line in found] == list(range(192, 200))  # it had no time for what is between
    with log.path.open("ab") as file:
        file.write(b"!\n")
    assert not log.read() and log.problem == "rollouts.jsonl:201 is damaged and left out"


def test_an_unfinished_line_is_read_when_it_is_whole(run: GrowingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = LiveRun(run.path)
    with (run.logs / "train_log.jsonl").open("ab", buffering=0) as file:
        file.write(b'{"step": 1, "reward"')
        assert poll(followed).step == 0
        file.write(b": 0.5}\n")
    assert poll(followed).metrics == {"reward": 0.5}
    monkeypatch.setattr(follow, "READ_BYTES", 100)
    for step in range(2, 6):
        run.step(step)
    assert followed.poll() and followed.step == 2, "a long log is read in pieces"
    assert poll(followed).step == 5


@pytest.mark.parametrize("again", [2, 30])
def test_a_resumed_run_begins_anew_where_its_log_was_cut(run: GrowingRun, again: int) -> None:
    followed = LiveRun(run.path)
    for step in range(1, 11):
        run.step(step, abstained=1.0)
    run.evaluation(0, 0.25)
    run.evaluation(10, 0.5)
    run.group(10, 0, "old")
    for step in (5, 9):
        run.event("warning", step=step, message="too long")
    assert poll(followed).step == followed.abstained == 10 and len(followed.warnings) == 2
    run.cut("train_log.jsonl", 5)
    run.cut("rollouts.jsonl", 0)
    run.event("start", step=5, total_steps=40)
    for step in range(6, 6 + again):  # fewer, or more, than were cut, between two looks
        run.step(step, abstained=0.0, reward=0.125)
    run.group(6, 0, "new")
    assert poll(followed).step == 5 + again
    assert followed.abstained == 5
    assert [step for step, _ in followed.series["reward"].points] == list(range(1, 6 + again))
    assert [group.records[0].text for group in followed.groups] == ["new"]
    assert [each.step for each in followed.evaluations["math.a"]] == [0]
    assert len(followed.warnings) == 1


def test_a_folder_may_disappear_and_come_back(run: GrowingRun, tmp_path: Path) -> None:
    followed = LiveRun(run.path)
    run.step(1)
    assert poll(followed).step == 1
    run.path.rename(tmp_path / "away")
    assert poll(followed).is_gone and followed.step == 1
    shutil.copytree(tmp_path / "away", run.path)
    run.step(2)
    assert not poll(followed).is_gone and followed.step == 2
    assert len(followed.series["reward"].points) == 2


def test_states_and_time_left(run: GrowingRun) -> None:
    followed = LiveRun(run.path)
    assert (poll(followed).state, followed.step) == ("killed", 0)  # nobody works in it
    presence.announce(run.path)
    run.step(10)
    assert poll(followed).state == "running"
    assert followed.seconds_left(0.0) == (40 - 10) * 2.0
    (run.path / "config.yaml").write_text("task: math.a\ntrainer:\n  max_minutes: 10\n")
    began = 1795255200.0  # 2026-11-21T10:00:00Z
    assert poll(LiveRun(run.path)).seconds_left(began + 570) == 30, "of its time limit"
    presence.withdraw(run.path)
    run.event("failed", error="EngineError: gone")
    assert (poll(followed).state, followed.problem) == ("failed", "EngineError: gone")
    assert followed.seconds_left(0.0) is None


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"step": "x"}\n', b'{"step": true}\n', b"{}\n"])
def test_a_corrupt_line_is_counted_and_left_out(run: GrowingRun, line: bytes) -> None:
    run.step(1)
    with (run.logs / "train_log.jsonl").open("ab", buffering=0) as file:
        file.write(line)
        run.step(2)
        followed = poll(LiveRun(run.path))
        assert (followed.step, followed.problem) == (2, "train_log.jsonl:2 is damaged and left out")
        file.write(line)
        assert "train_log.jsonl:2 and 1 more lines" in poll(followed).problem


@pytest.mark.parametrize("event", [
    {},
    {"kind": "evaluation", "task": "math.a", "step": 1, "result": []},
    {"kind": "evaluation", "task": "math.a", "step": 1, "result": {"n": 16}},
])  # fmt: skip
def test_a_corrupt_event_is_not_displayed(run: GrowingRun, event: dict[str, Any]) -> None:
    run.append("events.jsonl", event)
    followed = poll(LiveRun(run.path))
    assert followed.problem == "events.jsonl:2 is damaged and left out"
    assert [each["kind"] for each in followed.events] == ["start"]
    assert "start" in events_text(followed).plain
    run.event("evaluation", task="math.a", result={"solved_rate": 0.5, "delta": "x", "reward_delta": None})
    assert "solved 0.50" in events_text(poll(followed)).plain, "a corrupt number is left out"


@pytest.mark.parametrize("name", ["config.yaml", "summary.json"])
def test_of_a_damaged_file_the_state_is_still_read(run: GrowingRun, name: str) -> None:
    (run.path / name).write_bytes(b"\xff")
    run.event("end", interrupted=False)
    followed = poll(LiveRun(run.path))
    assert followed.state == "finished" and name in followed.problem
