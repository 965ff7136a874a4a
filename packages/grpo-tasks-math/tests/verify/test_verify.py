"""What is right, what is wrong and what is no answer, class by class."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core import UserError
from grpo_tasks_math.verify import Verdict, extract_answer, pool, verify

CORRECT, WRONG, UNPARSABLE = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test whose answers are not decided exactly."""

    def refuse(gold: str, answer: str, *_: object) -> bytes:
        raise AssertionError(f"{gold!r} against {answer!r} went to the symbolic engine")

    monkeypatch.setattr(pool, "check", refuse)


NUMBERS = [
    ("1000", r"\boxed{1\,000}", CORRECT),
    ("1000", "1 000", CORRECT),
    ("1000", "1,000", CORRECT),
    ("1000000", "1{,}000{,}000", CORRECT),
    ("1,000", "1000", CORRECT),
    ("1000", "1e3", CORRECT),
    ("1500", r"1.5 \times 10^{3}", CORRECT),
    ("1500000", "1.5 million", CORRECT),
    ("7/2", "3 1/2", CORRECT),
    (r"\frac{7}{2}", "3½", CORRECT),
    (r"-\frac{7}{2}", r"-3\frac{1}{2}", CORRECT),
    (r"\frac{1}{3}", r"\boxed{0.\overline{3}}", CORRECT),
    ("1/6", "0.1666...", CORRECT),
    ("12", "12.", CORRECT),
    ("12", "12.0", CORRECT),
    ("0.5", ".5", CORRECT),
    ("0.5", r"\frac12", CORRECT),
    ("1/2", r"\dfrac{1}{2}", CORRECT),
    ("1/2", r"\tfrac 1 2", CORRECT),
    ("-0.5", "−1/2", CORRECT),
    ("-1/2", "-0.5", CORRECT),
    (r"-\frac{1}{2}", r"\frac{-1}{2}", CORRECT),
    ("6", r"\sqrt{36}", CORRECT),
    ("1024", "2^10", CORRECT),
    ("120", "5!", CORRECT),
    ("42", "٤٢", CORRECT),
    ("42", "\u200f42\u200e", CORRECT),
    ("42", "4\x002", CORRECT),
    ("42", "42", CORRECT),
    # An approximation is another number.
    (r"\frac{1}{3}", "0.3333", WRONG),
    ("3.14", "3.14159", WRONG),
    ("80", "80,000", WRONG),
    ("12", "112", WRONG),
    ("12", "1 2", WRONG),
    ("-5", "5", WRONG),
    ("5", "-5", WRONG),
    ("-5", "−5", CORRECT),
    ("-5", "- 5", CORRECT),
    ("0", "-0", CORRECT),
]

UNITS = [
    ("20", "€20", CORRECT),
    ("20", "$20", CORRECT),
    ("20", r"\$20", CORRECT),
    ("20", r"$\$20$", CORRECT),
    ("-20", "-$20", CORRECT),
    ("20", "20 dollars", CORRECT),
    ("$20", "20 dollars", CORRECT),
    ("$20", "20 cents", WRONG),
    ("5", r"5\text{ cm}", CORRECT),
    ("5 cm", "5", CORRECT),
    ("5 cm", "5 m", WRONG),
    ("900", "900m", CORRECT),
    ("36", r"36\text{ cm}^2", CORRECT),
    ("36 cm^2", "36 m^2", WRONG),
    ("90", r"90^\circ", CORRECT),
    ("90^{\\circ}", "90 degrees", CORRECT),
    ("12", "12 apples", CORRECT),
    ("10 am", "10 pm", WRONG),
    # The sign is read as the gold reads it.
    ("20", r"20\%", CORRECT),
    (r"20\%", "20", CORRECT),
    ("0.2", "20%", CORRECT),
    (r"20\%", "1/5", CORRECT),
    ("20%", "20 percent", CORRECT),
    ("20%", "0.2%", WRONG),
    ("20", "0.2", WRONG),
]

STRUCTURES = [
    ("(1,2)", "(1, 2)", CORRECT),
    ("(1,2)", r"\left(1,\;2\right)", CORRECT),
    ("(1,2)", "(2,1)", WRONG),
    ("(1,2)", "1, 2", CORRECT),
    ("(1,2]", "[1,2]", WRONG),
    ("(1,2]", "(1, 2.0]", CORRECT),
    (r"\{1,2\}", r"\{2, 1\}", CORRECT),
    (r"\{1,2\}", "(1,2)", WRONG),
    (r"\{1,2\}", r"\{1,2,3\}", WRONG),
    (r"\{1,2\}", r"\{1,1\}", WRONG),
    ("1,-2", "x = 1 or x = -2", CORRECT),
    ("2,-2", r"\pm 2", CORRECT),
    (r"\emptyset", r"\varnothing", CORRECT),
    (r"\emptyset", "∅", CORRECT),
    (r"\emptyset", r"\{\}", CORRECT),
    (r"\emptyset", "0", WRONG),
    ("100,200", "(100,200)", WRONG),
    ("(100,200)", "(100, 200)", CORRECT),
    ("((1,2),(3,4))", "((1, 2), (3, 4))", CORRECT),
    ("5", "x = 5", CORRECT),
    ("x = 5", "5", CORRECT),
    ("x = 5", "y = 5", WRONG),
    ("x = 5", "x = 2 + 3 = 5", CORRECT),
    ("42", "6 * 7 = 42", CORRECT),
    ("101_2", r"101_{2}", CORRECT),
    ("101_2", "101", CORRECT),
    ("101_2", "101_3", WRONG),
    ("101_2", "5", WRONG),
    ("5", "(5)", CORRECT),
    ("5", "[5]", CORRECT),
]

