from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from grpo_core.cli import main as entry
from grpo_core.cli import rollout_text
from grpo_core.cli.rollout_selection import Selection, each_selected, select, survey
from grpo_core.errors import UserError

A, B = "math.arithmetic?size=9", "math.echo"
HOSTILE = "\x1b[2J\x1b]0;title\x07 \u009b31m 4\t2\r\u202e\n=IMPORTXML\x00 [bold]x[/bold] :smile:"


def record(step: int, task: str, group: int, value: float | None, text: str, **fields: Any) -> dict[str, Any]:
    solved = value == 1.0
    return {
        "step": step, "task": task, "identity": "i", "group": group, "row": {"id": f"r{group}"}, "text": text,
        "tokens": 3, "finish_reason": "stop", "status": "abstained" if value is None else "scored",
        "prompt": f"prompt of {group}", "reward": value, "included": value is not None, "logprob": -1.5,
        "score": {
            "value": value, "parts": {} if value is None else {"near": 1.0, "exact": float(solved)},
            "valid": value is not None, "solved": solved, "why": "" if solved else "exact 0 of 1",
            "fault": "timeout" if value is None else "",
        },
        **fields,
    }  # fmt: skip


RECORDS = [
    record(1, A, 0, 0.1, "one"), record(1, A, 0, 1.0, "two"),
    record(1, B, 1, None, "three"), record(1, B, 1, 0.4, "four"),
    record(2, A, 0, 0.3, "five"), record(2, A, 0, 0.2, "six"),
    record(2, B, 1, 1.0, "seven"), record(2, B, 1, 0.2, "eight"),
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(tmp_path / "run_1", RECORDS)


def write(run_dir: Path, records: Sequence[dict[str, Any]]) -> Path:
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "config.yaml").write_text("")
    (run_dir / "logs" / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))
    return run_dir


def texts(run_dir: Path, **wanted: Any) -> list[str]:
    return [found.text for found in select(run_dir, Selection(**wanted))]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["five", "six", "seven", "eight"]),  # the last step, in the log's order
        ({"step": "all", "judged": "solved"}, ["two", "seven"]),
        ({"step": "all", "order": "best", "limit": 3}, ["two", "four", "seven"]),  # the best, those of a step together
        ({"step": "all", "judged": "abstained", "whole_groups": True}, ["four", "three"]),
    ],
)
def test_an_export_takes_the_selection_step_by_step(run: Path, wanted: dict[str, Any], found: list[str]) -> None:
    assert [each.text for each in each_selected(run, Selection(**{"limit": sys.maxsize, **wanted}))] == found


def test_an_export_of_nothing_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match=r"no task in this run 'math.ecko'. Did you mean 'math.echo'"):
        list(each_selected(run, Selection(task="math.ecko", limit=sys.maxsize)))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["six", "eight", "five", "seven"]),  # the last step, worst first, equals in the log's order
        ({"order": "best"}, ["seven", "five", "six", "eight"]),
        ({"limit": 2}, ["six", "eight"]),
        ({"step": 1}, ["one", "four", "two", "three"]),  # what was not scored comes last
        ({"step": 1, "order": "best"}, ["two", "four", "one", "three"]),
        ({"step": "all", "limit": 3}, ["one", "six", "eight"]),
        ({"step": "all", "judged": "solved"}, ["two", "seven"]),
        ({"task": A}, ["six", "five"]),
        ({"task": "math.arithmetic", "judged": "solved"}, ["two"]),  # the last step that has any
        ({"judged": "abstained"}, ["three"]),
        ({"judged": "unsolved", "step": 2, "order": "best"}, ["five", "six", "eight"]),
        ({"judged": "abstained", "step": 2}, []),
    ],
)
def test_filters_combine(run: Path, wanted: dict[str, Any], found: list[str]) -> None:
    assert texts(run, **wanted) == found


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"limit": 1}, ["six", "five"]),  # the worst completion's group, whole
        ({"limit": 1, "judged": "solved"}, ["eight", "seven"]),  # also what did not solve it
        ({"limit": 1, "order": "best", "step": "all"}, ["two", "one"]),  # of two solved, the first
        ({"judged": "abstained"}, ["four", "three"]),
        ({"step": "all", "limit": 2, "task": B}, ["eight", "seven", "four", "three"]),
    ],
)
def test_whole_groups(run: Path, wanted: dict[str, Any], found: list[str]) -> None:
    assert texts(run, whole_groups=True, **wanted) == found


