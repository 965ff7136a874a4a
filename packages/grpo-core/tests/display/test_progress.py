import io
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from growing_run import GrowingRun
from rich.console import Console

from grpo_core.config import RunConfig
from grpo_core.display.progress import SAMPLE_EVERY_S, ProgressDisplay
from grpo_sdk import show_progress
from grpo_sdk.callbacks import ResolvedDefault, RunInfo, Sample, StepRecord
from grpo_sdk.display.progress import REPORT_EVERY_S, REPORT_FIRST_S, Waiting
from grpo_sdk.errors import DamagedFileWarning
from grpo_sdk.task.score import Score

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BASE = {"solved_rate": 0.46, "ci_low": 0.42, "ci_high": 0.5, "n": 512, "mean_reward": 0.51}
FINAL = {
    **{"solved_rate": 0.91, "ci_low": 0.88, "ci_high": 0.93, "n": 512},
    **{"delta": 0.45, "delta_ci_low": 0.4, "delta_ci_high": 0.49},
    **{"mean_reward": 0.93, "reward_delta": 0.42, "reward_delta_ci_low": 0.38, "reward_delta_ci_high": 0.45},
}
METRICS = {
    **{"reward": 0.63, "solved_rate": 0.58, "frac_reward_zero_std": 0.12, "completions/mean_length": 4.1},
    **{"tokens_per_s": 18_000.0, "step_s": 0.5},
}
CHOICES = (
    ResolvedDefault("model", "tiny (embedded, 1.9 M parameters)", "no --model given"),
    ResolvedDefault("device", "cpu, 2 threads", "no accelerator found"),
    ResolvedDefault("precision", "float32", "float32: the safe choice on cpu"),
    ResolvedDefault("loss", "dr_grpo", "asked for", is_ordinary=True),
)


class Watched:
    """A run that is watched: what it shows, in a pipe or in a terminal of some width."""

    def __init__(self, *, width: int | None = None, quiet: bool = False, **settings: object) -> None:
        self.stream = io.StringIO()
        is_terminal = width is not None
        console = Console(
            file=self.stream, force_terminal=is_terminal, width=width or 10_000, highlight=False, markup=False,
            color_system="standard" if is_terminal else None, legacy_windows=False, _environ={"TERM": "xterm"},
        )  # fmt: skip
        self.now = 100.0
        self.progress = ProgressDisplay(
            console, RunConfig.model_validate(settings), quiet=quiet, clock=lambda: self.now
        )

    def start(self, total: int | None = 200, seconds_left: float | None = None, task: str = "math.arithmetic") -> None:
        counts = dict.fromkeys(task.split(), (128, 512))
        self.progress.on_run_start(RunInfo(Path("training_runs/run_1"), counts, CHOICES, total, seconds_left))

    def step(self, number: int, samples: Sequence[Sample] = (), **metrics: float) -> None:
        self.now += 0.5
        self.progress.on_step(StepRecord(number, {**METRICS, **metrics}, samples))

    @property
    def text(self) -> str:
        return CONTROL.sub("", self.stream.getvalue())

    @property
    def shown(self) -> list[str]:
        return self.text.splitlines()


def sample(text: str, value: float | None = 1.0, why: str = "") -> Sample:
    return Sample("math.arithmetic", "57 + 38 =", text, Score(value, why=why))


