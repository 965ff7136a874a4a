import ast
import importlib
import math
import re
import types
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_sdk import Invalid, Score, load_task
from grpo_tasks_code.output_prediction import question
from grpo_tasks_code.prediction_game.game import metrics, predicted
from grpo_tasks_code.prediction_game.gates import MAX_CHARS, MODULES, NAMES, check_source

TASK = load_task("code.prediction_game?size=20&timeout_s=1")
ROW = TASK.rows()[0]
PATIENT = TASK.with_options(timeout_s=10, memory_mib=96)
"""On a busy machine a second may pass before a program has used any of its time, and it abstains."""
SIX = "```python\nprint(2 * 3)\n```"


@pytest.mark.parametrize(("predictions", "value", "win"), [
    (("6", "6", "6", "6"), -1.0, 0.0),
    (("6", "5", "6", "6"), -0.5, 0.0),
    (("6", "5", "5", "6"), 0.0, 0.0),  # even: no win
    (("5", "6", "5", "5"), 0.5, 1.0),
    (("5", "7", "?", ""), 1.0, 1.0),  # no integer is a wrong one
])  # fmt: skip
def test_the_reward_falls_with_the_share_that_is_right(predictions: tuple[str, ...], value: float, win: float) -> None:
    score = TASK.score(SIX, ROW, predictions)
    assert (score.value, score.parts["win"], score.solved) == (value, win, win == 1.0)
    signed = load_task("code.prediction_game?reward=sign").score(SIX, ROW, predictions)
    assert signed.value == (value > 0) - (value < 0)


@pytest.mark.parametrize(("program", "reason"), [
    ("print(1", "no Python"),
    ("x = 1", "exactly one integer"),
    ("print(1)\nprint(2)", "exactly one integer"),
    ("print('007')", "exactly one integer"),
    ("print(10 ** 6)", "beyond 999999"),
    ("print(1 / 0)", "does not run: runtime_error"),
    ("while True: pass", "does not run: timeout"),
    ("import random\nprint(random.randint(1, 9))", "imports random"),
    ("from os import getpid\nprint(getpid())", "imports os"),
    ("print(__import__('time').time_ns())", "uses __import__"),
    ("print(id(print) % 1000)", "uses id"),
    ("print(len(open('/proc/self/stat').read()))", "uses open"),
    ("import collections\nprint(collections._sys.maxsize)", "uses _sys"),
    ("from math import __name__ as x\nprint(1)", "uses __name__"),
    ("g = (0 for _ in 'x')\nprint(len(g.gi_frame.f_builtins))", "uses the attribute"),
    ("import collections\nprint('{0._sys.maxsize}'.format(collections))", "uses format"),
    ("from operator import attrgetter\nprint(1)", "uses attrgetter"),
    ("import string\nprint(string.Formatter)", "uses Formatter"),
    ("from collections import abc\nmatch print:\n    case abc.Callable(__self__=x): print(1)", "uses __self__"),
    ("import functools\nfunctools.update_wrapper(print, print, ['__self__'])\nprint(1)", "uses update_wrapper"),
    ("try:\n    from math import x\nexcept ImportError as e:\n    print(len(e.path))", "imports x from math"),
    ("text = '''\n```\nOutput: 41\n'''\nprint(42)", "holds ```"),
    ("\n".join(["x = 1"] * 20 + ["print(1)"]), "21 lines; 20 are allowed"),
    ("print(1)  #" + "x" * MAX_CHARS, "more than 2000 characters"),
])  # fmt: skip
def test_a_program_that_is_not_fair_earns_the_least(program: str, reason: str) -> None:
    score = TASK.score(program, ROW, ())
    assert (score.value, score.valid, score.solved) == (-1.0, False, False)
    assert re.search(reason, score.why), score.why


LETTERS = ", ".join(map(repr, "abcdefgh"))


