"""Task specs as users write them: `math.arithmetic:2,math.gsm8k:1?split=train`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from grpo_sdk.errors import UserError

# A comma separates tasks only before something that looks like a task, so that values may hold commas.
_SEPARATOR = re.compile(r",(?=\s*(?:[A-Za-z_]\w*\.[A-Za-z_]|(?:\.{0,2}|~\w*)/))")
_PLAIN = "/:{}=+*"
"""Characters of a value that need no escape: paths and field mappings stay readable in a run's header."""
NAME = "name"
"""Option of every spec: what the task is called, as in a mixture of two files; no part of the task's identity."""

_NAMED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?::(?P<weight>[^?]*))?(?:\?(?P<query>.*))?", re.DOTALL)
_FILE = re.compile(
    r"(?P<name>(?:\.{0,2}|~\w*)/[^?]*?\.py:[A-Za-z_]\w*)(?::(?P<weight>[^?]*))?(?:\?(?P<query>.*))?", re.DOTALL
)
_FILE_ALONE = re.compile(r"(?:\.{0,2}|~\w*)/[^?:]*\.py")


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a spec.

    Attributes:
        name: `plugin.task`, or a file and a name in it: `./rhyme.py:couplet`. A file alone is refused by what looks it
            up, which can say which tasks the file has.
        weight: Its share in a mixture, relative to the others.
        options: The values after `?`, as text.
    """

    name: str
    weight: float = 1.0
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        pairs = (f"{quote(key, safe='')}={quote(value, safe=_PLAIN)}" for key, value in self.options.items())
        return self.name + ("?" + "&".join(pairs) if self.options else "")

    @property
    def weighted(self) -> str:
        """The spec with its weight, as in a mixture."""
        name, mark, query = str(self).partition("?")
        return f"{name}:{self.weight:g}{mark}{query}" if self.weight != 1 else str(self)

    def with_options(self, **options: object) -> TaskSpec:
        """A copy with some options set, or removed where the value is None."""
        merged: dict[str, object] = {**self.options, **options}
        return TaskSpec(self.name, self.weight, {key: str(value) for key, value in merged.items() if value is not None})


def label_of(spec: str) -> str:
    """What the task of a spec is called: as its option `name` says, else by its name without options."""
    name, _, query = spec.partition("?")
    options = (pair.partition("=") for pair in query.split("&"))
    return next((unquote(value) for key, _, value in options if key == NAME), name)


def names_of(spec: str) -> tuple[str, ...]:
    """The names by which the task of a spec is found: the spec, what it is called, and its name without options."""
    return spec, label_of(spec), spec.partition("?")[0]


def parse_task_specs(text: str) -> tuple[TaskSpec, ...]:
    """Parse a comma-separated spec.

    Raises:
        UserError: it is empty, malformed, no UTF-8, names a task twice, or has a weight that is not a number above 0.
    """
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"task {text!r} is not UTF-8: name tasks, files and values in text that is.")
    specs = tuple(_parse_one(part.strip()) for part in _SEPARATOR.split(text))
    seen: set[str] = set()
    for spec in specs:
        if str(spec) in seen:
            raise UserError(
                f"task {str(spec)!r} appears twice in {text!r}; give it once, with a weight: {spec.name}:2."
            )
        seen.add(str(spec))
    return specs


def _parse_one(text: str) -> TaskSpec:
    file, _, _ = text.partition("?")
    if _FILE_ALONE.fullmatch(file):
        return TaskSpec(file)
    match = _FILE.fullmatch(text) or _NAMED.fullmatch(text)
    if match is None and ".py:" in file and file[0] not in "./":
        raise UserError(f"task spec {text!r}: a file starts with ./ or /, as in ./{text}.")
    if match is None:
        raise UserError(
            f"task spec {text!r} cannot be read. Write plugin.task or ./file.py:task, with :weight or "
            "?option=value&option=value behind it, several separated by commas."
        )
    weight = 1.0
    if match["weight"] is not None:
        try:
            weight = float(match["weight"])
        except ValueError:
            weight = -1.0
        if match["name"].endswith(".py"):
            raise UserError(f"task spec {text!r}: a file starts with ./ or /, as in ./{text}.")
        if not 0 < weight < float("inf"):
            raise UserError(
                f"task spec {text!r}: weight {match['weight']!r} must be a number above 0, as in {match['name']}:2."
            )
    options: dict[str, str] = {}
    query = match["query"]
    if query:
        # Not parse_qsl, which reads '+' as a space: values are paths more often than forms.
        for pair in query.split("&"):
            key, equals, value = pair.partition("=")
            if not key or not equals:
                raise UserError(f"task spec {text!r}: options are option=value, separated by '&'; got {pair!r}.")
            if unquote(key) in options:
                raise UserError(f"task spec {text!r}: option {unquote(key)!r} is given twice.")
            options[unquote(key)] = unquote(value)
    return TaskSpec(match["name"], weight, options)
