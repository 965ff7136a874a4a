"""`core.qa`: a file of one's own and a verifier are a task."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from grpo_sdk import load_task
from grpo_sdk.errors import DataError, GrpoError, UserError
from grpo_sdk.task.score import Score
from grpo_sdk.tasks import verifiers
from grpo_sdk.tasks.verifiers import REGEX_TIMEOUT_S

Write = Callable[..., str]

MAPPED = "&fields=question:prompt,answer:gold"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes records to a JSONL file and returns the task's spec; every row is of the split that is read."""
    monkeypatch.setattr("urllib.request.urlopen", None)  # no schema is fetched

    def make(records: Sequence[dict[str, Any]], options: str = "") -> str:
        for split in ("train", "validation", "test"):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (tmp_path / f"{split}.jsonl").write_text(text)
        return f"core.qa?path={tmp_path}/{{split}}.jsonl{options}"

    return make


def referring(reference: str) -> dict[str, Any]:
    """A schema with a definition `a`, and a reference."""
    return {"$defs": {"a": {"type": "integer"}}, "properties": {"x": {"items": {"$ref": reference}}}}


def scored(spec: str, text: str) -> Score:
    task = load_task(spec)
    return task.score(text, task.rows()[0])


PERCENT = ["60 %", "60 percent", r"60\,\%", r"$60\%$", "60 per cent", "60", "0.6"]
JSON = [
    '{"a": "```py\\nx\\n```"}', '{"a": "#### Title"}', '{"a": "<answer>"}', '{"a": "<think>"}', '#### {"a": 1}',
    '```json\n{"a": "use ``` here"}\n```', 'so\n```json\n{"a": "<answer> or ####"}\n```',
    '<think>{}</think>{"a": "#### </b>"}', '```json\n{}\n```\n<answer>{"a": 1}</answer>',
]  # fmt: skip
NO_JSON = ["{}", '<think>{"a": 1}</think>{}', '```json\n{"a": 1}\n```\n<answer>{}</answer>']
FENCED = ['```JSON\n{"a": 1}\n```', 'so\n```json\n{"a": 1}', '```\n{"a": 1}```', '```json\n{}\n```\nor\n```\n{"a": 1}']


@pytest.mark.parametrize(
    ("verifier", "gold", "right", "wrong", "invalid"),
    [
        ("exact", "New York", [" new  york\n", "It is <answer>New York</answer>."], ["York", "New York City"], [" "]),
        ("exact", "Paris", ['Answer: "Paris"', "**Paris**", "\u201cParis.\u201d"], ["*Paris", "'Paris' or 'Rome'"], []),
        ("exact", "U.S.", ["The answer is U.S.", "`U.S.`"], ["US"], ["<think>U.S."]),
        ("exact", r"so \boxed{7}", [r"so \boxed{7}", "7", "#### 7"], ["3+4 = 7"], []),
        ("number", "1,250.5", [" 1250.5", "so #### 1,250.50", r"\boxed{1250.5}"], ["1250"], ["many", "1250.5 + 1"]),
        ("number", 0.75, ["3/4", "75%", ".75", "7.5e-1"], ["0.7500001", "-0.75"], ["0.75!", "3 * 0.25", "0.75x"]),
        ("number", 123456789012, ["123456789012", "123,456,789,012.0"], ["123456789099", "123456789013"], []),
        ("number", "60%", PERCENT, ["6", "0.6%"], []),
        ("number", 60, ["60%", "60 percent", "60"], ["0.6", "6000"], []),
        # What marks an amount or an end may stand beside a gold.
        *(("number", gold, ["1250"], [], []) for gold in ("$1,250", "1 250 \u20ac", r"\$1250", "(1250)", "**1250**")),
        ("math", r"\frac{1}{2}", ["The answer is 1/2.", r"\boxed{0.5}"], ["The answer is 2."], ["It is 1/2, I think"]),
        ("choice", "B", ["B", "(B)", "Answer: B.", "b"], ["A"], ["both", "B or C", "A or B", "A is wrong, so B"]),
        ("regex", r"\d{4}-\d\d", ["2024-05", "the date: #### 2024-05"], ["2024-05-01"], []),
        ("json", {"type": "object", "required": ["a"]}, ['{"a": 1}', '```json\n{"a": 2}\n```'], ["{}", "3"], ["{a}"]),
        ("json", {"required": ["a"]}, FENCED, ["```{}", '```{"a": 1}\n```\nor\n```\n{}'], []),
        ("json", {"type": "object", "minProperties": 1}, JSON, NO_JSON, ['{"a": ```}', '<think>{"a": 1}']),
        ("json", {"type": "string", "pattern": "^a+$"}, ['"aa"'], ['"ab"', "3"], []),
        ("json", {"type": "object"}, ['{"a": 1}'], ["[1]"], ['{"a": 1, "a": 2}', '{"a": 1e999}', '{"a": NaN}']),
        ("json", {"format": "date"}, ['"2024-02-29"'], ['"2023-02-29"'], []),
        ("json", {"uniqueItems": True}, ["[1, true, [1], {}]"], ["[1, 1.0]", '[{"a": 1}, {"a": 1.0}]'], []),
        ("json", referring("#/$defs/a"), ['{"x": [1]}'], ['{"x": ["1"]}'], []),
        ("json", {"patternProperties": {"^a": {"type": "string"}}}, ['{"ab": "x", "b": 1}'], ['{"ab": 1}'], []),
        ("code", "assert f(2) == 4", ["def f(n): return 2 * n"], ["def f(n): return n"], []),
    ],
)
def test_verifiers(
    write: Write, verifier: str, gold: Any, right: list[str], wrong: list[str], invalid: list[str]
) -> None:
    spec = write([{"prompt": "a question", "gold": gold}], f"{MAPPED}&verifier={verifier}")
    task = load_task(spec)
    row = task.rows()[0]
    for text in right:
        assert task.score(text, row).solved, text
    for text in wrong:
        score = task.score(text, row)
        assert (score.value, score.solved, score.valid) == (0.0, False, True), text
    for text in invalid:
        assert not task.score(text, row).valid, text