def test_a_run_in_a_pipe_is_one_plain_line_a_step() -> None:
    run = Watched()
    with run.progress:
        run.start()
        run.progress.on_evaluation("math.arithmetic", "initial", BASE)
        run.step(1, [sample(" 95"), sample(" 85", 0.2, "off by 10")])
        run.step(2)
        run.progress.on_evaluation("math.arithmetic", "final", FINAL)
        run.progress.on_run_end({"steps": 2}, Path("training_runs/run_1"))
    assert run.stream.getvalue() == run.text, "no control codes"
    # 199 and 198 steps of 0.5 s are left: 99.5 s rounds to 1:40, 99 s is 1:39.
    assert run.shown == [
        "grpo-run  task math.arithmetic (128 train / 512 held-out rows)   model tiny (embedded, 1.9 M parameters)   "
        "device cpu, 2 threads, float32",
        "why       model tiny (embedded, 1.9 M parameters): no --model given",
        "          device cpu, 2 threads: no accelerator found",
        "          precision float32: the safe choice on cpu",
        "initial   solved 0.46 [0.42, 0.50]   mean reward 0.51",
        'sample    "57 + 38 =" → " 95"  1.00   → " 85"  0.20 (off by 10)',
        "step        1/200  reward 0.63  solved 0.58  zero-std 12%  length 4.1  18 k tok/s  ETA 1:40",
        "step        2/200  reward 0.63  solved 0.58  zero-std 12%  length 4.1  18 k tok/s  ETA 1:39",
        "final     solved 0.91 [0.88, 0.93]   +0.45 over initial [0.40, 0.49] on the same 512 rows   "
        "mean reward 0.93, +0.42 [0.38, 0.45]",
        "saved     training_runs/run_1   next: grpo eval --task math.arithmetic --model "
        "./training_runs/run_1/training_state/step_final/model",
        "report    grpo report training_runs/run_1",
    ]


@pytest.mark.parametrize("width", [120, 80, 40])
def test_a_run_in_a_terminal_ends_with_its_learning_curve_and_the_way_to_its_report(tmp_path: Path, width: int) -> None:
    folder = GrowingRun(tmp_path / "run_1")
    folder.evaluation(0, 0.25)
    for step in (1, 2, 3):
        folder.step(step, solved_rate=step / 4)
    folder.evaluation(3, 0.75)
    run = Watched(width=width)
    with run.progress:
        run.progress.on_run_end({"steps": 3}, folder.path)
    picture = run.shown[:11]
    assert picture[0].startswith("solved, by step   ●")
    assert (picture[1].split()[0], picture[9].split()[0]) == ("0.875", "0.125")
    assert sum(line.count("●") for line in picture[1:]) == 2
    assert picture[10].split() == ["0", "3"]
    assert max(map(len, picture)) < width
    assert run.text.index("saved ") < run.text.index("report  ")


def test_a_run_of_one_step_has_no_curve_and_a_corrupt_log_is_a_warning(tmp_path: Path) -> None:
    folder, run = GrowingRun(tmp_path / "run_1"), Watched(width=80)
    folder.step(1)
    run.progress.on_run_end({"steps": 1}, folder.path)
    assert run.shown[0].startswith("saved ")
    folder.append("train_log.jsonl", {"reward": 1.0})
    with pytest.warns(DamagedFileWarning, match=r"train_log\.jsonl:2: "):
        run.progress.on_run_end({"steps": 3}, folder.path)


def test_in_a_terminal_the_step_is_redrawn_and_its_last_state_kept() -> None:
    run = Watched(width=120)
    with run.progress:
        run.start(total=3)
        for number in (1, 2, 3):
            run.step(number)
        run.progress.on_evaluation("math.arithmetic", "final", FINAL)
    assert "\x1b[2K" in run.stream.getvalue(), "the line is erased and drawn again"
    assert "━" in run.text
    kept = run.stream.getvalue().rpartition("\x1b[2K")[2]  # what follows the last erasure stays on the screen
    shown = [line[:12] for line in CONTROL.sub("", kept).splitlines() if line.strip()]
    assert shown == ["step      3/", "final     so", "          me"], "and its mean reward"


MIXTURE = {"task/math.echo/solved_rate": 0.9, "task/math.arithmetic/solved_rate": 0.3}


@pytest.mark.parametrize(("start", "number", "metrics", "shown"), [
    ({"task": "math.echo math.arithmetic"}, 1, MIXTURE, r".*  math.echo 0.90  math.arithmetic 0.30  ETA 1:40"),
    ({}, 1, {"abstained": 3.0}, ".*not scored 3.*"),
    # 999 steps of 0.5 s are more than the 29.5 s left.
    ({"total": 1000, "seconds_left": 30.0}, 1, {}, ".*ETA 0:30.*"),
    ({"total": None}, 7, {}, "step      7  reward.*  0:00"),  # without a planned end: the time spent
    ({"total": 10**9}, 7, {}, "step      7  reward.*  0:00"),
])  # fmt: skip
def test_the_line_of_a_step(start: dict[str, Any], number: int, metrics: dict[str, float], shown: str) -> None:
    run = Watched()
    run.start(**start)
    run.step(number, **metrics)
    assert re.fullmatch(shown, run.shown[-1])