WORDS = [
    ("B", "(B)", CORRECT),
    ("B", "b", CORRECT),
    ("B", r"\text{(B)}", CORRECT),
    ("B", "B) 42", CORRECT),
    ("B", "(B) -5", CORRECT),
    ("B", "The answer is (B).", CORRECT),
    ("(B)", "I choose (A), no: (B)", CORRECT),
    ("B", "C", WRONG),
    ("x", "X", WRONG),
    ("Evelyn", r"\text{Evelyn}", CORRECT),
    ("Evelyn", "The answer is Evelyn.", CORRECT),
    ("the red ball", "<answer>Red ball</answer>", CORRECT),
    ("Evelyn", "Maria", WRONG),
    ("x+1", "x + 1", CORRECT),
    ("2:30", "2 : 30", CORRECT),
]

EXTRACTION = [
    ("5", r"\boxed{4} no, that is wrong: \boxed{5}", CORRECT),
    ("4", r"\boxed{4} no, that is wrong: \boxed{5}", WRONG),
    ("5", r"\boxed{\boxed{5}}", CORRECT),
    ("5", r"<answer>\boxed{\boxed{5}}</answer>", CORRECT),
    ("5", r"\boxed 5", CORRECT),
    ("7", "<think>5, 6 or 12?</think><answer>7</answer>", CORRECT),
    ("7", r"<answer>The box says \boxed{7}</answer> \boxed{8}", CORRECT),
    ("7", "<answer>6</answer> no <answer>7</answer>", CORRECT),
    ("42", "<answer>42", CORRECT),
    ("yes", "It is even. <answer>yes", CORRECT),
    ("3", "#### 3. Conclusion\nThe total is 12", WRONG),
    ("42", "The total is 3.</think>\n<answer>\n42\n</answer>", CORRECT),
    ("42", "<answer>She has 42 apples</answer>", CORRECT),
    ("yes", "<answer>Yes</answer>", CORRECT),
    ("18", "She makes 9 * 2 = $<<9*2=18>>18.\n#### 18", CORRECT),
    ("1200", "#### 1,200\n", CORRECT),
    ("3", "#### Step 2\nThe total is 3", CORRECT),
    ("18", "So she makes 9 * 2 = $18 every day.", CORRECT),
    ("42", "The answer is 42 because 6 * 7 = 42. Not 43.", CORRECT),
    ("42", "**Answer:** 42", CORRECT),
    ("42", "Final Answer\n\n42", CORRECT),
    ("42", "The answer is:\n\n$$\n42\n$$", CORRECT),
    ("42", "The answer is clear. 40 + 2 = 42", CORRECT),
    ("6", "The answer is 5, no: the answer is 6", CORRECT),
    ("43", "We have $a = 42$, so $b = 43$", CORRECT),
    ("42", "Step 1: 40\n- 42", CORRECT),
    ("7", r"So \[ x = 3 + 4 = 7 \]", CORRECT),
    ("4", "Well, it is **4**.", CORRECT),
    ("2.5", r"The result is \frac{5}{2}.", CORRECT),
    ("2", r"The result is \frac{5}{2}.", WRONG),
    ("4", "The point is (3, 4).", WRONG),
    ("12", "of 112", WRONG),
    ("5", "it fell to x-5", UNPARSABLE),
    ("42", r"so \boxed{42", UNPARSABLE),
    # What was thought is not what was answered.
    ("7", "<think>7</think>8", WRONG),
    ("7", r"<think>\boxed{7}</think>\boxed{8}", WRONG),
    ("7", "The answer is 7</think>I cannot tell.", UNPARSABLE),
    ("7", "The answer is 7. <think>6</think> or 5</think>I cannot tell.", UNPARSABLE),
    ("7", "<think>The answer is 7", UNPARSABLE),
    ("7", "<think>maybe <answer>7</answer>", CORRECT),
    ("7", "7<think>8", CORRECT),
]

ENUMERATIONS = [
    "40, 41, 42",
    "42, 41",
    "42 or 43",
    "43 or 42",
    "41 and 42",
    "40 41 42",
    "41; 42",
    "41\n42",
    "41-42",
    "42 ± 1",
    "The answer is 41 or 42.",
    "The answer is 41, 42",
    "It is either 41 or 42",
    r"\boxed{41 \text{ or } 42}",
    r"\boxed{41, 42}",
    r"\boxed{41} or \boxed{42}",
    r"$\boxed{41}$, $\boxed{42}$",
    "So x = 41 or x = 42.",
    "So $x = 41$ or $x = 42$.",
    "So $41$, $42$",
    "<answer>41, 42</answer>",
    "#### 41, 42",
    "(41, 42)",
    "[41, 42]",
]

