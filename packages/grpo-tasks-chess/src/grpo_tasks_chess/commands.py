"""`grpo chess …`: making and checking data, and watching a model play."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo_core import UserError

if TYPE_CHECKING:
    from grpo_tasks_chess.data.making import Order
    from grpo_tasks_chess.match import Match
    from grpo_tasks_chess.movers import Mover

HELP = {"help_option_names": ["-h", "--help"], "show_default": True}

MAX_COMPLETION_LENGTH = 176
"""Tokens of a model's answer to a position: the longest line of labels, where a token is one character."""


@click.group(context_settings=HELP)
def chess() -> None:
    """Chess: data for chess.policy and chess.environment, and games."""


def _making(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands that make data."""
    options = (
        click.argument("out", type=click.Path(path_type=Path, dir_okay=False)),
        click.option("--count", required=True, type=click.IntRange(min=1), help="Rows."),
        click.option("--seed", default=0, type=click.IntRange(min=0), help="Row i depends on it and on i alone."),
        click.option("--split", type=click.Choice(["train", "validation", "test"]), help="Only rows of this split."),
        click.option("--workers", type=click.IntRange(min=1), help="Processes; by default one for each core."),
        click.option("--format", "form", type=click.Choice(["jsonl", "parquet", "text"]), help="If no suffix says."),
        click.option("--overwrite", is_flag=True, help="Begin again where OUT, or a part of it, is there."),
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, alone on stdout."),
        click.option("--quiet", is_flag=True, help="No progress."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@chess.command("make-policy-data", short_help="Make positions with an engine's best moves.", context_settings=HELP)
@_making
@click.option("--depth", default=10, type=click.IntRange(1, 25), help="Plies that labels are searched to.")
@click.option(
    "--positions-per-game", default=8, type=click.IntRange(1, 300), help="More are made faster, and are more alike."
)
@click.option("--engine", metavar="PATH", help="UCI engine; by default Stockfish where it is found.")
def make_policy_data(out: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Positions with an engine's five best moves, for chess.policy, into OUT (.jsonl, .parquet or .txt).

    From openings to endgames, by noisy games. The same command goes on where one was interrupted, and leaves a
    finished file alone.
    """
    _make(out, as_json, quiet, kind="policy", **given)


@chess.command("make-environment-data", short_help="Make moves with their outcomes.", context_settings=HELP)
@_making
def make_environment_data(out: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Moves with what they lead to, for chess.environment, into OUT (.jsonl, .parquet or .txt). Needs no engine.

    Mates, draws, castling, en passant, promotions and illegal moves have quotas. The same command goes on where one
    was interrupted, and leaves a finished file alone.
    """
    _make(out, as_json, quiet, kind="environment", **given)


@chess.command("make-tokenizer", short_help="Write the tokenizer of small chess models.", context_settings=HELP)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def make_tokenizer(out: Path) -> None:
    """Write a tokenizer with a token for each square into the folder OUT, for `grpo warm-start --tokenizer OUT`."""
    from grpo_tasks_chess.tokenizer import chess_tokenizer

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: the folder is not empty; choose another.")
    chess_tokenizer().save_pretrained(out)
    click.echo(out)


@chess.command(short_help="Check files of such data.", context_settings=HELP)
@click.argument("files", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, alone on stdout.")
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Check FILES: labels by the rules and by their own evaluations, splits, and that no two files share a position.

    FILES are .jsonl, .parquet or .txt, or hub:owner/name. Exit status 1 where something is wrong.
    """
    from grpo_tasks_chess.data.checking import check
    from grpo_tasks_chess.data.described import report_lines

    report = check(files)
    if as_json:
        _print_json(report)
    else:
        click.echo("\n".join(report_lines(report)))
    return 0 if report["ok"] else 1


@chess.command(short_help="Let a model play a game.", context_settings=HELP)
@click.option("--model", required=True, metavar="MODEL", help="Embedded name, hub id or folder (./model).")
@click.option("--adapter", metavar="FOLDER", help="PEFT adapter to put on it.")
@click.option("--opponent", default="stockfish", type=click.Choice(["stockfish", "random"]), help="Who it plays.")
@click.option("--colour", default="white", type=click.Choice(["white", "black"]), help="What the model plays.")
@click.option("--engine", metavar="PATH", help="UCI engine; by default Stockfish where it is found.")
@click.option("--depth", default=1, type=click.IntRange(1, 20), help="Plies that the engine searches to.")
@click.option("--start", metavar="FEN", help="Another position to begin with.")
@click.option("--fallback", is_flag=True, help="An illegal move is replaced by a random one; else it loses.")
@click.option("--max-moves", default=200, type=click.IntRange(min=1), help="Of each side, then the game is broken off.")
@click.option("--temperature", default=0.0, type=click.FloatRange(min=0), help="Of the model; 0 is greedy.")
@click.option("--seed", default=0, type=click.IntRange(min=0), help="Of whatever is random.")
@click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--pgn", type=click.Path(path_type=Path, dir_okay=False), help="Write the game here.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the last position; {ply}: each one.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="Print the result only.")
def play(as_json: bool, quiet: bool, **given: Any) -> None:
    """Let a model play a game against an engine or chance: it reads `P: FEN`, and its move is what stands after B:."""
    import chess as rules_of_chess

    from grpo_tasks_chess.match import draw_text, play_match, write_pgn
    from grpo_tasks_chess.movers import RandomMover
    from grpo_tasks_chess.rules import position

    colour = rules_of_chess.WHITE if given["colour"] == "white" else rules_of_chess.BLACK
    start = None if given["start"] is None else position(given["start"])

    def show(match: Match) -> None:
        if not (quiet or as_json):
            click.echo(draw_text(match, orientation=colour))
        if given["svg"] is not None and "{ply}" in str(given["svg"]):
            _draw(given["svg"], match, colour)

    with ExitStack() as resources:
        opponent = _opponent(given, resources)
        players = {colour: _model(given), not colour: opponent}
        fallback = RandomMover(-1 - given["seed"]) if given["fallback"] else None  # not the opponent's numbers
        match = play_match(players, start=start, fallback=fallback, max_moves=given["max_moves"], on_ply=show)
    pgn = write_pgn(match, when=date.today())
    if given["pgn"] is not None:
        _write(given["pgn"], pgn)
    if given["svg"] is not None and "{ply}" not in str(given["svg"]):
        _draw(given["svg"], match, colour)
    result = {
        "result": match.result,
        "ended_by": match.ended_by,
        "white": match.players[rules_of_chess.WHITE],
        "black": match.players[rules_of_chess.BLACK],
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


def _opponent(given: Mapping[str, Any], resources: ExitStack) -> Mover:
    from grpo_tasks_chess.engine import EnginePool
    from grpo_tasks_chess.movers import EngineMover, RandomMover

    if given["opponent"] == "random":
        return RandomMover(given["seed"])
    return EngineMover(resources.enter_context(EnginePool(given["engine"], size=1)), given["depth"])


def _model(given: Mapping[str, Any]) -> Mover:
    """The model, through the core; loading it imports torch."""
    from grpo_core import Completer
    from grpo_tasks_chess.movers import ModelMover

    complete = Completer(
        given["model"],
        adapter=given["adapter"],
        device=given["device"],
        max_completion_length=MAX_COMPLETION_LENGTH,
        temperature=given["temperature"],
        seed=given["seed"],
        stop=("\n",),
    )
    return ModelMover(given["model"], lambda prompt: complete([prompt])[0])


def _draw(path: Path, match: Match, colour: bool) -> None:
    from grpo_tasks_chess.match import draw_svg

    numbered = Path(str(path).replace("{ply}", f"{len(match.board.move_stack):03}"))
    _write(numbered, draw_svg(match.board, orientation=colour))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None


def _make(out: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    from grpo_tasks_chess.data.described import summary_lines
    from grpo_tasks_chess.data.journal import SUFFIX
    from grpo_tasks_chess.data.making import Order, make

    order = Order(out=out, **given)
    try:
        with _progress(order, quiet) as progress:
            summary = make(order, progress)
    except KeyboardInterrupt:
        click.echo(f"stopped: what is made is in {out}{SUFFIX}; the same command goes on with it.", err=True)
        raise
    if as_json:
        _print_json(summary)
    else:
        click.echo("\n".join(summary_lines(out, summary)))


@contextmanager
def _progress(order: Order, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{order.kind} rows", total=order.count)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_json(data: Mapping[str, Any]) -> None:
    import orjson

    click.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