@pytest.mark.parametrize(
    "answer", ["\ndef f(n):\n    #### double\n    return 2 * n\n", "\n```python\ndef f(n): return 2 * n\n```\n"]
)
def test_a_program_in_thinking_is_no_answer(write: Write, answer: str) -> None:
    task = load_task(write([{"prompt": "a question", "gold": "assert f(1) == 2"}], f"{MAPPED}&verifier=code"))
    row = task.rows()[0]
    # In the last form the answer stands before a thought that does not end.
    right = ("<think>x</think>\n{}", "x, so\n</think>{}", "<think>x</think><answer>{}", "<answer>{}</answer><think>")
    for form in right:
        assert task.score(form.format(answer), row).solved, form
    for form in ("<think>{}</think>", "<think>{}", "<think><answer>{}</answer>", "{}</think>"):
        assert not task.score(form.format(answer), row).solved, form


@pytest.mark.parametrize("form", ["{}) {}", "({}) {}", "{}. {}", "{}: {}"])
def test_choices_that_carry_their_letters_are_listed_once(write: Write, form: str) -> None:
    choices = [form.format(*pair) for pair in (("A", "Rome"), ("B", "Paris"), ("C", "Oslo"))]
    for gold in (choices[1], "Paris", "B"):
        spec = write([{"question": "Which?", "answer": gold, "choices": choices}], "&verifier=choice")
        task = load_task(spec)
        assert task.prompt(task.rows()[0]) == "Question: Which?\nA) Rome\nB) Paris\nC) Oslo\nAnswer:"
        assert scored(spec, f" {gold}").solved and scored(spec, "The answer is Paris.").solved
        assert not scored(spec, "Oslo").solved


@pytest.mark.parametrize(
    ("verifier", "gold", "form"),
    [
        ("regex", "(a|aa)+b", "{}"),
        ("json", {"pattern": "^(a|aa)+b"}, '"{}"'),
        ("json", {"patternProperties": {"^(a|aa)+b": True}}, '{{"{}": 1}}'),
    ],
)
def test_a_hostile_pattern_and_answer_cost_a_second_and_fail_the_completion(
    write: Write, verifier: str, gold: Any, form: str
) -> None:
    task = load_task(write([{"question": "a question", "answer": gold}], f"&verifier={verifier}"))
    began = time.perf_counter()
    hostile, fine = (task.score(form.format(text), task.rows()[0]) for text in ("a" * 5000 + "c", "aab"))
    assert (hostile.solved, fine.solved) == (False, True)
    assert hostile.value == 0.0 and time.perf_counter() - began < 10 * REGEX_TIMEOUT_S


