"""A tokenizer for small chess models: a token for each square of a board, and one for each square of a move.

A FEN counts empty squares (`r1b1k2r`), so where a character stands says nothing about its square. Written one by one
every board has 71 tokens, eight ranks and seven slashes, as in DeepMind's searchless chess (arXiv 2402.04494), and a
move has two. Text goes in and comes out as ever: the empty squares of a FEN are spread on reading and counted on
writing, and whatever is no chess is read byte by byte.
"""

from __future__ import annotations

from itertools import product
from typing import Any

PAD_TOKEN, EOS_TOKEN = "<|pad|>", "<|end|>"

EMPTY = "\x1f"
"""An empty square inside the tokenizer: a control character, which no line of chess holds. In other text it would come
back as a digit."""

_SQUARE = f"[1-8pnbrqkPNBRQK{EMPTY}]"

_BEFORE = "|".join(["/" + _SQUARE * length for length in range(8)])
_AFTER = "".join([f"(?:{_SQUARE}"] * 7) + ")?" * 7 + "/"
"""A digit counts empty squares where a slash ends its rank or begins it; the digits of moves and numbers have none."""

RUNS = (2, 4, 8, 16)
"""Spaces that are one token together: the padding of a `P:` line."""


def chess_tokenizer() -> Any:
    """The tokenizer, in transformers' form."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    space, *_ = (sign for sign, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(" "))
    squares = list(product("abcdefgh", "12345678"))
    merges = [
        *squares,
        *((space, "".join(square)) for square in squares),
        *((space * (run // 2), space * (run // 2)) for run in RUNS),
    ]
    names = [PAD_TOKEN, EOS_TOKEN, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=merges))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(f"(?<={_BEFORE}){count}|{count}(?={_AFTER})"), EMPTY * count)
            for count in range(1, 9)
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), *(decoders.Replace(EMPTY * count, str(count)) for count in range(8, 0, -1))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=EOS_TOKEN)
