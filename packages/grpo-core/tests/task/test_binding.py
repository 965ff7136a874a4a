from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from grpo_core import (
    Invalid,
    Message,
    Opponent,
    Row,
    Score,
    Task,
    TaskConfig,
    UserError,
    graduated,
    load_task,
    reward,
    weighted_sum,
)
from grpo_core.errors import DataError, InfrastructureError
from grpo_core.task.bound import BoundTask, bind_config
from grpo_core.task.row import as_prompt
from grpo_core.task.score import MAX_WHY_CHARS
from grpo_core.task.spec import TaskSpec


class Sum(Row):
    a: int
    b: int


class Options(TaskConfig):
    tone: str = "plain"
    strict: bool = False


ROWS = [Sum(id=f"{a}+{b}", gold=str(a + b), a=a, b=b) for a, b in [(1, 2), (3, 4), (5, 5)]]
FIRST = ROWS[0]


def load(config) -> Iterable[Sum]:
    return ROWS


def prompt(row):
    return f"{row.a} + {row.b} ="


def validate(text, row):
    if not text.strip().isdigit():
        raise Invalid(f"no number in {text!r}")
    return int(text)


@reward(0.25)
def near(answer, row):
    return max(0.0, 1.0 - abs(answer - row.a - row.b) / 10)


@reward(0.75)
def exact(answer, row):
    return float(answer == row.a + row.b)


@reward(1.0, maximum=0.0)
def brevity(text):
    return -0.1 if len(text) > 8 else 0.0


@reward(-0.5)
def wordy(text):
    return float(len(text) > 8)


def bound(options: dict[str, str] | None = None, task: Task | None = None, **changes: Any) -> BoundTask:
    if task is not None:
        return BoundTask(task, "demo.add", task.config(**(options or {})), TaskSpec("demo.add", 1.0, options or {}))
    parts = {"name": "add", "load": load, "prompt": prompt, "validate": validate, "rewards": (near, exact), **changes}
    task = Task(**parts)
    return BoundTask(task, "demo.add", task.config(**(options or {})), TaskSpec("demo.add", 1.0, options or {}))


def score_with(function: Callable[..., float], text: str = "3", **changes: Any) -> Score:
    return bound(rewards=(function,), **changes).score(text, FIRST)


# Scores


def test_gold_earns_the_maximum_and_is_solved() -> None:
    assert bound().score("3", FIRST) == Score(1.0, {"near": 1.0, "exact": 1.0}, valid=True, solved=True)


def test_parts_are_raw_and_the_value_is_their_weighted_sum() -> None:
    # near: 1 − 2/10 = 0.8; value: 0.25 · 0.8 = 0.2
    score = bound().score("5", FIRST)

    assert score == Score(pytest.approx(0.2), {"near": 0.8, "exact": 0.0}, True, False, "near 0.8 of 1, exact 0 of 1")


@reward(0.0)
def distance(answer, row):
    return abs(answer - row.a - row.b)


@reward(0.0)
def is_short(text):
    return float(len(text) < 3)


@reward(1.0, needs="is_short")
def short_and_exact(answer, row):
    return exact(answer, row)


def test_a_fact_of_weight_0_is_recorded_and_decides_nothing() -> None:
    # A distance of 0 is far from its maximum 1 and that of 40 far above it: neither is asked.
    right = bound(rewards=(exact, distance)).score("3", FIRST)
    assert right == Score(0.75, {"exact": 1.0, "distance": 0.0}, True, True)
    wrong = bound(rewards=(exact, distance)).score("43", FIRST)
    assert wrong == Score(0.0, {"exact": 0.0, "distance": 40.0}, True, False, "exact 0 of 1")
    invalid = bound(rewards=(exact, distance), compose=graduated()).score("?", FIRST)
    assert (invalid.value, invalid.parts) == (-0.3, {"exact": 0.0, "distance": 0.0})


def test_a_fact_may_be_needed() -> None:
    task = bound(rewards=(is_short, short_and_exact))
    assert [task.score(text, FIRST).value for text in ("3", "  3")] == [1.0, 0.0]


def test_an_invalid_completion_earns_what_does_not_take_the_answer() -> None:
    score = bound(rewards=(exact, brevity)).score("three, I am sure", FIRST)

    assert score.value == -0.1 and not score.valid and not score.solved
    assert score.parts == {"exact": 0.0, "brevity": -0.1}
    assert score.why == "invalid: no number in 'three, I am sure'"


