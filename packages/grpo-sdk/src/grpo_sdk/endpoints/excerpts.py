"""The beginning of what a server said, for error messages."""

from __future__ import annotations


def excerpt(text: str, key: str, limit: int = 200) -> str:
    """The beginning of a text on one line, without control characters and without the key that it may repeat.

    Args:
        text: What the server said.
        key: The secret to be hidden; empty for none.
        limit: Most characters.
    """
    text = text.replace(key, "(the key)") if key else text
    line = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    return " ".join(line.split())[:limit] or "(nothing)"
