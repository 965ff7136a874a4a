import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from scoring_tasks import Sum, prompt

from grpo_sdk import Invalid, Opponent, Score, Task, TaskConfig, UserError, load_task, reward, tool
from grpo_sdk.errors import DataError, InfrastructureError
from grpo_sdk.rewards import graduated, weighted_sum
from grpo_sdk.task.bound import BoundTask, bind_config
from grpo_sdk.task.row import as_prompt
from grpo_sdk.task.score import MAX_WHY_CHARS
from grpo_sdk.task.spec import TaskSpec
from grpo_sdk.task.tools.calls import Call, ToolTurn, write_tool_turns


class Options(TaskConfig):
    tone: str = "plain"


ROWS = [Sum(id=f"{a}+{b}", gold=str(a + b), a=a, b=b) for a, b in [(1, 2), (3, 4), (5, 5)]]
FIRST = ROWS[0]


def load(config) -> Iterable[Sum]:
    return ROWS


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


@reward(0.0)
def distance(answer, row):
    return abs(answer - row.a - row.b)


def bound(options: dict[str, str] | None = None, **changes: Any) -> BoundTask:
    parts = {"name": "add", "load": load, "prompt": prompt, "validate": validate, "rewards": (near, exact), **changes}
    task = changes.get("task") or Task(**parts)
    return BoundTask(task, "demo.add", task.config(**(options or {})), TaskSpec("demo.add", 1.0, options or {}))


def score_with(function: Callable[..., float], text: str = "3", **changes: Any) -> Score:
    return bound(rewards=(function,), **changes).score(text, FIRST)


# Scores

LONG = "3         "


@pytest.mark.parametrize(
    ("changes", "text", "score"),
    [
        ({}, "3", Score(1.0, {"near": 1.0, "exact": 1.0}, True, True)),
        # near: 1 − 2/10 = 0.8; value: 0.25 · 0.8 = 0.2
        ({}, "5", Score(pytest.approx(0.2), {"near": 0.8, "exact": 0.0}, True, False, "near 0.8 of 1, exact 0 of 1")),
        # A fact of weight 0 decides nothing: 0 is far from its maximum 1, and 40 far above it.
        ({"rewards": (exact, distance)}, "3", Score(0.75, {"exact": 1.0, "distance": 0.0}, True, True)),
        ({"rewards": (exact, distance)}, "43",
         Score(0.0, {"exact": 0.0, "distance": 40.0}, True, False, "exact 0 of 1")),
        # Penalties do not decide whether it is solved, and count for an invalid one.
        ({"rewards": (brevity,)}, "3", Score(0.0, {"brevity": 0.0}, True, False)),
        ({"rewards": (exact, brevity)}, LONG,
         Score(pytest.approx(0.65), {"exact": 1.0, "brevity": -0.1}, True, True, "brevity -0.1 of 0")),
        ({"rewards": (exact, brevity)}, "three, I am",
         Score(-0.1, {"exact": 0.0, "brevity": -0.1}, why="invalid: no number in 'three, I am'")),
        ({"rewards": (exact, wordy)}, LONG,
         Score(0.25, {"exact": 1.0, "wordy": 1.0}, True, True, "wordy 1, a penalty")),
        ({}, "\ud800", Score(0.0, {"near": 0.0, "exact": 0.0}, why="invalid: no number in '\\ud800'")),
    ],
)  # fmt: skip
def test_what_a_completion_earns(changes: dict[str, Any], text: str, score: Score) -> None:
    assert bound(**changes).score(text, FIRST) == score


def test_a_tasks_own_rule_decides_what_is_solved() -> None:
    task = bound(solved=lambda answer, row, parts: parts["near"] > 0.5)
    assert [task.score(text, FIRST).solved for text in ("5", "99", "?")] == [True, False, False]


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


# Abstentions


def crash(answer):
    return [][1]


def no_message(answer):
    raise AssertionError


def run_out_of_time(answer):
    raise TimeoutError("the symbolic check")


def lose_the_worker(answer):
    raise InfrastructureError("no worker")


async def later(answer: str) -> float:
    return 1.0


