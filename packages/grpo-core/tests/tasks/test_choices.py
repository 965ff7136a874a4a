import time
from itertools import permutations, product

import pytest

from grpo_core.tasks.answers import answer_of
from grpo_core.tasks.choices import named_choices

CITIES = ("Paris", "Rome", "Vitamin C", "Madrid")
VITAMINS = ("Vitamin A", "Vitamin C", "Vitamin D", "Iron")
NUMBERS = ("8", "12", "16", "20")
DIGITS = ("1", "2", "3", "4")
LIST = "A) Paris is in France.\nB) Rome is in Italy.\nC) Vitamin C is no city.\nD) Madrid is in Spain.\n\n"


def named(text: str, choices: tuple[str, ...]) -> str:
    return "".join(sorted(named_choices(answer_of(text), choices)))


@pytest.mark.parametrize(
    ("choices", "letter", "texts"),
    [
        (CITIES, "B", [
            "The answer is B because option A is in France.", "Answer: B (not A)",
            "B\n\nExplanation: A, C and D are other capitals.", "**B) Rome**\n\nD is Spain's capital.", "**B**", "B.",
            "Option B", r"\boxed{B}", r"\boxed{\text{(B)}}", r"$\boxed{\textbf{B}}$", "b", "(b)", "b) Rome", "B) Rome",
            "(B) Rome", "B - Rome", '"B"', "$B$", r"\(B\)", "Rome", "**Rome**", "It can't be A, so B.",
            "It can’t be A, so B.", "A is wrong, B is right", "A is incorrect. C is incorrect. B is correct.",
            "The answer is not A but B.", "Not A, B, or C but... no: the answer is B", "B (I checked A)",
            "B. A whale is no fish", "The best choice would be (B).", "Final answer: B", "Final Answer: **(B) Rome**",
            "Answer: B", "Answer - B", "Correct answer → B", "**Answer**\nB", "I'd go with B.",
            "B is the correct answer.", "Therefore, B.", "The capital of Italy is Rome, so the answer is Rome (B).",
            "Rome, because Paris is in France.", "A) Paris\nB) Rome\nC) Vitamin C\nD) Madrid\n\nAnswer: B",
            "The options are A) Paris, B) Rome, C) Vitamin C, D) Madrid. The answer is B.",
            "I think the answer could be A or B, but I'm going with B", "All are wrong except B.",
            "It can't be anything other than B.", "Correct: B because A is in France",
            "The answer is (B) Rome, not (A) Paris", "B is correct, as A, C, and D are incorrect.",
            "The answer is B. B is not in France.", "1. B", "Let's see: A) Paris - no. B) Rome - yes.",
            "A? No. B? Yes.", "A is a fruit. B is a vegetable. C is a fruit. D is a fruit. Therefore the answer is B.",
            "I don't think it's A, it's B", "A) Paris is in France.\nB) Rome is in Italy.\nSo it's B.",
            "It's A or B. I'd say B.", "Eliminate A and C. That leaves B.", "B, since A and C are elsewhere",
            "Hmm, A is in France, and D in Spain. B it is.", "答案是B。", "Option B: Rome", "B\nA is in France.",
            "B\n\nA: Paris is in France\nC: is no city",
            "**B) Rome**\n\nExplanation:\n- A) Paris is in France\n- C) Vitamin C is no city\n- D) Spain", "<b>B</b>",
            "The answer is B over A", "The answer is A. Wait, no. The answer is B.", "✅ B", "The answer is\nB) Rome",
            "The correct answer is:\n\n**B) Rome**", "Answer: B. Rome is the capital; A, C and D are not.", r"\text{B}",
            "**B**: Rome", 'The answer is "B".', "The right answer here is B, although A looks good.",
            "Between A and C I can't decide, but the answer is B", "The capital of Italy is Rome.",
            LIST + "Therefore, Rome is the answer.", LIST + "The capital of Italy is Rome.",
            f"Here they are:\n\n{LIST}The capital is Rome.", f"Let's evaluate each option:\n\n{LIST}So it's B.",
            f"Let's look at every choice:\n{LIST}**B**", f"Let's evaluate each answer choice:\n{LIST}#### B",
            f"Let's see the options:\n{LIST}✅ **B) Rome**", "B. Actually, A is in France.",
            "The answer is B. Wait, A is in France, so yes.", "A... wait, actually B", "The answer is A. No, wait: B.",
            "It can't be anything but B.", "A) Paris ✗\nB) Rome ✓\nC) Vitamin C ✗\nD) Madrid ✗", f"B\n\n{LIST}",
            "All except B are wrong.", "Every option but B is wrong.",
            "**B) Rome**\n\nThe others:\n* A) Paris\n* C) Vitamin C\n* D) Madrid", "The answer choice is B",
        ]),
        (CITIES, "A", [
            "A", "A is right", "The answer is A because it is big.", "So it is A for sure.", "A. Paris",
            "The answer is A, a whale", "a", "(a)", "The answer is a.", "A, because B is in Italy",
        ]),
        (VITAMINS, "B", [
            "Vitamin C.", "Vitamin C", "**Vitamin C**", "vitamin c", "The answer is Vitamin C.", "B) Vitamin C",
            "B. Vitamin C.", "(B) vitamin C", "Answer: Vitamin C", "I'd choose Vitamin C, not Vitamin D.",
            "The correct answer is B) Vitamin C, because Vitamin A is something else",
        ]),
        ((), "B", [
            "The answer is B, i.e. Rome.", "The answer is B, e.g. for Rome", "B, i.e. Rome", "B", "(B)",
            "A is wrong, so B", "Answer: B.", "b", "B) something, A) other",
            "The answer is B. A, C and D are wrong.",
        ]),
        ((), "I", ["I", "(I)", "I.", "The answer is I"]),
        ((), "H", ["H, I think", "I think H"]),
        (("12", "13", "14", "15"), "C", [
            "14", "14.", "C) 14", "C", "13 and 15 are odd so 14", "The answer is 14, not 15.",
        ]),
        (NUMBERS, "A", [
            "8", "The answer is 8.", "Answer: 8", "12 - 4 = 8, so the answer is 8", "20 - 12 = 8", "(A) 8",
            "$8$", "16 / 2 = **8**.", "It is 8",
        ]),
        (DIGITS, "C", [
            "3", "C) 3", "The answer is C.", "There are 4 cats and 1 dog, so the answer is 3.",
            "The answer is C. 1 is too small.",
        ]),
        (("-12", "12"), "A", ["-12", "\u221212", "\u201312", "The answer is \u221212.", "**-12**"]),
        (("-12", "12"), "B", ["12", "The answer is 12.", "B) 12"]),
        (("tea", "caf\u00e9."), "B", ["cafe\u0301", "The answer is cafe\u0301", "The answer is caf\u00e9."]),
        (("AA", "Aa", "aa"), "C", ["aa", "C) aa", "The answer is C"]),
        (("5", "5!"), "A", ["5", "The answer is 5.", "A"]),
        (("Yes", "No"), "B", ["B: No", "The answer is B) No.", "The answer is B - No"]),
        (("True", "False"), "B", ["False", "B", "The answer is false.", "B) False", "b", "Not A but B"]),
        (("yes", "no"), "B", ["No.", "B, no doubt", "There is no doubt: the answer is B"]),
        (("is", "are", "was"), "B", ["The answer is B", "are", "B) are", "The answer is B) are."]),
        (("one", "two", "six"), "B", ["B, plan D failed", "I’d say B, as I see it"]),  # there is no D
        (("O", "B", "AB", "A"), "C", ["AB", "C) AB", "The answer is AB"]),
    ],
)  # fmt: skip
def test_one_choice_is_named(choices: tuple[str, ...], letter: str, texts: list[str]) -> None:
    assert {text: found for text in texts if (found := named(text, choices)) != letter} == {}


