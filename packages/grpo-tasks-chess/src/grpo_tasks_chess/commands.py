"""`grpo chess …`: make and check data, and let a model play."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk import UserError

if TYPE_CHECKING:
    from grpo_tasks_chess.match import Match, Mover

HELP = {"help_option_names": ["-h", "--help"], "show_default": True}

SEED = click.IntRange(0, 2**63 - 1)

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
"""Start of chess."""

MAX_COMPLETION_LENGTH = 176
"""Longest answer to a position, in tokens: the longest line of labels at one token per character."""


@click.group(invoke_without_command=True, context_settings=HELP)
@click.pass_context
def chess(ctx: click.Context) -> None:
    """Chess: data for chess.policy and chess.environment, and games of a model."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _making(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the commands that make data."""
    shared = (
        click.argument("out", type=click.Path(path_type=Path, dir_okay=False)),
        click.option("--count", required=True, type=click.IntRange(min=1), help="Number of rows."),
        click.option("--seed", default=0, type=SEED, help="Seed; row i depends on it, --split and i alone."),
        click.option("--split", type=click.Choice(["train", "validation", "test"]), help="Only rows of this split."),
        click.option(
            "--workers", type=click.IntRange(min=1), help="Worker processes; by default one per core, up to 16."
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(["jsonl", "parquet", "text"]),
            help="If OUT has no suffix.",
        ),
        click.option("--overwrite", is_flag=True, help="Start again if OUT, or a part of it, exists."),
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, alone on stdout."),
        click.option("--quiet", is_flag=True, help="No progress."),
    )
    for option in reversed(shared):
        command = option(command)
    return command


@chess.command("make-policy-data", short_help="Make positions with their best moves.", context_settings=HELP)
@_making
@click.option(
    "--depth", type=click.IntRange(1, 25), help="Search depth of the labels, in plies: 10; of the built-in search 2."
)
@click.option(
    "--positions-per-game",
    default=8,
    type=click.IntRange(1, 300),
    help="More are faster to make, and more alike.",
)
@click.option(
    "--engine", metavar="PATH", help="UCI engine, or search; by default Stockfish if found, else the built-in search."
)
def make_policy_data(out: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Make positions with their five best moves, for chess.policy: OUT is .jsonl, .parquet or .txt.

    The positions are from noisy games, from opening to endgame. The same command continues an interrupted one, and
    leaves a finished file unchanged.
    """
    _make(out, as_json, quiet, kind="policy", **options)


@chess.command("make-environment-data", short_help="Make moves with their outcomes.", context_settings=HELP)
@_making
def make_environment_data(out: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Make moves with their outcomes, for chess.environment: OUT is .jsonl, .parquet or .txt. Needs no engine.

    Mates, draws, castling, en passant, promotions and illegal moves have quotas. The same command continues an
    interrupted one, and leaves a finished file unchanged.
    """
    _make(out, as_json, quiet, kind="environment", **options)


@chess.command("make-tokenizer", short_help="Write the tokenizer of small chess models.", context_settings=HELP)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the folder and its files as JSON, alone on stdout.")
def make_tokenizer(out: Path, as_json: bool) -> None:
    """Write a tokenizer with a token for each square into the folder OUT, for `grpo warm-start --tokenizer OUT`."""
    from grpo_tasks_chess.tokenizer import chess_tokenizer

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: the folder is not empty; choose another.")
    tokenizer = chess_tokenizer()
    try:
        tokenizer.save_pretrained(out)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}.") from None
    if as_json:
        files = sorted(file.name for file in out.iterdir())
        _print_json({"folder": str(out), "files": files, "tokens": len(tokenizer)})
    else:
        click.echo(out)


