from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_core import Row, Task, UserError, load_task
from grpo_core.cli.main import main
from grpo_core.task.exemptions import CHECKS
from grpo_core.testing.table import FUNCTIONS, check_task, chosen_checks, run_check
from grpo_core.testing.targets import tasks_of

SUMS = """
from collections.abc import Iterable

from grpo_core import Invalid, Row, Task, reward


class Sum(Row):
    a: int
    b: int


def load(config) -> Iterable[Sum]:
    return [Sum(id=f"{a}+{b}", gold=str(a + b), a=a, b=b) for a in range(5, 8) for b in range(3)]


def prompt(row):
    return f"{row.a} + {row.b} ="


def validate(text, row):
    if not text.strip().isdecimal() or len(text) > 20:
        raise Invalid("no whole number")
    return int(text)


@reward()
def exact(answer, row):
    return float(answer == row.a + row.b)


REASON = "three splits of one list are tried elsewhere"
add = Task("add", load, prompt, validate, (exact,), exempt={"split": REASON, "leak": "6 + 0 = 6"})
lenient = Task("lenient", load, prompt, lambda text: text, (lambda text: 1.0,), exempt={"split": REASON})
"""


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    file = tmp_path / "sums.py"
    file.write_text(SUMS)
    return file


def test_every_check_has_a_name_a_line_and_a_function() -> None:
    assert list(FUNCTIONS) == list(CHECKS)


def test_checks_are_chosen_by_name() -> None:
    assert chosen_checks("") == list(CHECKS)
    assert chosen_checks("junk, gold") == ["gold", "junk"]
    with pytest.raises(UserError, match=r"no check 'jnuk'\. Did you mean 'junk'\?"):
        chosen_checks("jnuk")


def test_an_exemption_needs_a_check_that_exists_and_a_reason() -> None:
    def task(exempt: dict[str, str]) -> Task:
        return Task("add", lambda: [], lambda row: "", lambda text: text, (lambda text: 1.0,), row=Row, exempt=exempt)

    with pytest.raises(UserError, match=r"exempt= of task 'add': 'splits'\. Did you mean 'split'\?"):
        task({"splits": "one list"})
    with pytest.raises(UserError, match=r"exempt\['split'\] needs its reason"):
        task({"split": " "})

    with pytest.raises(UserError, match=r"task 'add': exempt is a list; write each check with its reason"):
        task(["split"])  # type: ignore[arg-type]  # what is refused


def test_a_selection_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"checks ',' names no check"):
        chosen_checks(",")


def test_a_tenth_of_wrong_golds_is_found(sums: Path) -> None:
    sums.write_text(SUMS.replace("gold=str(a + b)", "gold=str(a + b + (a == 7 and b == 1))").replace("6 + 0", "7 + 0"))
    (result,) = check_task(load_task(f"{sums}:add"), rows=1, checks=["gold"]).results
    assert result.status == "failed" and "row '7+1'" in result.example


def test_a_score_that_depends_on_earlier_ones_is_found(sums: Path) -> None:
    counting = (
        "calls = []\n\n\n@reward()\ndef exact(answer, row):\n    calls.append(1)\n    return float(len(calls) < 20 and"
    )
    sums.write_text(SUMS.replace("@reward()\ndef exact(answer, row):\n    return float(", counting + " "))
    (result,) = check_task(load_task(f"{sums}:add"), rows=1, checks=["determinism"]).results
    assert result.status == "failed" and "after other completions were scored" in result.text


@pytest.mark.timeout(60)
def test_a_process_that_a_reward_leaves_behind_is_not_waited_for(sums: Path) -> None:
    leaving = "import subprocess\nleft = []\n\n\n@reward()\ndef exact(answer, row):\n"
    leaving += "    left or left.append(subprocess.Popen(['sleep', '300']))\n"
    sums.write_text(SUMS.replace("@reward()\ndef exact(answer, row):\n", leaving))
    (result,) = check_task(load_task(f"{sums}:add"), rows=1, checks=["determinism"]).results
    assert result.status == "passed"