NOTHING = [
    "",
    " \n",
    r"\boxed{}",
    "<answer></answer>",
    r"5 \boxed{ }",
    "5 <answer> </answer>",
    "...",
    "I do not know",
    "####",
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("gold", "completion", "verdict"), [*NUMBERS, *UNITS, *STRUCTURES, *WORDS, *EXTRACTION], ids=repr
)
def test_verdict_is_reached_exactly(gold: str, completion: str, verdict: Verdict) -> None:
    assert verify(gold, completion) is verdict


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", ENUMERATIONS)
def test_an_enumeration_is_not_an_answer(completion: str) -> None:
    assert verify("42", completion) is WRONG


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", NOTHING)
def test_no_answer_is_unparsable(completion: str) -> None:
    assert verify("5", completion) is UNPARSABLE


WORDED_SIGNS = [
    "#### negative 20",
    "The balance is minus 20.",
    "minus 20",
    "It drops to negative $20.",
    r"\boxed{\text{minus } 20}",
    "<answer>negative 20 degrees</answer>",
    "It ends at a negative 20.",
    "x = minus 20",
    "The answer is **minus 20**.",
    "So 20 minus 40 is minus 20",
]
SUBTRACTIONS = {
    "10 minus 20": UNPARSABLE,  # between two numbers, neither of them is the answer
    "$100 minus $20": UNPARSABLE,
    "40 dollars minus 20": WRONG,
    "The total minus 20": WRONG,
    "3 non-negative 20": WRONG,
}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", WORDED_SIGNS)
def test_a_worded_sign_is_a_sign(completion: str) -> None:
    assert verify("-20", completion) is CORRECT
    assert verify("20", completion) is WRONG
    assert verify("negative 20", "-20") is CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("completion", "verdict"), SUBTRACTIONS.items())
def test_a_worded_operation_is_no_sign(completion: str, verdict: Verdict) -> None:
    assert verify("-20", completion) is verdict


OTHER_NUMBERS = [
    "18 and a half",
    "18 and three quarters",
    "18 hundredths",
    "18 halves",
    "18 divided by 2",
    "18 multiplied by 2",
    "18 times 2",
    "18 squared",
    "18 less 2",
    "18 to the power of 2",
    "half of 18",
    "a third of the 18",
    "twice 18",
    "double $18",
    "the square root of 18",
    "20% of 18",
    "18 factorial",
    "18 choose 2",
    "18 modulo 20",
    "18 to 20",
    "16 to 18",
    "18 less than 20",
    "18 or more",
    "greater than 18",
    "at least 18",
    "between 16 and 18",
    "anything but 18",
    "not necessarily 18",
    "unlikely to be 18",
    "18k dollars",
    "18, possibly 19",
    "18 (perhaps 19)",
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("words", OTHER_NUMBERS)
@pytest.mark.parametrize(
    "form", ["{}", r"\boxed{{\text{{{}}}}}", "<answer>{}</answer>", "The answer is {}.", "#### {}"]
)
def test_words_that_make_another_number_are_no_unit(words: str, form: str) -> None:
    assert verify("18", form.format(words)) is not CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "completion",
    [
        "18 quarters",
        "18 dozen eggs",
        "18 less than Ann",
        "18 seconds",
        "twice as much: 18",
        "18, half of 36",
        "18 to the nearest dollar",
        "clear: she needs at least 18",
        "18 cm^2",
    ],
)
def test_words_that_describe_the_number_say_nothing(completion: str) -> None:
    assert verify("18", f"The answer is {completion}") is CORRECT


TOUCHED_BOXES = [
    r"$\boxed{7}^2$",
    r"$-\boxed{7}$",
    r"\boxed{7} million",
    r"\boxed{7}\text{ thousand}",
    r"\boxed{7} squared",
    r"\boxed{7}.5",
    r"\boxed{7}5",
    r"$2\boxed{7}$",
    r"$\frac{\boxed{7}}{2}$",
    r"$\frac{1}{\boxed{7}}$",
    r"$\sqrt{\boxed{7}}$",
    r"$\boxed{7}\sqrt{2}$",
    r"$2 \times \boxed{7}$",
    r"The answer is half of \boxed{7}.",
    r"the square root of $\boxed{7}$",
]
UNTOUCHED_BOXES = [
    r"$x = \boxed{7}$",
    r"$\boxed{7}$. 5 apples remain.",
    r"The answer is \boxed{7}!",
    r"\boxed{7}\%",
    r"$\boxed{7}^\circ$",
    r"$\boxed{7}\ \text{cm}^2$",
    r"$3 + \boxed{7} = 10$",
    r"$\frac{\boxed{7}}{2} = 3.5$",
    r"**Answer** - \boxed{7}",
    r"Problem 3 - \boxed{7}",
    r"Ans:-\boxed{7}",
    r"- \boxed{7}",
    r"It is **\boxed{7}** and *\boxed{7}*",
    r"\textbf{\boxed{7}}",
    r"{\color{red}\boxed{7}}",
    r"\boxed{\color{red}{7}}",
    r"\boxed{\underline{7}}",
    r"\boxed{\text{Answer: } 7}",
]


