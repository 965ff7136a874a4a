"""What is right, what is wrong and what is no answer, by family: (gold, right, wrong, no answer) of each gold."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_sdk import UserError
from grpo_tasks_math.verify import Reading, Verdict, extract_answer, judge, verify

CORRECT, WRONG, UNPARSABLE = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE


Replies = list[str]


def check(gold: str, right: Replies, wrong: Replies, unparsable: Replies, **options: Any) -> None:
    expected = {**dict.fromkeys(right, CORRECT), **dict.fromkeys(wrong, WRONG), **dict.fromkeys(unparsable, UNPARSABLE)}
    assert {reply: verify(gold, reply, **options) for reply in expected} == expected


LONG = "x" * 3000

ENUMERATIONS = [
    "40, 41, 42", "42, 41", "42 or 43", "43 or 42", "41 and 42", "40 41 42", "41; 42", "41\n42", "41-42", "42 ± 1",
    "The answer is 41 or 42.", "The answer is 41, 42", "It is either 41 or 42", r"\boxed{41 \text{ or } 42}",
    r"\boxed{41, 42}", r"\boxed{41} or \boxed{42}", r"$\boxed{41}$, $\boxed{42}$", "So x = 41 or x = 42.",
    "So $x = 41$ or $x = 42$.", "So $41$, $42$", "<answer>41, 42</answer>", "#### 41, 42", "(41, 42)", "[41, 42]",
]  # fmt: skip


NOTHING = [
    "", " \n", r"\boxed{}", "<answer></answer>", r"5 \boxed{ }", "5 <answer> </answer>", "...", "I do not know",
    "####",
]  # fmt: skip


WORDED_SIGNS = [
    "#### negative 20", "The balance is minus 20.", "minus 20", "It drops to negative $20.",
    r"\boxed{\text{minus } 20}", "<answer>negative 20 degrees</answer>", "It ends at a negative 20.", "x = minus 20",
    "The answer is **minus 20**.", "So 20 minus 40 is minus 20",
]  # fmt: skip


OTHER_NUMBERS = [
    "18 and a half", "18 and three quarters", "18 hundredths", "18 halves", "18 divided by 2", "18 multiplied by 2",
    "18 times 2", "18 squared", "18 less 2", "18 to the power of 2", "half of 18", "a third of the 18", "twice 18",
    "double $18", "the square root of 18", "20% of 18", "18 factorial", "18 choose 2", "18 modulo 20", "18 to 20",
    "16 to 18", "18 less than 20", "18 or more", "greater than 18", "at least 18", "between 16 and 18",
    "anything but 18", "not necessarily 18", "unlikely to be 18", "18k dollars", "18, possibly 19", "18 (perhaps 19)",
]  # fmt: skip
DESCRIPTIONS = ["18 quarters", "18 more apples", "18 seconds", "18 to the nearest dollar", "18 cm^2", "18 per day"]


UNTOUCHED_BOXES = [
    r"$x = \boxed{7}$", r"$\boxed{7}$. 5 apples remain.", r"The answer is \boxed{7}!", r"\boxed{7}\%",
    r"$\boxed{7}^\circ$", r"$\boxed{7}\ \text{cm}^2$", r"$3 + \boxed{7} = 10$", r"$\frac{\boxed{7}}{2} = 3.5$",
    r"**Answer** - \boxed{7}", r"Problem 3 - \boxed{7}", r"Ans:-\boxed{7}", r"- \boxed{7}",
    r"It is **\boxed{7}** and *\boxed{7}*", r"\textbf{\boxed{7}}", r"{\color{red}\boxed{7}}",
    r"\boxed{\color{red}{7}}", r"\boxed{\underline{7}}", r"\boxed{\text{Answer: } 7}",
]  # fmt: skip


WHAT_IS_NOT_SAID = [
    "The answer is not 5", "The answer is definitely not 5.", "The answer isn't $5$.", r"The answer cannot be \(5\).",
    "<answer>not 5</answer>", r"\boxed{\text{not }5}", "The answer is not 5, it is 6.", "It is hardly 5.",
    r"\boxed{5}. The correct answer is 6.", r"The answer is not \boxed{5}.", r"It isn't $\boxed{5}$",
    r"It is \boxed{6}, not $\boxed{5}$.", r"x\le=5", r"\boxed{x \not= 5}", "so x >= 5", "so x != 5", "so x ≤ 5",
    "A wrong answer: 5", "I doubt that it is 5.", "5 is impossible.", "5? No.", "Could the answer be 5?",
    "Let the answer be 5.", "The answer is 5, which is wrong.", "If it were 5, it would be odd.", "Step 5",
    "See equation (5)", "5 would be too large.",
    "The answer is other than 5", "A common wrong answer is 5.", "5 is wrong", "The answer: neither 4 nor 5.",
]  # fmt: skip
NEVERTHELESS_SAID = [  # a slip in a computation is one answer, too
    r"\boxed{2+3=5}", r"\boxed{2 + 2 = 5}", "x = 2 + 3 = 4 = 5", r"\boxed{x = 10/2 = 5}", r"\boxed{2 * 2 = 4 + 1 = 5}",
    "Total: 2 * 2 = 4 + 1 = 5 apples", "The answer is not 6 but 5.", "The answer is not 6, it is 5.",
    "The answer is 5, not 6.", "He has 5 apples, not 6.", r"\boxed{5}. No doubt it is 10 / 2.",
    r"\boxed{5}. The answer is 5 apples.", "\\boxed{5}\n\nA common wrong answer is 12.",
    "\\boxed{5}\n\nCommon mistake: the answer is 12 when multiplying.", "Since 7 is not even, the answer is 5.",
    r"\boxed{5}. There is no need to check further, since it is 100% correct.",
    r"\boxed{5}. Actually, it is easy to see this with x = 3.", r"\boxed{5}. No further steps; it is 100% certain.",
    r"It is \boxed{5}, not \boxed{6}.", "I got 6 at first. The correct answer is 5.", "Since 3 is not 4, it is 5.",
]  # fmt: skip


EXACT = [
    # Numbers.
    ("1,000", ["1000"], [], []),
    ("1500", [r"1.5 \times 10^{3}"], [], []),
    ("1500000", ["1.5 million"], [], []),
    (r"\frac{7}{2}", ["3 1/2", "3½"], [], []),
    (r"\frac{1}{3}", [r"\boxed{0.\overline{3}}"], ["0.3333"], []),  # an approximation is another number
    ("1/6", ["0.1666..."], [], []),
    ("12", ["12.", "12.0"], ["112", "1 2"], []),
    ("0.5", [".5", r"\frac12", r"\dfrac{1}{2}", r"\tfrac 1 2"], [], []),
    ("42", ["٤٢", "\u200f42\u200e", "4\x002"], [], []),
    ("-5", ["−5", "- 5"], ["5"], []),
    # Dots end a sentence, unless they go on with decimals.
    ("18", ["18...", "18…", "18 …", "18.…", "18。", "18 apples...", r"18\ldots", r"18\\"], ["18!", "18.555..."], []),
    ("1234", ["1,234..."], [], []),
    # Units.
    ("20", ["€20", "$20", r"\$20", r"$\$20$", "20 dollars"], ["0.2"], []),
    ("-20", ["-$20"], [], []),
    ("20'", ["20 feet", "20"], ["20''"], []),
    ("900", ["900m"], [], []),
    ("36", [r"36\text{ cm}^2"], [], []),
    ("10 am", [], ["10 pm"], []),
    # The sign is read as the gold reads it.
    ("20", [r"20\%"], [], []),
    ("3.33", ["x = 10/3 = 3.33"], [], []),  # equal sides may be rounded or have units
    ("60", [r"\boxed{1 \text{ h} = 60 \text{ min}}"], [], []),
    ("50%", [r"\boxed{50\% = 0.5}"], [], []),
    # A short magnitude belongs to a number with a unit.
    ("18000", ["18k dollars", "$18k", "The answer is $18K.", r"\boxed{\$18k}"], [], []),
    # Lists, tuples, intervals and equations.
    ("(1,2)", ["(1, 2)", r"\left(1,\;2\right)", "1, 2"], ["(2,1)"], []),
    ("(1,2]", ["(1, 2.0]"], ["[1,2]"], []),
    (r"\{1,2\}", [r"\{2, 1\}", "${2,1}$"], ["(1,2)", r"\{1,2,3\}", r"\{1,1\}"], []),
    ("1,-2", ["x = 1 or x = -2", "-2,1"], [], []),
    ("2,-2", [r"\pm 2"], [], []),
    (r"\emptyset", [r"\varnothing", "∅", r"\{\}"], ["0"], []),
    ("100,200", [], ["(100,200)"], []),
    ("((1,2),(3,4))", ["((1, 2), (3, 4))"], [], []),
    ("5", ["x = 5", "(5)", "[5]", "${5}$"], [], []),
    ("x = 5", ["5", "x = 2 + 3 = 5"], ["y = 5"], []),
    ("[1,3]", [], ["${1,3}$"], []),
    ("[0,1)", ["${[0,1)}$"], [], []),
    # Relations and ratios.
    ("x >= 5", [r"Therefore $x \geq 5$ is the solution.", r"\boxed{x \geqslant 5}"], [], []),
    (r"\frac{NO}{BO} = \frac{1}{3}", [r"\frac{1}{3}"], [], []),
    ("S_{ABC}:S = 7:32", ["7:32"], [], []),
    # Words, choices and times of day.
    ("B", ["(B)", "b", r"\text{(B)}", "B) 42", "(B) -5", "The answer is (B)."], ["C", "The answer is not B."], []),
    ("(B)", ["I choose (A), no: (B)"], [], []),
    ("x", [], ["X"], []),
    ("Evelyn", [r"\text{Evelyn}", "The answer is Evelyn."], ["Maria"], []),
    ("the red ball", ["<answer>Red ball</answer>"], [], []),
    ("12:30", ["12 : 30", "12:30 PM"], ["4:10", "12:45", "2:5", r"\frac{2}{5}", "0.4"], []),
    ("5:03", [], ["10:06", r"\frac{5}{3}"], []),
    ("C", ["The answer is not (B) but (C)."], [], []),
    ("banana split", [], ["bananasplit"], []),  # an article is a word, not the end of one
    (LONG, [LONG], [LONG + "x"], []),  # what nothing reads is compared as it stands
    ("", [], [""], []),
    # Golds with what leads to them.
    ("=> 18", ["18"], [], []),
    ("#### 18 (3)", ["54"], [], []),  # brackets that come to another number are a factor
    ("#### 18 (3 + 1)", [], ["18"], []),
    # Where a text states its answer.
    ("5", [r"\boxed{4} no, that is wrong: \boxed{5}", r"\boxed{\boxed{5}}", r"\boxed 5"], [], ["it fell to x-5"]),
    ("4", ["Well, it is **4**."], [r"\boxed{4} no, that is wrong: \boxed{5}", "The point is (3, 4)."], []),
    ("7", [r"<answer>The box says \boxed{7}</answer> \boxed{8}", "<answer>6</answer> no <answer>7</answer>"], [], []),
    ("42", ["<answer>42", "The total is 3.</think>\n<answer>\n42\n</answer>"], ["Either $41$ or $42$ of them"], []),
    ("yes", ["It is even. <answer>yes", "<answer>Yes</answer>"], [], []),
    ("3", ["#### Step 2\nThe total is 3"], ["#### 3. Conclusion\nThe total is 12"], []),
    ("42", [], [], ["<answer>She has 42 apples</answer>"]),  # words before a number make text of it
    ("42", ["The answer is 42 because 6 * 7 = 42. Not 43."], [], []),
    ("18", ["She makes 9 * 2 = $<<9*2=18>>18.\n#### 18", "So she makes 9 * 2 = $18 every day."], [], []),
    ("42", ["**Answer:** 42", "Final Answer\n\n42", "The answer is:\n\n$$\n42\n$$"], [], []),
    ("42", ["The answer is clear. 40 + 2 = 42", "Step 1: 40\n- 42"], [], [r"so \boxed{42"]),
    ("6", ["The answer is 5, no: the answer is 6"], [], []),
    ("43", ["We have $a = 42$, so $b = 43$"], [], []),
    ("7", [r"So \[ x = 3 + 4 = 7 \]"], [r"<think>\boxed{7}</think>\boxed{8}"], []),
    ("2.5", [r"The result is \frac{5}{2}."], [], []),
    ("32349", [r"It is 32,\!349"], [], []),
    # Between two numbers, neither of them is the answer.
    ("-20", [], ["3 non-negative 20"], ["10 minus 20", "$100 minus $20", "40 dollars minus 20", "The total minus 20"]),
    # What was thought is not what was answered.
    ("7", ["7<think>8", "<think>5, 6 or 12?</think><answer>7</answer>"], ["<think>7</think>8"], []),
    ("7", [], [], ["The answer is 7</think>I cannot tell.", "<think>The answer is 7"]),
    ("7", [], [], ["The answer is 7. <think>6</think> or 5</think>I cannot tell.", "<think>maybe <answer>7</answer>"]),
    ("7", ["Then $3 + 4 = 7$ apples are left"], [], []),
    ("(3, 4)", ["So the point $(3, 4)$ is on the circle."], [], []),
    ("20", ["He has $10 and she has $20."], [], []),
    ("So we add $6 + 7$. Final Answer: The final answer is $13$. I hope it is correct.", ["13"], ["7"], []),
    (r"\begin{pmatrix}1 \\ 2\end{pmatrix}", ["$\\begin{pmatrix}1 \\\\\n 2\\end{pmatrix}$"], [], []),
    ("4000", [" 地块面积 = 72000 / 18 = 4000千克"], [], []),
    ("13/28", ["计划的比例为13/28"], [], []),
    ("99", ["**结论**：Haley总共有99颗弹珠。"], [], []),
    ("-\\\frac{7}{4}x", ["So it is $-\\\frac{7}{4}x$"], [], []),  # a form feed: the same broken command
    # Boxes.
    ("1, 2", [r"\boxed{1}\boxed{2}"], [], []),
    ("-2, 1", [r"\[\boxed{-2} \quad \text{and} \quad \boxed{1}. \]"], [], []),
    ("3, 4", [r"\(y_1 = \boxed{3} \) and \( y_2 = \boxed{4} \)"], [], []),
    ("4", [r"\boxed{4}, \boxed{4}"], [], []),
    ("840", [r"could therefore be \\boxed{840}.\n\n**Final Answer**\n\\boxed{840}"], [], []),
    ("10455", [r"$\boxed{255}$ So she has $10,455. Final Answer: The final answer is $10,455$. I hope so."], [], []),
    ("255", [r"\boxed{255} is my final answer. I am sure that it is right."], [], []),
    ("12", [r"\boxed{11} no. The final answer is \"$12 $\". I hope it is correct."], [], []),
    ("7", [r"$x = -\boxed{7}$", r"\boxed{7} million"], [], []),  # what stands outside a mark is not read
    # The lists above.
    ("42", [], ENUMERATIONS, []),
    ("5", NEVERTHELESS_SAID, [], NOTHING),
    ("-20", WORDED_SIGNS, [], []),
    ("20", [], WORDED_SIGNS, []),
    ("negative 20", ["-20"], [], []),
    ("18", [f"The answer is {words}" for words in DESCRIPTIONS], [], []),
    ("7", UNTOUCHED_BOXES, [], []),
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("gold", "right", "wrong", "unparsable"), EXACT, ids=range(len(EXACT)))
def test_verdict_is_reached_exactly(gold: str, right: Replies, wrong: Replies, unparsable: Replies) -> None:
    check(gold, right, wrong, unparsable)


@pytest.mark.parametrize("completion", WHAT_IS_NOT_SAID)
def test_what_a_text_denies_or_contradicts_is_not_its_answer(completion: str) -> None:
    assert verify("5", completion, timeout_s=60.0) is not CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("words", OTHER_NUMBERS)
@pytest.mark.parametrize(
    "form", ["{}", r"\boxed{{\text{{{}}}}}", "<answer>{}</answer>", "The answer is {}.", "#### {}"]
)
def test_words_that_make_another_number_are_no_unit(words: str, form: str) -> None:
    assert verify("18", form.format(words)) is not CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("form", ["#### {}", "The answer is {}.", r"\boxed{{{}}}"])
@pytest.mark.parametrize(
    "answer", ["18 (not 20)", "18 (3 * 6)", "18 (= 3 * 6)", "~18", "⇒ 18", "∴ 18", "-> 18", "18 (18.0)"]
)
def test_an_answer_may_be_explained_in_brackets_and_pointed_at(form: str, answer: str) -> None:
    assert verify(form.format(answer), "18") is CORRECT


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "gold", ["Player 2", "Route 66", "the 3rd of May", "Vitamin B12", "about 5", "Catch-22", "not 5"]
)
@pytest.mark.parametrize(
    "form", ["{}", r"\boxed{{{}}}", "<answer>{}</answer>", "So the answer is {}.", "#### {}", "I think.\n\nAnswer: {}"]
)
def test_a_gold_of_text_with_numbers_matches_itself_and_not_the_number(gold: str, form: str) -> None:
    assert verify(gold, form.format(gold)) is CORRECT
    assert verify(gold, form.format(gold.upper())) is CORRECT
    assert verify(gold, form.format("Player 1")) is not CORRECT
    assert verify(gold, form.format("5")) is not CORRECT


@pytest.mark.usefixtures("no_engine")
def test_a_fraction_without_a_finite_decimal_is_what_a_computer_prints_for_it() -> None:
    for fraction in (Fraction(1, 12), Fraction(2, 3), Fraction(-22, 7)):
        assert verify(str(fraction), repr(float(fraction))) is CORRECT
        assert verify(str(fraction), f"{float(fraction):.10f}") is WRONG
        assert verify(str(fraction), repr(float(fraction) * (1 + 1e-12))) is WRONG
    assert verify("2/3", "0.66666666666667") is CORRECT
    assert verify("1/3", "0.33333333333333999") is WRONG and verify("1/3", "10^400") is WRONG
    assert verify("0.5", "0.5000000000000001") is WRONG
    assert verify("5", "4.999999999999999") is WRONG


CONTRACT = [
    # One explanation never replaces the value.
    ("12", [r"12 \text{ apples (6 red, 6 green)}", "12 (a dozen)", "12 (6 + 6)", "12, since 6 + 6 is 12"], ["6"]),
    ("25\\pi", ["25\\pi \\approx 78.54", r"25\pi\ (\text{about } 78.5)"], ["78.54"]),
    ("no", [r"\text{No, because 7 is prime}", "No (7 is prime)"], ["yes", "yes/no", "yes or no"]),
    # Alternatives are a list, and hedges are nothing.
    ("42", [], ["42 or 43", "42; 43", "42|43", "42 43", r"42\quad 43", r"42 \lor 43", "42, but 43 is also possible"]),
    ("42, 43", ["42 or 43", "42; 43", "42|43", "42 43", "43 and 42"], ["42", "43"]),
    ("42", [], ["possibly 42", "42 or so", "42, give or take 2", "42 ± 1", "between 40 and 44", "42^{+1}_{-1}"]),
    ("B", ["(B)", r"\textbf{(B)}\ 12", "B. 12"], ["(A)/(B)", "A or B", r"\text{A and B}"]),
    # Equations.
    ("5", ["x = 5", "f(2) = 5", "AB = 5", r"\angle ABC = 5^\circ"], ["2x=5", "x+1=5", "-x=5", "x^2=5"]),
    ("42", [], [r"x \ne 42", r"\frac{1}{x}=42", "xy = 42", r"x \text{ where } 2x = 42", r"\ne 42", r"\ge 42"]),
    ("(1,2)", ["(h,k) = (1,2)", "x = 1, y = 2", "y = 2, x = 1"], ["y = 1, x = 2", r"\{1,2\}", "x = 2, y = 1"]),
    ("x=1, y=2", ["y=2, x=1", "(1,2)"], ["x=2, y=1", "(2,1)", "a=1, b=2"]),
    ("n=3, 5", ["n=5, 3", "3, 5", "n = 3, n = 5"], ["n=3", "n=3, 7"]),
    ("5", [r"\bar{x} = 5", "x := 5", "5 = x", "maximum = 5", "x = 10/2 = 5"], ["0 = 5", "x = 6 = 5", "3 apples = 5"]),
    ("5", ["total cost = 5"], [r"\text{not } x = 5", "if x = 5", "more than x = 5"]),
    ("(x,y)=(1,2)", ["(y,x)=(2,1)", "(1,2)", "P = (1,2)"], ["(y,x)=(1,2)", "(2,1)"]),
    ("AB = 5", ["BA = 5", "5", "length = 5"], ["CD = 5"]),
    ("1:2:3", ["2:4:6", r"\frac12:1:\frac32", "a:b:c = 1:2:3"], ["1:3:2", "1/6", "1, 2, 3"]),
    (r"1:\sqrt3:2", [r"2:2\sqrt{3}:4"], [r"1:2:\sqrt3"]),
    # Units.
    ("20 km", ["20"], ["20 km per hour", "20 miles"]),
    (r"20\%", ["20", "0.2"], ["20 cm", r"20^\circ", r"\$20"]),
    ("20 MB", ["20 megabytes"], ["20 GB"]),
    ("20", [], ["20 score", "20 fold", "20 approximately", "20 at most", "20 below zero", "20 (estimate)", "20 nope"]),
    # What dangles, or takes the value back.
    ("42", [r"\approx 42", r"\bm{42}", r"\Large 42", r"42\\"], ["42?", "42/", "42-", r"42 \times", r"\phantom{42}"]),
    ("42", ["42 (not 43)"], ["42 (43 if rounded up)", "42 (alternatively 43)", "42, which is wrong"]),
    ("30^{\\circ}", ["30", "30 degrees"], [r"30\text{ radians}", "3"]),
    ("20 mph", ["20", "20 miles per hour", "20 miles/hour"], ["20 km/h", "20 metres per hour"]),
    ("20 cm^2", ["20 square centimetres", "20 cm²", "20"], ["20 m^2", "20 square metres"]),
    (r"\$15", ["15 dollars", "15", r"\$15.00"], ["15 dollars per day", "15 euros", "15 cents", "£15"]),
    ("20", ["20 apples", "20 cm", r"20\text{ per day}"], [r"20\text{k}", "20 hundred", "20 dozen", "20th"]),
    ("0.3", ["3 tenths"], ["3"]),
    ("24", ["2 dozen", r"2 \text{ dozen eggs}"], ["2"]),
    ("25\\%", ["25", "0.25", "1/4", "25 percent"], ["0.25\\%", "2.5"]),
    ("0.25", ["25\\%", "1/4"], ["0.25\\%"]),
    # Bases, clock times, labels.
    ("1021_6", ["1021_{6}", r"1021_{\text{six}}", r"1021_{\text{base }6}", "1021 (base 6)", "1021"], ["1021_7", "235"]),
    ("3:30 p.m.", ["3:30", r"3:30\text{ PM}", "3:30 pm"], ["3:30 a.m.", "3:31", "330"]),
    ("13", ["(C) 13", r"\textbf{(C)}\ 13", "C. 13", "C) 13"], ["(C) 12", "C"]),
    ("(C) 13", ["13", "(C)", "(C) 13"], ["(B) 13", "(C) 12", "12", "B"]),
    ("73", ["73 ✅", r"73 \checkmark", "73. QED", r"73 \blacksquare"], ["72 ✅"]),
]
"""gold, contents of a mark that state it, and contents that do not."""


@pytest.mark.parametrize("reading", ["marked", "free"])
@pytest.mark.parametrize("form", [r"\boxed{{{}}}", "<answer>{}</answer>", "#### {}", "The answer is: {}"])
@pytest.mark.parametrize(("gold", "right", "wrong"), CONTRACT, ids=range(len(CONTRACT)))
def test_the_content_of_a_mark_is_read_as_a_whole(
    gold: str, right: Replies, wrong: Replies, form: str, reading: Reading
) -> None:
    verdicts = {text: verify(gold, form.format(text), 60.0, reading=reading) is CORRECT for text in [*right, *wrong]}
    assert verdicts == {**dict.fromkeys(right, True), **dict.fromkeys(wrong, False)}


MARKS: list[tuple[Reading, str, Verdict, str]] = [
    ("marked", r"\boxed{5} and #### 5", CORRECT, ""),
    ("marked", r"\boxed{5} and #### 6", UNPARSABLE, "box says '5', #### says '6'"),
    ("marked", r"<answer>6</answer> \boxed{7}", UNPARSABLE, "tag says '6', box says '7'"),
    ("marked", r"<answer>\boxed{5}</answer>", CORRECT, ""),  # a mark inside a mark is followed
    ("marked", "<answer>The answer is 5 people.</answer>", CORRECT, ""),
    ("marked", "#### Answer: 5", CORRECT, ""),
    ("marked", r"The answer is 6. \boxed{5}", CORRECT, ""),  # a phrase is a mark only where no other stands
    ("marked", "Final answer:\n\n```\n5\n```", CORRECT, ""),
    ("marked", "5", CORRECT, ""),  # the whole where there is no mark
    ("marked", "There are 5 of them", UNPARSABLE, "no value"),
    ("marked", "A wrong answer: 5", UNPARSABLE, "no value"),
    ("marked", r"$x=\boxed{5}$ or $x=\boxed{6}$", WRONG, ""),
    ("marked", "<answer>5</answer> or <answer>6</answer>", WRONG, ""),
    ("marked", "\\boxed{6}\n\\boxed{5}", CORRECT, ""),  # the last counts
    ("marked", r"\boxed{10/2 = 5}", CORRECT, ""),
    ("marked", r"\boxed{2 + 2 = 5}", UNPARSABLE, ""),  # members that differ
    ("free", r"\boxed{2 + 2 = 5}", CORRECT, ""),
    ("box", r"\boxed{5} #### 6", CORRECT, ""),
    ("box", "#### 5", UNPARSABLE, "(box)"),
    ("####", "5 \n#### 5", CORRECT, ""),
    ("tag", "The answer is 5", UNPARSABLE, "(tag)"),
    ("answer:", r"The answer is 5. \boxed{6}", CORRECT, ""),
    ("free", "#### 6\nThe answer is 5.", CORRECT, ""),
    ("marked", "5<|im_end|>", CORRECT, ""),
    ("marked", "The answer is 5? No.", WRONG, ""),
    ("marked", "#### Step 1: a\n\\boxed{5}", CORRECT, ""),  # a heading is no answer
    ("marked", "\\boxed{5}\n#### Explanation", CORRECT, ""),
    ("free", "#### Step 1: a\n\\boxed{5}", CORRECT, ""),
    ("free", "\\boxed{5}\n#### Explanation", CORRECT, ""),
    ("free", r"\boxed{\text{twice the answer} = 5}", UNPARSABLE, ""),
    ("free", r"\boxed{\text{wrong: } x = 5}", UNPARSABLE, ""),
    ("free", "#### Step 5\nfoo bar baz", UNPARSABLE, ""),
    ("marked", "#### Step 5\nfoo bar baz", UNPARSABLE, ""),
    ("marked", "[THINK]The answer is 5", UNPARSABLE, "no final answer"),
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("reading", "text", "verdict", "why"), MARKS)
def test_marks_are_read_by_the_reading(reading: Reading, text: str, verdict: Verdict, why: str) -> None:
    said = judge("5", text, reading=reading)
    assert said[0] is verdict and why in said[1], said


@pytest.mark.parametrize("reading", ["free", "marked"])
@pytest.mark.parametrize("text", ["#### Player 1\nThe answer is Player 2.", r"\boxed{Player 1} #### Player 2"])
def test_one_text_states_one_of_several_golds(text: str, reading: Reading) -> None:
    assert sum(verify(gold, text, reading=reading) is CORRECT for gold in ("Player 1", "Player 2", "Player 3")) < 2


FORMULAS = [
    ("5", [], ["Therefore $x > 5$ is the solution.", "5abc"], [r"\boxed{\frac{1}{x+}}"]),
    ("x > 5", [], ["$x < 5$", r"$x \ge 5$"], []),
    ("-1", [r"\boxed{e^{i\pi}}"], [], []),
    (r"10\sqrt{3}", [r"\boxed{10\sqrt3\text{ cm}}"], [], []),
    ("x^2 + 1", ["x**2 + 1", r"\boxed{x**2 + 1}", "The answer is **x**2 + 1**."], [], []),
    ("2x^{10}", ["2*x**10"], [], []),
    ("x^2", [], ["x**4**"], []),
    ("ab", ["ba"], [], []),
    (r"\cos x", [r"\cos(x)"], [], []),
    ("1/2", [r"\sin 30^\circ"], [], []),
    (r"\{\sqrt2,-\sqrt2\}", [r"\{-\sqrt{2}, \sqrt{2}\}"], [], []),
    (r"(\frac{\pi}{2}, 1)", [r"(\pi/2, 1)"], [], []),
    ("(1,2)", ["1 < x < 2"], [], []),
    (r"\pi", [], ["3.14159265", "3.141592653589793"], []),
    (r"\sqrt{2}\sqrt{3}x", [], ["2.449489742783178x"], []),
    (r"\begin{pmatrix}\pi\\1\end{pmatrix}", [], [r"\begin{pmatrix}3.14159265\\1\end{pmatrix}"], []),
    (r"10^{-20}\pi + \sqrt{2}", [], [r"\sqrt{2}"], []),
    ("5m", [], ["5"], []),
    ("a + b", ["(b) + a"], [], []),
    ("A", [], ["(a) * 5"], []),
    ("5abc", [], ["5"], []),
    ("x", [], [], [r"\boxed{x + }"]),
    # R and r are two variables.
    (r"\pi(R^2-r^2)", [r"\boxed{\pi(R+r)(R-r)}"], [r"\boxed{0}"], []),
    (r"\frac{m}{M}", [], [r"\boxed{1}", r"\boxed{\frac{M}{m}}"], []),
    # Nothing but letters, signs and brackets.
    ("p - q", ["-q+p", "-(q-p)"], ["q - p"], []),
    ("a(b - c)", ["ab-ac"], [], []),
    ("-x", [r"-1 \cdot x"], [], []),
    # Unions.
    (r"(-\infty,1)\cup(2,\infty)", [r"\boxed{x<1 \text{ or } x>2}", "#### x < 1 or x > 2"], [], []),
    (r"(-\infty,1)\cup(2,\infty)", [], [r"\boxed{x<1 \text{ or } x \ge 2}", r"\boxed{x<1 \text{ and } x>2}"], []),
    (r"(-\infty,1]\cup[2,\infty)", [r"\boxed{x\leq 1\text{ or }x \geq 2}"], [], []),
    (r"x<1 \text{ or } x>2", [r"\boxed{x>2 \text{ or } x<1}"], [r"\boxed{x<1}"], []),
    # An equation as a gold is met by an equivalent one.
    ("2x+3y=6", [r"y=2-\frac{2}{3}x", "4x+6y=12", "6=3y+2x"], ["6", "2x+3y=7", "z=6", "6=6", "0=0", "2x+3y"], []),
    ("y=2x+3", ["2x - y + 3 = 0", "y = 3 + 2x", "3+2x"], ["y=2x", "0=0", "x=2y+3", "3"], []),
    ("(x-1)^2+y^2=9", ["y^2+(1-x)^2=9", "x^2-2x+y^2=8"], ["(x+1)^2+y^2=9", "9"], []),
    ("f(x)=2x+3", ["y=3+2x", "2x+3", "y = 2(x+1) + 1 = 2x + 3"], ["f(x)=2x"], []),
    # Numbers keep the digits that they are written with.
    (r"\frac{e^{-12} 12^{3}}{3!}", [r"288e^{-12}", r"\frac{12^3 e^{-12}}{3!}"], [r"\frac{e^{-12} 12^{4}}{4!}"], []),
    ("2^{2(n+1)}", ["2^(2(n+1))", "4^{n+1}"], ["2^(2n+1)"], []),
    (r"\sqrt{2(n+1)}", ["sqrt(2(n+1))"], ["sqrt(2n+1)"], []),
    (r"\frac{\sqrt{x^{2}+1}}{3}", [r"\frac{\sqrt{x^{2}+1}}3"], [], []),
    (r"\log_{2} 8", ["3"], ["4"], []),
    # Equal means equal, however large or small.
    ("e^{-1000}", [r"\frac{1}{e^{1000}}"], ["e^{-1001}", "0"], []),
    (r"\frac{1}{500!}", [r"\frac{1}{500 \cdot 499!}"], [r"\frac{1}{501!}", r"\frac{2}{500!}", "0"], []),
    (r"10^{40}\pi", [], [r"10^{40}\pi+1"], []),
    (r"\frac{x}{10^{80}}", [r"x 10^{-80}"], [r"\frac{x}{10^{81}}"], []),
    (r"\begin{pmatrix} e^{-300} \\ 1 \end{pmatrix}", [], [r"\begin{pmatrix} e^{-301} \\ 1 \end{pmatrix}"], []),
    (r"\sqrt{5+2\sqrt{6}}", [r"\sqrt{2}+\sqrt{3}"], [], []),
    (r"\frac{1}{\sqrt{n}}", [r"\sqrt{1/n}"], [r"\sqrt{2/n}"], []),
]


@pytest.mark.parametrize(("gold", "right", "wrong", "unparsable"), FORMULAS, ids=range(len(FORMULAS)))
def test_formulas_are_compared_by_value(gold: str, right: Replies, wrong: Replies, unparsable: Replies) -> None:
    check(gold, right, wrong, unparsable, timeout_s=60.0)


@pytest.mark.parametrize("gold", ["nan", "5", "NaN"])
@pytest.mark.parametrize("completion", ["nan", r"\boxed{nan}", r"\boxed{\text{NaN}}", "-nan"])
def test_nan_equals_nothing(gold: str, completion: str) -> None:
    assert verify(gold, completion) is WRONG


@pytest.mark.parametrize(
    "option",
    [
        *({"timeout_s": value} for value in (0.0, -1.0, float("nan"), float("inf"))),
        *({"rel_tol": value} for value in (-0.1, 1.0, float("nan"))),
        {"decimals": "dot"},
        {"reading": "strict"},
        {"timeout_s": "3"},
        {"rel_tol": "0.1"},
        {"tol": 0.1},
    ],
)
def test_options_are_checked(option: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(option))):
        verify("1", "1", **option)  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize(
    ("name", "texts"), [("gold", (5, "5")), ("completion", ("5", None)), ("completion", ("5", [{}]))]
)
def test_texts_are_checked(name: str, texts: tuple[Any, Any]) -> None:
    with pytest.raises(UserError, match=rf"{name}.*str"):
        verify(*texts)


def test_verdicts_are_strings() -> None:
    assert Verdict.CORRECT == "correct"
    assert {verdict.value for verdict in Verdict} == {"correct", "wrong", "unparsable", "timeout"}


@pytest.mark.parametrize(
    ("completion", "answer"),
    [(r"so \boxed{\dfrac{1}{2}}.", r"\frac{1}{2}"), ("x = 5", "x=5"), ("none of it", "none of it"), ("?", None)],
)
def test_extract_answer_gives_the_cleaned_spelling(completion: str, answer: str | None) -> None:
    assert extract_answer(completion) == answer


FORMS = [
    "{}", "{}.", "{} apples", "${}$", "x = {}", "The answer is {}.", "The answer is ${}$ because 1 + 1 = 2.",
    "1 + 2 = 3\n#### {}", r"7 and \boxed{{{}}} and so on", "<think>1, 2 or 3</think>\n<answer>{}</answer>", "**{}**",
    "First 17.\nThen {}",
]  # fmt: skip


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
    completion = form.format(f"{number:,}".replace(",", separator))
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


DECIMAL_COMMAS = [
    ("1000.99", ["1000,99"], ["1000,98"], []),
    ("3.5", [r"\boxed{3{,}5}"], [], []),
    ("1234.5", ["1.234,5"], [], []),
    ("1234567", ["1.234.567", "1,234,567"], [], []),
    ("1.2", [r"\boxed{1.2}"], [], []),
    ("(1.5, 2)", ["(1,5; 2)"], [], []),
    ("1234", [], ["1,234"], []),
]


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("gold", "right", "wrong", "unparsable"), DECIMAL_COMMAS)
def test_decimal_commas_are_an_option(gold: str, right: Replies, wrong: Replies, unparsable: Replies) -> None:
    check(gold, right, wrong, unparsable, decimals="comma")


CLOSE = [
    ("1/3", "0.33", 0.01, CORRECT),  # a hundredth of the gold away, no more
    ("0", "0.001", 0.01, WRONG),
    ("20%", "0.2001", 0.01, CORRECT),
    ("(1/3, 2]", "(0.333, 2]", 0.01, CORRECT),
    ("(1/3, 2]", "(0.333, 2)", 0.01, WRONG),
    (r"\pi", "3.14159", 1e-5, CORRECT),
    (r"\pi", "3.14", 1e-5, WRONG),
    (r"\{\sqrt{2}, 1\}", r"\{1.4142, 1\}", 0.001, CORRECT),
    (r"\begin{pmatrix}\frac{1}{3}\\ 0.2\end{pmatrix}", r"\begin{pmatrix}0.33\\ 0.2\end{pmatrix}", 0.01, CORRECT),
    (r"\begin{pmatrix}\frac{1}{3}\\ 0.2\end{pmatrix}", r"\begin{pmatrix}0.33\\ 0.3\end{pmatrix}", 0.01, WRONG),
    ("x", "y", 0.5, WRONG),
]


@pytest.mark.parametrize(("gold", "completion", "rel_tol", "verdict"), CLOSE, ids=repr)
def test_closeness_is_an_option(gold: str, completion: str, rel_tol: float, verdict: Verdict) -> None:
    assert verify(gold, completion, 60.0, rel_tol=rel_tol) is verdict


@settings(max_examples=100, deadline=None)
@given(st.fractions(-100, 100), st.fractions(-100, 100), st.sampled_from([0.0, 0.001, 0.25]))
def test_closeness_is_relative_to_the_gold(gold: Fraction, answer: Fraction, rel_tol: float) -> None:
    is_close = abs(gold - answer) <= Fraction(str(rel_tol)) * abs(gold)
    assert verify(str(gold), str(answer), rel_tol=rel_tol) is (CORRECT if is_close else WRONG)
