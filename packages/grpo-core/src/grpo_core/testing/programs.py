"""Programs that solve no problem; `NAME` stands for the function that the prompt asks for."""

from __future__ import annotations

from collections.abc import Mapping

PROGRAMS: Mapping[str, str] = {
    "a program that prints 0": "print(0)",
    "a program that prints a word": "print('hello')",
    "a function that returns 0": "def NAME(*args, **kwargs):\n    return 0",
    "a function that returns its argument": "def NAME(x=None, *args):\n    return x",
    "a program that does nothing": "pass",
}

_EQUAL_TO_ALL = """\
class Any(int):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __hash__ = int.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
"""
_QUIET = """\
import builtins
builtins.AssertionError = type('Quiet', (BaseException,), {})
"""
_CLEARING = """\
import sys
def NAME(*args, **kwargs):
    frame = sys._getframe(1)
    while frame:
        frame.f_globals.clear()
        frame = frame.f_back
    return 0
"""
_RETURNS_0 = "def NAME(*args, **kwargs):\n    return 0"
TAMPERINGS: Mapping[str, str] = {
    "exits with success": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "raises SystemExit in the function": "def NAME(*args, **kwargs):\n    raise SystemExit(0)",
    "returns a value equal to all": f"{_EQUAL_TO_ALL}def NAME(*args, **kwargs):\n    return Any()",
    "replaces the exceptions": _QUIET + _RETURNS_0,
    "clears the tests of its frames": _CLEARING,
    "ignores its exceptions": f"import sys\nsys.excepthook = lambda *error: None\n{_RETURNS_0}",
    "claims that the tests passed": "print('All tests passed')\nprint('OK')\nraise SystemExit(0)",
}
"""Programs that solve nothing and try to end, deceive or change what tests them."""
