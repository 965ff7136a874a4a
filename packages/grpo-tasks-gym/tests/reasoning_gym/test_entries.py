import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tasks_gym.reasoning_gym.entries import MAX_DEPTH, decode, encode

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text() | st.fractions()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_an_entry_keeps_its_types_through_json(value: object) -> None:
    try:
        text = orjson.dumps(encode(value))
    except orjson.JSONEncodeError:  # a lone surrogate
        return
    assert repr(decode(orjson.loads(text))) == repr(value)


FRACTIONS = [{"fraction": [1, 0]}, {"fraction": ["1", 2]}]


@pytest.mark.parametrize(
    "hostile", [*FRACTIONS, {}, {"eval": "1"}, {"dict": [[1]]}, {"tuple": 3}, {"list": [], "tuple": []}]
)
def test_what_is_no_entry_is_refused(hostile: object) -> None:
    with pytest.raises(ValueError, match="no part of an entry"):
        decode(hostile)


def test_deep_nesting_is_refused_before_the_stack_ends_and_what_json_cannot_hold_is_named() -> None:
    nested: object = 1
    for _ in range(MAX_DEPTH + 2):
        nested = [nested]
    with pytest.raises(ValueError, match="deeper"):
        decode(nested)
    with pytest.raises(TypeError, match="complex"):
        encode({"root": 1j})
