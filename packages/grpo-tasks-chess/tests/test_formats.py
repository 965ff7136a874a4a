import re
from collections.abc import Callable
from time import perf_counter

import chess
import chess.engine
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import Invalid
from grpo_tasks_chess import formats
from grpo_tasks_chess.formats import (
    EnvironmentAnswer,
    PolicyAnswer,
    read_environment,
    read_environment_prompt,
    read_policy,
)

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"

POLICY_LINES = [
    "P: rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1                                  "
    "M: g1f3 e2e3 c2c4 d2d4 e2e4      E: 0.32 0.15 0.17 0.32 0.24                B: d2d4",
    "P: rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2                             "
    "M: f8e7 d7d5 h7h5 b8c6 d8h4      E: 2.05 2.3 2.53 2.0 999.99                B: d8h4",
]
# One of RookWorld's validation file, which pads the position to 89 columns.
PUBLISHED_POLICY_LINE = (
    "P: 3r2r1/pp2kp1p/2pb4/3n4/5P2/P3PKN1/1P3P1P/1BR3R1 w - - 7 26                               "
    "M: b1a2 g1d1 g3f5 e3e4 h2h4      E: 3.83 3.83 3.9 4.41 3.92                 B: e3e4"
)
ENVIRONMENT_LINES = [
    "A: 1k1r2nr/1p4b1/2pP3p/q3N1P1/R1PP1B2/3B1N1P/1P3QP1/5RK1 b - - 0 22+g8e7+c1f4 b4a5 e4f6 e6e5 f6d7 f8g7 d7e5 c8b8 "
    "a1a4 g8e7+1k1r3r/1p2n1b1/2pP3p/q3N1P1/R1PP1B2/3B1N1P/1P3QP1/5RK1 w - - 1 23+0.001+0+0",
    "A: rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2+d8h4+f2f3 e7e5 g2g4 d8h4+"
    "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3+1.0+1+0",
    "A: rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1+e7e4+e2e4 e7e4+"
    "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1+-1.0+0+1",
    "A: 7k/8/6K1/8/8/8/8/5Q2 w - - 4 60+f1f7+f1f7+7k/5Q2/6K1/8/8/8/8/8 b - - 5 60+0.5+1+0",
]

squares = st.sampled_from(chess.SQUARE_NAMES)
moves = st.builds("{}{}{}".format, squares, squares, st.sampled_from(["", "q", "n"]))
evaluations = st.floats(-1000, 1000).map(lambda pawns: float(formats.format_evaluation(pawns)))


@st.composite
def policy_answers(draw: st.DrawFn) -> PolicyAnswer:
    listed = draw(st.lists(moves, min_size=1, max_size=8))
    numbers = draw(st.lists(evaluations, min_size=len(listed), max_size=len(listed)))
    return PolicyAnswer(tuple(listed), tuple(numbers), draw(st.sampled_from(listed)))


@pytest.mark.parametrize("line", POLICY_LINES)
def test_policy_lines_are_written_to_the_column(line: str) -> None:
    fen, answer = formats.read_policy_line(line)
    assert formats.write_policy_line(fen, answer) == line
    assert formats.write_policy_prompt(fen) == line.partition("  ")[0]
    # "P: " and 90 columns; "M: " and 30; "E: " and 40.
    assert [line.index(label) for label in ("M: ", "E: ", "B: ")] == [93, 126, 169]


def test_the_padding_of_the_position_belongs_to_the_completion() -> None:
    answer = PolicyAnswer(("e2e4",), (0.3,), "e2e4")
    completion = formats.write_policy_completion(answer, START)
    assert completion.startswith(" " * (90 - len(START)) + "M: e2e4 ")
    assert formats.write_policy_prompt(START) == f"P: {START}"
    # What is longer than its column can still be told from what follows.
    assert formats.write_policy_completion(answer, "8/" * 60).startswith(" M: e2e4")


def test_a_published_line_of_other_padding_is_read() -> None:
    fen, answer = formats.read_policy_line(PUBLISHED_POLICY_LINE)
    assert fen == "3r2r1/pp2kp1p/2pb4/3n4/5P2/P3PKN1/1P3P1P/1BR3R1 w - - 7 26"
    assert answer == PolicyAnswer(("b1a2", "g1d1", "g3f5", "e3e4", "h2h4"), (3.83, 3.83, 3.9, 4.41, 3.92), "e3e4")
    assert formats.write_policy_line(fen, answer) == PUBLISHED_POLICY_LINE.replace("   M:", "    M:")


@given(st.sampled_from([START, "7k/8/6K1/8/8/8/8/5Q2 w - - 4 60"]), policy_answers())
def test_what_is_written_is_read_back(fen: str, answer: PolicyAnswer) -> None:
    line = formats.write_policy_line(fen, answer)
    assert formats.read_policy_line(line) == (fen, answer)
    assert read_policy(line.removeprefix(formats.write_policy_prompt(fen))) == answer


