"""Tools: what a function's schema says, what a call may hold, and what the policy reads."""

import asyncio
import datetime
import enum
import functools
import importlib.util
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from grpo_sdk import ToolError, UserError, tool
from grpo_sdk.plugins import task_pickles
from grpo_sdk.task.tools.tool import MAX_DEPTH, MAX_PROBLEM_CHARS, result_text, schema_tool, tools_of

PROGRAMS = Path(__file__).parent / "programs"


class Line(BaseModel):
    item: str
    count: int = Field(1, ge=1)


@dataclass
class Point:
    x: float
    y: float = 0.0


class Unit(enum.Enum):
    KM = "km"
    MILES = "mi"


def add(a: int, b: int):
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """


def divide(a: float, b: float):
    """Divide.

    It is exact.

    Args:
        a: Numerator, which
            may be 0.
        b: Denominator.

    Returns:
        The quotient.

    Raises:
        ToolError: b is 0.
    """


def say(text: str):
    """Say.

    Args:
        text: What: that.
    """


def tree(children: dict[str, list[str]]):
    """Plant.

    Args:
        children: By parent.
    """


def anything(value: Any):
    """Take it.

    Args:
        value: Whatever.
    """


def now():
    """Tell the time."""


def only_keywords(*, city: str, days: int):
    """Forecast.

    Args:
        city: Where.
        days: How many.
    """


def several(a: str, b: list[Literal["x", "y"]], c: list[Any]):
    """Take several.

    Args:
        a: One.
        b: Two.
        c: Three.
    """


def in_brackets(amount: float):
    """Pay.

    Args:
        amount (float): How much.
    """


def optional_default(note: str | None = None):
    """Note it.

    Args:
        note: Text.
    """


def annotated(count: Annotated[int, Field(description="From Field.")]):
    """Order.

    Args:
        count: From the docstring.
    """


def numpy_form(a: int, b: int):
    """Add two numbers.

    Parameters
    ----------
    a : int
        The first.
    b : int
        The second.
    """


def rest_form(a: int):
    """Negate.

    :param a: The number.
    :returns: Its negative.
    """


def models(line: Line, place: Point, unit: Unit):
    """Send.

    Args:
        line: What.
        place: Where.
        unit: Of the distance.
    """


def spec_of(function: Callable[..., Any]) -> dict[str, Any]:
    return tools_of((function,))[0].spec


SAID_ALIKE = (add, divide, say, tree, anything, now, only_keywords, several, in_brackets)


@pytest.mark.parametrize("function", SAID_ALIKE)
def test_schemas_are_those_of_transformers_where_both_can_say_it(function: Callable[..., Any]) -> None:
    from transformers.utils import get_json_schema

    assert json.dumps(spec_of(function)) == json.dumps(get_json_schema(function))


def properties_of(function: Callable[..., Any]) -> dict[str, Any]:
    return spec_of(function)["function"]["parameters"]["properties"]


def test_the_schema_says_what_the_signature_does() -> None:
    Draft202012Validator.check_schema(EVERYTHING.parameters)
    schema = spec_of(models)["function"]["parameters"]
    assert schema["properties"]["line"] == {"$ref": "#/$defs/Line", "description": "What."}
    assert schema["$defs"]["Line"] == {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "default": 1, "minimum": 1}},
        "required": ["item"],
    }
    assert schema["$defs"]["Unit"] == {"type": "string", "enum": ["km", "mi"]}
    assert "title" not in json.dumps(schema)
    text_or_null = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Text."}
    assert properties_of(optional_default)["note"] == text_or_null
    assert properties_of(annotated)["count"]["description"] == "From Field."
    described = [each["description"] for each in properties_of(numpy_form).values()]
    assert described == ["The first.", "The second."]
    assert properties_of(rest_form)["a"]["description"] == "The number."


@tool
def convert(amount: float, unit: Literal["km", "mi"] = "km"):
    """Convert a distance."""
    return amount


@tool(ends=True, name="give-up", timeout_s=2)
async def give_up(reason: str):
    return reason


class Base:
    @tool
    def look(self) -> str:
        return "base"

    @tool
    def buy(self, item: str) -> str:
        return item

    def reset(self, row): ...


class Shop(Base):
    @tool(ends=True)
    async def order(self, item: str, count: int = 1) -> str:
        return item * count

    @tool
    def look(self, closely: bool) -> str:
        """Look around."""
        return "shop"


def test_marks_leave_functions_and_methods_as_they_are() -> None:
    assert convert(3.0) == 3.0
    assert pickle.loads(pickle.dumps(convert)) is convert
    assert asyncio.run(give_up("x")) == "x"
    assert Shop().look(True) == "shop"
    made = tools_of((convert, give_up), Shop)
    assert [each.name for each in made] == ["convert", "give-up", "look", "buy", "order"]  # as defined, bases first
    assert [each.is_method for each in made] == [False, False, True, True, True]
    assert [each.ends for each in made] == [False, True, False, False, True]
    assert [each.is_async for each in made] == [False, True, False, False, True]
    assert [each.timeout_s for each in made] == [None, 2, None, None, None]
    assert made[2].description == "Look around." and list(made[2].parameters["properties"]) == ["closely"]
    assert made[2].function(Shop(), closely=True) == "shop"
    assert tools_of((len_of,))[0].name == "len_of"  # a function that is listed needs no mark
    assert tools_of((Shop().order,))[0].validated({"item": "tea"}) == {"item": "tea", "count": 1}
    assert tools_of((functools.cache(len_of),))[0].validated({"text": "x"}) == {"text": "x"}


def len_of(text: str) -> int:
    return len(text)


def test_a_method_without_a_mark_takes_no_tools_place_silently() -> None:
    class Plain(Shop):
        def buy(self, item: str) -> str:
            return item

    class Removed(Shop):
        buy = None

    with pytest.raises(
        UserError, match=r"Plain.buy takes the place of a tool without being one: mark it .* buy = None"
    ):
        tools_of((), Plain)
    assert [each.name for each in tools_of((), Removed)] == ["look", "order"]


def test_tools_of_scripts_reach_other_processes_with_their_types() -> None:
    spec = importlib.util.spec_from_file_location("late_tools", PROGRAMS / "late_tools.py")
    late = sys.modules["late_tools"] = importlib.util.module_from_spec(spec)  # which no other process can import
    spec.loader.exec_module(late)
    made = tools_of((late.convert,), late.Shop)
    pickled = task_pickles.dumps(((late.convert,), late.Shop), "late", {})
    read = subprocess.run(
        [sys.executable, PROGRAMS / "read_tools.py"], input=pickled, capture_output=True, text=True, check=True
    )
    assert json.loads(read.stdout) == [each.spec for each in made]


class Opaque: ...


class Static:
    @staticmethod
    @tool
    def find(item: str) -> str: ...


class NoSelf:
    @tool
    def find(item: str) -> str: ...  # type: ignore[misc]


def gathers(a: int, *rest: int): ...
def positional(a: int, /): ...
def bare(a, b: int): ...
def opaque(a: int, b: Opaque): ...
def renamed(a: Annotated[int, Field(alias="b")]): ...
def yields(a: int):
    yield a


def unknown_type(a: "Missing"): ...  # noqa: F821
def stale(item: str):
    """Find.

    Args:
        itme: Its name.
    """


def dotted(a: int): ...


dotted.__name__ = "shop.find"


@pytest.mark.parametrize(("make", "said"), [
    (lambda: tools_of((gathers,)), r"'gathers': parameter '\*rest'.*take a list or a dict"),
    (lambda: tools_of((positional,)), r"'positional': parameter 'a' is positional-only"),
    (lambda: tools_of((bare,)), r"'bare': parameter 'a' has no annotation.* a: str"),
    (lambda: tools_of((opaque,)), r"'opaque': parameter 'b' has no JSON schema: .*Opaque.*pydantic model"),
    (lambda: tools_of((renamed,)), r"'renamed': parameter 'a'.*alias 'b'.*rename the parameter"),
    (lambda: tools_of((unknown_type,)), r"'unknown_type': parameter 'a': its annotation 'Missing'.*top of the module"),
    (lambda: tools_of((stale,)), r"'stale': its docstring describes 'itme', .* Did you mean 'item'\?"),
    (lambda: tools_of((yields,)), r"yields\(\) yields; let it return"),
    (lambda: tools_of((dotted,)), r"tool name 'shop.find': use 1 to 64 of a-z.*name='look_up'"),
    (lambda: tools_of((functools.partial(len_of, text=""),)), r"wrap it in a def"),
    (lambda: tools_of((3,)), r"3 among the tools must be a function"),
    (lambda: tools_of(len_of), r"tools=len_of must be a tuple, e.g. \(len_of,\)"),
    (lambda: tools_of((tool(name="buy")(lambda: 1),), Shop), r"two tools have the name 'buy': .*lambda.*Base.buy"),
    (lambda: tools_of((), NoSelf), r"'find' is a method of an environment: its first parameter must be self"),
    (lambda: tools_of((), Static), r"must be a function or a plain method"),
    (lambda: tool("look_up"), r"@tool\('look_up'\): write @tool, or @tool\(name=…"),
    (lambda: tool(timeout_s=0), r"timeout_s=0\) must be a finite time above 0"),
    (lambda: tool(name="look up")(len_of), r"tool name 'look up'"),
    (lambda: tool(Shop().look), r"look\(\) takes no mark.* wrap it in a def"),
    (lambda: tool(ends=True)(convert), r"convert\(\) is marked with another @tool already"),
])  # fmt: skip
def test_what_cannot_be_a_tool_is_refused_by_name(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


def test_a_default_that_json_does_not_have_is_no_part_of_the_schema() -> None:
    unset = object()

    def find(item: str, near: Annotated[Any, Field()] = unset): ...

    made = tools_of((find,))[0]
    assert made.parameters["properties"]["near"] == {}
    assert made.validated({"item": "a"}) == {"item": "a", "near": unset}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date


def everything(
    number: int = 0,
    real: float = 0.0,
    flag: bool = False,
    text: str = "",
    lines: list[Line] = [],  # noqa: B006 # as authors write
    point: Point | None = None,
    unit: Unit = Unit.KM,
    day: datetime.date | None = None,
    strict: Strict | None = None,
    note: str | None = None,
    mixed: Literal[1, "a"] = 1,
    anything: Any = None,
    counts: dict[str, int] = {},  # noqa: B006
    field: int = Field(5, le=9),
    copy: str = "c",  # names of a model's own methods, and with underscores
    _hidden: int = 1,
): ...


EVERYTHING = tools_of((everything,))[0]


@pytest.mark.parametrize(("given", "made"), [
    ({"number": "3"}, 3),
    ({"lines": [{"item": "tea"}]}, [Line(item="tea", count=1)]),
    ({"point": {"x": "1"}}, Point(1.0)),
    ({"unit": "km"}, Unit.KM),
    ({"day": "2026-01-02"}, datetime.date(2026, 1, 2)),
    ({"strict": {"day": "2026-01-02"}}, Strict(day=datetime.date(2026, 1, 2))),
    ({"note": "null"}, "null"),
    ({"mixed": "a"}, "a"),
    ({"anything": {"a": [1, None]}}, {"a": [1, None]}),
    ({"copy": "x"}, "x"),
    ({"_hidden": 2}, 2),
])  # fmt: skip
def test_arguments_are_converted_by_the_schema(given: dict[str, Any], made: Any) -> None:
    [(name, _)] = given.items()
    validated = EVERYTHING.validated(given)
    assert validated[name] == made and type(validated[name]) is type(made)
    everything(**validated)


def test_defaults_are_the_functions_and_no_call_sees_another_ones() -> None:
    defaults = EVERYTHING.validated({})
    assert defaults["field"] == 5 and defaults["unit"] is Unit.KM and defaults["_hidden"] == 1
    defaults["counts"]["a"] = 1
    assert EVERYTHING.validated({})["counts"] == {}


@pytest.mark.parametrize(("given", "said"), [
    ({"number": 3.5}, r"number: .*valid integer.* \(given 3.5\)"),
    ({"text": 3}, r"text: .*string \(given 3\)"),
    ({"real": "1e999"}, r"real: .*finite number"),
    ({"real": math.nan}, r"its arguments are no JSON"),
    ({"text": "\ud800"}, r"its arguments are no JSON.*surrogate"),
    ({"numbr": 1, "texts": ""}, r"unknown argument 'numbr' \(did you mean 'number'\?\); unknown argument 'texts'"),
    ({"zzz": 1}, r"unknown argument 'zzz' \(it takes number, real, flag, .*\)"),
    ({"lines": [{"count": 0}]}, r"missing argument 'lines.0.item'; lines.0.count: .*greater than or equal to 1"),
    ({"argument_number": 1}, r"unknown argument 'argument_number'"),
])  # fmt: skip
def test_wrong_arguments_are_told_to_the_policy(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=rf"^everything was not called: .*{said}"):
        EVERYTHING.validated(given)


def test_everything_that_is_wrong_is_told_at_once_and_in_bounds() -> None:
    def order(item: str, count: int, note: str): ...

    made = tools_of((order,))[0]
    given = r"unknown argument 'itm' \(did you mean 'item'\?\); missing argument 'item'; count: .* \(given 'x{40}'…\); "
    with pytest.raises(ToolError, match=rf"^order was not called: {given}missing argument 'note'$"):
        made.validated({"itm": "tea", "count": "x" * 100_000})
    names = {f"{'y' * 900}{number}": 1 for number in range(1000)}
    for huge in ({"lines": [{}] * 5_000}, names, {"x" * 100_000: 1}, {"number": [[["deep"] * 100] * 100] * 10}):
        with pytest.raises(ToolError) as told:
            EVERYTHING.validated(huge)
        assert len(str(told.value)) <= MAX_PROBLEM_CHARS + 100
    with pytest.raises(ToolError, match=r"everything was not called: 100,000 wrong values"):
        EVERYTHING.validated({"lines": [{}] * 100_000})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_arguments_nest_and_grow_up_to_a_bound() -> None:
    EVERYTHING.validated({"anything": nested(MAX_DEPTH - 1)})
    for levels in (MAX_DEPTH, 10_000):
        with pytest.raises(ToolError, match=r"nest deeper than 200 levels"):
            EVERYTHING.validated({"anything": nested(levels)})
    EVERYTHING.validated({"text": "é" * 500_000})
    with pytest.raises(ToolError, match=r"have 1,200,0.. bytes, of at most 1,048,576"):
        EVERYTHING.validated({"text": "é" * 600_000})
    for text in ("[" * 100_000, "-" * 100_000 + "1", "{1:" * 50_000, "(1," * 50_000, "1+" * 100_000 + "1", "9" * 9000):
        with pytest.raises(ToolError):
            EVERYTHING.validated({"counts": text}, are_texts=True)


@pytest.mark.parametrize("schema", [
    {},
    True,
    {"type": ["string", "null"]},
    {"$ref": "#/properties/text"},
    {"$ref": "#/definitions/a~1b/anyOf/1"},
    {"anyOf": [{"type": "integer"}, {"$ref": "#/properties/text"}]},
    {"enum": [1, "12"]},
], ids=str)  # fmt: skip
def test_a_text_stays_where_anothers_schema_takes_text(schema: Any) -> None:
    parameters = {
        "properties": {"text": {"type": "string"}, "other": schema, "number": {"$ref": "#/definitions/n"}},
        "definitions": {"a/b": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "n": {"type": ["integer", "null"]}},
    }
    made = schema_tool("other", "", parameters, lambda other: other)
    assert made.validated({"other": "12", "number": "12"}) == {"other": "12", "number": 12}


@pytest.mark.parametrize("schema", [
    {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {}}}}},
    {"additionalProperties": True},
], ids=str)  # fmt: skip
def test_anothers_schema_may_take_arguments_that_it_does_not_name(schema: dict[str, Any]) -> None:
    assert schema_tool("other", "", schema, lambda x: x).validated({"x": "a"}) == {"x": "a"}


def test_references_are_followed_once() -> None:
    doubled = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    parameters = {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**doubled, "a60": {"type": "integer"}}}
    assert schema_tool("other", "", parameters, lambda x: x).validated({"x": "12"}) == {"x": 12}


@pytest.mark.parametrize(("name", "text", "made"), [
    ("text", " 'a'\n", " 'a'\n"),
    ("number", " 3\n", 3),
    ("number", "007", 7),
    ("lines", '[{"item": "3", "count": "2"}]', [Line(item="3", count=2)]),
    ("point", "None", None),
    ("note", "null", None),  # of a parameter that takes both
    ("note", "3", "3"),
    ("day", "2026-01-02", datetime.date(2026, 1, 2)),
    ("unit", "'km'", Unit.KM),
    ("unit", "\nkm\n", Unit.KM),
    ("mixed", "a", "a"),
    ("anything", "true", True),
    ("anything", "{1, 2}", "{1, 2}"),
    ("anything", r"'\d'", r"\d"),
])  # fmt: skip
def test_texts_of_xml_formats_are_read_by_the_schema(name: str, text: str, made: Any) -> None:
    read = EVERYTHING.validated({name: text}, are_texts=True)[name]
    assert read == made and type(read) is type(made)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ARGUMENTS = st.fixed_dictionaries({}, optional={
    "number": st.integers(),
    "real": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "text": st.text(),
    "counts": st.dictionaries(st.text(), st.integers()),
    "note": st.none() | st.text().filter(lambda text: text.strip() not in ("null", "None")),
})  # fmt: skip


@given(ARGUMENTS, st.sampled_from([json.dumps, repr]))
def test_values_and_their_texts_are_the_same_call(arguments: dict[str, Any], spelled: Callable[[Any], str]) -> None:
    texts = {name: value if isinstance(value, str) else spelled(value) for name, value in arguments.items()}
    validated = EVERYTHING.validated(arguments)
    assert {name: validated[name] for name in arguments} == arguments
    assert EVERYTHING.validated(texts, are_texts=True) == validated


@given(st.dictionaries(st.sampled_from([*EVERYTHING.parameters["properties"], "other"]), JSON_VALUES), st.booleans())
def test_no_arguments_fail_in_another_way(arguments: dict[str, Any], are_texts: bool) -> None:
    """And what our schema refuses is refused, save what lax conversion takes."""
    try:
        everything(**EVERYTHING.validated(arguments, are_texts))
    except ToolError as error:
        assert 0 < len(str(error)) <= MAX_PROBLEM_CHARS + 100
    else:
        assert "other" not in arguments


def test_what_an_authors_validator_raises_is_not_the_policys_fault() -> None:
    def broken(value: int) -> int:
        raise KeyError(value)

    def picky(value: int) -> int:
        raise ValueError("only even ones")

    def find(a: Annotated[int, AfterValidator(broken)] = 0, b: Annotated[int, AfterValidator(picky)] = 0): ...

    made = tools_of((find,))[0]
    with pytest.raises(KeyError):
        made.validated({"a": 1})
    with pytest.raises(ToolError, match=r"b: only even ones \(given 1\)"):
        made.validated({"b": 1})


@pytest.mark.parametrize(("value", "text"), [
    ("as it is\n", "as it is\n"),
    (None, "null"),
    ([1, "é", None], '[1, "é", null]'),
    (Line(item="tea"), '{"item": "tea", "count": 1}'),
    ([Point(1.0)], '[{"x": 1.0, "y": 0.0}]'),
    ({"day": datetime.date(2026, 1, 2), "unit": Unit.KM}, '{"day": "2026-01-02", "unit": "km"}'),
    (enum.StrEnum("Word", {"YES": "yes"}).YES, "yes"),
])  # fmt: skip
def test_results_are_text_or_json(value: Any, text: str) -> None:
    assert result_text(value) == text


@pytest.mark.parametrize(("make", "said"), [
    (lambda: math.nan, r"float that JSON doesn't have"),
    (lambda: b"x", r"returned builtins.bytes; return text, numbers, lists"),
    (lambda: Opaque(), r"returned .*test_tools.Opaque; return text"),
    (lambda: "\ud800", r"half of a surrogate pair"),
    (lambda: nested(100_000), r"list that JSON doesn't have"),
    (lambda: {(1, 2): 3}, r"keys must be"),
])  # fmt: skip
def test_what_the_policy_cannot_read_is_refused_with_its_type(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        result_text(make())


def test_a_long_result_is_cut_and_says_so() -> None:
    text = result_text("x" * (10 << 20))
    assert text == f"{'x' * 10_000}… [cut: 10,000 of 10,485,760 characters]"
    assert result_text([1] * 100, max_chars=5) == "[1, 1… [cut: 5 of 300 characters]"
    assert result_text("12345", max_chars=5) == "12345"


@given(JSON_VALUES)
def test_a_json_result_reads_back(value: Any) -> None:
    assert isinstance(value, str) or json.loads(result_text(value, 1 << 20)) == value