@pytest.mark.usefixtures("no_engine")
def test_a_box_counts_with_the_operators_that_touch_it() -> None:
    assert [box for box in TOUCHED_BOXES if verify("7", box) is CORRECT] == []
    assert [box for box in UNTOUCHED_BOXES if verify("7", box) is not CORRECT] == []
    assert verify("-7", r"$x = -\boxed{7}$") is CORRECT
    assert verify("7.5", r"\boxed{7}.5") is CORRECT
    assert verify("7000000", r"\boxed{7} million") is CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", ["18k dollars", "$18k", "The answer is $18K.", r"\boxed{\$18k}"])
def test_a_short_magnitude_belongs_to_a_number_with_a_unit(completion: str) -> None:
    assert verify("18000", completion) is CORRECT


WHAT_IS_NOT_SAID = [
    r"\boxed{6=5}",
    r"\boxed{x=4=5}",
    r"\boxed{x^2=25=5}",
    "$6=5$",
    "So x = 4 = 5.",
    "The answer is not 5",
    "The answer is definitely not 5.",
    "The answer isn't $5$.",
    r"The answer cannot be \(5\).",
    "<answer>not 5</answer>",
    r"\boxed{\text{not }5}",
    "The answer is not 5, it is 6.",
    r"\boxed{5}. No, the answer is 6",
    r"\boxed{5}. Wait, that's wrong, it should be 6.",
    r"\boxed{5}. The correct answer is 6.",
    r"\boxed{5}. I made a mistake. It should be 6.",
    r"\boxed{5} Wait, that's wrong: 2 + 4 = 6.",
    "The answer is 5. Wait, I made a mistake. It should be 6.",
    "The answer is 5? No, 6.",
    "The answer is 5 — actually, it's 6.",
    "#### 5\n\nWait, that's wrong. It is 6.",
    "#### 5\n\nCorrection: 6",
    "<answer>5. Sorry, it must be 6.</answer>",
    r"The answer is not \boxed{5}.",
    r"It isn't $\boxed{5}$",
    r"It is \boxed{6}, not $\boxed{5}$.",
    r"x\le=5",
    r"\boxed{x \not= 5}",
    "so x >= 5",
    "so x != 5",
    "so x ≤ 5",
]
NEVERTHELESS_SAID = [
    r"\boxed{2+3=5}",
    r"\boxed{2 + 2 = 5}",  # a slip in a computation, and one answer
    "x = 2 + 3 = 4 = 5",
    r"\boxed{x = 10/2 = 5}",
    r"\boxed{2 * 2 = 4 + 1 = 5}",  # goes on from the 4
    "Total: 2 * 2 = 4 + 1 = 5 apples",
    "The answer is not 6 but 5.",
    "The answer is not 6, it is 5.",
    "The answer is 5, not 6.",
    "He has 5 apples, not 6.",
    r"\boxed{5}. No doubt it is 10 / 2.",
    r"\boxed{6} Actually it is 5.",
    r"\boxed{5}. The answer is 5 apples.",
    "\\boxed{5}\n\nA common wrong answer is 12.",
    "\\boxed{5}\n\nCommon mistake: the answer is 12 when multiplying.",
    r"\boxed{5}. There is no need to check further, since it is 100% correct.",
    r"\boxed{5}. Actually, it is easy to see this with x = 3.",
    r"\boxed{5}. No further steps; it is 100% certain.",
    r"\boxed{5}. It is wrong to say it is 13.",
    r"\boxed{5}. If you got something wrong, check that it is 1 digit.",
    r"\boxed{5}. Wait, let me verify: x should be 3, y should be 2. Yes.",
    r"\boxed{5}. Wait, is it 8? No, it is 5.",
    r"It is \boxed{5}, not \boxed{6}.",
    "The answer is 6. Wait, I made a mistake. It should be 5.",
    "The answer is 6? No, 5.",
    "#### 6\n\nWait, that's wrong. It is 5.",
    "The answer is 5. No doubt: it is 10 / 2. There is no other, since it must be less than 6.",
    "The answer is 5. Wait, let me verify the price. It is 3 dollars. 3 + 2 = 5.",
]


@pytest.mark.parametrize("completion", WHAT_IS_NOT_SAID)
def test_what_a_text_denies_or_contradicts_is_not_its_answer(completion: str) -> None:
    assert verify("5", completion, timeout_s=60.0) is not CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", NEVERTHELESS_SAID)
def test_what_a_text_says_beside_a_denial_is_its_answer(completion: str) -> None:
    assert verify("5", completion) is CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("form", ["#### {}", "The answer is {}.", r"\boxed{{{}}}"])
@pytest.mark.parametrize(
    "answer", ["18 (not 20)", "18 (3 * 6)", "18 (= 3 * 6)", "~18", "⇒ 18", "∴ 18", "-> 18", "18 (18.0)"]
)
def test_an_answer_may_be_explained_in_brackets_and_pointed_at(form: str, answer: str) -> None:
    assert verify(form.format(answer), "18") is CORRECT