@pytest.mark.parametrize(("function", "fault", "why"), [
    (crash, "reward", "reward crash() raised IndexError (test_binding.py:"),
    (no_message, "reward", "reward no_message() raised AssertionError (test_binding.py:"),
    (lambda answer: sys.exit(3), "reward", "reward <lambda>() raised SystemExit"),
    (run_out_of_time, "timeout", "reward run_out_of_time() ran out of time: the symbolic check"),
    (lose_the_worker, "infrastructure", "reward lose_the_worker(): no worker"),
    (lambda answer: math.nan, "reward", "returned nan; a reward is a finite number"),
    (lambda answer: 10**400, "reward", "a number beyond the range of a float; a reward is a finite number"),
    (lambda answer: -1e308, "reward", "returned -1e+308; a reward is between -1e+30 and 1e+30"),
    (lambda answer: None, "reward", "the task's reward <lambda>() returned None; a reward is a number"),
    (lambda answer: "1", "reward", "returned the text '1'; a reward is a number"),
    (later, "reward", "reward later() returned a coroutine"),
    (lambda answer: 2.0, "reward", "returned 2.0, above its maximum 1.0; state it: @reward(…, maximum=2)"),
])  # fmt: skip
def test_a_reward_that_fails_abstains_and_is_named(function: Callable[..., float], fault: str, why: str) -> None:
    score = score_with(function)
    assert (score.value, score.parts, score.valid, score.solved, score.fault) == (None, {}, False, False, fault)
    assert why in score.why and len(score.why) <= MAX_WHY_CHARS and not score.why.endswith(":")


@pytest.mark.parametrize(("changes", "why"), [
    ({"validate": lambda text, row: text.nothing}, "validate() raised AttributeError"),
    ({"validate": lambda text, row: Invalid("no number")}, "validate() returned Invalid; what holds no answer"),
    ({"validate": lambda text, row: Invalid}, "validate() returned Invalid"),
    ({"solved": lambda answer, row: 1 / 0}, "compose/solved raised ZeroDivision"),
    ({"solved": lambda answer, row: "no"}, "returned the text 'no'"),
    ({"compose": lambda specs, parts, valid: math.nan}, ""),
])  # fmt: skip
def test_a_mistake_of_the_tasks_other_functions_abstains(changes: dict[str, Any], why: str) -> None:
    score = bound(**changes).score("3", FIRST)
    assert (score.value, score.fault) == (None, "reward")
    assert why in score.why


def test_a_task_can_say_that_a_time_out_is_wrong() -> None:
    def limited(function: Callable[..., float]) -> Score:
        task = bound(rewards=(function, brevity), compose=weighted_sum(invalid=-0.5), on_timeout="fail")
        return task.score("3", FIRST)

    why = "reward run_out_of_time() ran out of time: the symbolic check"
    parts = {"run_out_of_time": 0.0, "brevity": 0.0}  # what an empty text earns
    assert limited(run_out_of_time) == Score(-0.5, parts, why=why)
    assert [limited(each).fault for each in (crash, lose_the_worker)] == ["reward", "infrastructure"]


@pytest.mark.parametrize(("maximum", "raw"), [(1.0, 0.1 + 0.2 + 0.7 + 1e-12), (1e6, 1e6 + 0.5)])
def test_above_the_maximum_by_a_rounding_is_no_mistake(maximum: float, raw: float) -> None:
    assert score_with(reward(maximum=maximum)(lambda answer: raw)).solved


@pytest.mark.parametrize("one", [True, 1, np.float32(1), np.array(1.0), Fraction(1), Decimal(1)])
def test_numbers_of_other_libraries_are_numbers(one: Any) -> None:
    assert score_with(lambda answer: one).value == 1.0


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


def test_an_opponent_is_asked_about_valid_answers_and_the_rewards_get_what_it_says() -> None:
    def guessed(answer, predictions):
        return sum(int(prediction) == answer for prediction in predictions) / 2

    against = {"rewards": (guessed,), "opponent": Opponent(prompt=lambda answer, row: f"{row.id}? I say {answer}.")}
    task = bound(**against)
    assert task.score("3", FIRST, predictions=["3", "4"]).value == 0.5
    assert [task.opponent_prompt(text, FIRST) for text in ("3", "?")] == ["1+2? I say 3.", None]
    assert (
        bound(validate=lambda text, row: sys.exit(), **against).opponent_prompt("3", FIRST) is None
    )  # the score says what happened


# Rows, prompts, demos


def test_rows_are_loaded_once_and_given_as_a_new_list() -> None:
    loads = []

    def counting(config) -> Iterable[Sum]:
        loads.append(config)
        yield from ROWS

    task = bound(load=counting)
    task.rows().clear()
    assert task.rows() == ROWS and len(loads) == 1


def test_prompts_are_text_or_messages_and_may_ask_for_config() -> None:
    message = {"role": "user", "content": "hi"}
    assert bound().prompt(FIRST) == "1 + 2 ="
    assert bound(prompt=lambda row: [message]).prompt(FIRST) == (message,)
    task = bound({"tone": "stern"}, config=Options, prompt=lambda row, config: f"{config.tone}: {row.id}")
    assert task.prompt(FIRST) == "stern: 1+2"


