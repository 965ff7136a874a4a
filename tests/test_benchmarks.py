"""The scripts of benchmarks/: their command lines, and what they compute."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from script_modules import module_of

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHARED = ("arguments", "workload", "step_task", "agents_task", "scale_ranks")
"""Modules that are not run by themselves."""

SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)

Call = Callable[..., tuple[object, list[str], list[str]]]


def load_script(name: str) -> ModuleType:
    """The module of a script, which finds its neighbours."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return module_of(FOLDER / f"{name}.py")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Runs a script in an empty folder, in a terminal of 80 columns: its exit code, and lines of stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> tuple[object, list[str], list[str]]:
        script = load_script(name)
        monkeypatch.setattr("sys.argv", [f"{name}.py", *arguments])
        code: object = 0
        try:
            script.main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_fits_a_terminal(name: str, call: Call) -> None:
    code, lines, _ = call(name, "--help")
    assert code == 0 and len(lines) > 8
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--group", "1"), "group=1 must be at least 2"),
        (("--result", "8"), "result=8 must be at least 32"),
        (("--size", "full", "--turns", "80"), "takes 15232 tokens"),
    ],
)
def test_agents_refuses_what_is_no_episode(arguments: tuple[str, ...], why: str, call: Call) -> None:
    code, _, errors = call("agents", *arguments)
    assert code == 2 and why in " ".join(errors)


def test_one_call_in_eight_of_agents_is_slow() -> None:
    script = load_script("agents")
    calls = script.Calls(turns=9, sampled=1, words=2, seconds=1.0, slow_seconds=10.0, mark=99)
    for episode in range(16):
        prompt = [episode]
        seconds = []
        while (call := calls.call(prompt, [0])) is not None:
            seconds.append(call["seconds"])
            prompt += [0, 99]
        assert sorted(seconds) == [1.0] * 7 + [10.0] and seconds[episode % 8] == 10.0
    assert {sum(times) for times in calls.times.values()} == {17.0} and calls.tokens == [18] * 16
    with pytest.raises(SystemExit, match="2 tokens, not 1"):
        calls.call([0], [0, 0])


def test_with_perfect_overlap_an_episode_goes_on_when_its_call_is_over() -> None:
    script = load_script("agents")
    passes = [(1, 1, 1.0), (2, 2, 1.0), (2, 5, 1.0)]  # rows, new tokens, seconds: each takes a second
    result = {"times": [[9.0], [9.0], [3.0], [0.5]], "prompt": 4}  # of an earlier step, and of the last
    work = script.Work(prompts=1, group=2, turns=2, sampled=2)
    assert script.simulated({"timed_passes": passes}, result, work) == pytest.approx(7.0)


def test_tokens_of_rejected_groups_count() -> None:
    learning = load_script("learning")
    log = [
        {"step": 1, "completions/mean_length": 4.0, "dynamic_sampling/rejected": 32.0},
        {"step": 2, "completions/mean_length": 5.0},
    ]
    evaluations = [{"step": 0, "eval/tasks.a/solved_rate": 0.25}, {"step": 2, "eval/tasks.a/solved_rate": 0.5}]
    assert learning.points_of(log, evaluations) == ((0.0, 0.25), (4.0 * 8 * 64 + 5.0 * 8 * 32, 0.5))


def test_rates_are_compared_at_the_tokens_of_the_shortest_run() -> None:
    learning = load_script("learning")
    points = [
        ("dr_grpo", ((0, 0.2), (1000, 0.4))),
        ("dr_grpo", ((0, 0.2), (1000, 0.6))),
        ("dapo", ((0, 0.2), (2000, 0.8))),
        ("dapo", ((0, 0.2), (500, 0.5), (2000, 0.8))),
    ]
    curves = [learning.Curve(name, seed % 2, 1.0, each, 60.0, "") for seed, (name, each) in enumerate(points)]
    first, second = learning.table_of(curves)[4:]
    assert first.split(" | ")[2:6] == ["0.400, 0.600", "0.500 ± 1.271", "0.141", "–"]
    assert second.split(" | ")[2:6] == ["0.500, 0.600", "0.550 ± 0.635", "0.071", "+0.050 ± 0.635"]
    assert "dapo" in learning.picture_of(curves, "a task")


def test_published_step_times_are_predicted_within_a_quarter() -> None:
    scale = load_script("scale")
    ratios = [row["ratio"] for row in scale.published(scale.Efficiency())]
    assert len(ratios) == 4 and all(0.75 < ratio < 1.25 for ratio in ratios)


def test_what_does_not_fit_is_not_predicted() -> None:
    scale = load_script("scale")
    rows = scale.table(scale.Work(), scale.Device(memory=8e9), scale.Efficiency())
    assert any(not row["fits"] for row in rows) and any(row["fits"] for row in rows)
