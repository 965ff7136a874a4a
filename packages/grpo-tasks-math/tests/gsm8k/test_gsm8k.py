from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from grpo_core import BoundTask, UserError, load_task
from grpo_tasks_math.gsm8k.rows import GSM8KRow
from grpo_tasks_math.gsm8k.templates import EXAMPLES, Template, has_form

TEMPLATES: tuple[Template, ...] = ("plain", "r1", "few_shot")

# Written for these tests in the dataset's form: annotations, a thousands separator, a negative answer.
RECORDS = [
    {
        "question": "Mia has 48 pins. She gives away half of them and buys 5 more. How many has she?",
        "answer": "She keeps 48/2 = <<48/2=24>>24 pins.\nNow she has 24+5=<<24+5=29>>29 pins.\n#### 29",
    },
    {
        "question": "A lorry carries 12 crates of 100 kg. How many kg is that?",
        "answer": "It carries 12*100=<<12*100=1200>>1,200 kg.\n#### 1,200",
    },
    {
        "question": "It is 4 degrees and falls by 9. What is it then?",
        "answer": "It falls to 4-9=<<4-9=-5>>-5 degrees.\n#### -5",
    },
    {"question": "What is the number of legs of one spider?", "answer": "Spiders have eight legs.\n#### 8"},
]
LATEX = [
    {
        "index": 7,
        "text": "A row has 6 trees. How many have 3 rows?\n<think>\nThere are $3 \\times 6 = 18$ trees.\n</think>\n"
        "<answer>\n18\n</answer>",
    }
]


