"""The shop of the recorded episodes, for tokenizers of bytes: its completions may be as long as a trainer allows."""

from dataclasses import replace

from recorded_shop import shop

roomy = replace(shop, max_completion_length=None)
