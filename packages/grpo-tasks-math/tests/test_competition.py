from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import orjson
import pyarrow
import pytest

from grpo_core import BoundTask, Scorer, UserError, load_task
from grpo_tasks_math.competition import HUB, CompetitionRow, last_boxed
from grpo_tasks_math.verify import Verdict

# Written for these tests in the dataset's form.
RECORDS: list[dict[str, object]] = [
    {
        "problem": "Compute $\\frac{1}{3} + \\frac{1}{6}$.",
        "solution": "We have $\\frac{2}{6} + \\frac{1}{6} = \\frac{3}{6} = \\boxed{\\frac{1}{2}}$.",
        "level": "Level 1",
        "type": "Prealgebra",
    },
    {
        "problem": "How many subsets has a set of $5$ elements?",
        "solution": "Each element is in or out, so there are $2^5 = \\boxed{32}$ subsets.",
        "level": "Level 2",
        "type": "Counting & Probability",
    },
    {
        "problem": "Solve $x^2 = 9$ over the reals; give the set of solutions.",
        "solution": "Since $(x-3)(x+3) = 0$, the set is $\\boxed{\\{-3, 3\\}}$.",
        "level": 3,
        "subject": "Algebra",
    },
    {
        "problem": "Factor $x^2 - 1$.",
        "solution": "It is a difference of squares: $\\boxed{(x-1)(x+1)}$.",
        "level": "Level 5",
        "type": "Algebra",
    },
    {
        "problem": "In the figure, what is the angle $A$? [asy] draw((0,0)--(1,0)); [/asy]",
        "solution": "It is $\\boxed{60^\\circ}$.",
        "level": "Level 4",
        "type": "Geometry",
    },
    {"problem": "What is $1 + 1$?", "solution": "$\\boxed{2}$", "level": "Level ?", "type": "Algebra"},
]


def task_of(folder: Path, records: list[dict[str, object]], options: str = "") -> BoundTask:
    (folder / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    # A name with {split} in it is one file per split: all of its rows are in this one.
    return load_task(f"math.competition?path={folder / '{split}.jsonl'}{options}")


def test_gold_earns_the_maximum_and_is_solved(tmp_path: Path) -> None:
    task = task_of(tmp_path, RECORDS, "&visual=keep")
    rows = task.rows()
    assert [row.answer for row in rows if isinstance(row, CompetitionRow)] == [
        "\\frac{1}{2}",
        "32",
        "\\{-3, 3\\}",
        "(x-1)(x+1)",
        "60^\\circ",
        "2",
    ]
    for row in rows:
        score = task.score(row.gold or "", row)
        assert score.value == pytest.approx(2.2) and score.solved and not score.why, (row, score)


@pytest.mark.parametrize(
    ("text", "value", "solved"),
    [
        (" It is $\\boxed{\\frac12}$.", 2.2, True),
        (" It is $\\boxed{0.5}$.", 2.2, True),
        (" The answer is 1/2.", 2.0, True),
        (" First $\\boxed{\\frac13}$, no: $\\boxed{\\frac{1}{2}}$.", 2.2, True),
        (" It is $\\boxed{\\frac13}$.", 0.2, False),
        (" It is $\\boxed{\\frac12, \\frac13}$.", 0.2, False),
        (" It is $\\boxed{}$.", 0.0, False),
        (" I give up.", 0.0, False),
        ("", 0.0, False),
        (" $\\boxed{\\frac12}$\n\nProblem: $1+1$?\nSolution: $\\boxed{2}$", 2.2, True),  # it went on by itself
    ],
)
def test_the_rungs(tmp_path: Path, text: str, value: float, solved: bool) -> None:
    task = task_of(tmp_path, RECORDS)
    score = task.score(text, task.rows()[0])
    assert score.value == pytest.approx(value) and score.solved is solved, score


_HOSTILE = ("\x00", "nan", "\\boxed{" * 20_000, "}" * 100_000, "9" * 100_000, "\ud800", "$" * 100_000)


@pytest.mark.parametrize("text", _HOSTILE, ids=range(len(_HOSTILE)))
def test_hostile_text_is_scored_and_earns_nothing(tmp_path: Path, text: str) -> None:
    task = task_of(tmp_path, RECORDS)
    score = task.score(text, task.rows()[0])
    assert score.value == 0.0 and not score.solved


def test_the_prompt(tmp_path: Path) -> None:
    task = task_of(tmp_path, RECORDS)
    assert task.prompt(task.rows()[1]) == (
        "Solve the problem step by step and put the final answer inside \\boxed{}.\n\n"
        "Problem: How many subsets has a set of $5$ elements?\nSolution:"
    )


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ("", [1, 2, 3, 5, None]),
        ("&visual=keep", [1, 2, 3, 5, 4, None]),
        ("&min_level=2&max_level=4", [2, 3]),
        ("&min_level=5", [5]),
        ("&subjects=algebra", [3, 5, None]),
        ("&subjects=counting_and_probability,prealgebra", [1, 2]),
    ],
)
def test_filters(tmp_path: Path, options: str, levels: list[float | None]) -> None:
    assert [row.difficulty for row in task_of(tmp_path, RECORDS, options).rows()] == levels