def task_of(path: Path, records: list[dict[str, object]] | list[dict[str, str]], options: str = "") -> BoundTask:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    # A name with {split} in it is one file per split: all of its rows are in this one.
    return load_task(f"math.gsm8k?path={path.with_name('{split}.jsonl')}{options}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


@pytest.mark.parametrize("template", TEMPLATES)
def test_gold_earns_the_maximum_and_is_solved(file: Path, template: str) -> None:
    task = task_of(file, RECORDS, f"&template={template}")
    assert len(task.rows()) == 4
    for row in task.rows():
        score = task.score(row.gold or "", row)
        # accuracy 2.0, reasoning 0.2, format 0.2
        assert score.value == pytest.approx(2.4) and score.solved and not score.why, (row, score)


def test_the_form_of_the_gold_follows_the_template(file: Path) -> None:
    golds = {template: task_of(file, RECORDS, f"&template={template}").rows()[0].gold for template in TEMPLATES}
    steps = "She keeps 48/2 = 24 pins.\nNow she has 24+5=29 pins."
    assert golds == {
        "plain": f" {steps}\n#### 29",
        "few_shot": f" {steps}\n#### 29",
        "r1": f"\n{steps}\n</think>\n<answer>\n29\n</answer>",
    }


def test_prompts(file: Path) -> None:
    question = RECORDS[0]["question"]
    prompts = {}
    for template in TEMPLATES:
        task = task_of(file, RECORDS, f"&template={template}")
        prompts[template] = str(task.prompt(task.rows()[0]))
    assert prompts["plain"].endswith(f"Question: {question}\nAnswer:") and "####" in prompts["plain"]
    instruction, last = prompts["r1"].split("\n", 1)
    assert last == f"Question: {question}\nResponse: <think>"
    assert "<think> </think>" in instruction and "<answer> </answer>" in instruction
    assert prompts["few_shot"].endswith(f"#### 42\n\nQuestion: {question}\nAnswer:")
    assert prompts["few_shot"].count("Question:") == len(EXAMPLES) + 1


def test_worked_examples_are_true() -> None:
    for question, reasoning, answer in EXAMPLES:
        assert question.endswith("?")
        assert reasoning.rstrip(".").split(" = ")[-1].split()[0] == answer or f"= {answer} " in reasoning
        assert has_form(f" {reasoning}\n#### {answer}", "few_shot")


def test_rows_hold_clean_fields(file: Path) -> None:
    rows = [row for row in task_of(file, RECORDS).rows() if isinstance(row, GSM8KRow)]
    assert [row.answer for row in rows] == ["29", "1200", "-5", "8"]
    assert [row.difficulty for row in rows] == [2.0, 1.0, 1.0, 1.0]
    assert not any("<<" in (row.gold or "") for row in rows)


@pytest.mark.parametrize(
    ("text", "accuracy", "solved"),
    [
        (" She has 29.\n#### 29", 2.0, True),
        (" The answer is 29.", 2.0, True),
        (" #### 29.0", 2.0, True),
        (" #### 28", 0.0, False),
        (" #### 129", 0.0, False),
        (" #### -29", 0.0, False),
        (" #### 28 or 29", 0.0, False),
        (" #### 29, 30, 31", 0.0, False),
        (" It is 29, no: 30.\n#### 30", 0.0, False),
        ("", 0.0, False),
        (" I do not know.", 0.0, False),
        (" #### 29\n\nQuestion: What is 1 + 1?\nAnswer: 2\n#### 2", 2.0, True),  # it went on by itself
    ],
)
def test_accuracy(file: Path, text: str, accuracy: float, solved: bool) -> None:
    task = task_of(file, RECORDS)
    score = task.score(text, task.rows()[0])
    assert (score.parts["accuracy"], score.solved) == (accuracy, solved)


@pytest.mark.parametrize(
    ("text", "accuracy", "form"),
    [
        ("\n48 / 2 + 5 = 29\n</think>\n<answer>\n29\n</answer>", 2.0, 1.0),
        ("48 / 2 + 5 = 29</think><answer>29</answer>", 2.0, 1.0),
        ("29</think><answer>28</answer>", 0.0, 1.0),  # the right number in the thinking only
        ("\nIt is 29.", 0.0, 0.0),  # still thinking
        ("</think><answer>29</answer><answer>28</answer>", 2.0, 0.0),  # the first closing tag ends the completion
        ("</think><answer>29</answer> and more", 2.0, 0.0),
        ("</think><answer>28 or 29</answer>", 0.0, 1.0),
    ],
)
def test_r1(file: Path, text: str, accuracy: float, form: float) -> None:
    task = task_of(file, RECORDS, "&template=r1")
    score = task.score(text, task.rows()[0])
    assert (score.parts["accuracy"], score.parts["format"], score.solved) == (accuracy, form, accuracy == 2.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 48/2 = 24\n#### 29", True),
        (" 48/2 = 24\n#### 29\n", True),
        (" #### 24\n#### 29", False),
        (" 29", False),
        (" 29\n####", False),
        (" so #### 29", False),
        (" #### 29\nDone.", False),
        ("", False),
    ],
)
def test_the_form_of_plain_answers(text: str, value: bool) -> None:
    assert has_form(text, "plain") is value


def test_reasoning_pays_for_true_steps_not_for_length(file: Path) -> None:
    task = task_of(file, RECORDS)
    row = task.rows()[0]
    true, false, none, long = (
        task.score(text, row).parts["reasoning"]
        for text in (
            " 48/2 = 24\n24+5 = 29\n#### 29",
            " 48/2 = 25\n24+5 = 30\n#### 29",
            " #### 29",
            " I think about it carefully." * 50 + "\n#### 29",
        )
    )
    assert (true, false, none, long) == (1.0, 0.0, 0.0, 0.0)


def test_where_the_reference_shows_no_arithmetic_reasoning_follows_the_answer(file: Path) -> None:
    task = task_of(file, RECORDS)
    spiders = task.rows()[3]
    assert task.score(" #### 8", spiders).parts["reasoning"] == 1.0
    assert task.score(" 2 + 5 = 7\n#### 7", spiders).parts["reasoning"] == 0.0