@pytest.mark.parametrize(
    ("choices", "texts"),
    [
        (CITIES, [
            "A or B", "(A)(B)", "A, B", "A and B", "A/B", "AB C D", "A, B, C, D",
            "A B C D A B C D A B C D A B C D A B C D", "A\nB\nC\nD", "A. B. C. D.", "A) B) C) D)",
            "A) Paris B) Rome C) Vitamin C D) Madrid", "A) Paris, B) Rome, C) Vitamin C, D) Madrid",
            "**A) Paris**\n**B) Rome**", "Answer: A. B. C. D.", "Answer: A, B, C, D", "The answer is either A or B.",
            "The answer is A (or B)", "The answer is Rome or Paris", "Rome, Paris, Vitamin C, Madrid",
            "The answer is A. The answer is B. The answer is C. The answer is D.",
            "A is correct. B is correct. C is correct. D is correct.", "a or B", "a. b. c. d.", "answer: a, b", "B, A",
            "A + B", "A-D", "A through D", "Either (A) or (B)", "I choose A, B, or C from the list", "So A, B", "B (A)",
            "A; B", "A - B", "All of A, B, C and D", "Options A and B are correct", "B) Rome or C) Vitamin C",
            r"\\boxed{A, B}", "A is in France, B is in Italy, C is a vitamin, D is in Spain",
            "A) Paris is nice. B) Rome is nice. C) Vitamin C is nice. D) Madrid is nice.",
            "A: Paris is nice\nB: Rome is nice\nC: Vitamin\nD: Madrid is nice", "B, maybe A", "B; alternatively A",
            "B, or possibly A", "It's B, perhaps A.", LIST + "So A or B.", LIST + "~",
            f"Let's evaluate each option:\n{LIST}", "Paris is in France and Rome in Italy; Madrid, Rome.",
            "The capital of Italy is Rome, and that of France is Paris.",
            "Option A: foo\nOption B: foo\nOption C: foo\nOption D: foo", "A\nfoo\nB\nfoo\nC\nfoo\nD\nfoo",
        ]),
        (VITAMINS, [
            "Vitamin A or Vitamin C", "B) Vitamin C or C) Vitamin D", "Vitamin C and Vitamin D",
            "A) Vitamin A\nB) Vitamin C\nC) Vitamin D\nD) Iron",
        ]),
        (DIGITS, ["C) 4", "The answer is C) 4", "C (4)"]),
        ((), [
            "A) foo B) bar C) baz D) qux", "Both A and B are correct", "A B", "A B C D E F G H I J",
            "A. foo\nB. bar\nC. a\nD. b", "A or B", "A, B, C, D, E",
        ]),
    ],
)  # fmt: skip
def test_a_hedge_or_a_list_names_several(choices: tuple[str, ...], texts: list[str]) -> None:
    assert {text: found for text in texts if len(found := named(text, choices)) == 1} == {}


