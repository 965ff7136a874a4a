import math
import sys

from grpo_core.display.plots import MARK, WHISKER, curve


def test_a_rising_line_goes_from_corner_to_corner_and_a_mark_has_its_interval_at_its_step() -> None:
    drawn = ["1      ⢀⠔⠊", "    ⢀⡠⠊⠁  ", "0 ⡠⠔⠁     ", "  1      9"]
    assert curve([(1, 0.0), (9, 1.0)], 10, 4) == drawn
    lines = curve([], 12, 6, [(0, 0.5, 0.25, 0.75), (10, 0.5, math.nan, math.nan)])
    first, last = 5, 11  # behind the labels of the values
    assert [line[first] for line in lines[:-1]] == [WHISKER, WHISKER, MARK, WHISKER, WHISKER]
    assert [line[last] for line in lines[:-1]] == [" ", " ", MARK, " ", " "]
    assert (lines[0][:4], lines[4][:4]) == ("0.75", "0.25")


def test_numbers_at_the_ends_of_what_a_float_holds_have_a_place() -> None:
    lines = curve([(0, 0.12345), (1, 0.12346)], 30, 4)
    assert (lines[0].split()[0], lines[2].split()[0]) == ("0.12346", "0.12345"), "a small range is told apart"
    for nothing in ([], [(1, math.nan)], [(1, math.inf)]):
        assert curve(nothing, 40, 8) == []
    largest = sys.float_info.max
    for values in ([0.0, 5e-324], [largest], [-largest], [0.0, largest, largest, 0.0], [-largest, largest]):
        assert len(curve([*enumerate(values)], 20, 4, [(0, 0.0, -largest, largest)])) == 4
    equal = [0.1] * 1000 + [math.nextafter(0.1, 1)]  # the mean of ten is 0.09999999999999999
    assert len(curve([*enumerate(map(float, equal))], 40, 6)) == 6