def test_a_schema_of_exponential_work_costs_a_second_and_fails_the_completion(write: Write) -> None:
    # Each level of nesting is checked twice by each of two alternatives.
    inner = {"items": {"$ref": "#/$defs/n"}}
    gold = {"$defs": {"n": {"anyOf": [{**inner, "minItems": 9}, inner]}}, "$ref": "#/$defs/n"}
    task = load_task(write([{"question": "a question", "answer": gold}], "&verifier=json"))
    began = time.perf_counter()
    score = task.score("[" * 40 + "]" * 40, task.rows()[0])
    assert score.value == 0.0 and "1 s" in score.why and time.perf_counter() - began < 5
    assert task.score("[[]]", task.rows()[0]).solved
    unique = load_task(write([{"question": "a question", "answer": {"uniqueItems": True}}], "&verifier=json"))
    assert unique.score(json.dumps([number * (2**61 - 1) for number in range(9000)]), unique.rows()[0]).solved
    assert unique.score(json.dumps([{"a": number} for number in range(9000)]), unique.rows()[0]).solved


def test_json_that_is_nested_deeper_than_a_schema_can_follow_is_invalid(write: Write) -> None:
    gold = {"type": "object", "properties": {"x": {"items": {"$ref": "#"}}}}
    spec = write([{"question": "q", "answer": gold}], "&verifier=json")
    assert scored(spec, '{"x":[{}]}').solved
    score = scored(spec, '{"x":[' * 200 + "{}" + "]}" * 200)
    assert (score.valid, score.fault) == (False, "") and "nested too deeply" in score.why


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"4", "answer holds bytes"),
        (math.nan, "nan"),
        ([math.inf], "JSON"),
    ],
)
def test_a_value_that_is_no_json_is_named_with_its_row(tmp_path: Path, value: object, message: str) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"question": "q", "answer": value}]), path)
    with pytest.raises(DataError, match=rf"rows\.parquet row 0: .*{message}"):
        load_task(f"core.qa?path={path}").rows()


NOT_ONE_NUMBER = ["2024-01-15", "0x10", "5!", "1_000", "5cm", "about 5", "\u221a2", "-(3)", "5th", "1/2/3", "12:30"]
NOWHERE = ("http://127.0.0.1:1/schema.json", "#/nothing", "#/$defs/b")
TWICE = {f"d{n + 1}": {"allOf": [{"$ref": f"#/$defs/d{n}"}] * 2} for n in range(30)}
HOSTILE_SCHEMAS = (
    {"$schema": 5}, '{"minimum":NaN}', '{"minimum":1e999}', '{"type":"a","type":"string"}', {"$dynamicRef": "#zz"},
    {"unevaluatedProperties": False}, {"items": {"$schema": "http://x"}}, {"format": "int32"}, {"format": "nothing"},
    reduce(lambda inner, _: {"items": inner}, range(300), {}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("verifier", "gold", "message"),
    [
        *(("number", gold, "is not one number alone") for gold in NOT_ONE_NUMBER),
        *((verifier, gold, "answer is the number") for verifier in ("exact", "regex") for gold in (7.0, 2.5, 1e20)),
        ("number", None, "answer is null"),
        ("choice", "Z", "must be a letter from A to J"),
        ("regex", "(", "is not a regular expression"),
        ("json", "{", "is not a JSON schema"),
        *(("json", schema, "not a JSON schema") for schema in HOSTILE_SCHEMAS),
        ("json", {"pattern": "("}, "is not a regular expression"),
        ("json", {"type": "objekt"}, "is not a JSON schema"),
        *(("json", referring(nowhere), "cannot be resolved") for nowhere in NOWHERE),
        ("json", {"$ref": "#"}, "is a JSON schema that never ends"),
        ("json", {"$defs": {"d0": {}, **TWICE}, "$ref": "#/$defs/d30"}, "not within 1 s"),
        ("code", "assert", "the gold is not Python"),
        ("code", "print(1)", "asserts nothing"),
        ("code", "def near(a):\n  assert a == 1\nnear(f(1))\nf(2)", "test 1 asserts nothing"),
        ("exact", r"so \boxed{}", "marks an empty answer"),
        ("regex", "(" * 2000 + ")" * 2000, "is not a regular expression"),
    ],
)
def test_a_gold_that_does_not_parse_is_named_with_its_line(
    write: Write, verifier: str, gold: Any, message: str
) -> None:
    good = {"number": 1, "choice": "A", "regex": "a", "json": {}, "code": "assert f(1) == 1", "exact": "a"}[verifier]
    records = [{"question": "one", "answer": good}, {"question": "two", "answer": gold}]
    with pytest.raises(DataError) as caught:
        load_task(write(records, f"&verifier={verifier}")).rows()
    assert "train.jsonl:2: " in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("&verifier=code&template=steps", "template: steps .*comment in Python"),
        ("&template=mine", "template: must be qa, plain, steps, tags"),
        ("&fields=question:nothing", "no field 'nothing'. It has: question, answer"),
        ("&fields=question:question,answers:answer", "no field 'answers'. Did you mean 'answer'"),
    ],
)
def test_a_wrong_option_is_refused(write: Write, options: str, message: str) -> None:
    with pytest.raises(GrpoError, match=message):
        load_task(write([{"question": "one", "answer": "a"}], options)).rows()