@pytest.mark.parametrize(
    ("choices", "texts"),
    [
        (CITIES, [
            "A whale", "I am not sure", "E", "both", "neither", "Vitamin", "ABCD", "it is a city", "No idea",
            "The answer is a whale", "The answer is not B.", "It isn't B.", "B is wrong.", "I don't think it's B",
            "The wrong option is B", "Everything except B", "The answer is anything but B.", "Any option but B",
            "anything other than B", "The wrong answer is Rome.", "B ✗",
        ]),
        (NUMBERS, [
            "The answer is 12,000", "The answer is 12%", "The answer is 12 %", "The answer is 12 * 2 = 24",
            "The answer is -12", "The answer is 12/5", "3 \u00d7 12", "12.5", "8:30",
        ]),
        (VITAMINS, ["I like Vitamin C tablets of brand X"]),
    ],
)  # fmt: skip
def test_other_words_and_denials_name_none(choices: tuple[str, ...], texts: list[str]) -> None:
    assert {text: found for text in texts if (found := named(text, choices))} == {}


FORMS = [
    "{}", "{})", "({})", "{}.", "{}:", "- {}", "**{}**", "{}!", "Answer: {}", "The answer is {}.", "Option {}: foo",
]  # fmt: skip


@pytest.mark.parametrize(
    "glue", [" ", "", ", ", "/", "\n", "\n\n", " and ", " or ", ". ", "; ", " foo ", " foo.\n", " foo, "]
)
def test_a_list_of_all_letters_names_no_single_one(glue: str) -> None:
    for form, letters in product(FORMS, permutations("ABCD")):
        text = (glue or " " * (" " in form)).join(map(form.format, letters))
        assert len(named(text, CITIES)) != 1, text


def test_a_long_answer_is_read_at_both_ends() -> None:
    assert named("B) Rome\n" + "well " * 20_000, CITIES) == named("well " * 20_000 + "so B", CITIES) == "B"


def test_characters_that_stand_for_texts_name_nothing() -> None:
    assert named("The answer is \ue001.", CITIES) == ""


HOSTILE = [
    "A, ", "A B ", "A ", "A\n", "A or ", "A/", "A) ", "a or ", "A is ", "A is right ", "A is wrong ", "not A ", "not ",
    "A) x\n", "A) x\nB) y\n", "A)\n\n\n", "A ✗ ", "wait A ", "the wrong option is ", "answer ", "answer is ",
    "the answer is the ", "answer\n", "so ", "it is ", "Rome ", "(", "**", "<b>", "'", "A",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_take_no_time(text: str) -> None:
    began = time.perf_counter()
    named(text * (100_000 // len(text)), CITIES)
    assert time.perf_counter() - began < 5
