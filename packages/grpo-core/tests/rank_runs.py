"""Runs as one of several ranks: `python -m torch.distributed.run … rank_runs.py OUT VARIANT FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from test_resume import config


def main(folder: str, out: str, variant: str, *options: str) -> None:
    from grpo_core import train

    settings: dict[str, Any] = {name: int(value) for name, value in (word.split("=") for word in options)}
    fail_at = settings.pop("fail_at", None)
    if fail_at is not None and os.environ["RANK"] == "1":
        from grpo_core.training.update import Updater

        step = Updater._step

        def failing(updater: Updater, part: Any) -> dict[str, float]:
            if updater.updates == fail_at:
                raise RuntimeError("this rank's accelerator fell off")
            return step(updater, part)

        Updater._step = failing  # type: ignore[method-assign]
    train(config(Path(folder), Path(out), variant, **settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