@pytest.mark.usefixtures("no_engine")
def test_brackets_that_come_to_another_number_are_a_factor() -> None:
    assert verify("#### 18 (3)", "54") is CORRECT
    assert verify("#### 18 (3 + 1)", "18") is WRONG


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("completion", ["=> 18", "#### => 18", "-> 18"])
def test_an_arrow_may_point_at_the_answer(completion: str) -> None:
    assert verify(completion, "18") is CORRECT


@pytest.mark.usefixtures("no_engine")
def test_a_choice_that_is_denied_is_not_chosen() -> None:
    assert verify("B", "The answer is not B.") is not CORRECT
    assert verify("C", "The answer is not (B) but (C).") is CORRECT


@pytest.mark.usefixtures("no_engine")
def test_equal_sides_may_be_rounded_or_have_units() -> None:
    assert verify("3.33", "x = 10/3 = 3.33") is CORRECT
    assert verify("60", r"\boxed{1 \text{ h} = 60 \text{ min}}") is CORRECT
    assert verify("50%", r"\boxed{50\% = 0.5}") is CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "gold", ["Player 2", "Route 66", "the 3rd of May", "Vitamin B12", "about 5", "Catch-22", "not 5"]
)
@pytest.mark.parametrize(
    "form",
    ["{}", r"\boxed{{{}}}", "<answer>{}</answer>", "So the answer is {}.", "#### {}", "I think.\n\nAnswer: {}"],
)
def test_a_gold_of_text_with_numbers_matches_itself_and_not_the_number(gold: str, form: str) -> None:
    assert verify(gold, form.format(gold)) is CORRECT
    assert verify(gold, form.format(gold.upper())) is CORRECT
    assert verify(gold, form.format("Player 1")) is not CORRECT
    assert verify(gold, form.format("5")) is not CORRECT


@pytest.mark.usefixtures("no_engine")
def test_articles_are_words_not_ends_of_words() -> None:
    assert verify("banana split", "bananasplit") is not CORRECT
    assert verify("The banana", "banana") is CORRECT


@pytest.mark.usefixtures("no_engine")
def test_a_fraction_without_a_finite_decimal_is_what_a_computer_prints_for_it() -> None:
    for fraction in (Fraction(1, 12), Fraction(2, 3), Fraction(-22, 7)):
        assert verify(str(fraction), repr(float(fraction))) is CORRECT
        assert verify(str(fraction), f"{float(fraction):.10f}") is WRONG
        assert verify(str(fraction), repr(float(fraction) * (1 + 1e-12))) is WRONG
    assert verify("0.5", "0.5000000000000001") is WRONG
    assert verify("5", "4.999999999999999") is WRONG


SYMBOLIC = [
    ("5", "Therefore $x > 5$ is the solution.", WRONG),
    ("x > 5", "$x < 5$", WRONG),
    ("x > 5", r"$x \ge 5$", WRONG),
    (r"x \ge 5", r"$5 \le x$", CORRECT),
    ("-1", r"\boxed{e^{i\pi}}", CORRECT),
    (r"\frac{\sqrt{2}}{2}", r"$\frac{1}{\sqrt 2}$", CORRECT),
    (r"10\sqrt{3}", r"\boxed{10\sqrt3\text{ cm}}", CORRECT),
    (r"2\sqrt{2}", r"\sqrt{8}\text{ cm}", CORRECT),
    ("(x+1)^2", "x^2 + 2x + 1", CORRECT),
    ("0.5x", "x/2", CORRECT),
    ("x^2 + 1", "x**2 + 1", CORRECT),
    ("x^2 + 1", r"\boxed{x**2 + 1}", CORRECT),
    ("x^2 + 1", "The answer is **x**2 + 1**.", CORRECT),
    ("2x^3", "2*x**3", CORRECT),
    ("x^{10}", "x**10", CORRECT),
    ("(x+1)^2", "(x+1)**2", CORRECT),
    ("x^2", "x**4**", WRONG),
    ("ab", "ba", CORRECT),
    (r"\cos x", r"\cos(x)", CORRECT),
    ("1/2", r"\sin 30^\circ", CORRECT),
    ("3+4i", "4i+3", CORRECT),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix}1 & 2\\ 3 & 4\end{bmatrix}}", CORRECT),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix}1 & 2\\ 3 & 5\end{bmatrix}}", WRONG),
    (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty) \cup (-\infty, 2)", CORRECT),
    (r"\{\sqrt2,-\sqrt2\}", r"\{-\sqrt{2}, \sqrt{2}\}", CORRECT),
    (r"(\frac{\pi}{2}, 1)", r"(\pi/2, 1)", CORRECT),
    ("(1,2)", "1 < x < 2", CORRECT),
    ("y=2x+3", "3+2x", CORRECT),
    ("x^2+y^2=4", "y^2 + x^2 = 4", CORRECT),
    (r"\pi", "3.14159265", WRONG),
    (r"\pi", "3.141592653589793", WRONG),
    (r"\sqrt{2}", "1.414214", WRONG),
    (r"\sqrt{2}\sqrt{3}x", "2.449489742783178x", WRONG),
    (r"\begin{pmatrix}\pi\\1\end{pmatrix}", r"\begin{pmatrix}3.14159265\\1\end{pmatrix}", WRONG),
    (r"10^{-20}\pi + \sqrt{2}", r"\sqrt{2}", WRONG),
    ("5m", "5", WRONG),
    ("a + b", "(b) + a", CORRECT),
    ("A", "(a) * 5", WRONG),
    ("5", "5abc", WRONG),
    ("5abc", "5", WRONG),
    ("2x", "x", WRONG),
    ("5", r"\boxed{\frac{1}{x+}}", UNPARSABLE),
    ("x", r"\boxed{x + }", UNPARSABLE),
]


