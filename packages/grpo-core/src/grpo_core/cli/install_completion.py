"""`grpo --install-completion` and `grpo --show-completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from grpo_core.errors import UserError, near_match

BASH = """\
# Completion of grpo and grpo-run in bash.
_grpo_completion() {
    local IFS=$'\\n' kind candidate program=$1
    [[ $program == "~/"* ]] && program=$HOME/${program:2}
    COMPREPLY=()
    while IFS=$'\\t' read -r kind candidate; do
        COMPREPLY+=("$candidate")
        [[ $kind == part ]] && compopt -o nospace
    done < <(_GRPO_COMPLETE=bash _GRPO_LINE="${COMP_LINE:0:COMP_POINT}" _GRPO_WORD="${COMP_WORDS[COMP_CWORD]}" \\
        "$program" 2>/dev/null)
}
complete -o nosort -F _grpo_completion grpo grpo-run
"""

ZSH = """\
# Completion of grpo and grpo-run in zsh.
_grpo_completion() {
    local kind candidate
    local -a whole parts
    _GRPO_COMPLETE=zsh _GRPO_WORDS="${(pj:\\n:)${(@Q)words[1,CURRENT-1]}}" _GRPO_WORD="${(Q)PREFIX}" \\
        ${~words[1]} 2>/dev/null | while IFS=$'\\t' read -r kind candidate; do
        if [[ $kind == part ]]; then parts+=("$candidate"); else whole+=("$candidate"); fi
    done
    if [[ -z $QIPREFIX && $PREFIX == '~'*/* ]]; then  # left to the shell: quoted, it would not be expanded
        parts=("${(@)parts#*/}") whole=("${(@)whole#*/}")
        compset -P 1 '*/'
    fi
    (( $#parts )) && compadd -S '' -V grpo-parts -a parts
    (( $#whole )) && compadd -V grpo -a whole
    return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
compdef _grpo_completion grpo grpo-run
"""

FISH = """\
# Completion of grpo and grpo-run in fish.
function _grpo_completion
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    type -q -- $program; or return
    set -lx _GRPO_COMPLETE fish
    set -lx _GRPO_WORDS (string join \\n -- $words | string collect)
    set -l token (commandline -ct)
    set -lx _GRPO_WORD
    for quote in '' '"' "'"  # the one that is still open
        set _GRPO_WORD (string unescape -- "$token$quote"); and break
    end
    $program 2>/dev/null | string replace -r '^\\w+\\t' ''
end
complete --no-files --keep-order --command grpo --arguments '(_grpo_completion)'
complete --no-files --keep-order --command grpo-run --arguments '(_grpo_completion)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

DETECTED = "detected"
"""Value of the options without a shell."""


def install(context: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Write the script for a shell, have it read at the shell's start, and end the command."""
    if shell is None or context.resilient_parsing:
        return
    from grpo_core.cli.vocabulary import vocabulary
    from grpo_core.display.text import visible

    shell = _shell(shell, option)
    script, start = _places(shell)
    try:
        for path in script:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SCRIPTS[shell], encoding="utf-8")
            click.echo(visible(f"wrote     {path}"))
        if start is not None:
            _read_at_start(script[0], start)
    except OSError as error:
        advice = "--show-completion prints the script, to store it elsewhere."
        raise UserError(f"{error.filename}: cannot be written: {error.strerror}. {advice}") from None
    vocabulary(lambda: context.command)  # now, not at the first Tab
    click.echo(visible(f"next      open a new {shell}, or: source {script[0]}"))
    context.exit()


def show(context: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Print the script for a shell, and end the command."""
    if shell is None or context.resilient_parsing:
        return
    click.echo(SCRIPTS[_shell(shell, option)], nl=False)
    context.exit()


def _shell(given: str, option: click.Parameter) -> str:
    """The shell that was given, or the one that this command was started in.

    Raises:
        UserError: it is not one of ours, or cannot be detected.
    """
    name = option.opts[0]
    if given != DETECTED:
        if given not in SCRIPTS:
            raise UserError(
                f"{name} {given[:40]!r}: no such shell.{near_match(given, SCRIPTS)} Allowed: bash, zsh, fish."
            )
        return given
    import psutil

    try:
        parents = [process.name().lstrip("-") for process in psutil.Process().parents()]
    except psutil.Error:
        parents = []
    for found in (*parents, Path(os.environ.get("SHELL", "")).name):
        if found in SCRIPTS:
            return found
    raise UserError(f"the shell cannot be detected. Name it: grpo {name} bash, zsh or fish.")


def _places(shell: str) -> tuple[list[Path], Path | None]:
    """Files of the script, and the start file that has to read the first; None where the shell finds it by itself."""
    home = Path.home()
    if shell == "fish":
        folder = _folder("XDG_CONFIG_HOME", home / ".config") / "fish" / "completions"
        return [folder / "grpo.fish", folder / "grpo-run.fish"], None
    script = _folder("XDG_DATA_HOME", home / ".local" / "share") / "grpo" / f"completion.{shell}"
    start = home / ".bashrc" if shell == "bash" else _folder("ZDOTDIR", home) / ".zshrc"
    return [script], start


def _folder(variable: str, default: Path) -> Path:
    return Path(os.environ.get(variable) or default)


def _read_at_start(script: Path, start: Path) -> None:
    import shlex

    from grpo_core.display.text import visible

    line = f"source {shlex.quote(str(script))}  # completion of grpo"
    text = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line in text.splitlines():
        click.echo(visible(f"kept      {start}, which reads it already"))
        return
    try:
        with start.open("a", encoding="utf-8") as file:
            file.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")
    except OSError as error:
        raise UserError(f"{start}: cannot be written: {error.strerror}. Add this line to it yourself: {line}") from None
    click.echo(visible(f"added to  {start}: {line}"))


def completion_options(command: Any) -> Any:
    """Give a command the options `--install-completion` and `--show-completion`."""
    for name, callback, what in (
        ("--show-completion", show, "Print the completion script of a shell."),
        ("--install-completion", install, "Complete commands, tasks, runs and settings in bash, zsh or fish."),
    ):
        option = click.option(
            name, callback=callback, expose_value=False, is_eager=True, is_flag=False, flag_value=DETECTED,
            metavar="[SHELL]", help=what,
        )  # fmt: skip
        command = option(command)
    return command
