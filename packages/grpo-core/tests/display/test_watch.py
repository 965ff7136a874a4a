"""`grpo watch` driven by its keys, without a terminal; test_watch_terminal.py has a real one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from growing_run import GrowingRun
from textual.pilot import Pilot

from grpo_core.display.watch import WatchApp
from grpo_core.tracking import presence
from grpo_core.tracking.live import Group, LiveRun

WIDE, SMALL = (100, 30), (40, 15)


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "run_1")


def shown(pilot: Pilot[None]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], text: str) -> str:
    """Wait for a text on the screen."""
    for _ in range(200):
        await pilot.pause(0.02)
        if text in shown(pilot):
            return shown(pilot)
    raise AssertionError(f"{text!r} does not come:\n{shown(pilot)}")


Steps = Callable[[Pilot[None]], Awaitable[None]]


def drive(run: GrowingRun, steps: Steps, size: tuple[int, int] = WIDE, live: LiveRun | None = None) -> WatchApp:
    app = WatchApp(live or LiveRun(run.path), every_s=0.05)

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(pilot)

    asyncio.run(go())
    return app


@pytest.mark.parametrize("size", [WIDE, SMALL, (20, 8)])
def test_curves_and_status_follow_a_run_from_before_its_first_step(run: GrowingRun, size: tuple[int, int]) -> None:
    presence.announce(run.path)

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, "running")
        await until(pilot, "Curves appear")
        run.step(1)
        run.step(2, abstained=3.0)
        await until(pilot, "2/40")
        text = await until(pilot, "ETA 1:16")
        assert all(len(line) <= size[0] for line in text.splitlines())
        if size[1] > 8:
            assert "3 completions not scored" in text
        if size[1] > 15:
            assert "●" not in text
            run.evaluation(0, 0.25)
            run.evaluation(2, 0.5)
            assert "●" in await until(pilot, "0.5 [0.38, 0.62]")

    drive(run, steps, size)


def test_completions_are_listed_newest_first_with_the_parts_of_their_scores_and_searched(run: GrowingRun) -> None:
    run.group(1, 0, "an Apple", "pear", prompt="fruit?")
    run.group(1, 1, "q", prompt="letter?")

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("2")
        text = await until(pilot, "row r1   group 1")
        assert text.index('"letter?"') < text.index('"fruit?"')
        await pilot.press("down")
        text = await until(pilot, "row r1   group 0")
        assert "1  solved  exact 1" in text and "0  NOT SOLVED  exact 0" in text
        run.group(2, 0, "6", prompt="3 + 3 =")
        text = await until(pilot, '"3 + 3 ="')
        assert "row r1   group 0" in text and "step 1 " in text  # what is read stays open
        await pilot.press("home")
        await until(pilot, "step 2 ")
        run.group(3, 0, "8", prompt="4 + 4 =")
        await until(pilot, "step 3 ")  # the newest is followed
        await pilot.press("slash", *"apple")
        text = await until(pilot, "an Apple")
        assert "letter?" not in text and "pear" in text  # the whole group
        await pilot.press("q", "q")
        await until(pilot, "No completion contains this text.")
        await pilot.press("escape")
        assert "letter?" in await until(pilot, "fruit?")
        assert pilot.app.is_running

    drive(run, steps)


class SlowRun(LiveRun):
    """Reads on only while it may, and must not be read meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go_on, self.is_polled, self.was_disturbed = threading.Event(), False, False

    def poll(self) -> bool:
        self.is_polled = True
        self.may_go_on.wait(10)
        more = super().poll()
        self.is_polled = False
        return more

    def newest_groups(self, text: str = "") -> Iterator[Group]:
        self.was_disturbed |= self.is_polled
        return super().newest_groups(text)


def test_keys_work_and_nothing_is_drawn_while_a_run_is_read(run: GrowingRun) -> None:
    run.group(1, 0, "an Apple")
    slow = SlowRun(run.path)

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"apple")
        await pilot.resize_terminal(*SMALL)
        assert "apple" in await until(pilot, "apple") and slow.is_polled
        slow.may_go_on.set()
        await until(pilot, "an Apple")

    drive(run, steps, live=slow)
    assert not slow.was_disturbed


HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]m[/]\u202eevil\r\n\x9b31m\U000e0041"


def test_hostile_text_and_the_log_reach_the_terminal_escaped(run: GrowingRun) -> None:
    run.group(1, 0, HOSTILE, prompt=HOSTILE)
    run.event("warning", step=1, message=HOSTILE)
    run.event("evaluation", task=HOSTILE, phase="initial", result={"solved_rate": 0.5})
    run.event("failed", step=9, error="EngineError: gone")

    async def steps(pilot: Pilot[None]) -> None:
        for key in ("1", "2", "3"):
            await pilot.press(key)
            text = await until(pilot, "owned" if key != "1" else "\\x1b]0;")
            assert all(char.isprintable() or char == "\n" for char in text)
            if key == "2":
                assert "\\x1b]0;owned\\x07" in text and "[bold red]m[/]" in text
        assert text.index("failed: EngineError: gone") < text.index("warning: ") < text.index("start")
        assert "1 warning" in text.splitlines()[1]

    drive(run, steps)