def test_reasoning_is_measured_against_the_references_own(file: Path) -> None:
    # Half of the reference's steps are true, as in some rows of the dataset: as good as that is good enough.
    record = {"question": "Q?", "answer": "2*3=6\n6+1=8\n#### 8"}
    task = task_of(file, [record])
    row = task.rows()[0]
    texts = (row.gold or "", " 2*3=6\n#### 8", " 2*3=6\n6+1=8\n6+2=9\n6+3=1\n#### 8")
    # Shares 1/2, 1 and 1/4, over 1/2.
    assert [task.score(text, row).parts["reasoning"] for text in texts] == [1.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("preset", "template", "text", "value"),
    [
        ("signed", "plain", " #### 29", 1.0),
        ("signed", "plain", " 29, or rather\n#### 28", 0.5),
        ("signed", "plain", " #### 129", -1.0),
        ("signed", "plain", "", -1.0),
        ("tag_pref", "r1", "</think><answer>29</answer>", 1.0),
        ("tag_pref", "r1", "</think><answer>28</answer>", 0.0),
        ("tag_pref", "r1", "</think>29", 0.0),
        ("tag_math_correct", "r1", "</think><answer>29</answer>", 1.0),
        ("tag_math_correct", "r1", "</think><answer>28</answer>", 0.0),
        ("tag_math_correct", "r1", "<answer>29</answer></think><answer>29</answer>", 1.0),  # cut at the first
    ],
)
def test_presets(file: Path, preset: str, template: str, text: str, value: float) -> None:
    task = task_of(file, RECORDS, f"&template={template}&rewards={preset}")
    row = task.rows()[0]
    score = task.score(text, row)
    assert score.value == pytest.approx(value), score
    gold = task.score(row.gold or "", row)
    assert gold.value == pytest.approx(1.0) and gold.solved


def test_length_costs_what_the_options_say(file: Path) -> None:
    plain, penalized = (
        task_of(file, RECORDS, options) for options in ("", "&length_penalty=0.5&free_chars=10&max_chars=20")
    )
    row = plain.rows()[0]
    for chars, cost in ((5, 0.0), (10, 0.0), (15, -0.25), (20, -0.5), (400, -0.5)):
        text = f"#### {row.answer}".rjust(chars)
        free, costly = plain.score(text, row), penalized.score(text, row)
        assert "length" not in free.parts and costly.parts["length"] == pytest.approx(cost)
        assert costly.value == pytest.approx(free.value + cost) and costly.solved
    invalid = penalized.score("no number " * 40, row)
    assert not invalid.valid and invalid.value == pytest.approx(-0.5)
    with pytest.raises(UserError, match="free_chars 200 must be below max_chars 200"):
        load_task("math.gsm8k", free_chars=200)


def test_a_preset_that_needs_tags_needs_their_template() -> None:
    with pytest.raises(UserError, match="template=r1"):
        load_task("math.gsm8k?rewards=tag_pref")


