import pytest

from grpo_tasks_code import rewards

FIBONACCI = "```python\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n```"
TESTS = ["assert fib(1) == 1", "assert fib(7) == 13", "assert fib(10) == 55"]


@pytest.mark.parametrize(("completion", "value"), [
    ("```python\nprint('hello')\n```", 1.0),
    ("```python\nimport sys\nprint('x', file=sys.stderr)\nprint(1)\n```", 1.0),  # stderr on exit 0 is no failure
    ("```python\n# nothing\n```", 0.5),
    ("```python\nprint()\n```", 0.5),  # white space is no output
    ("```python\nif True:\nprint(1)\n```", -0.5),  # IndentationError
    ("```python\nprint(1)\nraise SyntaxError\n```", -1.0),  # at run time: no syntax error
    ("```python\nprint(1)\nimport sys\nsys.exit(3)\n```", -1.0),
])  # fmt: skip
def test_the_ladder_of_execution(completion: str, value: float) -> None:
    assert rewards.execution(completion, timeout_s=1.0) == value


@pytest.mark.parametrize(("completion", "expected", "value"), [
    ("print(2 * int(input()))", " 14\n", 1.0),
    ("print(2 * int(input()))", "15", 0.0),
    ("print('7 \\n14\\r\\n  21  ')", "7\r\n14  \n  21", 1.0),  # ends of lines do not matter,
    ("print('7\\n 14')", "7\n14", 0.0),  # and their beginnings do
    ("print(14)\nraise SystemExit(1)", "14", 0.0),
    ("", "", 0.0),
])  # fmt: skip
def test_prints(completion: str, expected: str, value: float) -> None:
    assert rewards.prints(completion, expected, stdin="7\n") == value


AS_PYTEST = "def test_seven():\n    assert fib(7) == 13"
AS_MAIN = "def check(n, value):\n    assert fib(n) == value\nif __name__ == '__main__':\n    check(7, 13)"


@pytest.mark.parametrize(("completion", "tests", "share"), [
    (FIBONACCI, TESTS, 1.0),
    (FIBONACCI.replace("n - 2", "n - 1"), TESTS, 1 / 3),  # fib(1) is 1 all the same
    ("", TESTS, 0.0),
    (FIBONACCI, [], 0.0),
    (FIBONACCI, [AS_PYTEST, AS_MAIN], 1.0),
    ("x = 1", [AS_PYTEST, AS_MAIN], 0.0),
    (FIBONACCI, ["assert fib(seven) == 13"], 1.0),
])  # fmt: skip
def test_the_share_of_the_tests_and_all_of_them(completion: str, tests: list[str], share: float) -> None:
    assert rewards.passed_tests(completion, tests, setup="seven = 7") == pytest.approx(share)
    assert rewards.passed_all_tests(completion, tests, setup="seven = 7") == (share == 1.0)
