from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
import resumed_run
from ears import Ears

from grpo_core.config import RunConfig, TrackingConfig
from grpo_core.tracking import observe as observing
from grpo_core.tracking import sending
from grpo_core.tracking.aliases import ALIASES, aliases_of, with_reference_names
from grpo_core.tracking.base import COLUMNS, MAX_CELL_CHARS, Cell, TrackedRun, recall_id, remember_id, row_of, shortened
from grpo_core.tracking.events import read_events
from grpo_core.tracking.observe import observe
from grpo_core.tracking.tensorboard import literal
from grpo_core.tracking.wandb import choose_mode, has_key, is_reachable
from grpo_core.training.catalogue import CATALOGUE
from grpo_sdk.callbacks import Callback, RunInfo, Sample, StepRecord
from grpo_sdk.errors import UnknownNameError, UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.task.score import Score

KEY = "0123456789abcdef0123456789abcdef01234567"
NASTY = "<b>1</b> | *x*\n[y](z)"
SAMPLE = Sample("math.a", "1 + 1 =", NASTY, Score(0.25, {"exact": 0.25}, valid=True, why="exact 0.25 of 1"))
RESULT = {"solved_rate": 0.5, "n": 8, "split": "test", "temperature": 0.0}


class Recorder:
    """A tracker that remembers."""

    made: ClassVar[list[Recorder]] = []

    def __init__(self, run: TrackedRun) -> None:
        if resumed_run.options.get("anew") or not recall_id(run.run_dir, "recorder"):
            remember_id(run.run_dir, "recorder", f"run{len(self.made)}")
        self.last_step = lambda: resumed_run.options.get("kept")
        self.run = run
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.tables: list[tuple[int, str, list[list[Cell]]]] = []
        self.notes: list[tuple[int, str]] = []
        self.failed: bool | None = None
        self.made.append(self)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        if values.get("reward") == 13 or resumed_run.options.get("broken"):
            raise ConnectionError(f"no route for {os.environ.get('WANDB_API_KEY')}\nmore")
        self.logged.append((step, dict(values)))

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self.tables.append((step, name, [list(row) for row in rows]))

    def note(self, step: int, text: str) -> None:
        self.notes.append((step, text))

    def close(self, *, failed: bool) -> None:
        self.failed = failed


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    """The tracker `recorder`, as somebody else's package would register it."""
    monkeypatch.setattr(Recorder, "made", [])
    module = sys.modules.setdefault("a_tracker", type(sys)("a_tracker"))
    module.Recorder = Recorder  # type: ignore[attr-defined] # a module of this test
    registry.register("tracker", "recorder", "a_tracker:Recorder")
    yield Recorder.made
    registry.unregister("tracker", "recorder")


def configured(tracker: str = "recorder", **options: Any) -> RunConfig:
    return RunConfig(tracking=TrackingConfig(trackers=(tracker,), **options))


def a_run(
    folder: Path, steps: Sequence[Mapping[str, float]], *listeners: Callback, resumed_at: int = 0, **options: Any
) -> None:
    """What a trainer tells of a run with a tracker."""
    (folder / "logs").mkdir(exist_ok=True)
    with ExitStack() as resources:
        callbacks, _ = observe(configured(**options), listeners, resources)
        settings = {"trainer.micro_batch_size": 16}  # found in place of auto
        info = RunInfo(folder, {"math.a": (8, 64)}, (), len(steps), step=resumed_at, settings=settings)
        callbacks.on_run_start(info)
        for step, metrics in enumerate(steps, start=1):
            callbacks.on_step_end(step)
            callbacks.on_step(StepRecord(step, metrics, (SAMPLE,)))
        callbacks.on_evaluation("math.a", "final", RESULT)
        callbacks.on_stop("stopping: the run is saved first")
        callbacks.on_run_end({"interrupted": False}, folder)


def test_a_tracker_is_told_of_a_run(tmp_path: Path, recorded: list[Recorder]) -> None:
    steps = [{"reward": 0.5, "kl": math.nan}, {"reward": 0.75, "abstained": 2}]
    a_run(tmp_path, steps, project="p", reference_names=True)
    (tracker,) = recorded
    assert (tracker.run.run_dir, tracker.run.project, tracker.run.name) == (tmp_path, "p", tmp_path.name)
    assert (tracker.run.config["trainer.num_generations"], tracker.run.config["trainer.micro_batch_size"]) == (8, 16)
    first, second, evaluated = tracker.logged
    assert first[1]["reward"] == first[1]["r_mean"] == first[1]["mean_reward"] == 0.5
    assert "kl" not in first[1] and "kl_div" not in first[1], "a number that does not exist is left out"
    assert second[0] == 2
    assert evaluated == (2, {f"eval/math.a/{name}": RESULT[name] for name in ("solved_rate", "n")})
    assert tracker.tables == [(1, "completions", [row_of(1, SAMPLE)])], "a table at most every 30 seconds"
    ((step, warning),) = tracker.notes
    assert step == 2 and warning.startswith("2 completions could not be scored"), "the monitor's, which has the step"
    assert tracker.failed is False
    a_run(tmp_path, [{"abstained": 2}], monitor=False)
    assert recorded[-1].notes == []