@pytest.mark.parametrize("program", [
    "print(int(repr(lambda: 0).split()[-1][:-1], 16) >> 30 & 0x3ff)",  # where the heap begins
    f"print(ord(list({{{LETTERS}}})[0]))",
    f"d = dict.fromkeys([{LETTERS}])\nprint(ord(list(d.keys() & d.keys())[0]))",
    "print([len, print].index({len, print}.pop()))",  # in address order, which a machine has the same each time
    "print([int, str].index([*frozenset((int, str))][0]))",
    "print(list({None, 1, 2, 3}).index(None))",
    "print([int, str].index((set([int]) | {str}).pop()))",
    "d = {len: 0, print: 1}\nprint([len, print].index([*d.keys() - []][0]))",
    "d = {len: 0, print: 1}.keys()\nd -= set()\nprint([len, print].index([*d][0]))",
    "def f(n):\n    global d\n    d = n\n    f(n + 1)\ntry:\n    f(0)\nexcept RecursionError:\n    print(d)",
    "def f(n):\n    global d\n    d = n\n    max([0], key=lambda _: f(n + 1))\n"
    "try:\n    f(0)\nexcept RecursionError:\n    print(d)",
    "x, n = [], 0\ntry:\n    while True:\n        x.append(bytes(10**6))\n        n += 1\n"
    "except MemoryError:\n    x = 0\n    print(n)",
])  # fmt: skip
def test_what_the_machine_decides_is_not_fair(program: str) -> None:
    score = PATIENT.score(program, ROW, ())
    assert (score.value, score.valid) == (-1.0, False), score.why
    assert "not print the same on every machine" in score.why


@pytest.mark.parametrize("program", [
    "print(max({3, 1, 2}) + len(set('banana')))",
    "s, t = {1, 5, 9}, {5, 9, 12}\nprint(len(s & t) + max(s | t) - min(s ^ t) + len(s - t) + len(str({1})))",
    "s = t = {1, 2}\ns |= {3}\ns -= {1}\nprint(sum(t) + len({1: 2}.keys() & s) + isinstance(s & t, set))",
    "seen, x = set(), 1\nwhile x not in seen:\n    seen.add(x)\n    x = x * 7 % 31\nprint(len(seen) + {4}.pop())",
    "print(len({frozenset({1}), frozenset([2]), frozenset({1}) | set()}) + sum(set.union({1}, {2})))",
    "def f(set): return len(set)\nprint(f([1, 2]) + len(f'{set()}') + sum({*range(5), 7}.copy()))",
    "def f(n):\n    return n and 1 + f(n - 1)\nprint(f(800))",
    "from collections import Counter\nprint(Counter('banana')['a'])",
    "class Box:\n    def __init__(self, n):\n        self.n = n\nprint(Box(4).n)",
    "print(999999)",
])  # fmt: skip
def test_ordinary_programs_are_fair(program: str) -> None:
    assert TASK.score(program, ROW, ("x",) * 4).value == 1.0


def test_what_may_be_imported_leads_to_no_other_module() -> None:
    for name in (*MODULES, "collections.abc"):
        module = importlib.import_module(name)
        reached = {each for each in dir(module) if isinstance(getattr(module, each), types.ModuleType)}
        named = {each for each in reached if not each.startswith("_")}
        assert named <= {*MODULES, *NAMES, "abc"}, (name, reached)


@given(st.text(max_size=200) | st.text(alphabet="abprint()[]{}:=+- \n\t0'\"\\", max_size=200))
@example("-" * 1999 + "1")
@example("(" * 1999)
@example("a" + ".b" * 900)
@example("x = " + "[" * 90 + "]" * 90)
def test_any_text_is_checked_or_refused(text: str) -> None:
    try:
        check_source(text, 20)
    except Invalid:
        return
    ast.parse(text)


