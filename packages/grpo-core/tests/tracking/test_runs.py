import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import orjson
import pytest
from closed_folders import close_folder

from grpo_core.tracking import presence
from grpo_core.tracking.events import read_branch
from grpo_core.tracking.runs import differences, find_runs, list_run, metric_named, read_run, series
from grpo_sdk.errors import DamagedFileWarning, UnknownNameError, UserError
from grpo_sdk.records.run_folder import read_settings

START = {"kind": "start", "step": 0, "total_steps": 4, "choices": [{"what": "model", "value": "tiny", "why": "small"}]}
BASE = {"solved_rate": 0.25, "ci_low": 0.1, "ci_high": 0.5, "n": 16, "split": "test"}
FINAL = {"solved_rate": 0.75, "ci_low": 0.5, "ci_high": 0.9, "n": 16, "delta": 0.5}


WARNED = {"kind": "warning", "step": 2, "message": "beware"}
END = {"kind": "end", "step": 4, "interrupted": False}
STOPPED = {"kind": "end", "step": 4, "interrupted": True}


def evaluation(phase: str, result: dict[str, Any], step: int = 0) -> dict[str, Any]:
    return {"kind": "evaluation", "step": step, "task": "math.a", "phase": phase, "result": result}


def make_run(
    folder: Path,
    *events: dict[str, Any],
    summary: dict[str, Any] | None = None,
    config: str = "seed: 0\ntask: math.a\ntrainer:\n  beta: 0.0\n",
) -> Path:
    """A run's folder as a run leaves it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    steps = [{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5, "kl": None}]
    for name, objects in (("train_log.jsonl", steps), ("events.jsonl", events)):
        (folder / "logs" / name).write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in objects))
    if summary is not None:
        (folder / "summary.json").write_bytes(orjson.dumps(summary))
    return folder


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    later = {"solved_rate": 0.5}
    events = [START, evaluation("initial", BASE), WARNED, evaluation("interval", later, 2)]
    (result,) = read_run(make_run(tmp_path / "earlier", *events)).results.values()
    assert (result.latest, result.phase) == (later, "interval")
    stop = {"kind": "stop", "message": "stopping: the run is saved first"}  # no warning
    run = read_run(make_run(tmp_path / "r", *events, evaluation("final", FINAL, 4), stop, END))
    assert (run.state, run.steps, run.planned, run.problem) == ("finished", 2, 4, "")
    assert run.metrics == {"reward": 0.5}, "a number that does not exist is none"
    assert run.settings == {"seed": 0, "task": "math.a", "trainer.beta": 0.0}
    assert run.choices == [("model", "tiny", "small")]
    assert run.warnings == [(2, "beware")]
    result = run.results["math.a"]
    assert result.initial is not None and result.latest is not None
    assert (result.initial["solved_rate"], result.latest["delta"], result.phase) == (0.25, 0.5, "final")
    summary = {"tasks": {"math.a": {"identity": "1f", "initial": BASE, "final": FINAL}}, "planned_steps": 10**9}
    older = read_run(make_run(tmp_path / "older", summary=summary))
    assert older.results["math.a"].latest == FINAL, "from the summary, where there are no events"
    assert older.planned is None, "only a time limit ends it"


@pytest.mark.parametrize(("events", "summary", "state"), [
    ([START], None, "killed"),
    ([START, STOPPED], {"interrupted": True}, "interrupted"),
    ([START, {"kind": "failed", "error": "NonFiniteError: 10 steps"}], None, "failed"),
    # Stopped, resumed and killed: the summary is the earlier call's.
    ([START, STOPPED, START], {"interrupted": True}, "killed"),
    ([START, {"kind": "failed", "error": "x"}, START, END], {}, "finished"),
    # Of a version that wrote no events.
    ([], {"interrupted": False, "steps": 4}, "finished"),
    ([], {"interrupted": True, "steps": 4}, "interrupted"),
    ([], None, "killed"),
])  # fmt: skip
def test_the_state_is_how_the_last_call_ended(
    tmp_path: Path, events: list[dict[str, Any]], summary: dict[str, Any] | None, state: str
) -> None:
    assert read_run(make_run(tmp_path / "r", *events, summary=summary)).state == state


def test_one_process_works_in_a_run_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", START)
    holds = "import sys, time; from pathlib import Path; from grpo_core.tracking.presence import working_in\n"
    holds += "with working_in(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holds, str(run)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "in\n"
        said = rf"r is in use: process {child.pid} on {socket.gethostname()} since \d.*\(kill {child.pid} saves the run"
        with pytest.raises(UserError, match=said), presence.working_in(run):
            pass
        assert read_run(run).state == "running"
        child.kill()
    note = orjson.loads((run / presence.NOTE).read_bytes())
    assert note["pid"] == child.pid and read_run(run).state == "killed"
    with presence.working_in(run) as warning:
        assert warning == ""
        note = orjson.loads((run / presence.NOTE).read_bytes())
        assert note["pid"] == os.getpid() and read_run(run).state == "running"
    assert not (run / presence.NOTE).exists()

    def state(**changed: Any) -> str:
        (run / presence.NOTE).write_bytes(orjson.dumps({**note, **changed}))
        return read_run(run).state

    assert state(started=note["started"] - 60) == "killed", "another process has the number now"
    assert state(pid=2**63 - 1) == state(pid="x") == state(pid=-1) == "killed"
    assert state(host="elsewhere", pid=1) == "running", "its log is fresh"
    for name in ("train_log.jsonl", "events.jsonl"):
        os.utime(run / "logs" / name, (0, 0))
    assert state(host="elsewhere", pid=1) == "killed"
    for text in (b"", b"[]", b"{}", b'{"pid": 1, "started": 1e300, "host": "h", "since": 1e300}', b"1" * 9000):
        (run / presence.NOTE).write_bytes(text)
        assert presence.noted(run) is None, "it names nobody"


def test_a_writer_on_another_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "r", START)
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "node7")
        presence.announce(run)
    note = (run / presence.NOTE).read_bytes()
    with presence.working_in(run) as warning:  # the lock is free: a scheduler may have started the job again here
        assert f"process {os.getpid()} on node7 since" in warning

    def no_locks(lock: filelock.FileLock) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
    (run / presence.NOTE).write_bytes(note)
    with pytest.raises(UserError, match="on node7 since"), presence.working_in(run):
        pass
    for name in ("train_log.jsonl", "events.jsonl"):
        os.utime(run / "logs" / name, (0, 0))
    with presence.working_in(run):  # and has not logged for hours
        pass


def test_runs_are_listed_oldest_first_and_one_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    first = "run_2026-01-01_00-00-00"
    names = ["run_2026-01-02_00-00-00", first, f"{first}_10", f"{first}_2"]
    for name in names:
        make_run(tmp_path / name, START)
    (tmp_path / "not_a_run").mkdir()
    (tmp_path / names[0] / "summary.json").write_bytes(b"[]")
    assert [path.name for path in find_runs(tmp_path)] == [first, f"{first}_2", f"{first}_10", names[0]]
    assert find_runs(tmp_path / names[1]) == [tmp_path / names[1]]
    broken = list_run(tmp_path / names[0])
    assert broken.state == "unreadable" and "the summary is damaged" in broken.problem
    for missing in (tmp_path / "nothing", tmp_path / names[1] / "config.yaml"):
        with pytest.raises(UserError, match="no folder of runs"):
            find_runs(missing)


def test_a_folder_that_may_not_be_looked_into_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run_2026-01-02_00-00-00", START)
    half_open = make_run(tmp_path / "run_2026-01-03_00-00-00", START)
    close_folder(monkeypatch, make_run(tmp_path / "run_2026-01-01_00-00-00", START), half_open / "logs")
    assert find_runs(tmp_path) == [run, half_open]
    unreadable = list_run(half_open)
    assert unreadable.state == "unreadable" and "Permission denied" in unreadable.problem
    close_folder(monkeypatch, tmp_path)
    with pytest.raises(UserError, match=r"no folder of runs .*: it cannot be read: Permission denied"):
        find_runs(tmp_path)


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml:\d: not YAML"):
        read_run(make_run(tmp_path / "r", START, config="a: [1\n"))


def test_damaged_lines_of_a_run_are_named_and_the_others_count(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", START, {"kind": "end", "interrupted": False})
    for name in ("events.jsonl", "train_log.jsonl"):
        path = run / "logs" / name
        first, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(first + b"!\n" + b"".join(rest) + b"\0\n" * (name == "train_log.jsonl"))
    with pytest.warns(DamagedFileWarning) as warned:
        view = read_run(run)
    assert (view.state, view.steps, view.metrics["reward"]) == ("finished", 2, 0.5)
    told = [str(each.message) for each in warned]
    assert len(told) == 3  # of the training log, all that is damaged, since its last line is
    assert all(any(place in each for each in told) for place in ("events.jsonl:2:", "train_log.jsonl:2:", ".jsonl:4:"))


def test_events_of_any_shape_are_no_crash(tmp_path: Path) -> None:
    strange: list[dict[str, Any]] = [
        {},
        {"kind": ["start"]},
        {"kind": "start", "choices": 3, "total_steps": "many"},
        {"kind": "start", "choices": [1, {"what": 2}]},
        {"kind": "evaluation", "task": 1, "phase": None, "result": {"solved_rate": "high", "n": True}},
        {"kind": "evaluation", "result": []},
        {"kind": "warning"},
        {"kind": "warning", "left_out": "many"},
    ]
    run = read_run(make_run(tmp_path / "r", *strange, summary={"tasks": {"a": 1, "b": {"initial": 2}}, "steps": "3"}))
    assert run.planned is None
    assert run.choices == [("2", "", "")]
    assert run.results["1"].latest == {}


def test_a_series_has_the_steps_that_were_logged(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r")
    assert series(run, ("reward", "kl", "nope")) == {"reward": [(1, 0.25), (2, 0.5)], "kl": [(2, None)]}
    (run / "logs" / "train_log.jsonl").write_text('{"step":1}\n{"reward":1}\n')
    with pytest.warns(DamagedFileWarning, match=r"train_log\.jsonl:2: .* no step"):
        assert series(run, ("reward",)) == {}


def test_a_metric_may_be_named_as_the_reference_systems_do() -> None:
    assert metric_named("reward", ["reward"]) == metric_named("r_mean", ["reward"]) == "reward"
    for name, said in (("rewrd", "Did you mean 'reward'"), ("kl_div", "no logged metric 'kl_div'")):
        with pytest.raises(UnknownNameError, match=said):
            metric_named(name, ["reward"])


def test_only_settings_that_differ_are_compared(tmp_path: Path) -> None:
    other = "seed: 1\ntask: math.a\ntrainer:\n  beta: 0.0\n  newer: 3\n"
    runs = [read_run(make_run(tmp_path / "a")), read_run(make_run(tmp_path / "b", config=other))]
    assert differences(runs) == {"seed": [0, 1], "trainer.newer": [None, 3]}
    assert read_settings(tmp_path / "b")["trainer.newer"] == 3, "a key of a newer version is no error"


def start(step: int, total: int) -> dict[str, Any]:
    return {"kind": "start", "step": step, "total_steps": total}


def rated(step: int, phase: str = "interval") -> dict[str, Any]:
    return evaluation(phase, {"solved_rate": step / 100}, step)


ABANDONED = [
    *(start(0, 40), rated(0, "initial"), rated(10), rated(20), rated(40), rated(40, "final"), {**END, "step": 40}),
]
"""Events of a run that was resumed from step 10 when it had finished."""


@pytest.mark.parametrize(("resumed", "kept"), [
    ([start(10, 50)], [0, 10]),
    ([start(30, 50), rated(35), start(10, 50), rated(15)], [0, 10, 15]),
    ([start(10, 50), rated(15), rated(50, "final"), start(20, 50)], [0, 10, 15]),
    ([start(40, 50)], [0, 10, 20, 40, 40]),
    ([start(40, 40)], [0, 10, 20, 40]),  # killed before its summary: the final evaluation is made again
    ([{"kind": "start"}], [0, 10, 20, 40, 40]),
])  # fmt: skip
def test_what_a_resume_abandoned_is_left_out(tmp_path: Path, resumed: list[dict[str, Any]], kept: list[int]) -> None:
    run = make_run(tmp_path / "r", *ABANDONED, *resumed)
    events = list(read_branch(run))
    assert [each["step"] for each in events if each["kind"] == "evaluation"] == kept
    assert sum(each["kind"] == "start" for each in events) == 1 + sum(each["kind"] == "start" for each in resumed)
    with (run / "logs" / "events.jsonl").open("ab") as file:
        file.write(b"!\n")
    problems: list[str] = []
    assert list(read_branch(run, problems)) == events and len(problems) == 1
