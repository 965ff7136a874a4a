"""Damage to a right answer."""

from __future__ import annotations

import random
import string

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the characters that are replaced."""


def damaged(text: str, share: float, seed: str) -> str:
    """Replace a share of the letters and digits by others.

    What a share replaces, a larger one with the same seed replaces by the same: damage only grows.
    """
    rng = random.Random(f"damage/{seed}")
    characters = list(text)
    places = [place for place, character in enumerate(characters) if character.isalnum()]
    rng.shuffle(places)
    changes = [(place, _other(characters[place], rng)) for place in places]
    for place, character in changes[: -int(-share * len(changes) // 1)]:
        characters[place] = character
    return "".join(characters)


def _other(character: str, rng: random.Random) -> str:
    for alphabet in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if character in alphabet:
            return rng.choice(alphabet.replace(character, ""))
    return "x"