@pytest.mark.parametrize(
    ("ending", "example"),
    [
        ("os._exit(0)", "it ended with status 0 before it answered"),
        ("os.closerange(1, 3); os._exit(3)", "it ended with status 3 before it answered"),
        ("sys.stderr.write('x' * 10**6 + '\\nno more'); os._exit(3)", "no more"),
    ],
)
def test_a_process_that_a_reward_ends_is_told_from_one_that_does_not_load(
    sums: Path, ending: str, example: str
) -> None:
    ending = (
        f"import os, sys\n\n\n@reward()\ndef exact(answer, row):\n    if 'PYTHONHASHSEED' in os.environ: {ending}\n"
    )
    sums.write_text(SUMS.replace("@reward()\ndef exact(answer, row):\n", ending))
    (result,) = check_task(load_task(f"{sums}:add"), rows=1, checks=["imports"]).results
    assert (result.status, result.example) == ("failed", example)


def test_a_reward_that_raises_anything_is_told_otherwise_than_one_that_reads_too_much(sums: Path) -> None:
    for error, advice in (("ValueError", "any other exception is the task's"), ("RecursionError", "no recursion")):
        sums.write_text(SUMS.replace("    return int(text)", f"    raise {error}").replace("len(text) > 20", "False"))
        (result,) = check_task(load_task(f"{sums}:add"), rows=1, checks=["hostile"]).results
        assert result.status == "failed" and advice in result.advice


def test_a_group_reward_that_hangs_is_asked_once(sums: Path) -> None:
    hanging = "@group_reward(0.1)\ndef hang(answers):\n    while True:\n        pass\n\n\nREASON"
    text = SUMS.replace("import Invalid,", "import Invalid, group_reward,").replace("REASON", hanging, 1)
    sums.write_text(text.replace("(exact,), exempt", "(exact, hang), timeout_s=0.2, exempt"))
    (result,) = check_task(load_task(f"{sums}:add"), checks=["group"]).results
    assert result.status == "failed" and result.seconds < 30