@pytest.mark.parametrize("made", [None, 3, [], ["text"], [{"role": "user"}], [{"role": "user", "content": 3}]])
def test_what_is_no_prompt_is_refused(made: Any) -> None:
    with pytest.raises(UserError, match=r"text or a list of messages"):
        as_prompt(made, "prompt()")


@pytest.mark.parametrize("made", ["\ud800 = ", [{"role": "user", "content": "a\udfff"}]])
def test_a_prompt_with_half_of_a_surrogate_pair_has_no_identity(made: Any) -> None:
    with pytest.raises(UserError, match=r"prompt\(\) of row '[^']+' gives '\\ud[8f][0f][0f]', half of a surrogate"):
        _ = bound(prompt=lambda row: made).identity


def test_demos_are_the_golds_or_the_tasks_own_as_many_as_the_size_says() -> None:
    assert next(bound().demos()) == ("1 + 2 =", "3")
    assert list(bound(demos=lambda config: [("a", "b")]).demos()) == [("a", "b")]
    endless = bound({"size": "2"}, demos=lambda config: ((str(number), "y") for number in count()))
    assert [prompt for prompt, _ in endless.demos()] == ["0", "1"]
    with pytest.raises(DataError, match="row 'x' has no gold, and the task gives no demos="):
        list(bound(load=lambda config: [Sum(id="x", a=1, b=2)], row=Sum).demos())


def test_a_gold_that_is_an_episode_is_no_demonstration() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    turns = [ToolTurn("", (Call("add", {"a": 1, "b": 2}, "3", ok=True),)), ToolTurn("3")]
    for gold in (write_tool_turns(turns), write_tool_turns(turns, with_results=False)):
        rows = [Sum(id="x", a=1, b=2, gold=gold)]
        with pytest.raises(DataError, match=r"the gold of row 'x' is an episode.*Give demos="):
            list(bound(load=lambda config, rows=rows: rows, row=Sum, tools=(add,)).demos())
    answer = [Sum(id="x", a=1, b=2, gold="3")]
    assert list(bound(load=lambda config: answer, row=Sum, tools=(add,)).demos()) == [("1 + 2 =", "3")]


# Options and files

FILE = Path(__file__).parent / "programs" / "couplet.py"


def test_a_file_is_a_task_that_its_spec_makes_again() -> None:
    task = load_task(f"{FILE}:couplet?size=2&tone=a%26b&strict=yes")
    again = load_task(task.spec)
    assert (task.name, task.config.strict, task.prompt(task.rows()[1])) == ("couplet.couplet", True, "(a&b) r1?")
    assert (again.spec, again.config, again.identity) == (task.spec, task.config, task.identity)


def test_options_can_be_changed_afterwards() -> None:
    task = load_task(f"{FILE}:couplet?size=2")
    assert len(task.with_options(size=None).rows()) == 5
    assert task.with_options(split="test").spec == f"{FILE}:couplet?size=2&split=test"
    assert len(task.rows()) == 2


@pytest.mark.parametrize(("spec", "message"), [
    (":couplet?sise=3", r"'couplet.couplet' has no option 'sise'.*mean 'size'.* path, seed, size, split,"),
    (":couplet?size=three", "'couplet.couplet': size: .*valid integer"),
    (":couplet?size=3:2", r"given '3:2'.*weight stands before.*couplet.couplet:2\?"),
    (f":couplet?seed={'9' * 5000}", "seed: "),
    (":couplet,math.echo", "names 2 tasks; one is wanted"),
    (":cuplet", "no Task or Game 'cuplet'.*mean 'couplet'.*has: couplet, unreadable$"),
    (":not_a_task", "no Task or Game 'not_a_task'"),
    ("?size=2", r"is a file: name one of its tasks, as in .*couplet\.py:couplet\. It has: couplet"),
    (".py:couplet", "no file .*couplet.py.py"),
])  # fmt: skip
def test_a_spec_that_does_not_fit_says_why(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_task(f"{FILE}{spec}")
    assert len(str(caught.value).replace(str(FILE.parent), "")) < 300


class Levels(TaskConfig):
    level: Literal[1, 2] = 1
    mixed: Literal[1, "1", "a"] | None = None
    maybe: Annotated[Literal[1, 2] | None, Field(description="a level")] = None
    fast: Literal[True, "auto"] = "auto"
    either: float | Literal["none"] = 0.5
    tags: tuple[str, ...] = ()


def with_level(option: str, text: str) -> TaskConfig:
    return bind_config(bound(config=Levels).task, "t.t", TaskSpec("t.t", options={option: text}))


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [("mixed", "1", "1"), ("maybe", "2", 2), ("fast", "auto", "auto"), ("either", "none", "none")],
)
def test_a_literal_that_is_no_text_is_given_as_text(option: str, text: str, value: object) -> None:
    config = with_level(option, text)
    assert getattr(config, option) == value and type(getattr(config, option)) is type(value)
    assert Levels.model_validate_json(config.model_dump_json()) == config
    assert getattr(Levels(**{option: value}), option) == value


