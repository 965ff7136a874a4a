import sys
from pathlib import Path
from types import SimpleNamespace

import orjson
import pyarrow
import pytest

from grpo_sdk import BoundTask, UserError, load_task
from grpo_tasks_math.competition import HUB, CompetitionRow, last_boxed
from grpo_tasks_math.forms import has_form
from grpo_tasks_math.verify import Verdict

# Written for these tests in the dataset's form.
RECORDS: list[dict[str, object]] = [
    {"problem": problem, "solution": solution, "level": level, "type": subject}
    for problem, solution, level, subject in (
        ("Compute $\\frac{1}{3} + \\frac{1}{6}$.", "$\\frac{3}{6} = \\boxed{\\frac{1}{2}}$", "Level 1", "Prealgebra"),
        ("How many subsets has a set of $5$ elements?", "$2^5 = \\boxed{32}$", "Level 2", "Counting & Probability"),
        ("Factor $x^2 - 1$.", "It is $\\boxed{(x-1)(x+1)}$.", "Level 5", "Algebra"),
        ("In the figure, what is $A$? [asy] draw((0,0)); [/asy]", "$\\boxed{60^\\circ}$", "Level 4", "Geometry"),
        ("What is $1 + 1$?", "$\\boxed{2}$", "Level ?", "Algebra"),
    )
]
# As other copies of the dataset have it.
RECORDS.insert(
    2, {"problem": "Solve $x^2 = 9$.", "solution": "$\\boxed{\\{-3, 3\\}}$", "level": 3, "subject": "Algebra"}
)