CASE = [
    (r"\pi(R^2-r^2)", r"\boxed{0}", WRONG),
    (r"\pi(R^2-r^2)", r"\boxed{\pi(R+r)(R-r)}", CORRECT),
    (r"\frac{m}{M}", r"\boxed{1}", WRONG),
    (r"\frac{m}{M}", r"\boxed{\frac{M}{m}}", WRONG),
    ("N-n", r"\boxed{n-N}", WRONG),
    ("N-n", r"\boxed{-n+N}", CORRECT),
    ("2x", "2X", WRONG),
]
"""R and r are two variables."""

LETTERS = [
    ("p - q", "-q+p", CORRECT),
    ("p - q", "-(q-p)", CORRECT),
    ("p - q", "q - p", WRONG),
    ("a(b - c)", "ab-ac", CORRECT),
    ("-x", r"-1 \cdot x", CORRECT),
    ("n(n-1)", "n^2-n", CORRECT),
]
"""Formulas of nothing but letters, signs and brackets."""

UNIONS = [
    (r"(-\infty,1)\cup(2,\infty)", r"\boxed{x<1 \text{ or } x>2}", CORRECT),
    (r"(-\infty,1]\cup[2,\infty)", r"\boxed{x\leq 1\text{ or }x \geq 2}", CORRECT),
    (r"(-\infty,1)\cup(2,\infty)", r"\boxed{x<1 \text{ or } x \ge 2}", WRONG),
    (r"(-\infty,1)\cup(2,\infty)", r"\boxed{x<1 \text{ and } x>2}", WRONG),
    (r"x<1 \text{ or } x>2", r"\boxed{x>2 \text{ or } x<1}", CORRECT),
    (r"x<1 \text{ or } x>2", r"\boxed{x<1}", WRONG),
]


@pytest.mark.parametrize(("gold", "completion", "verdict"), [*SYMBOLIC, *CASE, *LETTERS, *UNIONS], ids=repr)
def test_formulas_are_compared_by_value(gold: str, completion: str, verdict: Verdict) -> None:
    assert verify(gold, completion, timeout_s=60.0) is verdict


@pytest.mark.parametrize("gold", ["nan", "5", "NaN"])
@pytest.mark.parametrize("completion", ["nan", r"\boxed{nan}", r"\boxed{\text{NaN}}", "-nan"])
def test_nan_equals_nothing(gold: str, completion: str) -> None:
    assert verify(gold, completion) is WRONG


def test_gold_may_still_stand_in_its_solution() -> None:
    assert verify("2 + 2 = 4\n#### 4", "4") is CORRECT
    assert verify(r"hence \boxed{4}", "4") is CORRECT


def test_gold_that_nothing_reads_is_compared_as_it_stands() -> None:
    long = "x" * 3000
    assert verify(long, long) is CORRECT
    assert verify(long, long + "x") is WRONG
    assert verify("", "") is WRONG
    assert verify(" ", "5") is WRONG


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf")])
def test_time_limit_must_be_a_time(timeout_s: float) -> None:
    with pytest.raises(UserError, match="timeout_s"):
        verify("1", "1", timeout_s=timeout_s)


def test_verdicts_are_strings() -> None:
    assert Verdict.CORRECT == "correct"
    assert {verdict.value for verdict in Verdict} == {"correct", "wrong", "unparsable", "timeout"}


@pytest.mark.parametrize(
    ("completion", "answer"),
    [(r"so \boxed{\dfrac{1}{2}}.", r"\frac{1}{2}"), ("x = 5", "x=5"), ("none of it", "none of it"), ("?", None)],
)
def test_extract_answer_gives_the_cleaned_spelling(completion: str, answer: str | None) -> None:
    assert extract_answer(completion) == answer


def grouped(number: int, separator: str) -> str:
    return f"{number:,}".replace(",", separator)


FORMS = [
    "{}",
    "{}.",
    "{} apples",
    "${}$",
    "x = {}",
    "The answer is {}.",
    "The answer is ${}$ because 1 + 1 = 2.",
    "1 + 2 = 3\n#### {}",
    r"7 and \boxed{{{}}} and so on",
    "<think>1, 2 or 3</think>\n<answer>{}</answer>",
    "**{}**",
    "First 17.\nThen {}",
]


