"""A tokenizer for small chess models, in which each token of a board is a piece on a square.

A FEN counts empty squares (`r1b1k2r`), so the place of a character does not determine its square. Here a board is 64
tokens, as in DeepMind's searchless chess (arXiv 2402.04494), each for one piece, or none, on one square: a model finds
a square without counting. A move has two tokens. Encoding and decoding preserve the text; other text is encoded byte
by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

PAD_TOKEN, EOS_TOKEN = "<|pad|>", "<|end|>"

FILES, RANKS = "abcdefgh", "87654321"

EMPTY = "\x1f"
"""An empty square inside the tokenizer."""

FILE_MARKS = "\x01\x02\x03\x04\x05\x06\x07\x08"
RANK_MARKS = "\x0e\x0f\x10\x11\x12\x13\x14\x15"
"""Marks of rank and file, written before the contents of a square. Like `EMPTY` they are control characters, which no
line of chess contains; decoding drops them from other text."""

_PIECES = f"pnbrqkPNBRQK{EMPTY}"

_SQUARE = f"[1-8{_PIECES}]"

_BEFORE = "|".join(["/" + _SQUARE * length for length in range(8)])
_AFTER = "".join([f"(?:{_SQUARE}"] * 7) + ")?" * 7 + "/"
"""Contexts in which a digit counts empty squares: a slash ends or begins its rank, unlike in moves and numbers."""

_MORE_RANKS, _SIDE = "(?>(?:/[^/ ]+)*)", " [wb] "
"""Patterns after a rank of a board: other ranks, then the side to move."""

RUNS = (2, 4, 8, 16)
"""Numbers of spaces that form one token, for the padding of a `P:` line."""

LABELS = "PAMEB"
"""Letters of the labels of lines and fields, which are followed by a colon."""


def chess_tokenizer() -> Any:
    """Return the tokenizer in the form of transformers."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = list(_merges(_byte_signs()))
    names = [PAD_TOKEN, EOS_TOKEN, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=merges))
    digit = f"[1-8{EMPTY}]"  # not beside another one: the squares of both would come back as one digit
    spread = [
        (f"(?<!{digit})(?:(?<={_BEFORE}){count}|{count}(?={_AFTER}))(?!{digit})", EMPTY * count)
        for count in range(1, 9)
    ]
    files = [(f"(?=[{_PIECES}]{{{8 - file}}}{_MORE_RANKS}{_SIDE})", mark) for file, mark in enumerate(FILE_MARKS)]
    # From the last rank on, each is known by the mark of the next: to count ranks takes three times as long.
    after = [*(f"/{mark}" for mark in RANK_MARKS[1:]), _SIDE]
    ranks = [(f"(?=[{FILE_MARKS}](?>[^/ ]*){end})", mark) for mark, end in zip(RANK_MARKS, after, strict=True)][::-1]
    tokenizer.normalizer = normalizers.Sequence(
        # Not at the start of a text, where tokenizers 0.23 panics after it; none of our prompts begins with a board.
        [normalizers.Replace(Regex(f"(?!\\A)(?:{each})"), content) for each, content in [*spread, *files, *ranks]]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.ByteLevel(),
            decoders.Replace(Regex(f"[{FILE_MARKS}{RANK_MARKS}]"), ""),
            *(decoders.Replace(EMPTY * count, str(count)) for count in range(8, 0, -1)),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=EOS_TOKEN)


def _byte_signs() -> dict[int, str]:
    """Return ASCII character -> its sign in a byte-level vocabulary."""
    from tokenizers import pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return {code: level.pre_tokenize_str(chr(code))[0][0] for code in range(128)}


def _merges(signs: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs that are merged into one token, in order of priority."""
    space = " ".translate(signs)
    for rank, file in product(RANK_MARKS.translate(signs), FILE_MARKS.translate(signs)):
        yield rank, file
        yield from ((rank + file, piece) for piece in _PIECES.translate(signs))
    for rank, piece in product(RANK_MARKS[:-1].translate(signs), _PIECES.translate(signs)):
        yield rank + FILE_MARKS[-1].translate(signs) + piece, "/"
    for square in product(FILES, RANKS):
        yield square
        yield space, "".join(square)
    yield from ((space * (run // 2), space * (run // 2)) for run in RUNS)
    yield from (("K", "Q"), ("k", "q"))
    yield from ((label, ":") for label in LABELS)
    yield from ((space, sign) for sign in "-wb0123456789")
