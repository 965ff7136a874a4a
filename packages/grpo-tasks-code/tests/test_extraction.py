from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import Invalid
from grpo_tasks_code.extraction import MAX_PROGRAM_CHARS, block_of, program_of, script_of


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("Here it is:\n\n```python\nprint(1)\n```\nIt prints 1.", "print(1)\n"),
        ("```python\nprint(1)\n```\n```python\nprint(2)\n```", "print(1)\n"),  # the first of two
        ("```bash\nls\n```\n```python\nprint(2)\n```", "print(2)\n"),  # the first that is python
        ("```Python\nprint(1)\n```", "print(1)\n"),
        ("```py\nprint(1)\n```", "print(1)\n"),
        ("```python3  \r\nprint(1)\r\n```", "print(1)\r\n"),
        ("```python\nprint(1)\n", "print(1)\n"),  # cut, or ended at a stop string
        ("```python print(1)```", "print(1)"),
        ("```python\n    x = 1\n```", "    x = 1\n"),  # a body keeps its indentation
        ("print(1)", "print(1)"),
        ("```\nprint(1)\n```", "```\nprint(1)\n```"),  # no python block: the whole text
        ("```python-repl\n>>> 1\n```", "```python-repl\n>>> 1\n```"),
        ("```pytest\nx\n```", "```pytest\nx\n```"),
        ("````python\nx = '```'\n````\n```python\ny\n```", "x = '```'\n"),  # ends at as many backticks
        ("````python\nx = 1\n```", "x = 1\n```"),
        # A draft in the thinking is not the answer, unless there is no other.
        ("<think>First:\n```python\n1/0\n```\nNo.</think>\n```python\nprint(2)\n```", "print(2)\n"),
        ("a\n```python\n1/0\n```\n</think> b </think>```python\nprint(2)\n```\n```python\n3\n```", "print(2)\n"),
        ("<think>```python\nprint(1)\n```</think> That is all.", "print(1)\n"),
        ("```python\nprint('</think>')\n```", "print('</think>')\n"),
        ("<think>```python\nprint(1)\n```", "print(1)\n"),
    ],
)
def test_the_first_python_block_else_the_whole_text(completion: str, program: str) -> None:
    assert program_of(completion) == program


def test_a_script_in_the_thinking_is_a_draft() -> None:
    assert script_of("<think>```bash\nrm x\n```</think>```sh\nls\n```") == "ls\n"
    assert script_of("<think>```bash\nls\n```</think> Done.") == "ls\n"


@pytest.mark.parametrize("completion", ["", " \n\t", "```python\n```", "```python\n \n```", "```python"])
def test_a_blank_program_is_none(completion: str) -> None:
    with pytest.raises(Invalid, match="no program"):
        program_of(completion)


def test_the_limit_is_the_programs_not_the_completions() -> None:
    assert program_of("x" * 10_000_000 + "\n```python\nprint(1)\n```") == "print(1)\n"
    with pytest.raises(Invalid, match="more than 65536 characters"):
        program_of("```python\n" + "x" * (MAX_PROGRAM_CHARS + 1))


@pytest.mark.timeout(20)
def test_many_fences_and_much_white_space_are_read_in_one_pass() -> None:
    for hostile in ("```" * 3_000_000, "```pytho " * 1_000_000, "x``" * 3_000_000):
        with pytest.raises(Invalid, match="characters"):
            program_of(hostile)
    assert program_of("```python" + " " * 9_000_000 + "x") == "x"


@given(st.text(alphabet="print(1)\n =x`", min_size=1).filter(str.strip))
def test_a_block_gives_its_program_back(program: str) -> None:
    assert program_of(block_of(program)).strip("\n") == program.strip("\n")