@pytest.mark.parametrize("word", ["figure", "diagrams", "pictured", "[asy]x[/asy]", "\\includegraphics{x}", "Drawing"])
def test_visual_words(tmp_path: Path, word: str) -> None:
    seen = {**RECORDS[0], "problem": f"See the {word}: what is $1/2$?"}
    assert len(task_of(tmp_path, [RECORDS[1], seen]).rows()) == 1
    heard = {**RECORDS[0], "problem": "A configuration of figurines: what is $1/2$?"}
    assert len(task_of(tmp_path, [RECORDS[1], heard]).rows()) == 2


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"),
        ("\\fbox{7}", "7"),
        ("$\\boxed 5$.", "5"),
        ("\\boxed{1", ""),
        ("\\boxed{}", ""),
        ("boxed{1}", ""),
        ("\\boxed{" * 1000, ""),
    ],
)
def test_last_boxed(text: str, inside: str) -> None:
    assert last_boxed(text) == inside


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"problem": "P"}, "train.jsonl:1: no field 'solution'"),
        ({"problem": "P", "solution": "5"}, "train.jsonl:1: solution: no \\boxed"),
        ({"problem": 1, "solution": "\\boxed{1}"}, "must be text"),
    ],
)
def test_a_record_that_does_not_fit_names_file_line_and_field(
    tmp_path: Path, record: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        task_of(tmp_path, [record]).rows()
    assert message in str(caught.value)


def test_levels_out_of_order_are_refused() -> None:
    with pytest.raises(UserError, match="min_level 4 is above max_level 2"):
        load_task("math.competition?min_level=4&max_level=2")


def test_the_hubs_train_split_lends_a_validation_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, config: str | None, split: str) -> SimpleNamespace:
        asked.append((name, config, split))
        rows = [{"problem": f"{config}: what is ${n} + {n}$?", "solution": f"$\\boxed{{{2 * n}}}$"} for n in range(40)]
        return SimpleNamespace(data=pyarrow.Table.from_pylist(rows), info=SimpleNamespace(builder_name="parquet"))

    datasets = ModuleType("datasets")
    datasets.load_dataset = load_dataset  # type: ignore[attr-defined] # a fake of the one function used
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    train, validation = (
        {row.id for row in load_task(f"math.competition?split={split}").rows()} for split in ("train", "validation")
    )
    assert len(train) + len(validation) == len(train | validation) == 40 * len(HUB["train"])
    assert 10 <= len(validation) <= 50  # a tenth of 280, standard deviation 5
    assert {split for _, _, split in asked} == {"train"}
    assert asked[0] == ("EleutherAI/hendrycks_math", "algebra", "train")
    asked.clear()
    assert len(load_task("math.competition?split=test").rows()) == 40
    assert asked == [("HuggingFaceH4/MATH-500", None, "test")]


def test_a_check_that_runs_out_of_time_fails_its_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(tmp_path, RECORDS)
    monkeypatch.setattr("grpo_tasks_math.verdicts.verify", lambda *_, **__: Verdict.TIMEOUT)
    score = task.score(" It is $\\boxed{x^2 + 3}$.", task.rows()[0])
    assert (score.value, score.fault, score.valid, score.solved) == (0.0, "", False, False)
    assert "ran out of time" in score.why


def test_no_answer_abstains(tmp_path: Path) -> None:
    task = task_of(tmp_path, RECORDS)
    texts = [rf" \boxed{{{answer}}}" for answer in ("10^{10^{10}}", "(10^{10})!", "9^9^9^9", "|" * 40, "(x+y+z)^{100}")]
    with Scorer(task, workers=1, max_abstain_share=0.0) as scorer:
        scores = scorer.score(texts, [task.rows()[0]] * len(texts))
    assert [score.value for score in scores] == [0.2] * len(texts)  # for the box
