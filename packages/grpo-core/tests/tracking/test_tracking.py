from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from grpo_core.callbacks import Callback, ResolvedDefault, RunInfo, Sample, StepRecord
from grpo_core.config import RunConfig, TrackingConfig, TrainerConfig, load_config
from grpo_core.errors import UnknownNameError, UserError
from grpo_core.plugins import variants as registry
from grpo_core.task.score import Score
from grpo_core.tracking import observe as observing
from grpo_core.tracking.aliases import ALIASES, NOT_KEPT, aliases_of, with_reference_names
from grpo_core.tracking.base import COLUMNS, MAX_CELL_CHARS, Cell, TrackedRun, TrackerCallback, row_of, shortened
from grpo_core.tracking.events import read_events
from grpo_core.tracking.observe import observe
from grpo_core.tracking.tensorboard import literal
from grpo_core.tracking.wandb import choose_mode, has_key, is_reachable
from grpo_core.training.catalogue import CATALOGUE

KEY = "0123456789abcdef0123456789abcdef01234567"
NASTY = "<b>1</b> | *x*\n[y](z)"
SAMPLE = Sample("math.a", "1 + 1 =", NASTY, Score(0.25, {"exact": 0.25}, valid=True, why="exact 0.25 of 1"))
RESULT = {"solved_rate": 0.5, "n": 8, "split": "test", "temperature": 0.0}


class Recorder:
    """A tracker that remembers."""

    made: ClassVar[list[Recorder]] = []

    def __init__(self, run: TrackedRun) -> None:
        self.run = run
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.tables: list[tuple[int, str, list[list[Cell]]]] = []
        self.notes: list[tuple[int, str]] = []
        self.failed: bool | None = None
        self.made.append(self)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        if values.get("reward") == 13:
            raise ConnectionError(f"no route for {os.environ.get('WANDB_API_KEY')}\nmore")
        self.logged.append((step, dict(values)))

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self.tables.append((step, name, [list(row) for row in rows]))

    def note(self, step: int, text: str) -> None:
        self.notes.append((step, text))

    def close(self, *, failed: bool) -> None:
        self.failed = failed


def recorder(run: TrackedRun) -> Recorder:
    return Recorder(run)