def test_a_long_check_is_not_silent_in_a_pipe(
    sums: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.display.progress.REPORT_EVERY_S", 0.1)
    monkeypatch.setattr("grpo_core.display.progress.TICK_S", 0.05)
    sums.write_text(SUMS.replace("    return int(text)", "    import time; time.sleep(0.5)\n    return int(text)"))
    assert not main(["check", f"{sums}:add", "-k", "gold", "--rows", "1", "--json"])
    printed = capsys.readouterr()
    assert "working" in printed.err and "sums.add, gold" in printed.err and json.loads(printed.out)["tasks"]


def test_splits_have_the_size_that_the_options_say() -> None:
    (result,) = check_task(load_task("math.arithmetic?size=8"), checks=["split"]).results
    assert (result.status, result.text) == ("passed", "8 train, 8 validation, 8 test")


def test_a_split_with_fewer_rows_than_the_size_is_compared_too() -> None:
    (result,) = check_task(
        load_task("math.arithmetic?size=100&min_difficulty=1&max_difficulty=1"), checks=["split"]
    ).results
    assert result.status == "passed" and result.text.startswith("100 train, ") and "100 test" not in result.text


LATE = """
from grpo_core import Row, Task

EVERY = [Row(id=f"p{n}", gold=str(n)) for n in range(3000)]

def load(config):
    return {"train": EVERY[:1900], "validation": [], "test": EVERY[1900:2500] + EVERY[1800:1850]}[config.split]

late = Task("late", load, lambda row: row.id, lambda text: text, (lambda text, row: float(text == row.gold),), row=Row)
"""


def test_a_problem_that_splits_share_is_found_behind_many_rows(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    gold, split = check_task(load_task(f"{tmp_path}/late.py:late"), rows=1, checks=["gold", "split"]).results
    assert gold.status == "passed" and " of 1900 golds earn 1" in gold.text
    assert (split.status, split.text) == ("failed", "train and test have a problem in common")
    assert split.example == "row 'p1800' of train, row 'p1800' of test"

    (tmp_path / "late.py").write_text(LATE.replace("EVERY[:1900]", "EVERY[:1900] + EVERY[:1]"))
    gold, split = check_task(load_task(f"{tmp_path}/late.py:late"), rows=1, checks=["gold", "split"]).results
    assert gold.status == "passed" and " of at least 512 golds earn 1" in gold.text
    assert (split.status, split.text) == ("failed", "train has a row that cannot be used")


DIGITS = """
from grpo_core import Invalid, Row, Task, reward

class Digit(Row):
    n: int

def load(config):
    return [Digit(id=f"{n}", gold=FRAME.format(n % 9 + 1), n=n) for n in range(50, 110)]

def validate(text):
    digit = text.strip().removeprefix("<answer>").removesuffix("</answer>")
    if digit not in "123456789" or len(digit) != 1:
        raise Invalid("no digit from 1 to 9")
    return int(digit)

@reward()
def exact(answer, row):
    return float(answer == row.n % 9 + 1)

def again(text, row, turn):
    if turn == 3 and FAILS:
        raise ValueError(turn)
    return f"No. That was try {turn} of 9."

digit = Task(
    "digit", load, lambda row: f"{row.n} modulo nine, plus one" + ASKED, validate, (exact,), row=Digit, respond=again,
    max_turns=9,
)
"""


@pytest.mark.parametrize("frame", ["{}", "<answer>{}</answer>"])
def test_a_digit_that_prompts_and_messages_have_by_chance_is_no_leak(tmp_path: Path, frame: str) -> None:
    # Bare golds in a prompt count, whatever else is in it: its author declares that.
    asked = "" if frame == "{}" else ", which is one of 1, 2, 3, 4, 5, 6, 7, 8, 9"
    (tmp_path / "digits.py").write_text(DIGITS + f"FRAME, ASKED, FAILS = {frame!r}, {asked!r}, False\n")
    report = check_task(load_task(f"{tmp_path}/digits.py:digit"), checks=["leak", "feedback"])
    assert [result.status for result in report.results] == ["passed", "passed"], report.failures


def test_respond_may_not_fail_in_a_later_turn(tmp_path: Path) -> None:
    (tmp_path / "digits.py").write_text(DIGITS + "FRAME, ASKED, FAILS = '{}', '', True\n")
    report = check_task(load_task(f"{tmp_path}/digits.py:digit"), rows=2, checks=["hostile", "feedback"])
    assert [result.text.split(" on ")[0] for result in report.results] == ["respond() fails"] * 2
    assert all(" in turn 3 (reward)" in result.text for result in report.results)


TWINS = """
from grpo_core import Row, Task, reward

def load(config):
    ids = {"train": ["a", "b"], "validation": ["c", "c"], "test": ["d"]}[config.split]
    return [Row(id=each, gold=each) for each in ids]

@reward()
def right(answer, row):
    return 1.0

twins = Task("twins", load, lambda row: f"Say {row.id}", lambda text, row: text, (right,), row=Row)
"""


def test_a_split_whose_rows_cannot_be_used_fails(tmp_path: Path) -> None:
    (tmp_path / "twins.py").write_text(TWINS)
    (result,) = check_task(load_task(f"{tmp_path}/twins.py:twins"), checks=["split"]).results
    assert (result.status, result.text) == ("failed", "validation has a row that cannot be used")
    assert "two rows have the id 'c'" in result.example


def test_an_exempt_check_is_not_run_and_says_why(sums: Path) -> None:
    report = check_task(load_task(f"{sums}:add"), checks=["split"])
    (result,) = report.results
    assert (result.status, result.text) == ("exempt", "three splits of one list are tried elsewhere")


def test_targets(sums: Path) -> None:
    assert [task.name for task in tasks_of(str(sums))] == ["sums.add", "sums.lenient"]
    assert [task.name for task in tasks_of("math.echo,math.pattern")] == ["math.echo", "math.pattern"]
    assert "games.nim" in [task.name for task in tasks_of("games")]
    assert {"math.echo", "core.qa"} <= {task.name for task in tasks_of("all")}
    with pytest.raises(UserError, match=r"no plugin 'mahts'\. Did you mean 'math'\?"):
        tasks_of("mahts")


def test_a_task_whose_prompt_raises_fails_the_checks_that_need_it(sums: Path) -> None:
    from grpo_core.testing.subject import Subject

    sums.write_text(SUMS.replace("return f", "raise KeyError('a'); return f"))
    with Subject(load_task(f"{sums}:add")) as subject:
        result = run_check(subject, "rows")
    assert result.status == "failed" and "KeyError (sums.py:" in result.example


def test_a_task_that_hangs_is_checked_in_seconds(sums: Path) -> None:
    hanging = SUMS.replace("def validate(text, row):", "def validate(text, row):\n    while True: pass")
    sums.write_text(hanging.replace("(exact,), exempt", "(exact,), timeout_s=0.2, exempt"))
    report = check_task(load_task(f"{sums}:add"), checks=set(CHECKS) - {"rows"})
    found = {result.check: result for result in report.results}
    assert {name for name, result in found.items() if result.status == "failed"} == {
        "gold", "junk", "ladder", "hostile", "latency", "determinism", "imports",
    }  # fmt: skip
    assert "no answer within 0.2 s" in found["gold"].example
    assert "not tried: 8 completions before it" in found["junk"].example


def test_a_reason_of_the_author_is_no_time_out(sums: Path) -> None:
    sums.write_text(SUMS.replace("no whole number", "no answer within <answer> tags"))
    checks = {"junk", "hostile", "latency"}
    report = check_task(load_task(f"{sums}:add"), rows=2, checks=checks)
    assert {result.check for result in report.results if result.status == "passed"} == checks


def test_the_command_exits_by_what_it_found(sums: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{sums}:add", "--rows", "2"]) == 0
    held = capsys.readouterr().out
    assert "sums.add   2 rows, seed 0" in held and "exempt" in held and "golds earn 1 and are solved" in held

    assert main(["check", f"{sums}:lenient", "-k", "gold,junk"]) == 1
    broken = capsys.readouterr().out
    assert "junk: empty earns 1 and is solved" in broken and "what to do   Raise Invalid" in broken

    assert main(["check", f"{sums}:ad"]) == 2
    assert main(["check", f"{sums}:add", "-k", "jnuk"]) == 2


def test_perfect_play_says_how_much_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> str:
        (result,) = check_task(load_task("games.tictactoe"), rows=1, checks=["perfect"]).results
        assert result.status == "passed"
        return result.text

    assert found() == "1 start, 929 positions: every reply in each seat"
    # The first seat has 153 positions, the second one more than are left to it.
    monkeypatch.setattr("grpo_core.testing.checks.games.POSITIONS", 1000)
    assert found() == "1 start, 653 positions: every reply in 1 of 2 seats, in the others a part"


def test_perfect_play_is_proved_for_each_start_once() -> None:
    (result,) = check_task(load_task("games.tictactoe?openings=2"), rows=8, checks=["perfect"]).results
    assert result.status == "passed" and ": every reply in each seat" in result.text
    assert 2 <= int(result.text.split(" ", 1)[0]) < 8, "episodes share starts"


UNHASHABLE = """
from grpo_core import Game, Invalid


def outcome(state):
    heap, loser = state  # who cannot move has lost
    return None if heap else {role: -1.0 if role == loser else 1.0 for role in ("first", "second")}


LISTS = Game(
    "lists", ("first", "second"),
    initial=lambda seed: [5, "first"],
    to_move=lambda state: state[1],
    observe=lambda state, role: f"{role} sees {state[0]}:",
    parse=lambda text, state: int(text),
    apply=lambda state, action: [state[0] - action, "second" if state[1] == "first" else "first"],
    legal=lambda state: [taken for taken in (1, 2, 3) if taken <= state[0]],
    outcome=outcome,
    render=lambda state: str(state),
    write=lambda action: str(action),
    best=lambda state: state[0] % 4 or 1,
    max_turns=20,
)
"""


def test_positions_without_a_hash_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "heap.py"
    file.write_text(UNHASHABLE)
    (result,) = check_task(load_task(f"{file}:LISTS"), rows=2, checks=["perfect"]).results
    # First seat: heaps 5, 4, then 3, 2, 1, then 0. Second: 5; 4, 3, 2; 3 or 0; of the 3: 2, 1, 0; 0.
    assert result.text == "1 start, 16 positions: every reply in each seat"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", r"one\.py: SyntaxError: invalid syntax \(one\.py:1\)"),
        ("import beside\n", r"No module named 'beside' \(one\.py:1\)\. beside is beside the file, .*PYTHONPATH="),
        ("raise ValueError('two\\nlines')\n", r"ValueError: two lines \(one\.py:1\)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_an_error_of_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "one.py").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        tasks_of(str(tmp_path / "one.py"))
    assert "\n" not in str(caught.value)
