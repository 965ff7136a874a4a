"""Laws that every generated task obeys; what is particular to one task stands in its own file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core import BoundTask, UserError, load_task
from grpo_tasks_math.plugin import grpo_tasks

PROCEDURAL = (
    "echo",
    "pattern",
    "arithmetic",
    "counting",
    "base_conversion",
    "comparison",
    "word_problem",
    "countdown",
    "scheduling",
)
ROWS = 210  # a multiple of 2 and 3, so that every level has equally many

HOSTILE = (
    "",
    " ",
    "\n",
    "\n\n42",
    "\x00",
    "-",
    "--5",
    "+",
    ".",
    "nan",
    "inf",
    "1e9",
    "9" * 10_000,
    "-" + "9" * 10_000,
    "(" * 10_000,
    "1+" * 10_000,
    "<schedule>" * 10_000,
    "<schedule>\n" + "10:00-11:00 x\n" * 10_000 + "</schedule>",
    " " * 10_000 + "4",
    "\N{ARABIC-INDIC DIGIT ONE}\N{ARABIC-INDIC DIGIT TWO}",
    "\N{SUPERSCRIPT TWO}",
    "\N{RIGHT-TO-LEFT OVERRIDE}12",
    "\ud800",
    "12 or 13",
    "40, 41, 42",
    "yes no",
    "yes or no",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "the answer is hard to know",
)


@pytest.fixture(scope="module", params=PROCEDURAL)
def task(request: pytest.FixtureRequest) -> BoundTask:
    return load_task(f"math.{request.param}?size={ROWS}")


def test_the_plugin_gives_its_tasks_easiest_first() -> None:
    assert [task.name for task in grpo_tasks()] == [
        "echo",
        "pattern",
        "arithmetic",
        "counting",
        "base_conversion",
        "comparison",
        "word_problem",
        "gsm8k",
        "countdown",
        "competition",
        "scheduling",
        "ladder",
    ]


def test_only_arithmetic_names_the_embedded_model() -> None:
    assert {task.name for task in grpo_tasks() if task.default_model} == {"arithmetic"}


def test_gold_earns_exactly_one_and_is_solved(task: BoundTask) -> None:
    for row in task.rows():
        score = task.score(row.gold or "", row)
        assert score.value == pytest.approx(1.0) and score.solved and not score.why, (row, score)


def test_what_follows_the_stop_string_changes_nothing(task: BoundTask) -> None:
    (stop,) = task.task.stop
    for row in task.rows()[:50]:
        gold = row.gold or ""
        stopped = gold if gold.endswith(stop) else gold + stop
        assert task.score(stopped, row).solved
        if stop == "\n":  # a trainer that does not know the stop string lets the model go on
            assert task.score(stopped + "7 + 8 = 15\n", row).solved


def test_another_rows_gold_is_not_solved(task: BoundTask) -> None:
    rows = task.rows()
    compared = 0
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        if row.gold != other.gold:
            compared += 1
            score = task.score(other.gold or "", row)
            assert score.value is not None and not score.solved and score.value <= 0.65, (row, other, score)
    assert compared > ROWS // 4  # half of the comparisons have the same answer as the next one, yes or no


def test_hostile_text_is_scored_low_and_never_abstains(task: BoundTask) -> None:
    for row in task.rows()[:12]:
        for text in HOSTILE:
            score = task.score(text, row)
            assert score.fault == "" and score.value is not None, (text[:40], score)
            assert not score.solved and 0.0 <= score.value <= 0.3, (text[:40], row, score)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60) | st.text(alphabet="0123456789+-*/() .,=xyesnoABC\n", max_size=40))
@pytest.mark.parametrize("name", PROCEDURAL)
def test_any_text_gets_a_value_between_0_and_1(name: str, text: str) -> None:
    task = _small(name)
    for row in task.rows():
        score = task.score(text, row)
        assert score.value is not None and 0.0 <= score.value <= 1.0 + 1e-9
        assert score.solved == (score.value > 1.0 - 1e-9)


def _small(name: str) -> BoundTask:
    if name not in _SMALL:
        _SMALL[name] = load_task(f"math.{name}?size=4")
    return _SMALL[name]


_SMALL: dict[str, BoundTask] = {}


def test_prompt_and_gold_read_as_one_text(task: BoundTask) -> None:
    for row in task.rows():
        prompt = task.prompt(row)
        assert isinstance(prompt, str) and prompt == prompt.rstrip()
        assert row.gold is not None and row.gold[0] in " \n" and row.gold == row.gold.rstrip()


def test_the_prompt_does_not_hold_the_answer_unless_declared(task: BoundTask) -> None:
    holds = [row for row in task.rows() if f" {(row.gold or '').strip()} " in f" {task.prompt(row)} "]
    if "leak" in task.task.exempt:
        return
    # 50 - 25 = 25: an operand may be the result, in few rows.
    assert len(holds) <= ROWS // 20, holds[:3]


def test_rows_survive_json(task: BoundTask) -> None:
    for row in task.rows():
        assert task.row_from_json(row.model_dump_json()) == row


def test_splits_share_no_problem_whatever_the_seeds(task: BoundTask) -> None:
    # Ids are hashes of the canonical content, so disjoint ids are disjoint problems.
    def ids(split: str) -> set[str]:
        return {row.id for seed in range(3) for row in task.with_options(split=split, seed=seed, size=100).rows()}

    train, validation, test = ids("train"), ids("validation"), ids("test")
    assert min(len(train), len(validation), len(test)) >= 100
    assert not (train & validation or train & test or validation & test)


def test_the_seed_changes_the_rows(task: BoundTask) -> None:
    assert {row.id for row in task.rows()} != {row.id for row in task.with_options(seed=1).rows()}


def test_held_out_splits_are_large_enough_for_an_evaluation(task: BoundTask) -> None:
    assert len(task.with_options(split="test", size=512).rows()) == 512
    assert len(task.with_options(size=1000).rows()) == 1000


def test_levels_take_turns_and_are_on_the_rows(task: BoundTask) -> None:
    low, high = task.config.min_difficulty, task.config.max_difficulty  # type: ignore[attr-defined] # ProceduralConfig
    levels = [row.difficulty for row in task.rows()[:6]]
    assert levels == [float(low + i % (high - low + 1)) for i in range(6)]


def test_a_level_that_does_not_exist_is_refused(task: BoundTask) -> None:
    with pytest.raises(UserError, match="max_difficulty"):
        task.with_options(max_difficulty=9)


_PROBE = """
import hashlib, json, sys
from grpo_core import load_task

found = {}
for name in sys.argv[1:]:
    task = load_task(f"math.{name}?size=40")
    digest = hashlib.sha256()
    for row in task.rows():
        digest.update(row.model_dump_json().encode() + task.prompt(row).encode())
        digest.update(repr(task.score(row.gold, row)).encode())
    found[name] = digest.hexdigest()
heavy = sorted({"torch", "transformers", "datasets", "math_verify", "sympy", "numpy"} & set(sys.modules))
print(json.dumps({"rows": found, "heavy": heavy}))
"""


def test_rows_and_scores_are_the_same_in_every_process_and_import_nothing_heavy() -> None:
    def probe(hash_seed: str) -> dict[str, object]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            [sys.executable, "-c", _PROBE, *PROCEDURAL, "ladder"], env=environment, capture_output=True, check=True
        )
        found: dict[str, object] = json.loads(ran.stdout)
        return found

    first, second = probe("1"), probe("2")
    assert first["heavy"] == []
    assert first == second