def test_in_a_mixture_evaluations_name_their_task_and_completions_are_shown_now_and_then() -> None:
    run = Watched()
    run.progress.every = 20
    run.start(task="math.echo math.arithmetic")
    assert run.shown[0].count("task math.") == 2
    run.progress.on_evaluation("math.echo", "initial", {"solved_rate": None, "abstained": 7, "n": 0})
    assert run.shown[-1] == "initial   math.echo   solved - -   mean reward -   7 rows not scored"
    for number in range(1, 42):  # 41 steps of 0.5 s: at 0.5 s, and again after 10 s and 20 s
        run.step(number, [sample(" 95")])
    assert SAMPLE_EVERY_S == 10
    assert len([line for line in run.shown if line.startswith("sample")]) == 3
    assert [line.split()[1] for line in run.shown if line.startswith("step")] == ["1/200", "20/200", "40/200"]


def test_hostile_text_cannot_steer_the_terminal_and_a_crash_leaves_it_clean() -> None:
    run = Watched(width=200)
    hostile = "\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202eevil\ud800"
    with pytest.raises(ZeroDivisionError), run.progress:
        run.start()
        run.step(1, [sample(hostile, None, hostile)])
        run.progress.on_warning(hostile)
        run.progress.on_progress("loading", 0, 0)
        assert run.shown[-1] == "working   loading  …", "no known end"
        raise ZeroDivisionError
    written = run.stream.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "after a crash the cursor is shown again"
    for forbidden in ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e", "\ud800"):
        assert forbidden not in written
    assert r'"\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202eevil\ud800"  not scored' in run.text


def test_the_end_says_how_far_it_came_and_how_an_adapter_is_loaded_onto_its_base() -> None:
    run = Watched(model="owner/base", lora={"enabled": True}, task="math.gsm8k?size=3")
    run.start()
    run.progress.on_run_end({"steps": 57, "interrupted": True}, Path("/abs/run_1"))
    assert run.shown[-3] == "stopped   after step 57 of 200"
    run.progress.on_run_end({}, Path("/abs/run_1"))
    assert run.shown[-2].endswith(
        "next: grpo eval --task 'math.gsm8k?size=3' --model owner/base --adapter "
        "/abs/run_1/training_state/step_final/model"
    )


def test_quiet_shows_warnings_only() -> None:
    run = Watched(width=100, quiet=True)
    with run.progress:
        run.start()
        run.step(1, [sample(" 95")])
        run.progress.on_progress("loading", 1, 2)
        run.progress.on_warning("something")
        run.progress.on_run_end({}, Path("run_1"))
    assert run.shown == ["warning   something"]


def test_a_long_wait_in_a_pipe_says_so_now_and_then() -> None:
    stream, clock = io.StringIO(), SimpleNamespace(now=100.0)
    with Waiting(Console(file=stream, width=10_000), clock=lambda: clock.now) as waiting:
        for done in range(1, 101):  # 100 rows of 0.5 s: 50 s, so after 2 s, 17 s, 32 s and 47 s
            clock.now += 0.5
            waiting.on_progress("base evaluation", done, 100)
    assert (REPORT_FIRST_S, REPORT_EVERY_S) == (2, 15)
    said = [f"{done}/100   ETA 0:{left:02}" for done, left in ((5, 48), (35, 32), (65, 18), (95, 2))]
    assert stream.getvalue().splitlines() == [f"working   base evaluation   {each}" for each in said]


@pytest.mark.parametrize(("first_s", "quiet", "lines"), [(0.0, False, 1), (600.0, False, 0), (0.0, True, 0)])
def test_a_plugin_shows_its_work(first_s: float, quiet: bool, lines: int, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("grpo_sdk.display.progress.REPORT_FIRST_S", first_s)
    monkeypatch.setattr("grpo_sdk.display.progress.TICK_S", 0.01)
    with show_progress("rating the players", quiet=quiet) as report:
        report(1, 3)
        time.sleep(0.1)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == lines
    assert re.fullmatch(r"(working   rating the players   (1/3|…).*\n)?", printed.err)