def test_a_run_goes_on_without_a_broken_tracker(
    tmp_path: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    ears = Ears()
    a_run(tmp_path, [{"reward": 1}, {"reward": 13}, {"reward": 1}], ears)
    said, _ = ears.said
    assert said.startswith("tracker recorder stopped (ConnectionError: no route for <WANDB_API_KEY>)")
    assert [step for step, _ in recorded[0].logged] == [1] and recorded[0].failed is None
    assert KEY not in (tmp_path / "logs" / "events.jsonl").read_text()
    assert [event["kind"] for event in read_events(tmp_path)] == ["start", "warning", "evaluation", "stop", "end"]


def test_a_run_that_fails_is_told_so(tmp_path: Path, recorded: list[Recorder]) -> None:
    class Broken(Callback):
        def on_step(self, record: StepRecord) -> None:
            raise ArithmeticError("no number\nat all")

    with pytest.raises(ArithmeticError):
        a_run(tmp_path, [{"reward": 1}], Broken())
    assert recorded[0].failed is True
    *_, last = read_events(tmp_path)
    assert (last["kind"], last["error"]) == ("failed", "ArithmeticError: no number")
    assert not (tmp_path / "logs" / "process.json").exists()


def test_a_resumed_run_says_so_and_appends(tmp_path: Path, recorded: list[Recorder]) -> None:
    a_run(tmp_path, [{"reward": 1}])
    (tmp_path / "logs" / "train_log.jsonl").write_text('{"step":1}\n')
    with (tmp_path / "logs" / "events.jsonl").open("a") as log:
        log.write('{"kind":"warn')  # killed within a line
    a_run(tmp_path, [{"reward": 1}], resumed_at=1)
    assert [each.run.is_resumed for each in recorded] == [False, True]
    assert [event["kind"] for event in read_events(tmp_path)] == ["start", "evaluation", "stop", "end"] * 2
    a_run(tmp_path, [], resumed_at=7)
    assert [event["step"] for event in read_events(tmp_path)][-4:] == [7] * 4 and recorded[-1].logged[-1][0] == 7


@pytest.mark.parametrize(("phases", "sent"), [
    (["1-6", "5-5", "5-8"], [[1, 2, 3, 4, 5, 6], [], [7, 8]]),  # killed after a checkpoint, and again while it repeats
    (["1-6", "7-8"], [[1, 2, 3, 4, 5, 6], [7, 8]]),  # stopped in order
    (["1-6", "7-8 branch"], [[1, 2, 3, 4, 5, 6], [7, 8]]),  # nothing is done again
    (["1-6", "3-4 branch", "4-5"], [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4], [5]]),
    (["1-6", "5-8 anew"], [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]]),  # an offline archive
    (["1-6", "5-8 kept=3"], [[1, 2, 3, 4, 5, 6], [4, 5, 6, 7, 8]]),  # it was killed before it had stored the others
    (["1-3", "4-6 broken", "7-8"], [[1, 2, 3], [], [4, 5, 6, 7, 8]]),
])  # fmt: skip
def test_each_step_is_sent_once(
    tmp_path: Path, recorded: list[Recorder], phases: Sequence[str], sent: Sequence[Sequence[int]]
) -> None:
    said = [said for phase in phases for said in resumed_run.run("recorder", tmp_path, phase)]
    assert [[step for step, values in each.logged if "reward" in values] for each in recorded] == sent
    evaluated = [[step for step, values in each.logged if "eval/math.a/n" in values] for each in recorded]
    assert evaluated == [[*[0] * (1 in steps), *(step for step in steps if step % 2 == 0)] for steps in sent]
    branched = [each.run for each in recorded if each.run.branch]
    assert [run.name for run in branched] == [f"{tmp_path.name}_{run.branch}" for run in branched]
    assert all(run.config["branch_of"] == tmp_path.name for run in branched)
    words = {"branch": "is a run of its own", "anew": "takes the place of", "broken": "stopped"}
    expected = [words[option] for phase in phases for option in phase.split()[1:] if option in words]
    assert len(said) == len(expected[: 0 if phases[-1] == "7-8 branch" else None])
    assert all(word in line for word, line in zip(expected, said, strict=False))


