"""The command lines of benchmarks/."""

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_scripts import SCRIPTS, load_script

Call = Callable[..., tuple[object, list[str], list[str]]]


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
        (("--turns", "1"), "turns=1 must be at least 2"),
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