def test_a_repeated_row_is_read_once_and_counted(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    records = [{"question": text, "answer": "x"} for text in ("a?", "b?", "a?", " a? ", "c?")]
    ids = [row.id for row in load_task(write([records[0], records[1], records[4]])).rows()]
    assert not caplog.messages
    assert [row.id for row in load_task(write(records)).rows()] == ids
    assert [message.partition(": ")[2] for message in caplog.messages] == ["dropped 2 repeated rows."]
    caplog.clear()  # and once where size ends the reading
    spec = write([{"question": text, "answer": "x"} for text in ("a?", "a?", "b?", "b?")], "&size=2")
    assert len(load_task(spec).rows()) == len(load_task(spec).rows()) == 2
    assert [message.partition(": ")[2] for message in caplog.messages] == ["dropped 1 repeated row."]


def test_two_golds_of_a_dataset_that_nobody_can_edit_are_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [("o/n row 0", {"question": "a?", "answer": "x"}), ("o/n row 1", {"question": "a?", "answer": "y"})]
    monkeypatch.setattr("grpo_sdk.data.records._hub_records", lambda name, split: iter(records))
    assert [row.gold for row in load_task("core.qa?path=hub:o/n").rows()] == [" x", " y"]


def test_a_question_may_come_with_other_choices(write: Write) -> None:
    records = [
        {"question": "Which is even?", "answer": answer, "choices": choices}
        for answer, choices in (("A", ["2", "3"]), ("A", ["4", "5"]), ("B", ["5", "6"]))
    ]
    rows = load_task(write(records, "&verifier=choice")).rows()
    assert len({row.id for row in rows}) == 3
    assert rows[0].id == load_task(write(records[:1], "&verifier=choice")).rows()[0].id


def test_code_is_worth_the_share_of_tests_that_pass_and_set_up_is_part_of_those_below_it(write: Write) -> None:
    gold = "import math\nassert f(1) == math.floor(2.5)\nlimit = 4\nassert f(2) == limit\nassert f(3) == limit + 2"
    spec = write([{"question": "Double it.", "answer": gold}], "&verifier=code")
    assert scored(spec, "def f(n): return 2 * n").solved
    share = scored(spec, "def f(n): return min(2 * n, 4)")
    assert share.value == pytest.approx(2 / 3) and not share.solved
    assert "sandbox" in load_task(spec).conditions


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("Easy.\n<answer>\n{right}\n</answer>", True),
        ("```python\n{wrong}\n```\n<answer>\n```python\n{right}\n```", True),
        ("```python\n{right}\n```\n<answer>\n```python\n{wrong}\n```", False),
    ],
)
def test_the_program_in_an_answer_tag_counts(write: Write, text: str, is_right: bool) -> None:
    spec = write([{"question": "Double it.", "answer": "assert f(1) == 2"}], "&verifier=code&template=tags")
    text = text.format(right="def f(n): return 2 * n", wrong="def f(n): return n")
    assert scored(spec, text).solved is is_right


@pytest.mark.parametrize("form", ["{}", "import math\n{}\ndef helper(): return 1", "[{}]"])
def test_functions_that_nothing_calls_are_tests_as_in_pytest(write: Write, form: str) -> None:
    first, second = "def test_one():\n    assert f(1) == 2\n", "def test_two():\n    assert f(2) == 4\n"
    gold = [first, second] if form == "[{}]" else form.format(first + second)
    spec = write([{"question": "Double it.", "answer": gold}], "&verifier=code")
    assert scored(spec, "def f(n): return 2 * n").solved
    assert scored(spec, "def f(n): return 2").value == 0.5
    assert scored(spec, "pass").value == 0.0


@pytest.mark.parametrize(("verifier", "package"), [("math", "grpo-tasks-math"), ("code", "grpo-tasks-code")])
def test_a_verifier_whose_package_is_missing_is_refused_by_name(
    write: Write, verifier: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifiers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"{verifier} needs {package}.*pip install"):
        load_task(write([{"question": "one", "answer": "1"}], f"&verifier={verifier}")).rows()