def test_a_tracker_that_does_not_close_is_left(
    tmp_path: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    closes, ears = threading.Event(), Ears()
    monkeypatch.setattr(Recorder, "close", lambda self, failed: closes.wait(60))
    monkeypatch.setattr(sending, "CLOSE_S", 0.05)
    a_run(tmp_path, [{"reward": 1}], ears)
    closes.set()
    assert "recorder did not close within 0.05 s" in ears.said[-1]


def test_an_evaluation_stands_at_its_step_where_few_steps_are_logged(tmp_path: Path, recorded: list[Recorder]) -> None:
    (tmp_path / "logs").mkdir()
    with ExitStack() as resources:
        callbacks, _ = observe(configured(), [], resources)
        callbacks.on_run_start(RunInfo(tmp_path, {}, (), 60))
        callbacks.on_evaluation("math.a", "initial", RESULT)
        for step in range(1, 61):
            callbacks.on_step_end(step)
            if step in (50, 60):  # trainer.logging_steps=50
                callbacks.on_step(StepRecord(step, {}))
            if step % 20 == 0:
                callbacks.on_evaluation("math.a", "interval", RESULT)
        callbacks.on_evaluation("math.a", "final", RESULT)
        callbacks.on_run_end({"interrupted": False}, tmp_path)
    steps = [0, 20, 40, 60, 60]
    assert [step for step, _ in recorded[0].logged] == steps
    assert [event["step"] for event in read_events(tmp_path) if event["kind"] == "evaluation"] == steps


def test_a_missing_extra_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing.importlib.util, "find_spec", lambda name: None)
    for name in observing.EXTRAS:
        with ExitStack() as resources, pytest.raises(UserError, match=rf"{name}.*pip install 'grpo-core\[{name}\]'"):
            observe(configured(name), (), resources)


def test_names_of_trackers_are_a_list_or_one_text() -> None:
    assert TrackingConfig.model_validate({"trackers": "tensorboard, wandb"}).trackers == ("tensorboard", "wandb")
    assert TrackingConfig.model_validate({"trackers": ""}).trackers == ()
    assert set(registry.names("tracker")) == set(observing.EXTRAS)


def test_every_alias_names_a_metric_of_ours_and_none_hides_one() -> None:
    ours = {metric.name for metric in CATALOGUE}
    # games/… is what tasks that are games measure themselves.
    assert {each.name for each in ALIASES if not each.name.startswith("games/")} <= ours
    theirs = [each.alias for each in ALIASES]
    assert len(set(theirs)) == len(theirs)
    assert not set(theirs) & ours
    same = {each.alias.removeprefix("train/"): each.name for each in ALIASES}
    assert {name: same[name] for name in same.keys() & ours} == {name: name for name in same.keys() & ours}
    assert with_reference_names({"kl": 0.5}) == {"kl": 0.5, "kl_div": 0.5, "train/kl": 0.5}
    named = with_reference_names({"solved_rate": 0.5, "execution/success_rate": 0.75})
    assert named["execution/success_rate"] == 0.75, "a task's own number is not replaced"
    assert aliases_of("loss/policy") == ("pg_loss",)


def test_long_and_broken_text_in_a_table_is_bounded() -> None:
    row = row_of(3, Sample("t", "p" * 9999, "a\ud800b", Score(None, why="x", fault="timeout")))
    assert len(row) == len(COLUMNS)
    assert len(str(row[2])) == MAX_CELL_CHARS and "…" in str(row[2])
    assert (row[0], row[3], row[4]) == (3, "a?b", None)
    assert shortened("abcdefghij", 6) == "abc…ij"  # a third of 6 from the end, one for the dots, 3 are left


@pytest.mark.parametrize(("host", "machine", "expected"), [
    ("https://api.wandb.ai", "api.wandb.ai", True),
    ("https://api.wandb.ai", "api.forge.coreweave.com", True),
    ("http://own.server:8080", "own.server:8080", True),
    ("http://own.server:8080", "api.wandb.ai", False),
])  # fmt: skip
def test_the_key_that_wandb_login_keeps_is_found(tmp_path: Path, host: str, machine: str, expected: bool) -> None:
    (tmp_path / "netrc").write_text(f"machine {machine}\n  login user\n  password {KEY}\n")
    assert has_key(host, {"NETRC": str(tmp_path / "netrc"), "HOME": str(tmp_path)}) == expected


