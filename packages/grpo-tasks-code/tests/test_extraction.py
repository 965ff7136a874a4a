import contextlib
import re
from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import Invalid
from grpo_tasks_code.extraction import MAX_PROGRAM_CHARS, block_of, program_of, script_of


@pytest.mark.parametrize(("completion", "program"), [
    ("Here it is:\n\n```python\nprint(1)\n```\nIt prints 1.", "print(1)\n"),
    ("```python\nprint(1)\n```\n```python\nprint(2)\n```", "print(1)\n"),  # the first of two
    ("```bash\nls\n```\n```python\nprint(2)\n```", "print(2)\n"),  # the first that is python
    ("```python3  \r\nprint(1)\r\n```", "print(1)\r\n"),
    ("```python\nprint(1)\n", "print(1)\n"),  # cut, or ended at a stop string
    ("```python print(1)```", "print(1)"),
    ("```python\n    x = 1\n```", "    x = 1\n"),  # a body keeps its indentation
    ("print(1)", "print(1)"),
    # The opening stood in the prompt.
    ("def f():\n    return 1\n```\nIt returns 1:\n```\n>>> f()\n1\n```", "def f():\n    return 1\n"),
    ("import re\n```python\nprint(1)\n```", "print(1)\n"),
    ("```python-repl\n>>> 1\n```", "```python-repl\n>>> 1\n```"),
    ("````python\nx = '```'\n````\n```python\ny\n```", "x = '```'\n"),  # ends at as many backticks
    # A draft in the thinking is not the answer, unless there is no other.
    ("a\n```python\n1/0\n```\n</think> b </think>```python\nprint(2)\n```\n```python\n3\n```", "print(2)\n"),
    ("<think>```python\nprint(1)\n```</think> That is all.", "print(1)\n"),
    ("```python\nprint('</think>')\n```", "print('</think>')\n"),
    ("<think>It prints.</think>\nprint(1)", "\nprint(1)"),
])  # fmt: skip
def test_the_first_python_block_else_the_whole_text(completion: str, program: str) -> None:
    assert program_of(completion) == program
    assert program_of(completion, unlabelled=False) == program


@pytest.mark.parametrize(("completion", "program"), [
    ("Here's the code:\n\n``` \r\nprint(1)\r\n```\nIt prints:\n```\n1\n```", "print(1)\r\n"),  # the first of two
    ("```\nprint(1)\n", "print(1)\n"),  # cut
    ("```\n1\n```\n```python\nprint(1)\n```", "print(1)\n"),  # python comes first, wherever it is
    ("```bash\npip install x\n```\nThen:\n```\nprint(1)\n```", "print(1)\n"),  # not what is between two blocks
    ("Use ```x``` here:\n```\nprint(1)\n```", "print(1)\n"),
    ("```\nimport os\n```\n```\nprint(os.name)\n```", "import os\n\nprint(os.name)\n"),
    ("~~~\nprint(1)\n~~~", "print(1)\n"),
    ("~~~ python\nx = '```'\n~~~\n", "x = '```'\n"),
    # A program that needs no block may hold fences in its strings.
    ('"""Double.\n\n```\n>>> f(1)\n```\n"""\nprint(1)', '"""Double.\n\n```\n>>> f(1)\n```\n"""\nprint(1)'),
    ("print(1)\n```\n", "print(1)\n```\n"),  # opens nothing
    # The answer comes before the thinking.
    ("<think>```python\n1/0\n```\n</think> ```\nprint(2)\n```", "print(2)\n"),
    ("<think>\n```\nprint(1)\n```</think> That is all.", "print(1)\n"),
    # What closes a block.
    ("```python\nprint(1)```\nIt prints:\n```\n1\n```", "print(1)"),  # a fence that ends its line
    ("```python\nprint(1)``` and\n```python\nprint(2)\n```", "print(1)"),
    ("```python print(1)``` or\n```python\nprint(2)\n```", "print(1)"),
    ('```python\nx = """\n```\nIt is cut.', 'x = """\n'),
])  # fmt: skip
def test_without_a_python_block_the_first_without_a_language_and_a_block_ends_with_its_fence(
    completion: str, program: str
) -> None:
    assert program_of(completion) == program


@pytest.mark.parametrize(("completion", "program"), [
    ("```\tPython3 \r\nprint(1)\n```", "print(1)\n"),
    ("```bash\nls\n``` Python is next:\n```python\nprint(1)\n```", "print(1)\n"),  # closes, and prose follows
    ("1. Code:\n   ```python\n   if x:\n       y\n\n   z\n   ```", "if x:\n    y\n\nz\n"),
    ("10. ```py\n    if x:\n        y\n    ```", "if x:\n    y\n"),
    ("  ```python\n    x = 1\n  ```", "  x = 1\n"),  # a body keeps its own
    ("   ```python\nif x:\n  y\n   ```", "if x:\n  y\n"),  # the fence alone is indented
    ("  ```python x = 1\n  y = 2```", "x = 1\n  y = 2"),
    ("Code: ```python\n    x = 1\n```", "    x = 1\n"),
])  # fmt: skip
def test_a_fence_may_be_indented_and_apart_from_its_language(completion: str, program: str) -> None:
    assert program_of(completion).rstrip(" \t") == program


