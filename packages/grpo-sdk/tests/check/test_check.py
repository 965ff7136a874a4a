import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import broken_tools
import pytest
import small_games
from pydantic import Field

from grpo_sdk import Row, Task, TaskConfig, UserError, load_task, reward, tool
from grpo_sdk.check.results import Result, TaskReport
from grpo_sdk.check.table import FUNCTIONS, PLAIN, check_task, chosen_checks
from grpo_sdk.cli.check import tasks_of
from grpo_sdk.cli.main import main
from grpo_sdk.task.exemptions import CHECKS, TOOL_CHECKS

PROGRAMS = Path(__file__).with_name("programs")
EXACT = "@reward()\ndef exact(answer, row):\n"


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    return Path(shutil.copy(PROGRAMS / "checked_sums.py", tmp_path / "sums.py"))


def edit(file: Path, *edits: tuple[str, str]) -> Path:
    text = file.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text)
    return file


def checked(spec: str, *checks: str, rows: int = 1) -> list[Result]:
    return list(check_task(load_task(spec), rows=rows, checks=checks).results)


def statuses(report: TaskReport, status: str) -> set[str]:
    return {result.check for result in report.results if result.status == status}


def test_checks_are_chosen_by_name() -> None:
    assert list(FUNCTIONS) == chosen_checks("") == list(CHECKS)
    assert chosen_checks("junk, gold") == ["gold", "junk"]
    for wrong, message in (("jnuk", r"no check 'jnuk'\. Did you mean 'junk'\?"), (",", "names no check")):
        with pytest.raises(UserError, match=message):
            chosen_checks(wrong)


@pytest.mark.parametrize(("exempt", "message"), [
    ({"splits": "one list"}, r"'splits'\. Did you mean 'split'\?"),
    ({"fuzz.severel": "misspelt"}, r"Did you mean 'fuzz.several'\?"),
    ({"split": " "}, r"exempt\['split'\] needs its reason"),
    (["split"], "exempt is a list"),
])  # fmt: skip
def test_an_exemption_needs_a_check_that_exists_and_a_reason(exempt: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Task("add", list, lambda row: "", lambda text: text, (lambda text: 1.0,), row=Row, exempt=exempt)


def test_an_exempt_check_is_not_run_and_says_why(sums: Path) -> None:
    (result,) = checked(f"{sums}:add", "split")
    assert (result.status, result.text) == ("exempt", "three splits of one list are tried elsewhere")


HANGS_IN_GROUPS = "@group_reward(0.1)\ndef hang(answers):\n    while True:\n        pass\n\n\nREASON"
COUNTS = "calls = []\n\n\n" + EXACT + "    calls.append(1)\n    return float(len(calls) < 20 and"
LEAVES = "import subprocess\nleft = []\n\n\n" + EXACT + "    left or left.append(subprocess.Popen(['sleep', '300']))\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("edits", "check", "expected"), [
    ([("gold=str(a + b)", "gold=str(a + b + (a == 7 and b == 1))"), ("6 + 0", "7 + 0")], "gold", "row '7+1'"),
    ([(EXACT + "    return float(", COUNTS + " ")], "determinism", "after other completions were scored"),
    ([("return f", "raise KeyError('a'); return f")], "rows", "KeyError (sums.py:"),
    ([("    return int(text)", "    raise ValueError"), ("len(text) > 20", "False")], "hostile", "is the task's"),
    ([("text = text.strip()", ""), ("text.isdecimal()", "text.strip().isdecimal()")], "hostile", "is the task's"),
    ([("    return int(text)", "    raise RecursionError"), ("len(text) > 20", "False")], "hostile", "no recursion"),
    ([("import Invalid,", "import Invalid, group_reward,"), ("REASON", HANGS_IN_GROUPS),
      ("(exact,), exempt", "(exact, hang), timeout_s=0.2, exempt")], "group", "no answer within"),
    ([(EXACT, LEAVES)], "determinism", ""),  # a process that a reward leaves behind is not waited for
])  # fmt: skip
def test_a_check_names_the_fault(edits: list[tuple[str, str]], check: str, expected: str, sums: Path) -> None:
    (result,) = checked(f"{edit(sums, *edits)}:add", check)
    assert result.status == ("failed" if expected else "passed")
    assert expected in f"{result.text} {result.example} {result.advice}"


