"""Texts of a run that goes on, at any size: also at the size of nothing, before a terminal is laid out."""

import itertools
from pathlib import Path

from growing_run import GrowingRun

from grpo_core.display.live_text import curves_text, group_line, group_text, status_text
from grpo_core.tracking.live import LiveRun


def test_any_size_is_drawn(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run_1")
    for step in range(1, 30):
        run.step(step, kl=0.1)
    run.evaluation(0, 0.5)
    run.group(1, 0, "text")
    live = LiveRun(run.path)
    live.poll()
    for width, height in itertools.product((-4, 0, 1, 10, 36, 40, 79, 200), (-3, 0, 5, 100)):
        text = curves_text(live, width, height).plain
        assert len(text.splitlines()) > 7
        if width >= 20:
            assert max(map(len, text.splitlines())) <= width
            assert "KL" in text and "held-out" in text
        assert status_text(live, width).plain and group_line(live.groups[0], width).plain
    assert "exact 1" in group_text(live.groups[0]).plain