def test_the_mode_of_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reachable = True
    monkeypatch.setattr("grpo_core.tracking.wandb.is_reachable", lambda host: reachable)
    monkeypatch.setenv("HOME", str(tmp_path))
    with_key = {"WANDB_API_KEY": KEY}
    assert choose_mode(None, with_key) == ("online", "a key and a network are available")
    for setting, variable, mode in (
        ("disabled", "", "disabled"),
        ("offline", "", "offline"),
        ("online", "disabled", "online"),  # a setting is above the variable
        (None, "dryrun", "offline"),
    ):
        assert choose_mode(setting, with_key | ({"WANDB_MODE": variable} if variable else {}))[0] == mode
    mode, why = choose_mode(None, {})
    assert mode == "offline" and "WANDB_API_KEY" in why
    with pytest.raises(UserError, match=r"wandb_mode=online needs a key: run `wandb login`"):
        choose_mode("online", {})
    with pytest.raises(UnknownNameError, match=r"no WANDB_MODE 'offlin'\. Did you mean 'offline'"):
        choose_mode(None, {"WANDB_MODE": "offlin"})
    reachable = False
    mode, why = choose_mode("online", with_key)
    assert mode == "offline" and "api.wandb.ai cannot be reached" in why
    (tmp_path / ".netrc").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    assert "cannot be reached" in choose_mode("online", {})[1], "the key that `wandb login` keeps"


def test_a_server_is_reached_itself_or_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_reachable(f"http://127.0.0.1:{port}")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert is_reachable("https://nowhere.invalid")
    assert not is_reachable(f"http://127.0.0.1:{port}")
    assert not is_reachable("https://127.0.0.1:99999999")


def test_tensorboard_files_hold_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def logged(tag: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in events.Scalars(tag)]

    steps = [{"reward": 0.5, "abstained": 1}, {"reward": 0.75}]
    a_run(tmp_path, steps, tracker="tensorboard", reference_names=True)
    events = EventAccumulator(str(tmp_path / "logs" / "tensorboard"))
    events.Reload()
    assert logged("reward") == logged("r_mean") == [(1, 0.5), (2, 0.75)]
    assert logged("eval/math.a/solved_rate") == [(2, 0.5)]
    (table,) = events.Tensors("completions")
    cells = [cell.decode() for cell in table.tensor_proto.string_val]
    assert [size.size for size in table.tensor_proto.tensor_shape.dim] == [2, len(COLUMNS)]
    assert cells[3] == "**completion**" and cells[len(COLUMNS) + 3] == r"\<b\>1\</b\> \| \*x\* ⏎ \[y\]\(z\)"
    assert [literal(cell) for cell in (None, 0.123456, True)] == ["", r"0\.1235", "True"]
    assert b"could not be scored" in events.Tensors("warnings")[0].tensor_proto.string_val[0]


def test_tensorboard_has_each_step_of_a_killed_run_once_and_a_branch_apart(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for phase in ("1-6", "5-8", "3-10 branch", "11-12"):
        resumed_run.run("tensorboard", tmp_path, phase)
    folder = tmp_path / "logs" / "tensorboard"
    for path, last in ((folder, 8), (folder / "branch_1_from_step_2", 12)):
        events = [event for file in sorted(path.glob("events.*")) for event in EventFileLoader(str(file)).Load()]
        steps = [event.step for event in events for value in event.summary.value if value.tag == "reward"]
        assert steps == list(range(1, last + 1))
        read = EventAccumulator(str(path)).Reload()
        assert [event.step for event in read.Scalars("eval/math.a/n")] == [0, *range(2, last + 1, 2)]
    assert b"is a run of its own" in read.Tensors("warnings")[0].tensor_proto.string_val[0]


def tracked(name: str, folder: Path, mode: str = "online") -> str:
    """Log a run in a process of its own; what it prints."""
    program = Path(__file__).parent / "programs" / "tracked_run.py"
    variables = {"HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "WANDB_API_KEY": KEY}
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(program), name, str(folder), mode]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # its own server takes seconds to start
def test_wandb_offline_keeps_the_run_and_never_the_key(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra wandb")
    (tmp_path / "disabled").mkdir()
    tracked("wandb", tmp_path / "disabled", "disabled")
    assert not list(tmp_path.rglob("*.wandb"))
    tracked("wandb", tmp_path, "offline")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not [path for path, content in files.items() if KEY.encode() in content]
    (log,) = (content for path, content in files.items() if path.suffix == ".wandb")
    assert all(word in log for word in (b"pg_loss", b"0.75", b"trainer.beta", b"beware"))
    (table,) = (content for path, content in files.items() if path.name.endswith(".table.json"))
    assert b'"a | b",0.5' in table
    assert (tmp_path / "logs" / "wandb_run_id").read_text().isalnum()


@pytest.mark.slow
def test_trackio_keeps_the_run_and_prints_nothing(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="the extra trackio")
    first, *logged = tracked("trackio", tmp_path).splitlines()
    assert first == "only this"
    assert any("'reward': 0.5" in line for line in logged)
    assert any("'a | b'" in line for line in logged)