@pytest.mark.parametrize(("ending", "example"), [
    ("os.closerange(1, 3); os._exit(3)", "it ended with status 3 before it answered"),
    ("sys.stderr.write('x' * 10**6 + '\\nno more'); os._exit(3)", "no more"),
])  # fmt: skip
def test_a_process_that_a_reward_ends_is_told_from_one_that_does_not_load(sums, ending, example):
    ends = f"import os, sys\n\n\n{EXACT}    if 'PYTHONHASHSEED' in os.environ: {ending}\n"
    (result,) = checked(f"{edit(sums, (EXACT, ends))}:add", "imports")
    assert (result.status, result.example) == ("failed", example)


def test_a_long_check_is_not_silent_in_a_pipe(sums, capsys, monkeypatch):
    monkeypatch.setattr("grpo_sdk.display.progress.REPORT_EVERY_S", 0.1)
    monkeypatch.setattr("grpo_sdk.display.progress.TICK_S", 0.05)
    edit(sums, ("    return int(text)", "    import time; time.sleep(0.5)\n    return int(text)"))
    assert not main(["check", f"{sums}:add", "-k", "gold", "--rows", "1", "--json"])
    printed = capsys.readouterr()
    assert "working" in printed.err and "sums.add, gold" in printed.err and json.loads(printed.out)["tasks"]


def test_a_problem_that_splits_share_is_found_behind_many_rows(tmp_path: Path) -> None:
    file = Path(shutil.copy(PROGRAMS / "late_rows.py", tmp_path / "late.py"))
    gold, split = checked(f"{file}:late", "gold", "split")
    assert gold.status == "passed" and " of 1900 golds earn 1" in gold.text
    assert (split.status, split.text) == ("failed", "train and test have a problem in common")
    assert split.example == "row 'p1800' of train, row 'p1800' of test"

    gold, split = checked(f"{edit(file, ('EVERY[:1900]', 'EVERY[:1900] + EVERY[:1]'))}:late", "gold", "split")
    assert gold.status == "passed" and " of at least 512 golds earn 1" in gold.text
    assert (split.status, split.text) == ("failed", "train has a row that cannot be used")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return Path(shutil.copy(PROGRAMS / "digits.py", tmp_path))


# Bare golds in a prompt count, whatever else is in it: its author declares that.
@pytest.mark.parametrize("options", ['"<answer>{}</answer>", ", one of 1, 2, 3, 4, 5, 6, 7, 8, 9"', '"{}", ""'])
def test_a_digit_that_prompts_and_messages_have_by_chance_is_no_leak(digits: Path, options: str) -> None:
    edit(digits, ('"{}", ""', options))
    report = check_task(load_task(f"{digits}:digit"), checks=["leak", "feedback"])
    assert statuses(report, "passed") == {"leak", "feedback"}, report.failures


def test_respond_may_not_fail_in_a_later_turn(digits: Path) -> None:
    for result in checked(f"{edit(digits, ('False', 'True'))}:digit", "hostile", "feedback", rows=2):
        assert result.text.startswith("respond() fails") and " in turn 3 (reward)" in result.text


def test_targets(sums: Path) -> None:
    assert [task.name for task in tasks_of(str(sums))] == ["sums.add", "sums.lenient"]
    assert [task.name for task in tasks_of("math.echo,math.pattern")] == ["math.echo", "math.pattern"]
    assert "games.nim" in [task.name for task in tasks_of("games")]
    assert {"math.echo", "core.qa"} <= {task.name for task in tasks_of("all")}
    with pytest.raises(UserError, match=r"no plugin 'mahts'\. Did you mean 'math'\?"):
        tasks_of("mahts")


def test_a_task_that_hangs_is_checked_in_seconds(sums: Path) -> None:
    hangs = ("def validate(text, row):", "def validate(text, row):\n    while True: pass")
    edit(sums, hangs, ("(exact,), exempt", "(exact,), timeout_s=0.2, exempt"))
    report = check_task(load_task(f"{sums}:add"), checks=set(CHECKS) - {"rows"})
    failed = {"gold", "junk", "ladder", "hostile", "latency", "determinism", "imports"}
    assert statuses(report, "failed") == failed
    found = {result.check: result.example for result in report.results}
    assert "no answer within 0.2 s" in found["gold"] and "not tried: 8 completions before it" in found["junk"]


def test_a_reason_of_the_author_is_no_time_out(sums: Path) -> None:
    edit(sums, ("no whole number", "no answer within <answer> tags"))
    checks = {"junk", "hostile", "latency"}
    assert statuses(check_task(load_task(f"{sums}:add"), rows=2, checks=checks), "passed") == checks