@settings(max_examples=150, deadline=None)
@given(
    number=st.integers(-(10**12), 10**12),
    other=st.integers(-(10**12), 10**12),
    form=st.sampled_from(FORMS),
    separator=st.sampled_from(["", ",", r"\,", "{,}"]),
)
def test_integer_equals_itself_and_nothing_else_in_every_form(
    number: int, other: int, form: str, separator: str
) -> None:
    completion = form.format(grouped(number, separator))
    assert verify(str(number), completion) is CORRECT
    assert verify(str(other), completion) is (CORRECT if other == number else WRONG)


@settings(max_examples=100, deadline=None)
@given(st.integers(-999, 999), st.integers(1, 999))
def test_fraction_equals_its_forms(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    gold = f"{numerator}/{denominator}"
    sign, whole, rest = "-" if value < 0 else "", abs(value) // 1, abs(value) % 1
    assert verify(gold, str(value)) is CORRECT
    assert verify(gold, rf"\boxed{{\frac{{{numerator}}}{{{denominator}}}}}") is CORRECT
    if whole and rest:
        assert verify(gold, rf"{sign}{whole}\frac{{{rest.numerator}}}{{{rest.denominator}}}") is CORRECT
        assert verify(gold, f"{sign}{whole} {rest}") is CORRECT
    assert verify(gold, str(value + 1)) is WRONG
    assert value == 0 or verify(gold, str(-value)) is WRONG


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True), st.sampled_from([", ", " or ", " and ", "; "])
)
def test_listing_candidates_never_pays(candidates: list[int], separator: str) -> None:
    listed = separator.join(map(str, candidates))
    for text in (listed, f"The answer is {listed}.", rf"\boxed{{{listed}}}", f"So it must be {listed}"):
        assert verify(str(candidates[0]), text) is WRONG
        assert verify(str(candidates[-1]), text) is WRONG


@settings(max_examples=60, deadline=None)
@given(st.permutations([1, -2, 3, 40]))
def test_sets_have_no_order_and_tuples_do(numbers: list[int]) -> None:
    inside = ", ".join(map(str, numbers))
    assert verify(r"\{1,-2,3,40\}", rf"\{{{inside}\}}") is CORRECT
    assert verify("(1,-2,3,40)", f"({inside})") is (CORRECT if numbers == [1, -2, 3, 40] else WRONG)


RELATIONS = [
    ("x >= 5", r"Therefore $x \geq 5$ is the solution.", CORRECT),
    ("x >= 5", r"\boxed{x \geqslant 5}", CORRECT),
    (r"x \leq 2", "Thus $x <= 2$ is our answer.", CORRECT),
    ("x > 5", r"Therefore $x \gt 5$ is the solution.", CORRECT),
    ("x < 3", r"We find that $x \lt 3$.", CORRECT),
    (r"\frac{NO}{BO} = \frac{1}{3}", r"\frac{1}{3}", CORRECT),
    ("S_{ABC}:S = 7:32", "7:32", CORRECT),
]
GROUPS = [
    ("11111111100", r"\boxed{11,\! 111,\! 111,\! 100}", CORRECT),
    ("32349", r"It is $\boxed{32,\! 349}$", CORRECT),
    ("32349", r"It is 32,\!349", CORRECT),
    ("32349", r"\boxed{32, 349}", WRONG),
]
BRACES = [
    ("(1,3)", "${1,3}$", CORRECT),
    ("(3,1)", "${1,3}$", WRONG),
    ("[1,3]", "${1,3}$", WRONG),
    ("[0,1)", "${[0,1)}$", CORRECT),
    (r"\{1,3\}", "${3,1}$", CORRECT),
    ("5", "${5}$", CORRECT),
]
BOXES = [
    ("1, 2", r"\boxed{1}\boxed{2}", CORRECT),
    ("2", r"\boxed{1}\boxed{2}", WRONG),
    ("-2, 1", r"\[\boxed{-2} \quad \text{and} \quad \boxed{1}. \]", CORRECT),
    ("1", r"\[\boxed{-2} \quad \text{and} \quad \boxed{1}. \]", WRONG),
    ("k = 45, n = 2", r"\boxed{k = 45} \quad \text{and} \quad \boxed{n = 2}", CORRECT),
    ("3, 4", r"\(y_1 = \boxed{3} \) and \( y_2 = \boxed{4} \)", CORRECT),
    ("4", r"\boxed{4}, \boxed{4}", CORRECT),
    ("840", r"could therefore be \\boxed{840}.\n\n**Final Answer**\n\\boxed{840}", CORRECT),
    ("10455", r"$\boxed{255}$ So she has $10,455. Final Answer: The final answer is $10,455$. I hope so.", CORRECT),
    ("255", r"$\boxed{255}$ So she has $10,455. Final Answer: The final answer is $10,455$. I hope so.", WRONG),
    ("255", r"\boxed{255} is my final answer. I am sure that it is right.", CORRECT),
    ("12", r"\boxed{11} no. The final answer is \"$12 $\". I hope it is correct.", CORRECT),
]
IN_PROSE = [
    ("(3, 4)", "So the point $(3, 4)$ is on the circle.", CORRECT),
    ("4", "So the point $(3, 4)$ is on the circle.", WRONG),
    ("7", "Then $3 + 4 = 7$ apples are left", CORRECT),
    ("20", "He has $10 and she has $20.", CORRECT),
    ("42", "Either $41$ or $42$ of them", WRONG),
    ("So we add $6 + 7$. Final Answer: The final answer is $13$. I hope it is correct.", "13", CORRECT),
    ("So we add $6 + 7$. Final Answer: The final answer is $13$. I hope it is correct.", "7", WRONG),
    (r"\begin{pmatrix}1 \\ 2\end{pmatrix}", "$\\begin{pmatrix}1 \\\\\n 2\\end{pmatrix}$", CORRECT),
    ("4000", " 地块面积 = 72000 / 18 = 4000千克", CORRECT),
    ("13/28", "计划的比例为13/28", CORRECT),
    ("99", "**结论**：Haley总共有99颗弹珠。", CORRECT),
    ("-\\\frac{7}{4}x", "So it is $-\\\frac{7}{4}x$", CORRECT),  # a form feed: the same broken command
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("gold", "completion", "verdict"), [*RELATIONS, *GROUPS, *BRACES, *BOXES, *IN_PROSE], ids=repr)
def test_what_other_verifiers_read_is_read(gold: str, completion: str, verdict: Verdict) -> None:
    assert verify(gold, completion) is verdict