def test_the_composers_invalid_value_counts() -> None:
    assert bound(compose=graduated(invalid=-0.3)).score("?", FIRST).value == -0.3


def test_penalties_do_not_decide_whether_it_is_solved() -> None:
    score = bound(rewards=(exact, brevity)).score("3         ", FIRST)

    assert score.value == pytest.approx(0.75 - 0.1) and score.solved
    assert score.why == "brevity -0.1 of 0"


@pytest.mark.parametrize(("text", "why"), [("3", ""), ("3         ", "wordy 1, a penalty")])
def test_a_penalty_is_told_where_it_is_paid(text: str, why: str) -> None:
    score = bound(rewards=(exact, wordy)).score(text, FIRST)

    assert score.why == why and score.value == pytest.approx(0.75 - 0.5 * bool(why))


def test_without_a_part_that_earns_nothing_is_solved() -> None:
    assert not bound(rewards=(brevity,)).score("3", FIRST).solved


def test_a_tasks_own_rule_decides_what_is_solved() -> None:
    task = bound(solved=lambda answer, row, parts: parts["near"] > 0.5)

    assert task.score("5", FIRST).solved
    assert not task.score("99", FIRST).solved
    assert not task.score("?", FIRST).solved


def test_a_gate_opens_when_what_it_needs_is_at_its_maximum() -> None:
    asked = []

    @reward(needs="near")
    def style(text):
        asked.append(text)
        return 0.5

    task = bound(rewards=(near, style))

    assert task.score("4", FIRST).parts == {"near": 0.9, "style": 0.0}
    assert task.score("3", FIRST).parts == {"near": 1.0, "style": 0.5}
    assert asked == ["3"]


@given(st.text(max_size=20))
def test_no_text_makes_scoring_raise(text: str) -> None:
    score = bound(rewards=(near, exact, brevity)).score(text, FIRST)

    assert score.abstained or math.isfinite(score.value)
    assert len(score.why) <= MAX_WHY_CHARS and "\n" not in score.why


def test_lone_surrogates_can_be_scored() -> None:
    assert bound().score("\ud800", FIRST).why == "invalid: no number in '\\ud800'"


# Abstentions


def crash(answer):
    return [][1]


def no_message(answer):
    raise AssertionError


def give_up(answer):
    sys.exit(3)


def run_out_of_time(answer):
    raise TimeoutError("the symbolic check")


def lose_the_worker(answer):
    raise InfrastructureError("no worker")


async def later(answer: str) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "fault", "why"),
    [
        (crash, "reward", "reward crash() raised IndexError (test_binding.py:"),
        (give_up, "reward", "reward give_up() raised SystemExit"),
        (run_out_of_time, "timeout", "reward run_out_of_time() ran out of time: the symbolic check"),
        (lose_the_worker, "infrastructure", "reward lose_the_worker(): no worker"),
        (lambda answer: math.nan, "reward", "returned nan; a reward is a finite number"),
        (lambda answer: math.inf, "reward", "returned inf"),
        (lambda answer: -1e308, "reward", "returned -1e+308; a reward is between -1e+30 and 1e+30"),
        (lambda answer: None, "reward", "the task's reward <lambda>() returned None; a reward is a number"),
        (lambda answer: "1", "reward", "the task's reward <lambda>() returned the text '1'; a reward is a number"),
        (lambda answer: b"1", "reward", "returned the text b'1'; a reward is a number"),
        (lambda answer: [1.0], "reward", "returned a list; a reward is a number"),
        (later, "reward", "the task's reward later() returned a coroutine"),
        (lambda answer: 2.0, "reward", "returned 2.0, above its maximum 1.0; state it: @reward(…, maximum=2)"),
        (
            lambda answer: 10**400,
            "reward",
            "returned a number beyond the range of a float; a reward is a finite number",
        ),
        (no_message, "reward", "reward no_message() raised AssertionError (test_binding.py:"),
    ],
)
def test_a_reward_that_fails_abstains_and_is_named(function: Callable[..., float], fault: str, why: str) -> None:
    score = score_with(function)

    assert (score.value, score.parts, score.valid, score.solved, score.fault) == (None, {}, False, False, fault)
    assert why in score.why and len(score.why) <= MAX_WHY_CHARS and not score.why.endswith(":")