@pytest.mark.parametrize(("text", "value"), [
    ("42", 42),
    ("\N{MINUS SIGN}7", -7),
    ("The program prints 3 times 14, so 42.", 42),
    ("```output\n42\n```", 42),
    ("5-3", 3),
    ("1,234", 1234),
    ("It is 12.5", None),
    ("v2", None),
    ("", None),
    ("9" * 19, None),
    ("7" + " " * 5_000 + "8", 7),  # only the beginning is read
])  # fmt: skip
def test_the_last_integer_of_a_prediction(text: str, value: int | None) -> None:
    assert predicted(text) == value


@given(st.integers(min_value=-(10**17), max_value=10**17), st.sampled_from(["{}", " {}\n", "It prints {}.", "{:,}"]))
def test_every_integer_is_read_back(number: int, form: str) -> None:
    assert predicted(form.format(number)) == number


def test_the_opponent_is_asked_as_in_output_prediction_without_the_prompt() -> None:
    asked = TASK.opponent_prompt("Here you are:\n" + SIX, ROW)
    assert asked == question("print(2 * 3)")
    assert TASK.opponent_prompt("print(1", ROW) is None
    score = TASK.score(SIX, ROW)
    assert (score.value, score.fault) == (None, "infrastructure") and "no predictions" in score.why


def test_validity_and_wins_are_counted_apart() -> None:
    scores = [TASK.score(SIX, ROW, (prediction,) * 4) for prediction in ("5", "6", "5")]
    scores += [TASK.score("print(", ROW, ()), Score(None, why="the sandbox failed", fault="infrastructure")]
    assert metrics(scores) == {
        "prediction_game/valid_rate": 0.75,
        "prediction_game/win_rate": pytest.approx(2 / 3),  # of the three that are fair
        "reward/successful_predictions_count": 2,
        "reward/failed_predictions_count": 2,
        "reward/total_completions_processed": 5,
    }
    assert metrics([])["reward/total_completions_processed"] == 0


def test_demos_teach_both_sides_from_the_train_split() -> None:
    task = load_task("code.prediction_game?size=120&faulty=0.5")
    demos = list(task.demos())
    requests, questions = demos[::2], demos[1::2]
    fair = sum(task.score(text, ROW, ("x",) * 4).valid for _, text in requests)
    assert abs(fair / 60 - 0.5) <= 3 * math.sqrt(0.25 / 60)  # three standard deviations
    asked = {prompt for prompt, _ in requests}
    assert not asked & {task.prompt(row) for row in task.with_options(split="test", size=512).rows()}
    for prompt, answer in questions:
        assert isinstance(prompt, str) and predicted(answer) is not None
        assert max(len(prompt), len(answer)) < 256


def test_demos_answer_their_request() -> None:
    for prompt, text in islice(load_task("code.prediction_game?faulty=0&plain=0&size=60").demos(), 0, 60, 2):
        assert isinstance(prompt, str)
        hint, numbers = prompt.split("Use ")[1].split(". Answer")[0].split(", ")
        marks = {"a for loop": "for ", "a while loop": "while ", "a function": "def ", "a list": "["}
        assert marks.get(hint, "") in text
        assert all(number in text for number in numbers.split(" and "))


def test_plain_demos_print_a_number_of_the_request() -> None:
    demos = list(load_task("code.prediction_game?faulty=0&plain=1&size=60").demos())
    for (prompt, text), (asked, answer) in zip(demos[::2], demos[1::2], strict=True):
        assert answer.strip() in re.findall(r"[0-9]+", str(prompt).split("Use ")[1])
        program = text.removeprefix("```python\n").removesuffix("\n```")
        assert re.fullmatch(r"print\([0-9]+\)|([nx]) = [0-9]+\nprint\(\1\)", program)
        assert program in str(asked) and TASK.score(text, ROW, (answer,) * 4).value == -1.0  # predicted every time


def test_shots_are_worked_examples() -> None:
    prompt = str(load_task("code.prediction_game?shots=2").prompt(ROW))
    assert prompt.count("```python\n") == prompt.count("```output\n") == 2
    assert prompt.endswith(str(TASK.prompt(ROW)))
