"""Imports of libraries whose own code warns or fails."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from grpo_sdk import UserError
from grpo_tasks_gym.foreign.packages import import_library

NAME = "half_imported"
FILES = {
    "__init__.py": "from half_imported import registry, first, second\n",
    "registry.py": "NAMES = []\n\ndef register(name):\n    assert name not in NAMES\n    NAMES.append(name)\n",
    "first.py": "from half_imported.registry import register\n\nregister('first')\n",
}
WARNS = "from half_imported.registry import register\n\nregister('second' if 1 is 1 else '')\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A package of which one module gets the given code; nothing of it is compiled yet."""

    def make(second: str) -> None:
        (tmp_path / NAME).mkdir()
        for file, text in {**FILES, "second.py": second}.items():
            (tmp_path / NAME / file).write_text(text)

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_listing_and_naming_tasks_imports_no_library() -> None:
    code = (
        "import sys; from grpo_sdk import load_task; from grpo_tasks_gym.verifiers.plugin import grpo_tasks; "
        "grpo_tasks(); load_task('inspect.task'); load_task('reasoning_gym.leg_counting'); "
        "print(*{'inspect_ai', 'verifiers', 'torch', 'reasoning_gym'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_a_warning_of_a_library_is_no_error_and_what_failed_elsewhere_is_imported_anew(
    library: Callable[[str], None],
) -> None:
    library(WARNS)
    with pytest.raises(SyntaxError):  # warnings are errors here, as with python -W error
        import_module(NAME)
    assert f"{NAME}.registry" in sys.modules
    assert import_library(f"{NAME}.registry").NAMES == ["first", "second"]
    assert import_library(NAME).registry is sys.modules[f"{NAME}.registry"]


def test_a_library_that_fails_gives_its_first_reason_each_time(library: Callable[[str], None]) -> None:
    library("from half_imported.registry import register\n\nregister('second')\nraise KeyError('no data')\n")
    for _ in range(2):
        with pytest.raises(UserError, match=f"{NAME} cannot be imported: KeyError: 'no data'"):
            import_library(f"{NAME}.registry")