@pytest.mark.parametrize(
    ("function", "value", "fault"),
    [(run_out_of_time, -0.5, ""), (crash, None, "reward"), (lose_the_worker, None, "infrastructure")],
)
def test_a_task_can_say_that_a_time_out_is_wrong(
    function: Callable[..., float], value: float | None, fault: str
) -> None:
    limited = bound(rewards=(function, brevity), compose=weighted_sum(invalid=-0.5), on_timeout="fail")
    score = limited.score("3", FIRST)

    assert (score.value, score.valid, score.solved, score.fault) == (value, False, False, fault)
    if value is not None:
        assert score.parts == {"run_out_of_time": 0.0, "brevity": 0.0}  # what an empty text earns
        assert score.why == "reward run_out_of_time() ran out of time: the symbolic check"


@pytest.mark.parametrize(("maximum", "raw"), [(1.0, 0.1 + 0.2 + 0.7 + 1e-12), (1e6, 1e6 + 0.5)])
def test_above_the_maximum_by_a_rounding_is_no_mistake(maximum: float, raw: float) -> None:
    assert score_with(reward(maximum=maximum)(lambda answer: raw)).solved


def test_a_validator_that_crashes_abstains_where_one_that_refuses_does_not() -> None:
    def broken(text, row):
        return text.nothing

    assert bound(validate=broken).score("3", FIRST).fault == "reward"
    assert bound(validate=broken).score("3", FIRST).why.startswith("validate() raised AttributeError")


def test_a_crash_in_solved_or_compose_abstains() -> None:
    assert (
        bound(solved=lambda answer, row: 1 / 0).score("3", FIRST).why.startswith("compose/solved raised ZeroDivision")
    )
    assert bound(compose=lambda specs, parts, valid: math.nan).score("3", FIRST).fault == "reward"