@given(policy_answers(), st.data())
def test_runs_of_spaces_mean_nothing_and_so_does_what_follows_the_line(
    answer: PolicyAnswer, data: st.DataObject
) -> None:
    text = formats.write_policy_completion(answer, START)
    runs = st.integers(1, 5).map(lambda n: " " * n)
    spaced = re.sub(" +", lambda _: data.draw(runs), text)
    assert read_policy(spaced) == answer
    assert read_policy(f"{text} \nP: another line") == read_policy(f"{text}<|endoftext|>M: a") == answer


def test_the_words_of_a_damaged_line_can_still_be_had() -> None:
    fields = formats.read_policy_fields("   M: e4 e2e4  E: 0.3 x 1 B: Nf3 ")
    assert (fields.moves, fields.evaluations, fields.best) == (("e4", "e2e4"), ("0.3", "x", "1"), ("Nf3",))


def test_a_mate_is_worth_more_than_any_pawns() -> None:
    # A mate in n is 1000 − n/100, being mated in n the negative.
    assert [formats.mate_in(moves) for moves in (1, -12, 0)] == [999.99, -999.88, -1000.0]


@pytest.mark.parametrize(
    ("pawns", "written"), [(0, "0.0"), (-0.0, "0.0"), (-0.001, "0.0"), (-3.06, "-3.06"), (2.299, "2.3"), (999.99,) * 2]
)
def test_evaluations_have_one_or_two_decimals(pawns: float, written: object) -> None:
    assert formats.format_evaluation(pawns) == str(written)


@pytest.mark.parametrize("line", ENVIRONMENT_LINES)
def test_environment_lines_are_written_as_published(line: str) -> None:
    transition, answer = formats.read_environment_line(line)
    assert formats.write_environment_line(transition, answer) == line
    prompt = formats.write_environment_prompt(transition)
    assert prompt.count("+") == 3 and prompt.endswith("+") and line.startswith(prompt)
    assert read_environment_prompt(prompt) == transition
    assert read_environment(line.removeprefix(prompt)) == answer
    assert formats.write_environment_completion(answer) == line.removeprefix(prompt)


def test_flags_are_read_as_words_too_and_written_as_digits() -> None:
    answer = read_environment(f" {START.replace(' ', '   ')} + 0.5 + True+false <|endoftext|>")
    assert answer == EnvironmentAnswer(START, 0.5, terminated=True, truncated=False)
    assert formats.write_environment_completion(answer) == f"{START}+0.5+1+0"


@pytest.mark.parametrize(("read", "reason", "texts"), [
    (read_policy, "not of the form", ["", "M: e2e4 B: e2e4 E: 0.3"]),
    (read_policy, "text before M:", ["e2e4 M: e2e4 E: 0.3 B: e2e4"]),
    (read_policy, "is no move in UCI", ["M: e4 E: 0.3 B: e4", "M: e2e4 E: 0.3 B: Nf3", "M: \udc80 E: 0.3 B: \udc80"]),
    (read_policy, "0 moves and 0 evaluations", ["M: E: B: e2e4"]),
    (read_policy, "2 moves and 1 evaluations", ["M: e2e4 d2d4 E: 0.3 B: e2e4"]),
    (read_policy, "no number of pawns", [f"M: e2e4 E: {number} B: e2e4" for number in ("nan", "1e5", "٣")]),
    (read_policy, "one of the moves", [f"M: e2e4 E: 0.3 B:{best}" for best in (" d2d4", " e2e4 e2e4", "")]),
    (read_policy, "more than 2000 characters", ["x" * 10_000]),
    (read_environment, "1 fields", [""]),
    (read_environment, "3 fields", [f"{START}+0.001+0"]),
    (read_environment, "5 fields", [f"{START}+0.001+0+0+0"]),
    (read_environment, "no position", ["nothing+0.001+0+0"]),
    (read_environment, "'inf' is no reward", [f"{START}+inf+0+0"]),
    (read_environment, "more than 2000", [f"{START}+{'9' * 5000}+0+0"]),
    (read_environment, "is no flag", [f"{START}+0.001+2+0", f"{START}+0.001+0+\udc80"]),
    (read_environment_prompt, "not of the form", [f"P: {START}+e2e4+e2e4+", f"A: {START}+e2e4+e2e4"]),
    (read_environment_prompt, "is no move", [f"A: {START}+e4+e4+", f"A: {START}+e2e4+e2e4,+"]),
    (read_environment_prompt, "a history of 11 moves; at most 10", [f"A: {START}+e2e4+{'e2e4 ' * 11}+"]),
    (read_environment_prompt, "must end with", [f"A: {START}+e2e4+d2d4+", f"A: {START}+e2e4++"]),
])  # fmt: skip
def test_other_forms_are_refused(read: Callable[[str], object], reason: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(Invalid, match=reason):
            read(text)


@pytest.mark.parametrize("piece", ["M: E: B:", "+", " ", "M:", "9", "e2e4 ", "/", "\x00", "\udc80"])
def test_hostile_text_takes_no_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = perf_counter()
    for read in (
        read_policy,
        formats.read_policy_fields,
        formats.read_policy_line,
        read_environment,
        formats.read_environment_line,
    ):
        with pytest.raises(Invalid):
            read(text)
    assert perf_counter() - began < 1.0  # microseconds, in fact