class Ears(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_warning(self, message: str) -> None:
        self.heard.append(message)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    """The tracker `recorder`, as somebody else's package would register it."""
    monkeypatch.setattr(Recorder, "made", [])
    module = sys.modules.setdefault("a_tracker", type(sys)("a_tracker"))
    module.recorder = recorder  # type: ignore[attr-defined] # a module of this test
    registry.register("tracker", "recorder", "a_tracker:recorder")
    yield Recorder.made
    registry.unregister("tracker", "recorder")


def a_run(
    folder: Path, config: RunConfig, steps: Sequence[Mapping[str, float]], ears: Ears, *, resumed_at: int = 0
) -> None:
    """What a trainer tells of a run."""
    (folder / "logs").mkdir(exist_ok=True)
    with ExitStack() as resources:
        observed = observe(config, [ears], resources)
        callbacks = observed.callbacks
        choices = [ResolvedDefault("device", "cpu", "")]
        callbacks.on_run_start(RunInfo(folder, {"math.a": (8, 4)}, choices, len(steps), step=resumed_at))
        for step, metrics in enumerate(steps, start=1):
            callbacks.on_step_end(step)
            callbacks.on_step(StepRecord(step, metrics, (SAMPLE,)))
        callbacks.on_evaluation("math.a", "final", RESULT)
        callbacks.on_run_end({"interrupted": False}, folder)


def test_a_tasks_own_number_is_not_replaced_by_a_reference_name() -> None:
    named = with_reference_names({"solved_rate": 0.5, "execution/success_rate": 0.75})
    assert named["execution/success_rate"] == 0.75
    assert with_reference_names({"solved_rate": 0.5})["execution/success_rate"] == 0.5


def test_a_tracker_is_told_of_a_run(tmp_path: Path, recorded: list[Recorder]) -> None:
    config = RunConfig(tracking=TrackingConfig(trackers=("recorder",), project="p", reference_names=True))
    a_run(tmp_path, config, [{"reward": 0.5, "kl": math.nan}, {"reward": 0.75, "abstained": 2}], Ears())
    (tracker,) = recorded
    assert (tracker.run.run_dir, tracker.run.project, tracker.run.name) == (tmp_path, "p", tmp_path.name)
    assert tracker.run.config["trainer.num_generations"] == 8
    first, second, evaluated = tracker.logged
    assert first[1]["reward"] == first[1]["r_mean"] == first[1]["mean_reward"] == 0.5
    assert "kl" not in first[1] and "kl_div" not in first[1], "a number that does not exist is left out"
    assert second[0] == 2
    assert evaluated == (2, {f"eval/math.a/{name}": RESULT[name] for name in ("solved_rate", "n")})
    assert tracker.tables == [(1, "completions", [row_of(1, SAMPLE)])], "a table at most every 30 seconds"
    ((step, warning),) = tracker.notes
    assert step == 2 and warning.startswith("2 completions could not be scored"), "the monitor's, which has the step"
    assert tracker.failed is False


def test_a_tracker_gets_what_was_found_in_place_of_auto(tmp_path: Path, recorded: list[Recorder]) -> None:
    config = RunConfig(tracking=TrackingConfig(trackers=("recorder",)), trainer=TrainerConfig(micro_batch_size="auto"))
    (tmp_path / "logs").mkdir()
    with ExitStack() as resources:
        observed = observe(config, [], resources)
        observed.callbacks.on_run_start(RunInfo(tmp_path, {}, (), 9, settings={"trainer.micro_batch_size": 16}))
    (tracker,) = recorded
    assert tracker.run.config["trainer.micro_batch_size"] == 16
    assert tracker.run.config["trainer.num_generations"] == 8


def test_a_tracker_that_breaks_is_left_out_and_the_run_goes_on(
    tmp_path: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    ears = Ears()
    config = RunConfig(tracking=TrackingConfig(trackers=("recorder",)))
    a_run(tmp_path, config, [{"reward": 1}, {"reward": 13}, {"reward": 1}], ears)
    said = "tracker recorder stopped (ConnectionError: no route for <WANDB_API_KEY>); the run and its own logs go on"
    assert ears.heard == [said]
    assert [step for step, _ in recorded[0].logged] == [1] and recorded[0].failed is None
    assert KEY not in (tmp_path / "logs" / "events.jsonl").read_text()
    assert [event["kind"] for event in read_events(tmp_path)] == ["start", "warning", "evaluation", "end"]


def test_a_run_that_fails_is_told_so(tmp_path: Path, recorded: list[Recorder]) -> None:
    class Broken(Ears):
        def on_step(self, record: StepRecord) -> None:
            raise ArithmeticError("no number\nat all")

    with pytest.raises(ArithmeticError):
        a_run(tmp_path, RunConfig(tracking=TrackingConfig(trackers=("recorder",))), [{"reward": 1}], Broken())
    assert recorded[0].failed is True
    *_, last = read_events(tmp_path)
    assert (last["kind"], last["error"]) == ("failed", "ArithmeticError: no number")
    assert not (tmp_path / "logs" / "process.json").exists()


def test_a_resumed_run_says_so_and_appends(tmp_path: Path, recorded: list[Recorder]) -> None:
    config = RunConfig(tracking=TrackingConfig(trackers=("recorder",)))
    a_run(tmp_path, config, [{"reward": 1}], Ears())
    (tmp_path / "logs" / "train_log.jsonl").write_text('{"step":1}\n')
    with (tmp_path / "logs" / "events.jsonl").open("a") as log:
        log.write('{"kind":"warn')  # killed within a line
    a_run(tmp_path, config, [{"reward": 1}], Ears(), resumed_at=1)
    assert [each.run.is_resumed for each in recorded] == [False, True]
    assert [event["kind"] for event in read_events(tmp_path)] == ["start", "evaluation", "end"] * 2


def test_an_evaluation_stands_at_its_step_where_few_steps_are_logged(tmp_path: Path, recorded: list[Recorder]) -> None:
    (tmp_path / "logs").mkdir()
    with ExitStack() as resources:
        callbacks = observe(RunConfig(tracking=TrackingConfig(trackers=("recorder",))), [], resources).callbacks
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
            observe(RunConfig(tracking=TrackingConfig(trackers=(name,))), (), resources)


def test_names_of_trackers_are_checked_with_the_configuration() -> None:
    with pytest.raises(UserError, match="Did you mean 'wandb'"):
        load_config({"tracking.trackers": "wandbb"}, environ={}, dotenv_path=None)
    with pytest.raises(UserError, match="wandb is given twice"):
        load_config({"tracking.trackers": "wandb,wandb"}, environ={}, dotenv_path=None)
    assert TrackingConfig.model_validate({"trackers": "tensorboard, wandb"}).trackers == ("tensorboard", "wandb")
    assert TrackingConfig.model_validate({"trackers": ""}).trackers == ()
    assert set(registry.names("tracker")) == set(observing.EXTRAS)


def test_trackers_are_imported_only_when_a_run_starts() -> None:
    code = (
        "import sys; from contextlib import ExitStack\n"
        "from grpo_core.config import RunConfig; from grpo_core.tracking.observe import observe\n"
        "import grpo_core.tracking.runs, grpo_core.tracking.rollouts, grpo_core.cli.runs\n"
        "with ExitStack() as resources: observe(RunConfig(), (), resources)\n"
        "from grpo_core.tracking.observe import EXTRAS\n"
        "print(*{'torch', 'accelerate', *EXTRAS} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == ""


def test_every_alias_names_a_metric_of_ours_and_none_hides_one() -> None:
    ours = {metric.name for metric in CATALOGUE}
    # games/… is what tasks that are games measure themselves.
    assert {each.name for each in ALIASES if not each.name.startswith("games/")} <= ours
    theirs = [each.alias for each in ALIASES] + list(NOT_KEPT)
    assert len(set(theirs)) == len(theirs)
    assert not set(theirs) & ours
    assert with_reference_names({"kl": 0.5}) == {"kl": 0.5, "kl_div": 0.5, "train/kl": 0.5}
    assert aliases_of("loss/policy") == ("pg_loss",)


LOGGED_ELSEWHERE = """
pg_loss kl_div kl_forward kl_reverse kl_symmetric value_loss entropy_loss total_loss ratio_mean ratio_std ratio_outliers
clipped_frac advantage_mean advantage_std kl_coef grad_norm mean_reward std_reward min_reward max_reward
format_valid_rate
loss entropy kl r_mean tag_correct think_len ratio_median ratio_p90 ratio_p99 ratio_max ratio_clip_frac logr_std
gns_mu Bsimple_from_mu gns_ess gns_consistency_ratio gns_G2 gns_tr_sigma
gns_y_small gns_y_large gns_B_small gns_B_large gns_a_hat gns_c_hat gns_B_simple
reward/avg_batch_reward execution/avg_batch_reward execution/success_rate
train/reward train/loss train/grad_norm frac_reward_zero_std completions/mean_length
"""
"""What RookWorld, RL_Practice, rl_coding_games and pippa log, a system a paragraph."""


def test_every_name_of_the_reference_systems_is_ours_an_alias_or_says_why_not() -> None:
    known = {metric.name for metric in CATALOGUE} | {each.alias for each in ALIASES} | set(NOT_KEPT)
    assert set(LOGGED_ELSEWHERE.split()) <= known


def test_long_and_broken_text_in_a_table_is_bounded() -> None:
    row = row_of(3, Sample("t", "p" * 9999, "a\ud800b", Score(None, why="x", fault="timeout")))
    assert len(row) == len(COLUMNS)
    assert len(str(row[2])) == MAX_CELL_CHARS and "…" in str(row[2])
    assert (row[0], row[3], row[4]) == (3, "a?b", None)
    assert shortened("abcdefghij", 6) == "abc…ij"  # a third of 6 from the end, one for the dots, 3 are left


@pytest.mark.parametrize(
    ("host", "machine", "expected"),
    [
        ("https://api.wandb.ai", "api.wandb.ai", True),
        ("https://api.wandb.ai", "api.forge.coreweave.com", True),
        ("https://api.forge.coreweave.com", "api.wandb.ai", True),
        ("http://own.server:8080", "own.server:8080", True),
        ("http://own.server:8080", "api.wandb.ai", False),
    ],
)
def test_the_key_that_wandb_login_keeps_is_found(tmp_path: Path, host: str, machine: str, expected: bool) -> None:
    (tmp_path / "netrc").write_text(f"machine {machine}\n  login user\n  password {KEY}\n")
    assert has_key(host, {"NETRC": str(tmp_path / "netrc"), "HOME": str(tmp_path)}) == expected


def test_the_mode_of_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reachable = True
    monkeypatch.setattr("grpo_core.tracking.wandb.is_reachable", lambda host: reachable)
    monkeypatch.setenv("HOME", str(tmp_path))
    with_key = {"WANDB_API_KEY": KEY}
    assert choose_mode(None, with_key) == ("online", "a key and a network are available")
    assert choose_mode("disabled", with_key)[0] == "disabled"
    assert choose_mode("offline", with_key)[0] == "offline"
    assert choose_mode("online", with_key | {"WANDB_MODE": "disabled"})[0] == "online", "a setting is above it"
    assert choose_mode(None, with_key | {"WANDB_MODE": "dryrun"})[0] == "offline"
    mode, why = choose_mode(None, {})
    assert mode == "offline" and "WANDB_API_KEY" in why
    with pytest.raises(UserError, match=r"wandb_mode=online needs a key: run `wandb login`"):
        choose_mode("online", {})
    with pytest.raises(UnknownNameError, match=r"no WANDB_MODE 'offlin'\. Did you mean 'offline'"):
        choose_mode(None, {"WANDB_MODE": "offlin"})
    reachable = False
    assert choose_mode("online", with_key) == (
        "offline",
        "api.wandb.ai cannot be reached; `wandb sync` sends it later",
    )
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


def test_text_is_literal_in_markdown() -> None:
    assert literal(NASTY) == r"\<b\>1\</b\> \| \*x\* ⏎ \[y\]\(z\)"
    assert [literal(cell) for cell in (None, 0.123456, True)] == ["", r"0\.1235", "True"]


def test_tensorboard_files_hold_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = RunConfig(tracking=TrackingConfig(trackers=("tensorboard",), reference_names=True))
    a_run(tmp_path, config, [{"reward": 0.5, "abstained": 1}, {"reward": 0.75}], Ears())
    events = EventAccumulator(str(tmp_path / "logs" / "tensorboard"))
    events.Reload()
    values = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in ("reward", "r_mean", "eval/math.a/solved_rate")
    }
    assert values["reward"] == values["r_mean"] == [(1, 0.5), (2, 0.75)]
    assert values["eval/math.a/solved_rate"] == [(2, 0.5)]
    (table,) = events.Tensors("completions")
    cells = [cell.decode() for cell in table.tensor_proto.string_val]
    assert [size.size for size in table.tensor_proto.tensor_shape.dim] == [2, len(COLUMNS)]
    assert cells[3] == "**completion**" and cells[len(COLUMNS) + 3] == literal(NASTY)
    (warning,) = events.Tensors("warnings")
    assert b"could not be scored" in warning.tensor_proto.string_val[0]


def test_a_resumed_run_replaces_what_it_logs_again_in_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from grpo_core.tracking.tensorboard import tensorboard

    for is_resumed, steps in ((False, (1, 2, 3)), (True, (2, 3))):
        tracker = tensorboard(TrackedRun(tmp_path, "p", "n", {}, "online", is_resumed))
        for step in steps:
            tracker.numbers(step, {"reward": step + 10.0 * is_resumed})
        tracker.close(failed=False)
    events = EventAccumulator(str(tmp_path / "logs" / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, 1.0), (2, 12.0), (3, 13.0)]


WANDB = """
import sys
from pathlib import Path
from grpo_core.tracking.base import TrackedRun
from grpo_core.tracking.wandb import wandb

run_dir = Path(sys.argv[1])
(run_dir / "logs").mkdir()
tracker = wandb(TrackedRun(run_dir, "p", "n", {"trainer.beta": 0.125}, sys.argv[2], False))
tracker.numbers(1, {"reward": 0.5, "pg_loss": 0.25})
tracker.numbers(1, {"reward": 0.75})
tracker.table(1, "completions", ("completion", "score"), [["a | b", 0.5], ["c", None]])
tracker.note(1, "beware")
tracker.close(failed=False)
"""

TRACKIO = """
import sys
from pathlib import Path
from grpo_core.tracking.base import TrackedRun
from grpo_core.tracking.trackio import trackio

tracker = trackio(TrackedRun(Path(sys.argv[1]), "p", "n", {"trainer.beta": 0.125}, "online", False))
tracker.numbers(1, {"reward": 0.5})
tracker.table(1, "completions", ("completion", "score"), [["a | b", 0.5], ["c", None]])
tracker.note(1, "beware")
tracker.close(failed=False)
print("only this")
from trackio.sqlite_storage import SQLiteStorage
print(*[{key: row[key] for key in row if key != "timestamp"} for row in SQLiteStorage.get_logs("p", "n")], sep="\\n")
"""

Script = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run a script in a process of its own: these libraries start threads and servers, and read variables on import."""

    def call(code: str, *arguments: str, **environment: str) -> str:
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path = {path!r}.split({os.pathsep!r})\n{code}", *arguments],
            env={**os.environ, "HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio"), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.mark.slow  # its own server takes seconds to start
def test_wandb_offline_keeps_the_run_and_never_the_key(tmp_path: Path, script: Script) -> None:
    pytest.importorskip("wandb", reason="the extra wandb")
    script(WANDB, str(tmp_path), "offline", WANDB_API_KEY=KEY)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not [path for path, content in files.items() if KEY.encode() in content]
    (log,) = (content for path, content in files.items() if path.suffix == ".wandb")
    assert all(word in log for word in (b"pg_loss", b"0.75", b"trainer.beta", b"beware"))
    (table,) = (content for path, content in files.items() if path.name.endswith(".table.json"))
    assert b'"a | b",0.5' in table
    assert (tmp_path / "logs" / "wandb_run_id").read_text().isalnum()


@pytest.mark.slow
def test_wandb_disabled_writes_nothing(tmp_path: Path, script: Script) -> None:
    pytest.importorskip("wandb", reason="the extra wandb")
    script(WANDB, str(tmp_path), "disabled", WANDB_API_KEY=KEY)
    assert not list(tmp_path.rglob("*.wandb"))


@pytest.mark.slow
def test_trackio_keeps_the_run_and_prints_nothing(tmp_path: Path, script: Script) -> None:
    pytest.importorskip("trackio", reason="the extra trackio")
    first, *logged = script(TRACKIO, str(tmp_path)).splitlines()
    assert first == "only this"
    assert any("'reward': 0.5" in line for line in logged)
    assert any("'a | b'" in line for line in logged)


def test_a_clock_decides_how_often_completions_are_shown(tmp_path: Path) -> None:
    now = 0.0
    (tmp_path / "logs").mkdir()
    describe: Any = lambda run_dir, resumed: TrackedRun(run_dir, "p", "n", {}, "online", resumed)  # noqa: E731 - short
    tracker = Recorder(describe(tmp_path, False))
    callback = TrackerCallback("r", lambda run: tracker, describe, print, clock=lambda: now)
    callback.on_run_start(RunInfo(tmp_path, {}, (), 9))
    for step, now in enumerate((0.0, 29.0, 30.0, 31.0), start=1):  # noqa: B007 - the clock reads it
        callback.on_step(StepRecord(step, {}, (SAMPLE,)))
    assert [step for step, _, _ in tracker.tables] == [1, 3]