def test_ctrl_c_is_nobodys_fault() -> None:
    def interrupted(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_with(interrupted)


def test_a_long_reason_is_one_bounded_line() -> None:
    def refuse(text, row):
        raise Invalid("a\n\tb " * 10_000)

    why = bound(validate=refuse).score("3", FIRST).why

    assert why.startswith("invalid: a b a b") and len(why) <= MAX_WHY_CHARS


# Opponents


def guessed(answer, predictions):
    return sum(int(prediction) == answer for prediction in predictions) / 2


OPPONENT = Opponent(prompt=lambda answer, row: f"{row.id}? I say {answer}.")


def test_rewards_receive_the_opponents_predictions() -> None:
    task = bound(rewards=(guessed,), opponent=OPPONENT)

    assert task.score("3", FIRST, predictions=["3", "4"]).value == 0.5


def test_the_opponent_is_asked_about_valid_answers_only() -> None:
    task = bound(rewards=(guessed,), opponent=OPPONENT)

    assert task.opponent_prompt("3", FIRST) == "1+2? I say 3."
    assert task.opponent_prompt("?", FIRST) is None


def test_a_crash_before_the_opponent_is_left_to_the_score() -> None:
    def leave(text, row):
        sys.exit()

    assert bound(validate=leave, rewards=(guessed,), opponent=OPPONENT).opponent_prompt("3", FIRST) is None


# Rows, prompts, demos


def test_rows_are_loaded_once_and_given_as_a_new_list() -> None:
    loads = []

    def counting(config) -> Iterable[Sum]:
        loads.append(config)
        yield from ROWS

    task = bound(load=counting)
    task.rows().clear()

    assert task.rows() == ROWS and len(loads) == 1


def test_a_row_travels_as_json() -> None:
    assert bound().row_from_json(FIRST.model_dump_json()) == FIRST
    with pytest.raises(DataError, match=r"a row does not fit Sum: a: .*\(given 'x'\)"):
        bound().row_from_json('{"id": "1", "a": "x", "b": 2}')


def test_prompts_are_text_or_messages() -> None:
    message = {"role": "user", "content": "hi"}

    assert bound().prompt(FIRST) == "1 + 2 ="
    assert bound(prompt=lambda row: [message]).prompt(FIRST) == (message,)


def test_callables_may_ask_for_config() -> None:
    task = bound({"tone": "stern"}, config=Options, prompt=lambda row, config: f"{config.tone}: {row.id}")

    assert task.prompt(FIRST) == "stern: 1+2"


@pytest.mark.parametrize("made", [None, 3, [], ["text"], [{"role": "user"}], [{"role": "user", "content": 3}]])
def test_what_is_no_prompt_is_refused(made: Any) -> None:
    with pytest.raises(UserError, match="must give text or a list of messages with role and content"):
        as_prompt(made, "prompt()")


@pytest.mark.parametrize("made", ["\ud800 = ", [{"role": "user", "content": "a\udfff"}]])
def test_a_prompt_with_half_of_a_surrogate_pair_has_no_identity(made: Any) -> None:
    with pytest.raises(
        UserError, match=r"prompt\(\) of row '[^']+' gives '\\ud[8f][0f][0f]', half of a surrogate pair"
    ):
        _ = bound(prompt=lambda row: made).identity


def test_demos_are_the_golds_or_the_tasks_own() -> None:
    assert next(bound().demos()) == ("1 + 2 =", "3")
    assert list(bound(demos=lambda config: [("a", "b")]).demos()) == [("a", "b")]


def test_demos_without_gold_say_what_is_missing() -> None:
    with pytest.raises(DataError, match="row 'x' has no gold, and the task gives no demos="):
        list(bound(load=lambda config: [Sum(id="x", a=1, b=2)], row=Sum).demos())


# Options

PLUGIN = """
from collections.abc import Iterable
from grpo_core import Row, Task, TaskConfig, reward

class Options(TaskConfig):
    tone: str = "plain"
    strict: bool = False

def load(config) -> Iterable[Row]:
    return [Row(id=f"r{number}", gold="yes") for number in range(5)]

def prompt(row, config):
    return f"({config.tone}) {row.id}?"

def validate(text, row):
    return text.strip()

@reward()
def agrees(answer, row):
    return float(answer in {"yes", "sure", "indeed"})

couplet = Task("couplet", load, prompt, validate, (agrees,), config=Options)
not_a_task = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rhyme.py"
    path.write_text(PLUGIN)
    return path


def test_a_file_is_a_task(file: Path) -> None:
    task = load_task(f"{file}:couplet?size=2&tone=stern&strict=yes")

    assert task.name == "rhyme.couplet"
    assert task.config.strict is True
    assert task.prompt(task.rows()[1]) == "(stern) r1?"


def test_the_spec_of_a_task_makes_it_again(file: Path) -> None:
    task = load_task(f"{file}:couplet?size=2&tone=a%26b")
    again = load_task(task.spec)

    assert (again.spec, again.config, again.identity) == (task.spec, task.config, task.identity)


def test_options_can_be_changed_afterwards(file: Path) -> None:
    task = load_task(f"{file}:couplet?size=2")

    assert len(task.with_options(size=None).rows()) == 5
    assert task.with_options(split="test").spec == f"{file}:couplet?size=2&split=test"
    assert len(task.rows()) == 2


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sise=3", "task 'rhyme.couplet' has no option 'sise'. Did you mean 'size'? Options: path, seed, size, split,"),
        ("size=three", "task 'rhyme.couplet': size: Input should be a valid integer"),
        ("size=3:2", "(given '3:2'). A weight stands before the options: rhyme.couplet:2?…"),
        ("size=0", "size: Input should be greater than or equal to 1 (given '0')"),
        ("split=dev", "split: Input should be 'train', 'validation' or 'test' (given 'dev')"),
        ("strict=perhaps", "strict: Input should be a valid boolean"),
        (f"seed={'9' * 5000}", "seed: "),
    ],
)
def test_an_option_that_does_not_fit_is_named(file: Path, query: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_task(f"{file}:couplet?{query}")

    assert message in str(caught.value) and len(str(caught.value)) < 300


def test_a_list_that_no_text_can_set_says_how_it_is_declared() -> None:
    class Options(TaskConfig):
        tags: tuple[str, ...] = ()

    with pytest.raises(UserError, match=r"declares the option as grpo_core\.data\.CommaSeparated\[…\]"):
        bind_config(bound(config=Options).task, "t.t", TaskSpec("t.t", options={"tags": "food,toys"}))


class Levels(TaskConfig):
    level: Literal[1, 2] = 1
    mixed: Literal[1, "1", "a"] | None = None
    maybe: Annotated[Literal[1, 2] | None, Field(description="a level")] = None
    fast: Literal[True, "auto"] = "auto"
    either: float | Literal["none"] = 0.5


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("level", "2", 2),
        ("mixed", "1", "1"),
        ("mixed", "a", "a"),
        ("maybe", "2", 2),
        ("fast", "true", True),
        ("fast", "True", True),
        ("fast", "auto", "auto"),
        ("either", "2", 2.0),
        ("either", "none", "none"),
    ],
)
def test_a_literal_that_is_no_text_is_given_as_text(option: str, text: str, value: object) -> None:
    config = bind_config(bound(config=Levels).task, "t.t", TaskSpec("t.t", options={option: text}))
    assert getattr(config, option) == value and type(getattr(config, option)) is type(value)
    assert Levels.model_validate_json(config.model_dump_json()) == config
    assert getattr(Levels(**{option: value}), option) == value


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("level", "3", "level: Input should be 1 or 2 (given '3')"),
        ("level", "1.0", "level: Input should be 1 or 2"),
        ("maybe", "two", "maybe: Input should be 1 or 2"),
        ("mixed", "b", "mixed: Input should be 1, '1' or 'a'"),
        ("fast", "yes", "fast: Input should be True or 'auto'"),
    ],
)
def test_a_literal_that_is_not_given_names_those_that_are(option: str, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        bind_config(bound(config=Levels).task, "t.t", TaskSpec("t.t", options={option: text}))
    assert message in str(caught.value)


def test_messages_are_fields_of_rows() -> None:
    class Chat(Row):
        first: Message
        history: tuple[Message, ...] = ()

    row = Chat(id="a", first={"role": "user", "content": "x"}, history=[{"role": "user", "content": "y"}])
    assert Chat.model_validate_json(row.model_dump_json()) == row
    assert row.first["content"] == "x" and row.history == ({"role": "user", "content": "y"},)
    with pytest.raises(ValidationError, match="role"):
        Chat(id="a", first={"content": "x"})


def test_one_task_is_not_two(file: Path) -> None:
    with pytest.raises(UserError, match="names 2 tasks; one is wanted here"):
        load_task(f"{file}:couplet,math.echo")


def test_a_file_without_that_task_lists_what_it_has(file: Path) -> None:
    message = r"rhyme\.py has no Task or Game 'cuplet'\. Did you mean 'couplet'\? It has: couplet$"
    with pytest.raises(UserError, match=message):
        load_task(f"{file}:cuplet")
    with pytest.raises(UserError, match="has no Task or Game 'not_a_task'"):
        load_task(f"{file}:not_a_task")


def test_a_file_alone_lists_its_tasks(file: Path) -> None:
    with pytest.raises(
        UserError, match=r"is a file: name one of its tasks, as in .*rhyme\.py:couplet\. It has: couplet$"
    ):
        load_task(f"{file}?size=2")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*nothing\.py"):
        load_task(f"{tmp_path}/nothing.py:couplet")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_of_that_name", r"ModuleNotFoundError: .* \(broken\.py:1\)"),
        ("\nraise SystemExit(4)", r"SystemExit: 4 \(broken\.py:2\)"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_imported_says_where(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    for _ in range(2):  # a failed import leaves nothing behind that a second try would take for the module
        with pytest.raises(UserError, match=message):
            load_task(f"{tmp_path}/broken.py:t")


def test_a_file_never_replaces_a_module_of_its_name(tmp_path: Path) -> None:
    import random

    (tmp_path / "random.py").write_text(PLUGIN)
    load_task(f"{tmp_path}/random.py:couplet")

    assert sys.modules["random"] is random


# Identity


def test_identity_is_stable_and_short() -> None:
    assert bound().identity == bound().identity
    assert len(bound().identity) == 16


def tone(text):
    return 1.0


def other_prompt(row):
    return f"{row.a}+{row.b}="


def other_rows(config) -> Iterable[Sum]:
    return ROWS[:2]


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "1"},
        {"rewards": (near,)},
        {"rewards": (exact, near)},
        {"rewards": (near, exact, tone)},
        {"prompt": other_prompt},
        {"load": other_rows},
        {"validate": lambda text, row: text},
        {"solved": lambda answer, row: True},
        {"opponent": Opponent(prompt=prompt)},
        {"compose": graduated()},
        {"compose": graduated(invalid=-1.0)},
        {"options": {"split": "test"}},
        {"options": {"seed": "1"}},
    ],
)
def test_identity_changes_with_whatever_changes_a_score(changed: dict[str, Any]) -> None:
    assert bound(**changed).identity != bound().identity


@pytest.mark.parametrize(
    ("changed", "ingredients"),
    [
        ({"version": "1"}, {"code"}),
        ({"rewards": (near,)}, {"code"}),
        ({"prompt": other_prompt}, {"code", "data"}),  # prompts are data, too
        ({"load": other_rows}, {"data"}),
        ({"options": {"split": "test"}}, {"config"}),
    ],
)
def test_ingredients_say_what_changed_an_identity(changed: dict[str, Any], ingredients: set[str]) -> None:
    before, after = bound().ingredients, bound(**changed).ingredients
    assert {name for name in before if before[name] != after[name]} == ingredients


def test_identity_does_not_depend_on_what_leaves_scores_alone() -> None:
    assert bound(timeout_s=9.0, on_timeout="fail", default_model="tiny").identity == bound().identity


IDENTITY = """
import sys
from collections.abc import Iterable
from grpo_core import Row, Task, TaskConfig, load_task, reward
from grpo_core.task.bound import BoundTask
from grpo_core.task.spec import TaskSpec

print(load_task(sys.argv[1]).identity)

def load(config) -> Iterable[Row]:
    return [Row(id="x")]

# Made with exec, so that there is no source to hash; a set literal and a nested function make unstable constants.
made = {}
exec("def agrees(answer): return float((lambda a: a)(answer) in {'yes', 'sure', 'indeed', 'aye', 'yea'})", made)
exec("def compose(specs, parts, valid): return sum(parts.values())", made)
task = Task("t", load, lambda row: "p", lambda text, row: text, (made["agrees"],), compose=made["compose"])
print(BoundTask(task, "x.t", TaskConfig(), TaskSpec("x.t")).identity)
"""


def test_identity_is_the_same_in_every_process(file: Path) -> None:
    def identities(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", IDENTITY, f"{file}:couplet"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert identities("1") == identities("2")


def test_size_bounds_a_tasks_own_demos(tmp_path: Path) -> None:
    file = tmp_path / "endless.py"
    file.write_text(
        "from itertools import count\n"
        "from grpo_core import Row, Task, reward\n"
        "@reward()\n"
        "def one(answer): return 1.0\n"
        "t = Task('t', lambda config: [Row(id='a')], lambda row: 'x', lambda text, row: text, (one,), row=Row,\n"
        "         demos=lambda config: ((str(n), 'y') for n in count()))\n"
    )
    assert [prompt for prompt, _ in load_task(f"{file}:t?size=2").demos()] == ["0", "1"]


@pytest.mark.parametrize("returned", [Invalid("no number"), Invalid])
def test_a_validator_that_returns_invalid_is_the_tasks_bug(returned: object) -> None:
    score = bound(validate=lambda text, row: returned).score("3", FIRST)
    assert (score.value, score.fault) == (None, "reward")
    assert score.why.startswith("the task's validate() returned Invalid; ") and "raise Invalid(reason)" in score.why


def test_numbers_of_other_libraries_are_numbers() -> None:
    for one in (True, 1, np.float32(1), np.array(1.0), Fraction(1), Decimal(1)):
        assert score_with(lambda answer, one=one: one).value == 1.0


def test_solved_and_compose_are_held_to_their_types() -> None:
    assert "returned the text 'no'" in bound(solved=lambda answer, row: "no").score("3", FIRST).why
    assert "returned the text '1'" in bound(compose=lambda specs, parts, valid: "1").score("3", FIRST).why


# Tasks that depend on their options


class Several(TaskConfig):
    rewards: str = "near"


def general(specialize: Callable[..., Any]) -> Task:
    return Task("add", load, prompt, validate, (near,), config=Several, specialize=specialize)


def test_a_task_is_specialized_by_its_options() -> None:
    def specialize(config: Several) -> Task:
        chosen = {"near": near, "exact": exact}
        names = config.rewards.split("+")
        return replace(general(specialize), rewards=tuple(chosen[name] for name in names), specialize=None)

    task = bound(task=general(specialize))
    assert [spec.name for spec in task.rewards] == ["near"]
    both = task.with_options(rewards="near+exact")
    assert both.score("3", FIRST).parts == {"near": 1.0, "exact": 1.0}
    assert [spec.name for spec in both.with_options(rewards=None).rewards] == ["near"]
    assert task.identity != both.identity


@pytest.mark.parametrize(
    ("specialize", "message"),
    [
        (lambda config: None, "specialize() must give a Task, not None"),
        (lambda config: replace(ADD, name="other"), "specialize() gave another task: name and config"),
        (lambda config: 1 / 0, "specialize() raised ZeroDivisionError"),
    ],
)
def test_a_specialization_that_is_wrong_is_named(specialize: Callable[..., Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        bound(task=general(specialize))


ADD = Task("add", load, prompt, validate, (near,), config=Several)