def test_only_as_much_as_is_asked_for_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A log of gigabytes: only the wanted completions may stay in memory while it is read.
    import gc

    from grpo_core.cli import rollout_selection
    from grpo_core.tracking.rollouts import RolloutRecord

    most = 0
    template = RolloutRecord.model_validate(RECORDS[0])

    def endless(run_dir: Path, **_: Any) -> Any:
        nonlocal most
        for step in range(1, 3001):
            if step % 1000 == 0:
                most = max(most, sum(type(each) is RolloutRecord for each in gc.get_objects()))
            yield template.model_copy(update={"step": step})

    monkeypatch.setattr(rollout_selection, "read_rollouts", endless)
    assert len(select(run, Selection(step="all", limit=5))) == 5
    assert most < 50


def test_a_pipe_gets_a_line_each(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rollouts", str(run), "--step", "1"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == list(rollout_text.COLUMNS)
    assert [dict(zip(lines[0], line, strict=True)) for line in lines[1:]][:2] == [
        {
            "step": "1", "task": A, "row": "r0", "group": "0", "score": "0.1", "judged": "unsolved", "tokens": "3",
            "finish": "stop", "parts": "near=1 exact=0", "prompt": "prompt of 0", "text": "one", "why": "exact 0 of 1",
        },
        {
            "step": "1", "task": B, "row": "r1", "group": "1", "score": "0.4", "judged": "unsolved", "tokens": "3",
            "finish": "stop", "parts": "near=1 exact=0", "prompt": "prompt of 1", "text": "four", "why": "exact 0 of 1",
        },
    ]  # fmt: skip


def test_json_holds_everything(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rollouts", str(run), "--best", "--limit", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["text"], found["score"]["parts"]) == ("seven", {"near": 1.0, "exact": 1.0})
    assert found["row"] == {"id": "r1"}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_hostile_text_stays_text(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    hostile = record(1, A, 0, 0.5, HOSTILE, prompt=HOSTILE)
    hostile["score"] |= {"why": HOSTILE, "parts": {HOSTILE: 1.0}}
    hostile["row"]["id"] = HOSTILE
    assert entry.main(["rollouts", str(write(tmp_path / "run_1", [hostile])), *arguments]) == 0
    out = capsys.readouterr().out
    assert [char for char in out if not char.isprintable() and char not in "\n\t"] == []
    if arguments:
        assert json.loads(out)[0]["text"] == HOSTILE, "escaped, and the same when read back"
    else:
        header, line = out.splitlines()
        assert line.count("\t") == header.count("\t"), "a tab in a text ends no column"
        assert "\\x1b[2J" in line
        assert "[bold]x[/bold] :smile:" in line


class Terminal:
    """A stdout that says it is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, height: int) -> None:
        self.paged: list[str] = []
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"isatty": staticmethod(lambda: True)})())
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("LINES", str(height))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr("click.echo_via_pager", lambda text, color: self.paged.append(text))


def test_a_terminal_gets_the_score_as_a_tree(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(monkeypatch, 60)
    assert entry.main(["rollouts", str(run), "--step", "1", "--group", "--limit", "1"]) == 0
    assert terminal.paged == []
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"step 1   {A}   row r0   group 0",
        'prompt   "prompt of 0"',
        'text     "one"',
        "score    0.1   NOT SOLVED   exact 0 of 1",
        "         ├── near   1",
        "         └── exact  0",
        "tokens   3, ended by itself, log-probability -1.50",
        'text     "two"',
        "score    1   solved",
        "         ├── near   1",
        "         └── exact  1",
        "tokens   3, ended by itself, log-probability -1.50",
    ]


def test_what_does_not_fit_the_terminal_goes_to_a_pager(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(monkeypatch, 10)
    assert entry.main(["rollouts", str(run), "--step", "1"]) == 0
    assert capsys.readouterr().out == ""
    (text,) = terminal.paged
    assert text.count("score ") == 4
    assert "NOT SCORED (timeout)" in text


def test_what_a_record_says_more_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Terminal(monkeypatch, 60)
    more = record(1, A, 0, 0.5, "first\nsecond ", reward=0.25, included=False, finish_reason="length", logprob=None)
    more |= {"difficulty": "hard", "pass_rate": 0.1, "prompt": [{"role": "user", "content": "Why?"}]}
    more["score"]["valid"] = False
    assert entry.main(["rollouts", str(write(tmp_path / "run_1", [more]))]) == 0
    out = capsys.readouterr().out
    assert "hard (solved before: 0.10)" in out
    assert '"user: Why?"' in out
    assert [line.strip() for line in out.splitlines() if "first" in line or "second" in line] == [
        'text     "first',
        'second "',
    ]
    assert "0.5   NOT SOLVED   invalid" in out
    assert "3, truncated, reward 0.25 after the length penalty, left out of the loss" in " ".join(out.split())


def test_an_older_run_wrote_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Terminal(monkeypatch, 60)
    older = record(1, A, 0, 0.5, "x")
    for name in ("prompt", "reward", "included", "logprob"):
        del older[name]
    assert entry.main(["rollouts", str(write(tmp_path / "run_1", [older]))]) == 0
    assert '{"id":"r0"}' in capsys.readouterr().out


def test_an_empty_result_says_what_exists(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rollouts", str(run), "--abstained", "--step", "2", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "steps 1 to 2" in captured.err
    assert f"{A}: 1 solved, 3 not solved, 0 not scored; {B}: 1 solved, 2 not solved, 1 not scored" in captured.err
    assert str(survey(run)) in captured.err


def test_a_run_without_a_completion_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rollouts", str(write(tmp_path / "run_1", []))]) == 0
    assert "the run has no completions yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--task", "math.arithmatic"], "Did you mean 'math.arithmetic'?"),
        (["RUN", "--step", "7"], "--step 7: this run has completions of steps 1 to 2."),
        (["RUN", "--step", "last"], "--step last: give a step, counted from 1, or all."),
        (["RUN", "--step", "0"], "give a step, counted from 1"),
        (["RUN", "--step", "9" * 5000], "give a step, counted from 1"),
        (["RUN", "--worst", "--best"], "--worst and --best exclude one another"),
        (["RUN", "--solved", "--abstained"], "--solved and --abstained exclude one another"),
        (["RUNN"], "no run"),
        (["."], "is not a run folder"),
    ],
)
def test_a_mistake_is_one_line(
    run: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [word.replace("RUN", str(run)) for word in arguments]
    assert entry.main(["rollouts", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_corrupt_line_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = run / "logs" / "rollouts.jsonl"
    log.write_bytes(b'{"step": 1}\n' + log.read_bytes())
    assert entry.main(["rollouts", str(run), "--group"]) == 0  # which reads the log twice
    captured = capsys.readouterr()
    assert captured.err.count("rollouts.jsonl:1: ") == captured.err.count("\n") == 1
    assert len(captured.out.splitlines()) > 1


def timed(step: int, text: str, seconds: dict[str, float] | None, **score: Any) -> dict[str, Any]:
    line = record(step, A, 0, 0.5, text, **({} if seconds is None else {"score_s": seconds}))
    line["score"] |= score
    return line


SLOW = [
    timed(1, "slow", {"validate": 0.5, "exact": 1.0}),
    timed(2, "quick", {"validate": 0.001, "exact": 0.002}),
    timed(2, "killed", None, why="task math.arithmetic: no answer within 5 s"),
    timed(2, "unknown", None, why="invalid: no answer within <answer> tags"),
]


def test_the_slowest_come_first_over_all_steps_with_the_time_of_each_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run_1", SLOW)
    assert entry.main(["rollouts", str(run), "--slow"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[10] for row in rows] == ["text", "killed", "slow", "quick", "unknown"]
    assert [row[-1] for row in rows] == ["ms", "", "1.5e+03", "3", ""]
    assert [line.split()[1:3] for line in err.splitlines()] == [
        ["part", "completions"],
        ["validate", "2"],
        ["exact", "2"],
    ]
    assert entry.main(["rollouts", str(run), "--slow", "--step", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["text"] for each in facts["rollouts"]] == ["killed", "quick", "unknown"]
    assert facts["parts"][0] == {"task": A, "part": "validate", "n": 1, "p50": 0.001, "p99": 0.001, "longest": 0.001}


def test_a_run_without_times_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["rollouts", str(run), "--slow"]) == 0
    assert "holds no times of scoring" in capsys.readouterr().err
    assert entry.main(["rollouts", str(run), "--slow", "--best"]) == 2
    assert "--best and --slow exclude one another" in capsys.readouterr().err