@pytest.mark.parametrize("form", ["auto", "latex"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_latex_form(file: Path, form: str, template: str) -> None:
    task = task_of(file, LATEX, f"&form={form}&template={template}")
    (row,) = task.rows()
    assert isinstance(row, GSM8KRow)
    assert (row.question, row.answer) == ("A row has 6 trees. How many have 3 rows?", "18")
    score = task.score(row.gold or "", row)
    assert score.value == pytest.approx(2.4) and score.solved


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"question": "Q?"}, "", "train.jsonl:1: no field 'answer'"),
        ({"question": "Q?", "answer": "5"}, "", "train.jsonl:1: answer: no ####"),
        ({"question": "Q?", "answer": "####"}, "", "a final answer of 0 characters"),
        ({"question": " ", "answer": "#### 5"}, "", "an empty question"),
        ({"question": "Q?", "answer": 5}, "", "answer: a int where text is wanted"),
        ({"index": 1, "text": "Q? 18"}, "", "text: not of the form"),
        ({"text": "Q?<think>x</think><answer>5</answer>!"}, "", "text: not of the form"),
        ({"text": "Q?<think>x</think>y<answer>5</answer>"}, "", "text: not of the form"),
        ({"question": "Q?", "answer": "#### 5"}, "&form=latex", "no field 'text'"),
        ({"q": "Q?", "a": "#### 5"}, "", "fields="),
    ],
)
def test_a_record_that_does_not_fit_names_file_line_and_field(
    file: Path, record: dict[str, object], options: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        task_of(file, [record], options).rows()
    assert message in str(caught.value)


def test_fields_can_be_mapped(file: Path) -> None:
    task = task_of(file, [{"q": "1 + 1?", "a": "1 + 1 = 2\n#### 2"}], "&fields=question:q,answer:a")
    assert task.score("#### 2", task.rows()[0]).solved


def test_a_question_that_is_there_twice_is_taken_once(file: Path) -> None:
    assert len(task_of(file, [*RECORDS, RECORDS[0]]).rows()) == len(RECORDS)


def test_one_file_is_split_by_content(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(
        b"\n".join(orjson.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) for n in range(200))
    )
    splits = [
        {row.id for row in load_task(f"math.gsm8k?path={path}&split={split}").rows()}
        for split in ("train", "validation", "test")
    ]
    assert sum(map(len, splits)) == len(set.union(*splits)) == 200
    assert len(splits[0]) > 130  # 80% of 200 is 160, standard deviation 6


HOSTILE = (
    "\x00",
    "nan",
    "#" * 100_000,
    "#### " * 20_000,
    "=" * 100_000,
    "1=" * 50_000,
    "<<" * 50_000,
    "\\boxed{" * 20_000,
    "<answer>" * 20_000,
    "</think>" * 20_000,
    "9" * 100_000,
    "\ud800",
    "\nQuestion:" * 10_000,
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_hostile_text_is_scored_and_earns_nothing(file: Path, template: str) -> None:
    task = task_of(file, RECORDS, f"&template={template}")
    for text in HOSTILE:
        score = task.score(text, task.rows()[0])
        assert score.value == 0.0 and not score.solved, (text[:20], score)


def shared_data(name: str) -> Path:
    """A real file, from GRPO_SHARED_DATA or a `shared/data` folder above this file."""
    folders = [Path(os.environ["GRPO_SHARED_DATA"])] if "GRPO_SHARED_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is in none of the folders: set GRPO_SHARED_DATA")


@pytest.mark.parametrize(
    ("name", "template", "every"),
    [
        ("gsm8k_train.jsonl", "plain", 1),
        ("gsm8k_train.jsonl", "r1", 8),
        ("gsm8k_train.jsonl", "few_shot", 8),
        *(("gsm8k_test_500.jsonl", template, 1) for template in TEMPLATES),
    ],
)
def test_real_golds_earn_the_maximum_and_corrupted_ones_do_not(
    tmp_path: Path, name: str, template: str, every: int
) -> None:
    (tmp_path / "train.jsonl").symlink_to(shared_data(name))
    task = load_task(f"math.gsm8k?path={tmp_path / '{split}.jsonl'}&template={template}")
    rows = [row for row in task.rows() if isinstance(row, GSM8KRow)]
    assert len(rows) >= 500
    mark = "<answer>\n" if template == "r1" else "#### "
    for row in rows[::every]:
        assert row.gold is not None
        score = task.score(row.gold, row)
        assert score.value == pytest.approx(2.4) and score.solved, (row, score)
    for row in rows[::10]:
        assert row.gold is not None
        corrupted = row.gold.replace(f"{mark}{row.answer}", f"{mark}{row.answer}7")
        score = task.score(corrupted, row)
        assert corrupted != row.gold and score.parts["accuracy"] == 0.0 and not score.solved, (corrupted, score)