DECIMAL_COMMAS = [
    ("1000.99", "1000,99", CORRECT),
    ("1,22", "1.22", CORRECT),
    ("2.74", "Soucis : 2,74 $ a..", CORRECT),
    ("0,111", "0.111", CORRECT),
    ("3.5", r"\boxed{3{,}5}", CORRECT),
    ("1234.5", "1.234,5", CORRECT),
    ("1234567", "1.234.567", CORRECT),
    ("1234567", "1,234,567", CORRECT),
    ("1.2", r"\boxed{1.2}", CORRECT),
    ("(1.5, 2)", "(1,5; 2)", CORRECT),
    ("1000.99", "1000,98", WRONG),
    ("1234", "1,234", WRONG),
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("gold", "completion", "verdict"), DECIMAL_COMMAS, ids=repr)
def test_decimal_commas_are_an_option(gold: str, completion: str, verdict: Verdict) -> None:
    assert verify(gold, completion, decimals="comma") is verdict


def test_a_comma_separates_by_default() -> None:
    assert verify("1000.99", "1000,99") is WRONG
    assert verify("1, 5", "1,5") is CORRECT


CLOSE = [
    ("1/12", "0.0833333333333333", 1e-6, CORRECT),
    ("1/3", "0.33", 0.01, CORRECT),  # a hundredth of the gold away, no more
    ("1/3", "0.32", 0.01, WRONG),
    ("0", "0.001", 0.01, WRONG),
    ("20%", "0.2001", 0.01, CORRECT),
    ("(1/3, 2]", "(0.333, 2]", 0.01, CORRECT),
    ("(1/3, 2]", "(0.333, 2)", 0.01, WRONG),
]
CLOSE_FORMULAS = [
    (r"\pi", "3.14159", 1e-5, CORRECT),
    (r"\pi", "3.14", 1e-5, WRONG),
    (r"\{\sqrt{2}, 1\}", r"\{1.4142, 1\}", 0.001, CORRECT),
    (
        r"\begin{pmatrix}\frac{1}{3}\\ \frac{1}{5}\end{pmatrix}",
        r"\begin{pmatrix}0.33\\ 0.2\end{pmatrix}",
        0.01,
        CORRECT,
    ),
    (r"\begin{pmatrix}\frac{1}{3}\\ \frac{1}{5}\end{pmatrix}", r"\begin{pmatrix}0.33\\ 0.3\end{pmatrix}", 0.01, WRONG),
    ("x", "y", 0.5, WRONG),
]


@pytest.mark.parametrize(("gold", "completion", "rel_tol", "verdict"), [*CLOSE, *CLOSE_FORMULAS], ids=repr)
def test_closeness_is_an_option(gold: str, completion: str, rel_tol: float, verdict: Verdict) -> None:
    assert verify(gold, completion, 60.0, rel_tol=rel_tol) is verdict


@settings(max_examples=100, deadline=None)
@given(st.fractions(-100, 100), st.fractions(-100, 100), st.sampled_from([0.0, 0.001, 0.25]))
def test_closeness_is_relative_to_the_gold(gold: Fraction, answer: Fraction, rel_tol: float) -> None:
    is_close = abs(gold - answer) <= Fraction(str(rel_tol)) * abs(gold)
    assert verify(str(gold), str(answer), rel_tol=rel_tol) is (CORRECT if is_close else WRONG)


@pytest.mark.parametrize(
    "option", [{"decimals": "dot"}, {"rel_tol": -0.1}, {"rel_tol": 1.0}, {"rel_tol": float("nan")}]
)
def test_options_are_checked(option: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(option))):
        verify("1", "1", **option)  # type: ignore[arg-type]  # that is the mistake