@pytest.mark.parametrize("program", [
    "s = '```'\nprint(s)\n",
    "# use ``` here\nprint(1)\n",
    'def f(x):\n    """Add.\n\n    ```\n    f(1)\n    ```\n    """\n    return x\n',
])  # fmt: skip
@pytest.mark.parametrize("label", ["python", "", " py"])
def test_a_fence_in_a_string_or_comment_closes_nothing(program: str, label: str) -> None:
    for after in ("", "It prints:\n```\n1\n```\n", f"Or:\n```{label}\n2\n```\n", "Use ```x```."):
        assert program_of(f"So:\n```{label}\n{program}```\n{after}") == program
        assert program_of(f"So:\n  ```{label}\n{indent(program, '  ')}  ``` \r\n{after}").rstrip(" ") == program


@pytest.mark.parametrize("label", [
    *("python {.line}", "python{1,3}", "{python}", " {.python .numberLines}", "{Python echo=FALSE}", "python:"),
    *("python:src/solution.py", 'python title="a.py" linenums="1"', "py title='a.py'"),
])  # fmt: skip
def test_a_label_may_have_attributes(label: str) -> None:
    assert program_of(f"```bash\nls\n```\n```{label}\nprint(1)\n```") == "print(1)\n"


@pytest.mark.parametrize("label", ["{pythonic}", "python.x", "{r}", "python-repl {python}"])
def test_another_label_is_none_of_python(label: str) -> None:
    assert program_of(f"```{label}\nx\n```\n```python\nprint(1)\n```").endswith("print(1)\n")


@pytest.mark.parametrize("imports", ["# a\nimport b, c\n\n", "from d import (  # (\n", "from e import (\n f,\n) # g\n"])
def test_imports_are_put_before_the_next_block(imports: str) -> None:
    is_whole = imports.count("(") < 2
    completion = f"First:\n```python\n{imports}```\nThen:\n```python\nprint(1)\n```\n```python\nprint(2)\n```"
    assert program_of(completion) == (f"{imports}\nprint(1)\n" if is_whole else imports)
    assert program_of(f"```python\n{imports}```") == imports


@pytest.mark.parametrize("code", ["import os; f()\n", "imports = 1\n", "import os\nf()\n", "f()  # import os\n"])
def test_after_the_first_code_no_block_counts(code: str) -> None:
    assert program_of(f"```python\n{code}```\n```python\nprint(2)\n```") == code


@pytest.mark.parametrize(("completion", "script"), [
    ("<think>```bash\nrm x\n```</think>```sh\nls\n```", "ls\n"),
    ("<think>```bash\nls\n```</think> Done.", "ls\n"),
    ("1. Run:\n   ``` bash\n   cat <<X\n   a\n   X\n   ```", "cat <<X\na\nX\n"),
])  # fmt: skip
def test_a_script_is_no_draft_and_loses_the_indentation_of_its_fence(completion: str, script: str) -> None:
    assert script_of(completion) == script


@pytest.mark.parametrize("completion", ["", " \n\t", "```python\n```", "```python\n \n```", "```python"])
def test_a_blank_program_is_none(completion: str) -> None:
    with pytest.raises(Invalid, match="no program"):
        program_of(completion)
    with pytest.raises(Invalid, match="no ```bash block"):
        script_of("```\nls\n```")


def test_the_limit_is_the_programs_not_the_completions() -> None:
    assert program_of("x" * 10_000_000 + "\n```python\nprint(1)\n```") == "print(1)\n"
    with pytest.raises(Invalid, match="more than 65536 characters"):
        program_of("```python\n" + "x" * (MAX_PROGRAM_CHARS + 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [
    *("`", "~", "```pytho ", "x``", "```python", "```python\n", "``` python\n", "```\n", "~~~\n", "```a\n"),
    *("   ```\n", "1. ```\n"),
    *("```python\nimport a\n```\n", "```py\nfrom a import (\n", "```py\n#(", "</think>```"),
    *("1. ", " \n", "\"\"\"'''", "'''\\", "("),
    *("```py\nx``` ", "```py\nx``` \n~~~", "```py x```", "```py\n'''\n```\n", "```py\n  ", "````py\nx````\n```\n"),
    *("```{py ", "```py:", 'x="x" ', "```py a='a' "),
])  # fmt: skip
def test_long_completions_take_linear_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    with contextlib.suppress(Invalid):
        script_of(text)
    for completion in (text, f"```\n{text}\n```", f"  ```py\n  {text}"):
        with contextlib.suppress(Invalid):
            program_of(completion)


PROGRAMS = st.text(alphabet="print(1)\n =x`~", min_size=1).filter(str.strip)


@given(PROGRAMS, st.text(alphabet="ab:#\"'\n ", max_size=9))
def test_a_block_gives_its_program_back(program: str, prose: str) -> None:
    assert program_of(f"{prose}\n{block_of(program)}\n{prose}").strip("\n") == program.strip("\n")


@given(PROGRAMS, st.sampled_from(["", "python", " py", "Python3"]), st.sampled_from([" ", "   ", "\t", "1. ", "- "]))
def test_an_indented_block_gives_its_program_back(program: str, language: str, prefix: str) -> None:
    block = indent(block_of(program, language), re.sub(r"\S", " ", prefix), lambda line: line != "\n")
    assert program_of(prefix + block.lstrip()).strip() == program.strip()


PIECES = ["```", "~~~", "````", "python", "sh", "\n", "  ", "x = 1", "import a", '"""', "1. ", "</think>"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_every_line_of_a_program_is_in_the_completion(completion: str) -> None:
    with contextlib.suppress(Invalid):
        assert all(line in completion for line in program_of(completion).splitlines())
