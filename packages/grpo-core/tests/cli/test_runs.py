import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reported_runs
from reported_runs import write_lines

from grpo_core.checkpoints import write_json
from grpo_core.launch.sweep.folder import SweepPlan, SweepRun
from grpo_core.tracking import presence

SWEPT = [SweepRun(name=f"{number:03}", configuration=number, settings={}) for number in (1, 2)]
"""Runs of a sweep, of which the second has not begun."""

Grpo = Callable[..., str]


def make_run(folder: Path, *, beta: float = 0.0, final: bool = True) -> Path:
    """A run of 40 steps whose reward rises."""
    reported_runs.make_run(folder, steps=40, metrics={"loss/policy": -0.5})
    (folder / "config.yaml").write_text(f"task: math.a\nmodel: tiny\nseed: 0\ntrainer:\n  beta: {beta}\n")
    if not final:
        log = folder / "logs" / "events.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    return folder


def lines_of(grpo: Grpo, *words: str, code: int = 0) -> list[str]:
    """What a command prints, with runs of spaces made one."""
    return [" ".join(line.split()) for line in grpo("runs", *words, code=code).splitlines()]


def json_of(grpo: Grpo, *words: str) -> Any:
    return json.loads(grpo("runs", *words, "--json"))


def test_the_list_shows_state_progress_and_results(grpo: Grpo) -> None:
    make_run(Path("training_runs/run_1"))
    presence.announce(make_run(Path("training_runs/run_2"), final=False))
    make_run(Path("training_runs/run_3"), final=False)
    (Path("training_runs/run_3") / "summary.json").write_text("!\n")
    heading, *rows = lines_of(grpo)
    assert heading == "run state steps reward solved: initial → latest warnings task model written"
    assert rows[0] == "run_1 finished 40/40 1 0.25 → 0.75 [0.50, 0.90] 1 math.a tiny just now"
    assert rows[1] == "run_2 running 40/40 1 0.25 → - 1 math.a tiny just now"
    assert rows[2].startswith('run_3 unreadable 0 - "the summary is damaged')
    assert lines_of(grpo, "training_runs") == lines_of(grpo, "list", "training_runs") == [heading, *rows]
    (only,) = json_of(grpo, "training_runs/run_1")
    assert (only["state"], only["planned_steps"], only["tasks"]["math.a"]["latest"]["delta"]) == ("finished", 40, 0.5)


def test_the_runs_of_a_sweep_are_listed(grpo: Grpo) -> None:
    make_run(Path("sweep/runs/001/run_1"))
    write_json(Path("sweep/sweep.json"), SweepPlan(definition={}, base={}, runs=SWEPT).model_dump(mode="json"))
    _, *rows = lines_of(grpo, "sweep")
    assert [row.split()[:2] for row in rows] == [["runs/001/run_1", "finished"]]


def test_the_folder_is_where_runs_are_written(grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_OUTPUT_DIR", "elsewhere")
    Path("elsewhere").mkdir()
    assert lines_of(grpo) == ["elsewhere holds no runs yet."]


def test_one_run_is_shown_whole(grpo: Grpo) -> None:
    make_run(Path("run_1"))
    shown = lines_of(grpo, "show", "run_1", "--aliases")
    assert shown[0] == "run run_1 finished step 40/40 just now"
    assert "chosen device cpu: no GPU" in shown
    assert "solved math.a initial 0.25 [0.12, 0.50] final 0.75 [0.50, 0.90] +0.50 [0.25, 0.70] over initial" in shown
    (plot,) = (line for line in shown if line.startswith("reward ▁"))
    assert plot.endswith("█ 0.025 1 0.025 1"), "first, last, lowest, highest"
    assert any(line.startswith("loss/policy -0.5 pg_loss") for line in shown)
    assert shown[-1].startswith("warning step 3: beware </script>") and r"\x1b[31m" in shown[-1]


def test_what_a_task_measures_of_itself_is_shown_before_and_after(grpo: Grpo) -> None:
    log = make_run(Path("run_1")) / "logs" / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    names = ("g/loss_rate", "g/loss_rate_ci_low", "g/loss_rate_ci_high", "g/games")
    events[1]["result"]["metrics"] = dict(zip(names, (0.5, 0.25, 1.0), strict=False))
    events[3]["result"]["metrics"] = dict(zip(names, (0.125, 0.0625, 0.25, 64), strict=True))
    write_lines(log, events)
    shown = lines_of(grpo, "show", "run_1")
    start = shown.index("evaluated initial final")
    assert shown[start - 1] == "math.a"
    assert shown[start + 1 : start + 3] == ["g/loss_rate 0.5 [0.25, 1.00] 0.125 [0.06, 0.25]", "g/games - 64"]


def test_a_metric_of_ones_own_is_drawn_by_either_name_also_where_the_last_step_lacks_it(grpo: Grpo) -> None:
    log = make_run(Path("run_1")) / "logs" / "train_log.jsonl"
    with log.open("a") as file:
        file.write('{"step":41,"reward":1,"gns/b_simple":8}\n{"step":42,"reward":null,"kl/k3":null}\n')
    words = [word for name in ("r_mean", "gns/b_simple", "kl/k3", "pg_loss") for word in ("--metric", name)]
    history = json_of(grpo, "show", "run_1", *words)["history"]
    assert list(history) == ["reward", "gns/b_simple", "kl/k3", "loss/policy"]
    assert history["reward"][-2:] == [[41, 1.0], [42, None]] and history["loss/policy"][0] == [1, -0.5]
    assert history["gns/b_simple"] == [[41, 8.0]] and history["kl/k3"] == [[42, None]]
    assert any(line.startswith("kl/k3 ") for line in lines_of(grpo, "show", "run_1", "--metric", "kl/k3"))
    (said,) = lines_of(grpo, "show", "run_1", "--metric", "step", code=2)
    assert "no logged metric 'step'" in said


def test_runs_are_compared_by_what_differs(grpo: Grpo) -> None:
    make_run(Path("a"))
    make_run(Path("b"), beta=0.5)
    make_run(Path("c"), final=False)
    shown = lines_of(grpo, "compare", "a", "b", "c")
    assert shown[:2] == ["setting a b c", "trainer.beta 0.0 0.5 0.0"]
    assert "state finished finished killed" in shown
    assert "math.a: initial 0.25 [0.12, 0.50] 0.25 [0.12, 0.50] 0.25 [0.12, 0.50]" in shown
    assert "latest 0.75 [0.50, 0.90] 0.75 [0.50, 0.90] -" in shown
    assert "warnings 1 1 1" in shown
    assert "over initial +0.50 [0.25, 0.70] +0.50 [0.25, 0.70] -" in shown
    assert lines_of(grpo, "compare", "a", "c")[0] == "all settings are equal."
    facts = json_of(grpo, "compare", "a", "b")
    assert facts["settings"] == {"trainer.beta": [0.0, 0.5]} and len(facts["runs"]) == 2
