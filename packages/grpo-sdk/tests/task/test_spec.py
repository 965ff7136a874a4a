import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk.errors import UserError
from grpo_sdk.task.spec import TaskSpec, names_of, parse_task_specs

IDENTIFIER = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUE = st.text(alphabet=string.printable + "äß漢🙂\0", max_size=12)
SPECS = st.builds(
    TaskSpec,
    st.builds("{}.{}".format, IDENTIFIER, IDENTIFIER) | st.builds("./a, b/{}.py:{}".format, IDENTIFIER, IDENTIFIER),
    st.just(1.0),
    st.dictionaries(IDENTIFIER, VALUE, max_size=3),
)
FIELDS = {"fields": "question:problem,answer:solution", "path": "./c++/a=b.csv"}


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("a.b:2,c.d:1?split=test&size=7", [TaskSpec("a.b", 2.0), TaskSpec("c.d", 1.0, {"split": "test", "size": "7"})]),
        (" a.b:0.5 , c.d ", [TaskSpec("a.b", 0.5), TaskSpec("c.d")]),
        # Values may hold commas, colons, equals and plus; a comma before a task separates even after a value.
        ("a.b?fields=question:problem,answer:solution&path=./c++/a=b.csv", [TaskSpec("a.b", 1.0, FIELDS)]),
        ("a.b?x=1,2,c.d?y=3,./f.py:t",
         [TaskSpec("a.b", 1.0, {"x": "1,2"}), TaskSpec("c.d", 1.0, {"y": "3"}), TaskSpec("./f.py:t")]),
        ("a.b?x=1%2C2%26%20", [TaskSpec("a.b", 1.0, {"x": "1,2& "})]),
        ("a.b?stop=", [TaskSpec("a.b", 1.0, {"stop": ""})]),
        ("../x/rhyme.py:couplet:3?size=2", [TaskSpec("../x/rhyme.py:couplet", 3.0, {"size": "2"})]),
        ("/tmp/my files/rhyme.py:couplet:3", [TaskSpec("/tmp/my files/rhyme.py:couplet", 3.0)]),
    ],
)  # fmt: skip
def test_specs_are_read(text: str, specs: list[TaskSpec]) -> None:
    assert parse_task_specs(text) == tuple(specs)


@given(st.lists(SPECS, min_size=1, max_size=3, unique_by=str))
def test_written_specs_read_back(specs: list[TaskSpec]) -> None:
    assert parse_task_specs(",".join(map(str, specs))) == tuple(specs)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        parse_task_specs(text)
    except UserError as error:
        assert "task" in str(error)


def test_a_written_spec_is_readable_and_has_no_weight() -> None:
    assert str(TaskSpec("a.b", 3.0, {"path": "data/{split}.jsonl"})) == "a.b?path=data/{split}.jsonl"


@pytest.mark.parametrize(("spec", "names"), [
    ("core.qa", ("core.qa", "core.qa", "core.qa")),
    ("core.qa?path=a&name=b", ("core.qa?path=a&name=b", "b", "core.qa")),
    ("core.qa?name=b&rename=c", ("core.qa?name=b&rename=c", "b", "core.qa")),
    ("core.qa?template=%26name=x", ("core.qa?template=%26name=x", "core.qa", "core.qa")),
])  # fmt: skip
def test_a_task_is_found_by_its_spec_its_given_name_and_its_own(spec: str, names: tuple[str, ...]) -> None:
    assert names_of(spec) == names


@pytest.mark.parametrize(("text", "message"), [
    ("", "cannot be read"),
    ("math gsm8k", r"Write plugin\.task or \./file\.py:task, with :weight or \?option=value"),
    ("a.b:", r"weight '' must be a number above 0, as in a\.b:2"),
    ("a.b:nan", "weight 'nan'"),
    ("a.b?size", "options are option=value, separated by '&'; got 'size'"),
    ("a.b?size=1&size=2", "option 'size' is given twice"),
    ("a.b,a.b", r"'a\.b' appears twice .* with a weight: a\.b:2"),
    ("a.b?path=\udcff", r"'a\.b\?path=\\udcff' is not UTF-8"),
    ("rhyme.py:couplet", r"a file starts with \./ or /, as in \./rhyme\.py:couplet"),
])  # fmt: skip
def test_what_cannot_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_task_specs(text)
