"""`grpo rollouts`: which completions of a run are shown, and how."""

import gc
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reported_runs import make_run, rollout

from grpo_core.cli import rollout_selection, rollout_text
from grpo_core.cli.rollout_selection import Selection, Survey, each_selected, select
from grpo_sdk.cli import main as entry
from grpo_sdk.records.rollouts import RolloutRecord

A, B = "math.arithmetic?size=9", "math.echo"
HOSTILE = "\x1b[2J\x1b]0;title\x07 \u009b31m 4\t2\r\u202e\n=IMPORTXML\x00 [bold]x[/bold] :smile:"

Capture = pytest.CaptureFixture[str]
Grpo = Callable[..., str]


def record(step: int, task: str, group: int, value: float | None, text: str, **fields: Any) -> dict[str, Any]:
    known = {"task": task, "identity": "i", "row": {"id": f"r{group}"}, "text": text, "prompt": f"prompt of {group}"}
    return rollout(step, group, 0, value, **{**known, "included": value is not None, "logprob": -1.5, **fields})


RECORDS = [
    record(1, A, 0, 0.1, "one"), record(1, A, 0, 1.0, "two"),
    record(1, B, 1, None, "three"), record(1, B, 1, 0.4, "four"),
    record(2, A, 0, 0.3, "five"), record(2, A, 0, 0.2, "six"),
    record(2, B, 1, 1.0, "seven"), record(2, B, 1, 0.2, "eight"),
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run_1", RECORDS)


@pytest.mark.parametrize(("wanted", "found"), [
    ({}, "five six seven eight"),  # the last step, in the log's order
    ({"step": "all", "judged": "solved"}, "two seven"),
    ({"step": "all", "order": "best", "limit": 3}, "two four seven"),  # the best, those of a step together
    ({"step": "all", "judged": "abstained", "whole_groups": True}, "four three"),
])  # fmt: skip
def test_an_export_takes_the_selection_step_by_step(run: Path, wanted: dict[str, Any], found: str) -> None:
    selection = Selection(**{"limit": sys.maxsize, **wanted})
    assert [each.text for each in each_selected(run, selection)] == found.split()


@pytest.mark.parametrize(("wanted", "found"), [
    ({}, "six eight five seven"),  # the last step, worst first, equals in the log's order
    ({"step": 1}, "one four two three"),  # what was not scored comes last
    ({"step": 1, "order": "best"}, "two four one three"),
    ({"step": "all", "limit": 3}, "one six eight"),
    ({"task": A}, "six five"),
    ({"task": "math.arithmetic", "judged": "solved"}, "two"),  # the last step that has any
    ({"judged": "abstained"}, "three"),
    ({"judged": "unsolved", "step": 2, "order": "best"}, "five six eight"),
    ({"judged": "abstained", "step": 2}, ""),
    ({"whole_groups": True, "limit": 1}, "six five"),  # the worst completion's group, whole
    ({"whole_groups": True, "limit": 1, "judged": "solved"}, "eight seven"),  # also what did not solve it
    ({"whole_groups": True, "limit": 1, "order": "best", "step": "all"}, "two one"),  # of two solved, the first
    ({"whole_groups": True, "step": "all", "limit": 2, "task": B}, "eight seven four three"),
])  # fmt: skip
def test_filters_combine(run: Path, wanted: dict[str, Any], found: str) -> None:
    assert [each.text for each in select(run, Selection(**wanted))] == found.split()


def test_only_as_much_as_is_asked_for_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A log of gigabytes: only the wanted completions may stay in memory while it is read.
    counts = [0]
    template = RolloutRecord.model_validate(RECORDS[0])

    def endless(run_dir: Path, **_: Any) -> Any:
        for step in range(1, 3001):
            if step % 1000 == 0:
                counts.append(sum(type(each) is RolloutRecord for each in gc.get_objects()))
            yield template.model_copy(update={"step": step})

    monkeypatch.setattr(rollout_selection, "read_rollouts", endless)
    assert len(select(run, Selection(step="all", limit=5))) == 5
    assert max(counts) < 50


def test_a_pipe_gets_a_line_each(run: Path, grpo: Grpo) -> None:
    heading, *lines = [line.split("\t") for line in grpo("rollouts", str(run), "--step", "1").splitlines()]
    assert heading == list(rollout_text.COLUMNS)
    found = [dict(zip(heading, line, strict=True)) for line in lines]
    assert [each["text"] for each in found] == ["one", "four", "two", "three"]
    assert found[0] == {
        "step": "1", "task": A, "row": "r0", "group": "0", "role": "", "score": "0.1", "judged": "unsolved",
        "tokens": "3", "finish": "stop", "parts": "exact=0.1 near=1", "prompt": "prompt of 0", "text": "one",
        "why": "exact 0 of 1",
    }  # fmt: skip


def test_json_holds_everything(run: Path, grpo: Grpo) -> None:
    (found,) = json.loads(grpo("rollouts", str(run), "--best", "--limit", "1", "--json"))
    assert (found["text"], found["score"]["parts"]) == ("seven", {"near": 1.0, "exact": 1.0})
    assert found["row"] == {"id": "r1"}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_hostile_text_stays_text(tmp_path: Path, arguments: list[str], grpo: Grpo) -> None:
    hostile = record(1, A, 0, 0.5, HOSTILE, prompt=HOSTILE, row={"id": HOSTILE})
    hostile["score"] |= {"why": HOSTILE, "parts": {HOSTILE: 1.0}}
    out = grpo("rollouts", str(make_run(tmp_path / "run_1", [hostile])), *arguments)
    assert [char for char in out if not char.isprintable() and char not in "\n\t"] == []
    if arguments:
        assert json.loads(out)[0]["text"] == HOSTILE, "escaped, and the same when read back"
    else:
        header, line = out.splitlines()
        assert line.count("\t") == header.count("\t"), "a tab in a text ends no column"
        assert "\\x1b[2J" in line and "[bold]x[/bold] :smile:" in line


def test_what_a_record_says_more_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grpo: Grpo) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"isatty": staticmethod(lambda: True)})())
    for name, value in {"COLUMNS": "80", "LINES": "60", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    more = record(1, A, 0, 0.5, "first\nsecond ", reward=0.25, included=False, finish_reason="length", logprob=None)
    more |= {"difficulty": "hard", "pass_rate": 0.1, "prompt": [{"role": "user", "content": "Why?"}]}
    more["score"]["valid"] = False
    out = grpo("rollouts", str(make_run(tmp_path / "run_1", [more])))
    assert "hard (solved before: 0.10)" in out and '"user: Why?"' in out
    assert re.search(r'text     "first *\n +second " *\n', out)
    assert "0.5   NOT SOLVED   invalid" in out
    assert "3, truncated, reward 0.25 after the length penalty, left out of the loss" in " ".join(out.split())


def test_an_empty_result_says_what_exists(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert entry.main(["rollouts", str(run), "--abstained", "--step", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [] and "steps 1 to 2" in err and str(Survey(run)) in err
    assert f"{A}: 1 solved, 3 not solved, 0 not scored; {B}: 1 solved, 2 not solved, 1 not scored" in err
    assert entry.main(["rollouts", str(make_run(tmp_path / "none", []))]) == 0
    assert "the run has no completions yet" in capsys.readouterr().err


def test_a_corrupt_line_is_named_once_also_where_the_log_is_read_twice(run: Path, capsys: Capture) -> None:
    log = run / "logs" / "rollouts.jsonl"
    log.write_bytes(b'{"step": 1}\n' + log.read_bytes())
    assert entry.main(["rollouts", str(run), "--group"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("rollouts.jsonl:1: ") == captured.err.count("\n") == 1
    assert len(captured.out.splitlines()) > 1


def test_the_slowest_come_first_over_all_steps_with_the_time_of_each_part(
    tmp_path: Path, capsys: Capture, grpo: Grpo
) -> None:
    slow = [
        record(1, A, 0, 0.5, "slow", score_s={"validate": 0.5, "exact": 1.0}),
        record(2, A, 0, 0.5, "quick", score_s={"validate": 0.001, "exact": 0.002}),
        record(2, A, 0, 0.5, "killed"),
        record(2, A, 0, 0.5, "unknown"),
    ]
    slow[2]["score"]["why"] = "task math.arithmetic: no answer within 5 s"
    slow[3]["score"]["why"] = "invalid: no answer within <answer> tags"
    run = make_run(tmp_path / "run_1", slow)
    assert entry.main(["rollouts", str(run), "--slow"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[11] for row in rows] == ["text", "killed", "slow", "quick", "unknown"]
    assert [row[-1] for row in rows] == ["ms", "", "1.5e+03", "3", ""]
    assert [line.split()[1:3] for line in err.splitlines()] == [
        ["part", "completions"], ["validate", "2"], ["exact", "2"],
    ]  # fmt: skip
    facts = json.loads(grpo("rollouts", str(run), "--slow", "--step", "2", "--json"))
    assert [each["text"] for each in facts["rollouts"]] == ["killed", "quick", "unknown"]
    assert facts["parts"][0] == {"task": A, "part": "validate", "n": 1, "p50": 0.001, "p99": 0.001, "longest": 0.001}


def test_a_run_without_times_says_so(run: Path, capsys: Capture) -> None:
    assert entry.main(["rollouts", str(run), "--slow"]) == 0
    assert "holds no times of scoring" in capsys.readouterr().err