def test_the_command_exits_by_what_it_found(sums: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{sums}:add", "--rows", "2", "-k", "gold,split"]) == 0
    held = capsys.readouterr().out
    assert "sums.add   2 rows, seed 0" in held and "exempt" in held and "golds earn 1 and are solved" in held

    assert main(["check", f"{sums}:lenient", "-k", "gold,junk"]) == 1
    broken = capsys.readouterr().out
    assert "junk: empty earns 1 and is solved" in broken and "what to do   Raise Invalid" in broken

    assert main(["check", f"{sums}:ad"]) == main(["check", f"{sums}:add", "-k", "jnuk"]) == 2


def test_several_tasks_are_announced_and_the_first_finding_may_end_them(sums: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", f"{sums}:lenient,{sums}:add", "-x", "--json"]) == 1
    printed = capsys.readouterr()
    (report,) = json.loads(printed.out)["tasks"]
    assert [(each["check"], each["status"]) for each in report["results"]] == [("gold", "passed"), ("junk", "failed")]
    assert "2 tasks   about 0:16" in printed.err
    assert main(["check", f"{sums}:add,{sums}:lenient", "-x", "--fuzz", "8", "-k", "gold"]) == 1, "the fuzzer's finding"
    printed = capsys.readouterr()
    assert "stopped at the first finding" in printed.out and "about" not in printed.err


def test_the_report_as_json(sums: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(sums), "-k", "junk,latency", "--json", "--seed", "3"]) == 1
    report = json.loads(capsys.readouterr().out)
    good, bad = report["tasks"]
    assert report["failed"] and bad["failed"] and not good["failed"] and good["seed"] == 3
    assert [result["check"] for result in good["results"]] == ["junk", "latency"]
    assert good["results"][1]["measured"]["exact_p99_ms"] > 0


def test_a_task_without_rows_here_is_said_among_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "core", "-k", "gold"]) == 2  # asked for by itself
    assert "this task has no data of its own" in capsys.readouterr().err
    assert main(["check", "core.qa,math.echo", "-k", "gold", "--rows", "1"]) == 0
    assert "1 ok, 1 tasks without rows here" in capsys.readouterr().out


@pytest.mark.parametrize(("spec", "check", "text"), [
    ("math.arithmetic?size=8", "split", "8 train, 8 validation, 8 test"),
    ("math.arithmetic?size=100&min_difficulty=1&max_difficulty=1", "split", r"100 train, .*, \d\d? test"),
    ("games.tictactoe", "perfect", "1 start, 929 positions: every reply in each seat"),
    ("games.nim?size=8", "demos", ".* first moves among the demos are legal"),
])  # fmt: skip
def test_a_check_says_how_much_was_tried(spec: str, check: str, text: str) -> None:
    (result,) = checked(spec, check)
    assert result.status == "passed" and re.fullmatch(text, result.text)


def test_perfect_play_may_be_proved_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first seat has 153 positions, the second one more than are left to it.
    monkeypatch.setattr("grpo_sdk.check.checks.processes.POSITIONS", 1000)
    (result,) = checked("games.tictactoe", "perfect")
    assert result.text == "1 start, 653 positions: every reply in 1 of 2 seats, in the others a part"


def test_perfect_play_is_proved_for_each_start_once() -> None:
    (result,) = checked("games.tictactoe?openings=2", "perfect", rows=8)
    assert result.status == "passed" and ": every reply in each seat" in result.text
    assert 2 <= int(result.text.split(" ", 1)[0]) < 8, "episodes share starts"


def listed(seed: int, config: small_games.HeapConfig) -> list[Any]:
    return [5, "first"]


def moved(state: Any, action: int) -> list[Any]:
    return list(small_games.apply(state, action))


def test_positions_without_a_hash_are_told_apart() -> None:
    (result,) = checked(replace(small_games.HEAP, initial=listed, apply=moved), "perfect", rows=2)  # type: ignore[arg-type]
    # First seat: heaps 5, 4, then 3, 2, 1, then 0. Second: 5; 4, 3, 2; 3 or 0; of the 3: 2, 1, 0; 0.
    assert result.text == "1 start, 16 positions: every reply in each seat"


@reward()
def same(answer: str, row: Row) -> float:
    return float(answer == row.gold)


TOOLS = f"{Path(broken_tools.__file__)}"


