"""Reading the options and KEY=VALUE arguments of `grpo run` and `grpo eval` as settings."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping

import click

from grpo_core.config import Settings, read_config
from grpo_core.config.keys import DEFAULT_SECTION, keys, known_as, near
from grpo_sdk.callbacks import Callback, Callbacks
from grpo_sdk.display.libraries import hide_bars
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError


class SettingsCommand(click.Command):
    """A command whose options are settings; its help shows the settings' defaults."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UserError: a setting is given as an option; says how it is written.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            meant = known_as(name) or (() if error.possibilities else near(name))
            if not meant:
                raise
            written = " or ".join(f"{key}=VALUE" for key in meant)
            raise UserError(f"no option {error.option_name}. Settings are written without dashes: {written}") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options with the defaults of their settings."""
        section = "eval" if self.name == "eval" else DEFAULT_SECTION
        for option in self.params:
            key = keys().get(option.name or "") or keys().get(f"{section}.{option.name}")
            if isinstance(option, click.Option) and key is not None and key.default is not None:
                option.help = (
                    f"{(option.help or '').partition('  [default')[0]}  [default: {format_value(key.default)}]"
                )
        super().format_options(ctx, formatter)


def read_settings(
    options: Mapping[str, str | None],
    overrides: Iterable[str],
    config_file: str | None,
    section: str = DEFAULT_SECTION,
) -> Settings:
    """Read the settings of a command and of every other source.

    Args:
        options: Dotted key -> value of its option, or None.
        overrides: `key=value` arguments.
        config_file: Path given by --config, or None.
        section: Section that a key without one is of, if it has a setting of this name.

    Raises:
        UserError: as for `read_config`; also an argument that is not key=value, or a key that is given twice.
    """
    given = {key: value for key, value in options.items() if value is not None}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(
                f"{word!r} is not KEY=VALUE, as in trainer.max_steps=100. A task is given by --task math.gsm8k."
            )
        if key in given:
            raise UserError(f"{key} is given twice on the command line: {given[key]!r} and {value!r}.")
        given[key] = value
    return read_config(given, config_file=config_file, section=section)


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