def task_of(folder: Path, records: list[dict[str, object]], options: str = "") -> BoundTask:
    (folder / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    # A name with {split} in it is one file per split: all of its rows are in this one.
    return load_task(f"math.competition?path={folder / '{split}.jsonl'}{options}")


def test_gold_earns_the_maximum_and_is_solved(tmp_path: Path) -> None:
    task = task_of(tmp_path, RECORDS, "&visual=keep")
    rows = task.rows()
    answers = [row.answer for row in rows if isinstance(row, CompetitionRow)]
    assert answers == ["\\frac{1}{2}", "32", "\\{-3, 3\\}", "(x-1)(x+1)", "60^\\circ", "2"]
    for row in rows:
        score = task.score(row.gold or "", row)
        assert score.value == pytest.approx(2.2) and score.solved and not score.why, (row, score)


@pytest.mark.parametrize(
    ("options", "text", "value", "solved"),
    [
        ("", " It is $\\boxed{0.5}$.", 2.2, True),
        ("", " The answer is 1/2.", 0.0, False),
        ("&reading=free", " The answer is 1/2.", 2.0, True),
        ("", " $\\boxed{\\frac{1}{3} + \\frac{1}{6}}$", 0.2, False),  # the problem's own formula
        ("", " $\\boxed{\\frac{1}{6} + \\frac{1}{3} = 0.5}$", 2.2, True),
        ("", " It is $\\boxed{\\frac13}$.", 0.2, False),
        ("", " It is $\\boxed{}$.", 0.0, False),
        ("", " $\\boxed{\\frac12}$\n\nProblem: $1+1$?\nSolution: $\\boxed{2}$", 2.2, True),  # it went on by itself
    ],
)
def test_the_rungs(tmp_path: Path, options: str, text: str, value: float, solved: bool) -> None:
    task = task_of(tmp_path, RECORDS, options)
    score = task.score(text, task.rows()[0])
    assert score.value == pytest.approx(value) and score.solved is solved, score


RESTATED = [
    # problem, gold, what leaves the work to the verifier, what does not
    ("Find $\\frac{d}{dx}(x^2\\ln x)$.", "2x\\ln x+x", ["\\frac{d}{dx}(x^2\\ln x)"], ["x+2x\\ln x", "x(2\\ln x+1)"]),
    ("Expand $(x+2)^2$.", "x^2+4x+4", ["(x+2)^2", "(x+2)(x+2)", "(2+x)^2"], ["4+4x+x^2"]),
    ("Factor $x^2-4$.", "(x-2)(x+2)", ["x^2-4", "-4+x^2"], ["(x+2)(x-2)"]),
    ("What is $\\binom{8}{2}$?", "28", ["\\binom{8}{2}", "\\frac{8!}{6!2!}"], ["28", "\\binom{8}{2}=28"]),
    ("Simplify $\\sqrt{48}$.", "4\\sqrt{3}", ["\\sqrt{48}"], ["4\\sqrt3", "\\sqrt{3} \\cdot 4"]),
    ("What is $\\text{lcm}(4,6)$?", "12", ["\\text{lcm}(4,6)", "3 \\cdot 4", "\\sqrt{144}", "\\log_2 4096"], ["12"]),
    ("Compute $\\lfloor 3.7 \\rfloor$.", "3", ["\\lfloor 3.7 \\rfloor", "\\int_0^3 1 dx"], ["3"]),
    ("Heads have probability $0.5$. And tails?", "\\frac12", [], ["0.5", "\\frac{1}{2}", "50\\%"]),
    ("Express 3/4 as a decimal.", "0.75", ["\\frac34", "3/4"], ["0.75", ".75"]),
    ("Reduce $\\frac{12}{18}$.", "\\frac23", ["\\frac{12}{18}"], ["2/3"]),
    ("What is 1/2+1/3?", "\\frac56", ["1/2+1/3", "\\frac12+\\frac13"], ["5/6", "1/2+1/3=5/6"]),
    ("What is 12 plus 30?", "42", ["12+30", "12--30", "50-8", "\\max(41,42)", "|-42|"], ["42", "x=42"]),
    ("What is $|3-10|$?", "7", ["|3-10|", "\\lvert 3-10\\rvert"], ["7"]),
    ("Write $0.25$ as a fraction.", "\\frac14", [".25", "0.250", "2.5\\times10^{-1}"], ["1/4"]),
    ("Solve $z=(1+2i)^2$.", "-3+4i", [], ["4i-3"]),
    ("How large is Avogadro's number?", "6.02 \\times 10^{23}", [], ["6.02 \\cdot 10^{23}", "6.02e23"]),
]


FORMS = [
    # form that the row asks for, and as above
    ("expanded", "x^2+2x+1", ["(x+1)(x+1)", "x(x+2)+1", "x^2+x+x+1"], ["1+2x+x^2"]),
    ("expanded", "x/2+x^3", [r"\frac{x+2x^3}{2}", r"x/2+x^2\cdot x"], ["x^3+0.5x"]),
    ("factored", "(x+1)(x-2)", ["x^2-x-2"], ["(x-2)(x+1)"]),
    ("number", "12", ["6+6", "x+12-x"], ["12", "12.0", "x=12", r"12\text{ cm}", r"\$12", "+12", "(12)"]),
    ("number", "1000", ["10^3"], ["1,000", r"1\,000"]),
]


@pytest.mark.parametrize(
    ("asked", "gold", "unpaid", "paid"),
    [*(({"problem": problem}, *row) for problem, *row in RESTATED), *(({"form": form}, *row) for form, *row in FORMS)],
)
def test_the_problems_formula_and_another_form_than_asked_for_are_not_paid(
    tmp_path: Path, asked: dict[str, object], gold: str, unpaid: list[str], paid: list[str]
) -> None:
    task = task_of(tmp_path, [{"problem": "P?", "solution": f"$\\boxed{{{gold}}}$", "level": 1, **asked}])
    solved = {text: task.score(f"\\boxed{{{text}}}", task.rows()[0]).solved for text in [*unpaid, *paid]}
    assert solved == {**dict.fromkeys(unpaid, False), **dict.fromkeys(paid, True)}


@pytest.mark.parametrize(
    ("gold", "others", "forms"),
    [
        ("(x-1)(x+1)", ["1(x^2-1)", "(x^2-1)*1", "-(1-x^2)", r"\frac{x^4-1}{x^2+1}"], ["(1+x)(x-1)", "-(1-x)(x+1)"]),
        ("2(x-1)(x+1)", ["2(x^2-1)", "(2x-2)(x+1)"], ["(x+1)*2(x-1)"]),
        ("x(x+1)^2", ["x^2(1+1/x)(x+1)", "x(x^2+2x+1)"], ["(x+1)x(x+1)"]),
        (r"\frac{1}{2}(x+1)", ["x/2+1/2"], [r"\frac{x+1}{2}"]),
        ("2^3*3", ["24", "8*3"], ["3*2^3"]),
    ],
)
def test_a_factored_answer_has_the_factors_of_the_gold(gold: str, others: list[str], forms: list[str]) -> None:
    found = {text: has_form(text, "factored", gold) for text in [*others, *forms]}
    assert found == {**dict.fromkeys(others, False), **dict.fromkeys(forms, True)}


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


def test_last_boxed() -> None:
    inside = {"\\boxed{1}, no: \\boxed{2}": "2", "\\boxed{1} and \\boxed{2}": "1, 2", "\\fbox{7}": "7"}
    inside |= {"$\\boxed 5$.": "5", "\\boxed{1": "", "\\boxed{" * 1000: ""}
    assert {text: last_boxed(text) for text in inside} == inside


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"problem": "P"}, "train.jsonl:1: no field 'solution'"),
        ({"problem": "P", "solution": "5"}, r"train.jsonl:1: solution: no \\boxed"),
        ({"problem": 1, "solution": "\\boxed{1}"}, "must be text"),
    ],
)
def test_a_record_that_does_not_fit_names_file_line_and_field(
    tmp_path: Path, record: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        task_of(tmp_path, [record]).rows()


def test_levels_out_of_order_are_refused() -> None:
    with pytest.raises(UserError, match="min_level 4 is above max_level 2"):
        load_task("math.competition?min_level=4&max_level=2")


def test_the_hubs_train_split_lends_a_validation_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, config: str | None, split: str) -> SimpleNamespace:
        asked.append((name, config, split))
        rows = [{"problem": f"{config}: what is ${n} + {n}$?", "solution": f"$\\boxed{{{2 * n}}}$"} for n in range(40)]
        return SimpleNamespace(data=pyarrow.Table.from_pylist(rows), info=SimpleNamespace(builder_name="parquet"))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    train, validation, test = (
        {row.id for row in load_task(f"math.competition?split={split}").rows()}
        for split in ("train", "validation", "test")
    )
    assert len(train) + len(validation) == len(train | validation) == 40 * len(HUB["train"])
    assert 10 <= len(validation) <= 50  # a tenth of 280, standard deviation 5
    assert asked[0] == ("EleutherAI/hendrycks_math", "algebra", "train")
    assert {split for _, _, split in asked[:-1]} == {"train"}
    assert len(test) == 40 and asked[-1] == ("HuggingFaceH4/MATH-500", None, "test")


def test_a_check_that_runs_out_of_time_fails_its_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(tmp_path, RECORDS)
    monkeypatch.setattr("grpo_tasks_math.verdicts.judge", lambda *_, **__: (Verdict.TIMEOUT, ""))
    score = task.score(" It is $\\boxed{x^2 + 3}$.", task.rows()[0])
    assert (score.value, score.fault, score.valid, score.solved) == (0.0, "", False, False)
    assert "ran out of time" in score.why
