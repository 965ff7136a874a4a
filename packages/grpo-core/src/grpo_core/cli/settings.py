"""Reading the options and KEY=VALUE arguments of `grpo run` and `grpo eval` as settings."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from grpo_core.callbacks import Callback, Callbacks
from grpo_core.config import LoadedConfig, load_config
from grpo_core.display.libraries import hide_bars
from grpo_core.errors import UserError


def read_settings(options: Mapping[str, str | None], overrides: Iterable[str], config_file: str | None) -> LoadedConfig:
    """Read the settings of a command and of every other source.

    Args:
        options: Dotted key -> value of its option, or None.
        overrides: `key=value` arguments.
        config_file: Path given by --config, or None.

    Raises:
        UserError: as for `load_config`; also an argument that is not key=value, or a key that is given twice.
    """
    settings = {key: value for key, value in options.items() if value is not None}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(
                f"{word!r} is not KEY=VALUE, as in trainer.max_steps=100. A task is given by --task math.gsm8k."
            )
        if key in settings:
            raise UserError(f"{key} is given twice on the command line: {settings[key]!r} and {value!r}.")
        settings[key] = value
    return load_config(settings, config_file=None if config_file is None else Path(config_file), is_complete=False)


@contextlib.contextmanager
def only_results_on_stdout(callbacks: Iterable[Callback] = ()) -> Iterator[None]:
    """Redirect stdout to stderr, without the libraries' progress bars.

    Plugins and libraries may print, and stdout is for the command's result. Torch and transformers are imported
    inside the block, because they read `BAR_SWITCHES` at import. In a terminal, downloads keep their bars.

    Args:
        callbacks: Callbacks notified that these imports, which take seconds, have begun.
    """
    is_watched = sys.stderr.isatty()  # read before the live line replaces the stream
    Callbacks(callbacks).on_progress("importing torch, loading the model", 0, 0)
    if is_watched:
        from huggingface_hub import utils as hub
        from transformers.utils import logging

        logging.disable_progress_bar()
        hub.enable_progress_bars()  # type: ignore[attr-defined] # documented there, but not in its __all__
    else:
        hide_bars()
    with contextlib.redirect_stdout(sys.stderr):
        yield
