"""`grpo explain` and `grpo score` as a user types them."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import broken_tools
import pytest
import small_games

from grpo_sdk.cli.main import main

TASK = f"{Path(__file__).parent}/programs/sums.py:sums"
GAMES = Path(small_games.__file__).resolve()

Capture = pytest.CaptureFixture[str]
Grpo = Callable[..., str]


def test_without_a_completion_the_gold_is_explained(grpo: Grpo) -> None:
    shown = grpo("explain", TASK)
    for expected in ("row first", '"2 + 2 ="', "solved", "validator  answer '4'", "+1", "weight 1 × 1 of 1", "watched"):
        assert expected in shown


def test_a_completion_is_a_text_a_file_or_stdin(tmp_path: Path, grpo: Grpo, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.txt").write_bytes(b"7\n")
    for given in ("7", "@answer.txt"):
        assert "answer '7'" in grpo("explain", TASK, "--completion", given)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"@7 \xff")))
    facts = json.loads(grpo("explain", TASK, "--completion", "-", "--json"))
    assert (facts["text"], facts["score"]["value"], facts["row"]["id"]) == ("@7 \ufffd", 0.0, "first")
    assert [part["name"] for part in facts["parts"]] == ["right", "length"]
    assert "NOT SOLVED" in grpo("explain", TASK, "--completion", "")


def test_what_takes_too_long_is_killed_and_explained(capsys: Capture) -> None:
    assert main(["explain", TASK, "--completion", "spin"]) == 1
    assert "NOT SCORED   timeout" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--row", "second"), ("--completion", " \x1b[31m\u202e")])
def test_hostile_text_cannot_control_the_terminal(grpo: Grpo, arguments: tuple[str, str]) -> None:
    assert grpo("explain", TASK, *arguments, "--json"), "nor do escapes stand in JSON"
    shown = grpo("explain", TASK, *arguments)
    assert "\u202e" not in shown
    assert "\\x1b[31m" in shown or "\\x1b[2J" in shown


def test_a_file_is_scored_to_lines_with_a_summary(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "completions.jsonl"
    completions = [{"row": "first", "completion": text} for text in ("4", "\x1b[2J\t", "spin")]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in completions))
    assert main(["score", TASK, "--file", str(file), "--workers", "1"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[3] for line in lines] == ["judged", "solved", "unsolved", "abstained"]
    assert lines[2][5] == '"\\x1b[2J\\t"' and "\x1b" not in out
    assert "3 completions   mean reward 0.5   solved 0.50   1 not scored" in err
    assert main(["score", TASK, "--file", str(file), "--json", "--max-abstain-share", "0.2"]) == 3
    out, err = capsys.readouterr()
    assert [json.loads(line)["line"] for line in out.splitlines()] == [1, 2, 3]
    assert "1 of 3 completions could not be scored; the limit is 20%" in err


def test_wrong_lines_are_named_and_the_exit_code_is_2(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "completions.jsonl"
    file.write_text('{"row": "first", "completion": "4"}\n' + "{\n" * 30)
    assert main(["score", TASK, "--file", str(file)]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "line 2: not JSON" in err and "line 22:" not in err and "30 wrong lines" in err
    file.write_text("")
    assert main(["score", TASK, "--file", str(file)]) == 2
    assert "no completion in it" in capsys.readouterr().err


def test_several_turns_are_shown_by_who_said_what(grpo: Grpo) -> None:
    words = ("explain", f"{GAMES}:MEMORY?tries=3", "--completion", '{"turns": ["3\\nuser: 7", "5"]}')
    said = json.loads(grpo(*words, "--json"))["messages"]
    assert [each["role"] for each in said] == ["assistant", "user", "assistant"]
    shown = [line.split() for line in grpo(*words).splitlines()]
    assert ["text", "assistant", '"3'] in shown and ["user:", '7"'] in shown and ["assistant", '"5"'] in shown


SHOP = f"{Path(broken_tools.__file__).resolve()}:faultless"
LOOK = '{"turns": [{"text": "", "calls": [{"name": "look_up", "arguments": {"item": "fig"}}]}, {"text": "7"}]}'


def test_tools_are_shown_with_what_they_take_and_who_said_what(grpo: Grpo) -> None:
    shown = grpo("sample", SHOP, "-n", "2")
    assert shown.count("order(item: string, count: integer = 1)   Order an item and leave.") == 1, "once"
    assert '"Buy apple, as many as your coins allow. You have 7 coins."' in shown, "with what reset() adds"
    said = [line.split() for line in shown.splitlines()]
    assert ["tool", 'look_up(item="apple")', '"3"'] in said and ["assistant", '"Enough."'] in said
    said = [line.split() for line in grpo("explain", SHOP, "--completion", LOOK).splitlines()]
    assert ["tool", 'look_up(item="fig")', '"7"'] in said and ["assistant", '"7"'] in said
    facts = json.loads(grpo("explain", SHOP, "--completion", LOOK, "--json"))
    assert [each["role"] for each in facts["messages"]] == ["assistant", "tool", "assistant"]
    assert facts["prompt"].endswith("You have 7 coins.") and len(facts["tools"]) == 2


def test_texts_that_call_nothing_are_counted(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "completions.jsonl"
    texts = [LOOK, '<tool_call>{"name": "look_up", "arguments": {"item": "fig"}}</tool_call>']
    file.write_text("".join(json.dumps({"row": "fig-21", "completion": text}) + "\n" for text in texts))
    main(["score", SHOP, "--file", str(file)])
    err = capsys.readouterr().err
    assert "note: 1 of them call nothing: each is text. Turns with calls are given as" in err, err


@pytest.mark.parametrize(("task", "arguments", "code", "told"), [
    (f"{GAMES}:MEMORY?tries=3", ("--completion", "5"), 0, '{"turns": ['),
    (f"{GAMES}:MEMORY?tries=3", ("--completion", '{"turns": ["3", "5"]}'), 0, ""),
    (f"{GAMES}:HEAP", (), 2, '{"role": '),
    (SHOP, ("--completion", LOOK), 0, ""),
    (SHOP, ("--completion", "7 coins"), 0, '"FIRST", "calls": [{"name": "look_up", "arguments": {"item": "…"}}]}'),
    (SHOP, ("--completion", LOOK.replace("arguments", "args")), 2, "turns.0.calls.0.args: Extra inputs are not"),
    (SHOP, ("--completion", LOOK[:-1]), 2, "--completion is no episode with tools: no JSON"),
])  # fmt: skip
def test_how_to_give_several_turns_is_told_where_one_is_given(
    task: str, arguments: tuple[str, ...], code: int, told: str, capsys: Capture
) -> None:
    assert main(["explain", task, *arguments]) == code
    err = capsys.readouterr().err
    assert told in err if told else "note:" not in err


def test_a_reset_that_raises_is_an_error_of_the_command(grpo: Grpo) -> None:
    assert "reset() raised KeyError" in grpo("explain", SHOP.replace("faultless", "crash_of_reset"), code=1)
