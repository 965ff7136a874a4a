"""Task folders in the format of Harbor, written by the tests."""

from collections.abc import Mapping
from pathlib import Path

HELLO: Mapping[str, str] = {
    "instruction.md": 'Create a file called hello.txt with "Hello, world!" as the content.\n',
    "task.toml": (
        'schema_version = "1.4"\n[task]\nname = "harbor/hello-world"\n[metadata]\ndifficulty = "easy"\n'
        "[verifier]\ntimeout_sec = 120.0\n[agent]\ntimeout_sec = 120.0\n"
        "[environment]\nbuild_timeout_sec = 600.0\ncpus = 1\nmemory_mb = 2048\nstorage_mb = 64\n"
    ),
    "environment/Dockerfile": "FROM ubuntu:24.04\n\nWORKDIR /app\n",
    "solution/solve.sh": '#!/bin/bash\necho "Hello, world!" > hello.txt\n',
    "tests/test.sh": (
        "#!/bin/bash\n"
        'if [ "$(cat /app/hello.txt)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi'
        " > /logs/verifier/reward.txt\n"
    ),
    "tests/expected.txt": "Hello, world!\n",
}
"""Harbor's own hello-world; its test compares with a file, and installs nothing."""

COUNT: Mapping[str, str] = {
    **HELLO,
    "instruction.md": "Write the number of lines of data.txt to count.txt.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data.txt ./\n",
    "environment/data.txt": "one\ntwo\nthree\n",
    "solution/solve.sh": "#!/bin/bash\nwc -l < data.txt > count.txt\n",
    "tests/test.sh": (
        "cd /app && python3 -m unittest discover -s /tests; echo $((1 - ($? > 0))) > /logs/verifier/reward.txt\n"
    ),
    "tests/test_count.py": (
        "import unittest\n\n\nclass Count(unittest.TestCase):\n    def test_count(self):\n"
        '        with open("/app/count.txt") as file:\n            self.assertEqual(int(file.read()), 3)\n'
    ),
}
"""A task with files of its own, whose tests are those of Python."""


def write_folder(folder: Path, base: Mapping[str, str], **changed: str | bytes | None) -> Path:
    """Write a task folder, and return it.

    Args:
        folder: The folder.
        base: Relative path -> content.
        changed: Other contents, with `__` for `/` and `_dot_` for `.` in a path; None leaves a file out.
    """
    named = {name.replace("__", "/").replace("_dot_", "."): content for name, content in changed.items()}
    for path, content in {**base, **named}.items():
        if content is not None:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
