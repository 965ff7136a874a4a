"""`grpo games …`: ratings and exploitability of models."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from grpo_sdk import UserError

HELP = {"help_option_names": ["-h", "--help"], "show_default": True}

DEVICE = click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
QUIET = click.option("--quiet", is_flag=True, help="No progress.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")


@click.group(invoke_without_command=True, context_settings=HELP)
@click.pass_context
def games(ctx: click.Context) -> None:
    """Games: ratings and exact exploitability of models."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@games.command(short_help="Rate models by games between them.", context_settings=HELP)
@click.argument("players", nargs=-1, required=True)
@click.option("--task", default="games.tictactoe", metavar="TASK", help="The game and its options.")
@click.option("--episodes", default=200, type=click.IntRange(min=2), help="Games of each pair, half in each seat.")
@click.option("--anchor", metavar="PLAYER", help="Player whose rating is 0; by default the last one.")
@click.option("--seed", default=0, type=click.IntRange(0, 2**63 - 1), help="Seed of starts, sampling and resampling.")
@DEVICE
@JSON
@QUIET
def elo(
    players: tuple[str, ...],
    task: str,
    episodes: int,
    anchor: str | None,
    seed: int,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Rate PLAYERS by Elo with 95% intervals: every pair plays, at temperature 1.

    PLAYERS are models, as for --model (the checkpoints of a run are ./RUN/training_state/step_*/model), and scripted
    players of the game, such as random and perfect, which do not play each other.
    """
    if episodes % 2:
        raise UserError(f"--episodes {episodes}: an even number, half for each seat.")
    anchor = anchor or players[-1]
    if anchor not in players:
        raise UserError(f"--anchor {anchor}: one of the players, {', '.join(players)}.")
    spec = _common_task(_tasks_for(task, players, quiet), task)
    from grpo_sdk import show_progress

    results = {}
    with show_progress("pairs of players", quiet=quiet) as report:
        from grpo_tasks_games.elo import meet, pairs_of, ratings

        pairs = pairs_of(spec, players)
        for player, other in pairs:
            results[player, other] = meet(spec, player, other, episodes=episodes, seed=seed, device=device)
            report(len(results), len(pairs))
    rated = ratings({pair: result[:3] for pair, result in results.items()}, anchor, seed=seed)
    if as_json:
        _print_json(
            {
                "task": spec,
                "episodes": episodes,
                "anchor": anchor,
                "ratings": {player: rating._asdict() for player, rating in rated.items()},
                "results": [{"player": a, "other": b, **result._asdict()} for (a, b), result in results.items()],
            }
        )
        return
    intervals = {player: f"{rating.low:+.0f} to {rating.high:+.0f}" for player, rating in rated.items()}
    intervals[anchor] = "anchor"
    _table(
        [
            {"player": player, "Elo": f"{rating.elo:+.0f}", "95% interval": intervals[player]}
            for player, rating in rated.items()
        ]
    )
    heads = ("player", "other", "wins", "draws", "losses", "of these illegal")
    _table([dict(zip(heads, (a, b, *map(str, result)), strict=True)) for (a, b), result in results.items()])


@games.command(short_help="Exact results against a best response.", context_settings=HELP)
@click.argument("models", nargs=-1, required=True)
@click.option("--task", default="games.kuhn_poker", metavar="TASK", help="The game and its options.")
@click.option(
    "--against", multiple=True, metavar="PLAYER", help="Also the results against this scripted player. Repeatable."
)
@DEVICE
@JSON
@QUIET
def exploitability(
    models: tuple[str, ...], task: str, against: tuple[str, ...], device: str, as_json: bool, quiet: bool
) -> None:
    """Compute what the best response to each of MODELS gets per game, with moves sampled at temperature 1.

    MODELS are models, as for --model, and `random`. No game is played: the result is computed from the probability of
    every legal move in every position. A strategy that cannot be beaten has 0. For games of two with at most 20,000
    positions; where the starts of rows differ, it is the mean over those of the test rows (--task 'GAME?size=N').

    The best response sees the whole position: in a game with hidden cards, except in Kuhn poker, the result is an upper
    bound. An illegal move costs what it costs in play. So does a legal one that the model words in another way than the
    game's write(), such as " 4" for "4": its probability is not known.

    In Kuhn poker the result is in chips, given that moves are legal, beside the probability of an illegal one; random
    play has 0.458.

    --against random, perfect or another scripted player of the game gives the exact results against it, too, if it
    draws its moves by rng.choice, randrange, randint and shuffle alone.
    """
    specs = {**dict.fromkeys(models, task), **_tasks_for(task, models, quiet or as_json)}
    from grpo_sdk import load_task, show_progress

    game = load_task(task).task.game
    if game is None:
        raise UserError(f"{task} is no game.")
    for model in models:
        if model in game.scripted and model != "random":
            raise UserError(f"{model}: only `random` and models have probabilities that are known.")
    for player in against:
        if player not in game.scripted:
            raise UserError(f"--against {player}: the scripted players of {task} are {', '.join(game.scripted)}.")
    plays: dict[str, Any] = {}
    for model, spec in specs.items():
        with show_progress(f"moves of {model}", quiet=quiet) as report:
            from grpo_tasks_games import best_response  # here, because they import torch
            from grpo_tasks_games.kuhn import KuhnConfig, theory

            exact: Any = theory if isinstance(load_task(task).config, KuhnConfig) else best_response
            plays[model] = exact.play_of(spec, model, against=[*dict.fromkeys(against)], device=device, report=report)
    first = next(iter(plays.values()))
    if as_json:
        found = {model: {"task": specs[model], **play.as_json()} for model, play in plays.items()}
        _print_json({"task": next(iter(specs.values())), "models": found})
        return
    if exact is best_response and first.starts > 1 and not quiet:
        click.echo(f"starts    {first.starts} different ones, of {first.rows} test rows: means over these", err=True)
    _table([{"model": model, **play.cells()} for model, play in plays.items()])
    if against:
        click.echo()
        _table(
            [
                {"model": model, "against": player, **best_response.seat_cells(seats)}
                for model, play in plays.items()
                for player, seats in play.against.items()
            ]
        )


def _tasks_for(task: str, players: tuple[str, ...], quiet: bool) -> dict[str, str]:
    """Return model -> the task with the options that it was made with, and say which these are.

    Raises:
        UserError: a player is neither a model nor a scripted player of the game.
    """
    from grpo_core import task_for_model
    from grpo_sdk import check_model, load_task

    game = load_task(task).task.game
    models = [player for player in players if game is None or player not in game.scripted]
    if game is not None and "perfect" in models:
        raise UserError(f"game {game.name!r} has no perfect player. Its players: {', '.join(game.scripted)}.")
    for model in models:
        check_model(model)
    found = {model: task_for_model(task, model) for model in models}
    if not quiet:
        for spec, why in dict.fromkeys(found.values()):
            if why:
                click.echo(f"task      {spec}: {why}", err=True)
    return {model: spec for model, (spec, _) in found.items()}


def _common_task(specs: Mapping[str, str], task: str) -> str:
    """Return the task that all models were trained with; without models, the one that was given.

    Raises:
        UserError: they were trained with other options.
    """
    if len(set(specs.values())) > 1:
        raise UserError(
            "models that were trained with other options than one another cannot meet as they were trained: "
            f"{'; '.join(f'{model}: {spec}' for model, spec in specs.items())}. Give the options in --task."
        )
    return next(iter(specs.values()), task)


def _table(rows: list[dict[str, str]]) -> None:
    """Print a table of rows, head -> cell; in a pipe, each row is one line, and in a narrow terminal, each cell."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 10_000, no_color=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for head in rows[0]:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row.values()))
    columns = zip(rows[0], *(row.values() for row in rows), strict=True)
    longest_words = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    if sum(longest_words) + 2 * len(longest_words) > console.width:  # the table would break words
        blocks = ("".join(f"{head}  {cell}\n" for head, cell in row.items()) for row in rows)
        click.echo("\n".join(blocks), nl=False)
        return
    with console.capture() as text:
        console.print(table)
    click.echo("".join(f"{line.rstrip()}\n" for line in text.get().splitlines()), nl=False)


def _print_json(data: Mapping[str, Any]) -> None:
    import orjson

    click.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
