"""Words, names and things for generated problems."""

from __future__ import annotations

_WORDS = (
    "apple arm army baby back ball bank barn bear bell bird boat body book bottle box boy bread bridge brother bucket "
    "butter cake camp candle carpet castle cat chair cheese child church circle city clock cloud coat coffee corn "
    "cotton country cow cup desk dinner doctor dog door dragon dream dress drum duck eagle ear earth egg engine farm "
    "father feather field finger fire fish flag floor flower fork forest fox friend frog fruit garden gate ghost girl "
    "glass glove goat gold grass guitar hammer hand harbor hat heart hill honey horse hotel house ice island jacket "
    "jewel juice king kitchen kite knee ladder lake lamp leaf lemon letter light lion market meadow metal milk mirror "
    "money monkey moon morning mother mountain mouse music nail needle nest night nose ocean onion orange oven owl "
    "paint palace paper park pencil pepper piano picture pillow pilot planet plate pocket pond potato prince queen "
    "rabbit radio rain ring river road rocket roof room rope rose sail salt sand school sea seed sheep ship shirt shoe "
    "silver sister sky snow soap sock soldier song spider spoon spring star stone story street sugar summer sun table "
    "teacher temple thread tiger tomato tower town train tree turtle uncle valley village violin wagon wall watch "
    "water wheel whistle wind window winter wolf wood yard zebra"
)
_NAMES = "Ada Ben Chloe Dan Emma Farid Grace Hugo Ines Jonas Kofi Lena Mia Noah Olga Paul Rosa Sam Tara Yuki"
_THINGS = "apples books cards coins cookies eggs flowers marbles pencils shells stamps stickers stones tickets"

WORDS = tuple(_WORDS.split())
"""Short common nouns, lower case, each once."""

NAMES = tuple(_NAMES.split())
"""First names."""

THINGS = tuple(_THINGS.split())
"""Countable things, in the plural."""
