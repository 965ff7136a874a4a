"""`python -m grpo_core …` is `grpo …`: what torchrun starts."""

from __future__ import annotations

import sys

from grpo_sdk.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