def test_a_warning_fails_nothing_and_is_shown_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{TOOLS}:schema", "-k", "schema,split"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "schema warning 1 of 7 tools and parameters have no description" in out
    assert "hours of wait()" in out and "1 ok, 1 with a warning" in out


def test_tasks_without_tools_are_asked_about_them_only_by_name() -> None:
    task = load_task(
        Task("echo", lambda: [Row(id="1", gold="1")], lambda row: "1", lambda text: text, (same,), row=Row)
    )
    (asked,) = check_task(task, rows=1, checks=["hang"]).results
    assert (asked.status, asked.text) == ("not applicable", "it has no tools")
    assert set(PLAIN) == CHECKS.keys() - TOOL_CHECKS.keys()


@pytest.mark.parametrize(("gold", "why"), [
    ('{"turns": [{"text": "x", "calls": [{"name": "order", "args": {}}]}]}', "turns.0.calls.0.args: Extra inputs"),
    ('{"turns": [{"text": 1}]}', "turns.0.text: Input should be a valid string"),
    (json.dumps({"turns": [{"text": "x"}] * 5}), "5 turns of at most 4"),
])  # fmt: skip
def test_a_gold_that_no_policy_can_write_is_named(gold: str, why: str) -> None:
    row = broken_tools.Order(id="1", gold=gold, item="fig", count=2)
    (result,) = check_task(load_task(replace(broken_tools.faultless, load=lambda: [row])), checks=["gold"]).results
    assert result.status == "failed" and why in result.text


def test_a_tool_may_fail_where_the_task_says_what_then() -> None:
    for name in ("hang", "crash"):
        task = replace(getattr(broken_tools, name), on_tool_failure="result", timeout_s=0.3)
        (result,) = check_task(load_task(task), rows=1, checks=[name]).results
        assert result.status == "passed", result


def test_results_of_chance_may_be_declared() -> None:
    task = replace(broken_tools.repeat, exempt={"repeat": "it tells the time"})
    by_name = {each.check: each for each in check_task(load_task(task), rows=2, checks=["repeat", "state"]).results}
    assert by_name["repeat"].status == "exempt"
    assert by_name["state"].status == "passed" or "differ by themselves" in by_name["state"].text


def test_a_prompt_that_tells_what_a_gold_says_leaks_it_also_by_reset() -> None:
    class Telling(broken_tools.Shop):
        def reset(self, row: broken_tools.Order) -> str:
            return f"{super().reset(row)} It costs {row.count * 1000} in all."

    def load(config: TaskConfig) -> list[broken_tools.Order]:
        rows = list(broken_tools.load(config))
        return [
            row.model_copy(update={"gold": str(row.gold).replace("Enough.", f"{row.count * 1000}")}) for row in rows
        ]

    task = replace(broken_tools.faultless, load=load, environment=Telling)
    (result,) = check_task(load_task(task), rows=2, checks=["leak"]).results
    assert result.status == "failed" and "in all" in result.example


@tool
def shout(text: str) -> str:
    """Write a text in capitals.

    Args:
        text: The text.
    """
    return text.upper()


def test_a_gold_without_calls_is_none_of_the_calls_that_must_not_pay() -> None:
    rows = [Row(id=str(number), gold=str(number)) for number in range(3)]
    task = Task(
        "echo", lambda: rows, lambda row: row.id, lambda text: text, (same,), row=Row, tools=(shout,), max_turns=3
    )
    (result,) = check_task(load_task(task), checks=["pay"]).results
    assert (result.status, result.text) == ("passed", "12 episodes of other calls earn at most 0")


@tool
def check_in(booking: Annotated[str, Field(pattern="^[A-Z]{2}[0-9]{4}$")]) -> str:
    """Check in.

    Args:
        booking: Code of the booking.
    """
    return booking


def test_a_tool_that_takes_nothing_that_its_schema_says_is_a_warning() -> None:
    texts = (lambda row: "?", lambda text: text)
    task = Task("desk", lambda: [Row(id="1")], *texts, (same,), row=Row, tools=(check_in,), max_turns=2)
    (result,) = check_task(load_task(task), checks=["schema"]).results
    assert result.status == "warning" and "from the schema of check_in() is accepted" in result.text
    assert "was not called" in result.example
    (result,) = check_task(load_task(replace(task, max_turns=1)), checks=["schema"]).results
    assert result.status == "warning" and "max_turns is 1, so that no result is read" in result.text
