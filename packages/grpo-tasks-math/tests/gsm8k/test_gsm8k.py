from pathlib import Path

import orjson
import pytest

from grpo_sdk import BoundTask, UserError, load_task
from grpo_tasks_math.gsm8k import EXAMPLES, GSM8KRow, Template, has_form

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
LATEX = [{"index": 7, "text": "6 by 3?\n<think>\nThere are $3 \\times 6 = 18$.\n</think>\n<answer>\n18\n</answer>"}]


def task_of(path: Path, records: list[dict[str, object]] | list[dict[str, str]], options: str = "") -> BoundTask:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    # A name with {split} in it is one file per split: all of its rows are in this one.
    return load_task(f"math.gsm8k?path={path.with_name('{split}.jsonl')}{options}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


@pytest.mark.parametrize("template", TEMPLATES)
def test_gold_earns_the_maximum_in_the_form_of_its_template(file: Path, template: str) -> None:
    task = task_of(file, [*RECORDS, RECORDS[0]], f"&template={template}")
    rows = [row for row in task.rows() if isinstance(row, GSM8KRow)]
    assert [row.answer for row in rows] == ["29", "1200", "-5", "8"]  # what is there twice is taken once
    assert [row.difficulty for row in rows] == [2.0, 1.0, 1.0, 1.0]
    steps = "She keeps 48/2 = 24 pins.\nNow she has 24+5=29 pins."
    ends = {"r1": f"\n{steps}\n</think>\n<answer>\n29\n</answer>"}
    assert rows[0].gold == ends.get(template, f" {steps}\n#### 29")
    for row in rows:
        score = task.score(row.gold or "", row)
        # accuracy 2.0, reasoning 0.2, format 0.2
        assert score.value == pytest.approx(2.4) and score.solved and not score.why, (row, score)


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


@pytest.mark.parametrize(
    ("options", "text", "accuracy", "form"),
    [
        ("", " The answer is 29.", 0.0, 0.0),  # it is not in the mark that the prompt asks for
        ("&reading=free", " The answer is 29.", 2.0, 0.0),
        ("", " It is 29, no: 30.\n#### 30", 0.0, 1.0),
        ("", "", 0.0, 0.0),
        ("", " #### 29\n\nQuestion: What is 1 + 1?\nAnswer: 2\n#### 2", 2.0, 1.0),  # it went on by itself
        ("&template=r1", "48 / 2 + 5 = 29</think><answer>29</answer>", 2.0, 1.0),
        ("&template=r1", "29</think><answer>28</answer>", 0.0, 1.0),  # the right number in the thinking only
        ("&template=r1", "\nIt is 29.", 0.0, 0.0),  # still thinking
        ("&template=r1", "</think><answer>29</answer><answer>28</answer>", 2.0, 0.0),  # it ends at the first
        ("&template=r1", "</think><answer>29</answer> and more", 2.0, 0.0),
        ("&template=r1", "</think><answer>28 or 29</answer>", 0.0, 1.0),
    ],
)
def test_accuracy_and_form(file: Path, options: str, text: str, accuracy: float, form: float) -> None:
    task = task_of(file, RECORDS, options)
    score = task.score(text, task.rows()[0])
    assert (score.parts["accuracy"], score.parts["format"], score.solved) == (accuracy, form, accuracy == 2.0)


def test_the_form_of_plain_answers() -> None:
    for text in (" 48/2 = 24\n#### 29", " 48/2 = 24\n#### 29\n"):
        assert has_form(text, "plain"), text
    for text in (" #### 24\n#### 29", " 29", " 29\n####", " so #### 29", " #### 29\nDone.", ""):
        assert not has_form(text, "plain"), text


@pytest.mark.parametrize(
    ("place", "text", "value"),
    [
        (0, " 48/2 = 24\n24+5 = 29\n#### 29", 1.0),
        (0, " 48/2 = 25\n24+5 = 30\n#### 29", 0.0),
        (0, " #### 29", 0.0),
        (0, " I think about it carefully." * 50 + "\n#### 29", 0.0),
        # Where the reference shows no arithmetic, it follows the answer.
        (3, " #### 8", 1.0),
        (3, " 2 + 5 = 7\n#### 7", 0.0),
    ],
)
def test_reasoning_pays_for_true_steps_not_for_length(file: Path, place: int, text: str, value: float) -> None:
    task = task_of(file, RECORDS)
    assert task.score(text, task.rows()[place]).parts["reasoning"] == value


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
        ("tag_pref", "r1", "</think><answer>29</answer>", 1.0),
        ("tag_math_correct", "r1", "</think><answer>29</answer>", 1.0),
        ("tag_math_correct", "r1", "<answer>29</answer></think><answer>29</answer>", 0.0),  # cut at the first
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


@pytest.mark.parametrize(
    ("options", "message"), [("rewards=tag_pref", "template=r1"), ("free_chars=200", r"free_chars 200 .*max_chars 200")]
)
def test_options_that_contradict_each_other_are_refused(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task(f"math.gsm8k?{options}")


@pytest.mark.parametrize(("form", "template"), [("auto", "plain"), ("latex", "r1")])
def test_the_latex_form(file: Path, form: str, template: str) -> None:
    task = task_of(file, LATEX, f"&form={form}&template={template}")
    (row,) = task.rows()
    assert isinstance(row, GSM8KRow)
    assert (row.question, row.answer) == ("6 by 3?", "18")
    score = task.score(row.gold or "", row)
    assert score.value == pytest.approx(2.4) and score.solved


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"question": "Q?"}, "", "train.jsonl:1: no field 'answer'"),
        ({"question": "Q?", "answer": "5"}, "", "train.jsonl:1: answer: no ####"),
        ({"question": " ", "answer": "#### 5"}, "", "an empty question"),
        ({"index": 1, "text": "Q? 18"}, "", "text: not of the form"),
        ({"question": "Q?", "answer": "#### 5"}, "&form=latex", "no field 'text'"),
        ({"q": "Q?", "a": "#### 5"}, "", "fields="),
    ],
)
def test_a_record_that_does_not_fit_names_file_line_and_field(
    file: Path, record: dict[str, object], options: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        task_of(file, [record], options).rows()