@pytest.mark.parametrize(
    ("template", "prompt", "completion"),
    [
        ("qa", "Question: 1 + 1 =\nAnswer:", " 2"),
        ("plain", "1 + 1 =\n", "2"),
        ("steps", "Solve the problem step by step.", "\n#### 2"),
        ("tags", "Answer the question.", " <answer>2</answer>"),
        ("Q: {question} A:", "Q: 1 + 1 = A:", " 2"),
        ('End with "Answer: N". {question}', "End", " Answer: 2"),
    ],
)
def test_templates_and_their_gold_completions(write: Write, template: str, prompt: str, completion: str) -> None:
    task = load_task(write([{"question": "1 + 1 =", "answer": 2}], f"&verifier=number&template={template}"))
    ((shown, demo),) = task.demos()
    assert str(shown).startswith(prompt) and demo == completion
    assert task.score(demo, task.rows()[0]).solved


def test_a_chat_and_a_completion_of_ones_own(write: Write) -> None:
    records = [{"question": "a year", "answer": r"\d{4}", "completion": "In 1999: #### 1999"}]
    task = load_task(write(records, "&verifier=regex&chat=true&template=plain"))
    ((prompt, demo),) = task.demos()
    assert prompt == ({"role": "user", "content": "a year\n"},)
    assert demo == "In 1999: #### 1999" and task.score(demo, task.rows()[0]).solved


def test_a_question_in_the_thinking_of_a_chat_model_ends_nothing(write: Write) -> None:
    spec = write([{"question": "q", "answer": "4"}])
    text = "<think>Restate.\nQuestion: q\n</think>\n4"
    assert scored(spec, text).solved and scored(spec, text + "\nQuestion: q\nAnswer: 5").solved
    spec = write([{"question": "q", "answer": "4"}], "&template=tags")
    assert scored(spec, "<think>not <answer>5</answer></think><answer>4</answer><answer>5</answer>").solved
    assert load_task(spec).task.stop == ("</answer>", "\nQuestion:")
    assert load_task(spec + "&chat=true").task.stop == ("</answer>",)


MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "1 + 1?"}]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_messages_in_place_of_a_question_are_the_prompt(tmp_path: Path, form: str) -> None:
    records = [
        {"prompt": MESSAGES, "gold": "2"},
        {"prompt": [*MESSAGES, {"role": "assistant", "content": "It is"}], "gold": "2"},
        {"prompt": [{"role": "user", "content": "system: Be short.\nuser: 1 + 1?"}], "gold": "2"},
        {"prompt": MESSAGES, "gold": "2"},  # again
    ]
    for split in ("train", "test"):
        if form == "jsonl":
            (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / f"{split}.parquet")
    task = load_task(f"core.qa?path={tmp_path}/{{split}}.{form}{MAPPED}&verifier=number")
    rows = task.rows()
    assert [task.prompt(row) for row in rows] == [tuple(record["prompt"]) for record in records[:3]]
    assert len({row.id for row in rows}) == 3
    assert all(task.row_from_json(row.model_dump_json()) == row for row in rows)
    assert task.score("The answer is 2", rows[0]).solved


NO_CHOICES = (["x", "x"], ["x", " x"], ["x", ""], "x|y|x", "x|")


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"question": "q"}, "", r"the same question as in .*train\.jsonl:1.*'q'"),
        ({"question": []}, "", "the question is empty"),
        ({"question": [{"role": "bot", "content": "x"}]}, "", r"a role \(system, user, assistant\) and a text.*'bot'"),
        ({"question": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "", "tool_calls"),
        ({"question": [*MESSAGES, "x"]}, "", "'str'"),
        ({"question": MESSAGES}, "&template=tags", "template=tags is for a question that is text"),
        *(({"choices": choices}, "&verifier=choice", "must be different texts, none") for choices in NO_CHOICES),
    ],
)
def test_a_record_that_cannot_be_used_is_named_with_its_line(
    write: Write, record: dict[str, Any], options: str, message: str
) -> None:
    records = [{"question": "q", "answer": "A"}, {"question": "Which?", "answer": "B", **record}]
    with pytest.raises(DataError, match=rf"train\.jsonl:2: .*{message}"):
        load_task(write(records, options)).rows()


def test_the_identity_holds_the_rows_in_use_and_the_whole_file(write: Write, tmp_path: Path) -> None:
    records = [{"question": f"{number} + 1?", "answer": str(number + 1)} for number in range(5)]
    spec = write(records, "&size=2")
    first = load_task(spec)
    ingredients, rows = first.ingredients, first.rows()
    assert load_task(spec).identity == first.identity
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"question": "9 + 1?", "answer": "10"}) + "\n")
    longer = load_task(spec)
    assert longer.rows() == rows and longer.identity != first.identity
    assert {name for name, value in longer.ingredients.items() if value != ingredients[name]} == {"data"}
    assert load_task(spec, size=3).ingredients["data"] != longer.ingredients["data"]