@pytest.mark.parametrize(("option", "text", "message"), [
    ("level", "3", "level: .* 1 or 2 .*'3'"),
    ("fast", "yes", "fast: .* True or 'auto'"),
    ("tags", "food,toys", r"declares the option as grpo_sdk\.data\.CommaSeparated"),
])  # fmt: skip
def test_what_no_text_can_set_says_what_can(option: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_level(option, text)


@pytest.mark.parametrize(("source", "message"), [
    ("import nothing_of_that_name", r"ModuleNotFoundError: .* \(broken\.py:1\)"),
    ("\nraise SystemExit(4)", r"SystemExit: 4 \(broken\.py:2\)"),
    ("def f(:", r"broken\.py: SyntaxError: invalid syntax \(broken\.py:1\)"),
    ("import beside", r"No module named 'beside' \(broken\.py:1\)\. beside is beside the file, .*PYTHONPATH="),
    ("raise ModuleNotFoundError('none', name='grpo_core')", r"\(broken\.py:1\)\. pip install grpo-core, or import"),
    ("raise ValueError('two\\nlines')", r"^[^\n]*: ValueError: two lines \(broken\.py:1\)$"),
])  # fmt: skip
def test_a_file_that_cannot_be_imported_says_where(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "broken.py").write_text(source)
    for _ in range(2):  # a failed import leaves nothing behind that a second try would take for the module
        with pytest.raises(UserError, match=message):
            load_task(f"{tmp_path}/broken.py:t")


def test_a_file_never_replaces_a_module_of_its_name(tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path / "random.py")
    load_task(f"{tmp_path}/random.py:couplet")
    assert sys.modules["random"] is random


# Identity


def other_rows(config) -> Iterable[Sum]:
    return ROWS[:2]


@pytest.mark.parametrize(("changed", "ingredients"), [
    ({"version": "1"}, {"code"}),
    ({"rewards": (near, exact, distance)}, {"code"}),
    ({"validate": lambda text, row: text}, {"code"}),
    ({"solved": lambda answer, row: True}, {"code"}),
    ({"opponent": Opponent(prompt=prompt)}, {"code"}),
    ({"compose": graduated(invalid=-1.0)}, {"code"}),
    ({"prompt": lambda row: f"{row.a}+{row.b}="}, {"code", "data"}),  # prompts are data, too
    ({"load": other_rows}, {"data"}),
    ({"options": {"split": "test"}}, {"config"}),
    ({"timeout_s": 9.0, "on_timeout": "fail", "default_model": "tiny"}, set()),  # leaves scores alone
])  # fmt: skip
def test_identity_changes_with_whatever_changes_a_score(changed: dict[str, Any], ingredients: set[str]) -> None:
    one, other = bound(), bound(**changed)
    assert one.identity == bound().identity and len(one.identity) == 16
    assert (one.identity != other.identity) == bool(ingredients)
    assert {name for name in one.ingredients if one.ingredients[name] != other.ingredients[name]} == ingredients


def test_identity_is_the_same_in_every_process() -> None:
    program = "import sys; from grpo_sdk import load_task; print(*(load_task(each).identity for each in sys.argv[1:]))"
    command = [sys.executable, "-c", program, f"{FILE}:couplet", f"{FILE}:unreadable"]

    def identities(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert identities("1") == identities("2")


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


@pytest.mark.parametrize(("specialize", "message"), [
    (lambda config: None, r"specialize\(\) must give a Task, not None"),
    (lambda config: replace(bound().task, name="other"), r"specialize\(\) gave another task: name and config"),
    (lambda config: 1 / 0, r"specialize\(\) raised ZeroDivisionError"),
])  # fmt: skip
def test_a_specialization_that_is_wrong_is_named(specialize: Callable[..., Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bound(task=general(specialize))


def test_a_name_is_no_part_of_what_a_task_is(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f'{{"question": "{number}?", "answer": "{number}"}}\n' for number in range(40)))
    plain, named = (load_task(f"core.qa?path={file}{name}") for name in ("", "&name=numbers"))
    assert (plain.label, named.label, named.name) == ("core.qa", "numbers", "core.qa")
    assert named.with_options(split="test").label == "numbers"
    assert named.identity == plain.identity and named.rows() == plain.rows()
    for wrong, message in (("nmae=a", "mean 'name'"), ("name=a/b", "letters, digits"), ("name=", "letters, digits")):
        with pytest.raises(UserError, match=message):
            load_task(f"core.qa?path={file}&{wrong}")
