"""Untrusted text in Markdown."""

from __future__ import annotations

from typing import Any


def one_line(text: str) -> str:
    """Text without characters that would end a line or hide in one."""
    return "".join(char if char.isprintable() else " " for char in text)


def plain(text: Any) -> str:
    """Untrusted text in running Markdown: no markup, no HTML, no table cells."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#!&~" else char for char in one_line(str(text)))


def code(value: Any) -> str:
    """Untrusted text as code, on one line, inside a table too."""
    text = one_line(str(value)).replace("`", "'").replace("|", "\\|")
    return f"`{text}`"