@chess.command(short_help="Check data files.", context_settings=HELP)
@click.argument("files", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, alone on stdout.")
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Check FILES: labels against the rules and their own evaluations, splits, and positions shared between files.

    FILES are .jsonl, .parquet or .txt, or hub:owner/name. The exit status is 1 if there is a problem.
    """
    from grpo_tasks_chess.data.checking import check, report_lines

    report = check(files)
    if as_json:
        _print_json(report)
    else:
        click.echo("\n".join(report_lines(report)))
    return 0 if report["ok"] else 1


@chess.command(short_help="Let a model play a game.", context_settings=HELP)
@click.option("--model", metavar="MODEL", default="chess-tiny", help="Embedded name, hub id or folder (./model).")
@click.option("--adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--opponent", default="stockfish", type=click.Choice(["stockfish", "random"]), help="Its opponent.")
@click.option("--colour", default="white", type=click.Choice(["white", "black"]), help="Colour of the model.")
@click.option("--engine", metavar="PATH", help="UCI engine; by default Stockfish, if found.")
@click.option("--depth", default=1, type=click.IntRange(1, 20), help="Search depth of the engine, in plies.")
@click.option(
    "--start", metavar="FEN", default=START, show_default=False, help="Start position; by default that of chess."
)
@click.option("--fallback", is_flag=True, help="Replace an illegal move by a random one; else it loses.")
@click.option(
    "--max-moves", default=200, type=click.IntRange(min=1), help="Moves of each side; then the game is stopped."
)
@click.option("--temperature", default=0.0, type=click.FloatRange(0, 100), help="Sampling temperature; 0 is greedy.")
@click.option("--seed", default=0, type=SEED, help="Random seed.")
@click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--pgn", type=click.Path(path_type=Path, dir_okay=False), help="Write the game here.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the last position; {ply}: every one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="Print the result only.")
def play(as_json: bool, quiet: bool, **options: Any) -> None:
    """Let a model play a game against an engine or random moves: it reads `P: FEN`, and its move follows `B:`."""
    from grpo_sdk import check_model, show_progress
    from grpo_tasks_chess.match import draw_text, play_match, write_pgn
    from grpo_tasks_chess.rules import position

    if math.isnan(options["temperature"]):
        raise UserError("--temperature nan: a number from 0 to 100.")
    check_model(options["model"], options["adapter"])  # before torch is imported, which takes seconds
    colour, other = ("white", "black") if options["colour"] == "white" else ("black", "white")
    start = position(options["start"]).fen()
    for path in (options["pgn"], options["svg"]):
        if path is not None and "{ply}" not in str(path.parent):
            _make_parent(path)  # now, and not when the game is over

    def show(match: Match) -> None:
        if not (quiet or as_json):
            click.echo(draw_text(match, orientation=colour == "white"))
        if options["svg"] is not None and "{ply}" in str(options["svg"]):
            _draw(options["svg"], match, orientation=colour == "white")

    with ExitStack() as resources:
        opponent = _opponent(options, resources)
        with show_progress("loading the model", quiet=quiet):
            players = {colour: _model(options), other: opponent}
        match = play_match(
            players,
            fen=start,
            replaces_illegal=options["fallback"],
            max_moves=options["max_moves"],
            seed=options["seed"],
            on_ply=show,
        )
    pgn = write_pgn(match, when=date.today())
    if options["pgn"] is not None:
        _write(options["pgn"], pgn)
    if options["svg"] is not None and "{ply}" not in str(options["svg"]):
        _draw(options["svg"], match, orientation=colour == "white")
    result = {
        "result": match.result,
        "ended_by": match.ended_by,
        "white": match.players["white"],
        "black": match.players["black"],
        "plies": len(match.board.move_stack),
        "illegal_moves_of_the_model": match.illegal_of(colour),
        "fen": match.board.fen(),
        "pgn": pgn,
    }
    if as_json:
        _print_json(result)
    else:
        click.echo(
            f"{match.result}   {result['white']} – {result['black']}   {match.ended_by}, {result['plies']} plies"
        )


def _opponent(options: Mapping[str, Any], resources: ExitStack) -> Mover:
    from grpo_tasks_chess.engine.finding import EngineMissingError
    from grpo_tasks_chess.engine.pool import EnginePool
    from grpo_tasks_chess.match import engine_mover, random_mover

    if options["opponent"] == "random":
        return random_mover(options["seed"])
    try:
        return engine_mover(resources.enter_context(EnginePool(options["engine"], size=1)), options["depth"])
    except EngineMissingError as error:
        raise EngineMissingError(f"{error} Without an engine: --opponent random.") from None


def _model(options: Mapping[str, Any]) -> Mover:
    """Return the model as a mover; loading it imports torch."""
    from grpo_core import Completer
    from grpo_tasks_chess.formats import write_policy_prompt
    from grpo_tasks_chess.match import Mover

    complete = Completer(
        options["model"],
        adapter=options["adapter"],
        device=options["device"],
        max_completion_length=MAX_COMPLETION_LENGTH,
        temperature=options["temperature"],
        seed=options["seed"],
        stop=("\n",),
    )
    return Mover(options["model"], lambda board: complete([write_policy_prompt(board.fen())])[0])


def _draw(path: Path, match: Match, *, orientation: bool) -> None:
    from grpo_tasks_chess.match import draw_svg

    numbered = Path(str(path).replace("{ply}", f"{len(match.board.move_stack):03}"))
    _write(numbered, draw_svg(match.board, orientation=orientation))


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None


def _write(path: Path, text: str) -> None:
    _make_parent(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None


def _make(out: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    from grpo_sdk import show_progress
    from grpo_tasks_chess.data.journal import SUFFIX
    from grpo_tasks_chess.data.making import Order, make, summary_lines

    order = Order(out=out, **options)
    try:
        with show_progress(f"{order.kind} rows", quiet=quiet) as progress:
            summary = make(order, progress)
    except KeyboardInterrupt:
        click.echo(f"stopped: the rows so far are in {out}{SUFFIX}; the same command continues with them.", err=True)
        raise
    if as_json:
        _print_json(summary)
    else:
        click.echo("\n".join(summary_lines(out, summary)))


def _print_json(data: Mapping[str, Any]) -> None:
    import orjson

    click.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
