"""Any text gets a verdict, soon, and raises nothing."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_tasks_math.verify import Verdict, check, symbolic, verify, warm
from grpo_tasks_math.verify.compare import compare
from grpo_tasks_math.verify.extract import extract
from grpo_tasks_math.verify.reader import read
from grpo_tasks_math.verify.values import NaN

N = 100_000
SECONDS = 5.0
"""Many times what the slowest takes on a busy machine; a quadratic rule would take minutes."""

HOSTILE = [
    "1" * N, "1 " * (N // 2), "1," * (N // 2), "1,000," * (N // 6), "1+" * (N // 2), "-" * N, "$1" * (N // 2), "{" * N,
    "{" * 100_000 + "5" + "}" * 100_000, "(" * 100_000 + "5" + ")" * 100_000, "\\boxed{" * (N // 7),
    "\\boxed{" * 100_000 + "5" + "}" * 100_000, "\\boxed{5}," * (N // 10), "<answer>" * (N // 8),
    "</answer>" * (N // 9), "<think>" * (N // 7), "#" * N, "#### x\n" * (N // 7), "answer is " * (N // 10),
    "\\(5" * (N // 3), "\\boxed{5} final answer " * (N // 22), "not \\boxed{5} " * (N // 14),
    "no, wait, no, " * (N // 14), "I made a mistake. it is " * (N // 24), "1.234,5" * (N // 7),
    ("answer" + "x" * 59) * (N // 65), "\\frac{1}" * (N // 8), "√" * N, "x=" * (N // 2), "(A)" * (N // 3), " " * N,
    "\n" * N, "\0" * N, "\ud800" * N, "\u200f5" * (N // 2), "²" * N, "٤" * N, "\\" * N, "9^" * 200 + "9",
    "5 " + "a " * 900, "(1," * 300 + "1" + ")" * 300, "." * 1999 + "5", "\\pm" * 600, "\\text{" * 300,
    "1e" + "9" * 1900, "1e" + "9" * N,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("form", ["%s", "\\boxed{%s}", "<answer>%s</answer>", "The answer is %s."])
def test_hostile_text_is_read_in_bounded_time(text: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "inside_worker", lambda: True)
    monkeypatch.setattr(symbolic, "handle", lambda _: symbolic.UNPARSABLE)
    begin = time.process_time()
    assert verify("42", form % text) in (Verdict.WRONG, Verdict.UNPARSABLE)
    assert verify("42", form % text, decimals="comma") in (Verdict.WRONG, Verdict.UNPARSABLE)
    assert time.process_time() - begin < SECONDS


FRAGMENTS = (
    r"0 1 2 3 4 5 6 7 8 9 - . , x i ( ) [ ] { } \{ \} = $ % ^ _ ! * / & \\ \frac \sqrt \pi \pm \cup \infty \text{ "
    r"\circ \overline{3} \boxed{ \begin{pmatrix} \end{pmatrix} #### <answer> </answer> <think> </think> and or 1/2 "
    r"1,000 ... nan (B) cm dollars thousand ² ½ √ ٤ ° ' ` <<1=1>>"
)
fragments = st.sampled_from(
    [*FRAGMENTS.split(), " ", "\n", '"', "3 1/2", "The answer is ", " or ", "\ud800", "\0", "\u200f"]
)
soups = st.lists(fragments, max_size=24).map("".join)
anything = st.one_of(
    soups, st.text(max_size=80), st.text(st.characters(categories=["Cs", "Cc", "Cf", "Nd"]), max_size=40)
)


@settings(max_examples=400, deadline=None)
@given(gold=anything, completion=anything)
@example(gold="\ud800", completion="\ud800")
@example(gold="\\frac{}{}", completion="\\boxed{\\frac{}{}}")
def test_any_text_gets_a_verdict_and_equality_is_reflexive(gold: str, completion: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "inside_worker", lambda: True)
        patch.setattr(symbolic, "handle", lambda _: symbolic.UNPARSABLE)
        assert verify(gold, completion) in tuple(Verdict)
    value = extract(completion)["text"]
    if value is not None:
        assert compare(value, value) is not isinstance(value, NaN)
    expected = read(gold)
    if expected is not None and value is not None:
        symbolic.encode(expected.text, value.text)
        symbolic.to_latex(value.text)


@settings(max_examples=25, deadline=None)
@given(gold=soups, answer=soups)
def test_the_engine_itself_never_raises(gold: str, answer: str) -> None:
    # Short soups of these parts hold no tower that could keep this process busy.
    gold, answer = gold[:12].replace("!", "").replace("^", ""), answer[:12].replace("!", "").replace("^", "")
    assert symbolic.handle(symbolic.encode(gold, answer)) in (symbolic.CORRECT, symbolic.WRONG, symbolic.UNPARSABLE)


LONG_SUM = rf"\boxed{{{'+'.join(f'x_{{{n}}}' for n in range(120))}}}"


def test_a_check_that_does_not_end_in_time_is_a_timeout() -> None:
    warm()
    begin = time.perf_counter()
    assert verify("x + 1", LONG_SUM, timeout_s=0.2) is Verdict.TIMEOUT
    # The limit, and at worst the start of a worker in place of one that was killed.
    assert time.perf_counter() - begin < 60.0
    begin = time.perf_counter()
    assert verify("x + 1", LONG_SUM, timeout_s=0.2) is Verdict.TIMEOUT
    assert time.perf_counter() - begin < 0.1  # the pool remembers it


def test_code_in_an_answer_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "run"
    for attack in (
        f"f(__import__('os').system('touch {marker}'))",
        f"\\operatorname{{f}}(open('{marker}','w'))",
        f'x_{{open("{marker}","w")}}',
        f"open(chr(47),chr(119))^2 + {marker}",
    ):
        symbolic.handle(symbolic.encode("x + 1", attack))
        verify("x+1", rf"\boxed{{{attack}}}")
    assert not marker.exists()
