"""`grpo games …`, on the embedded model, which cannot play."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo_sdk import UserError
from grpo_tasks_games.best_response import Play
from grpo_tasks_games.commands import games
from grpo_tasks_games.elo import Result, pairs_of, ratings
from grpo_tasks_games.kuhn.theory import NAMES, exploitability


def run(*arguments: str) -> str:
    result = CliRunner().invoke(games, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_model_meets_everybody_and_scripts_do_not_meet() -> None:
    pairs = pairs_of("games.tictactoe", ["random", "a", "perfect", "b"])
    assert pairs == [("a", "b"), ("a", "random"), ("a", "perfect"), ("b", "random"), ("b", "perfect")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("elo", "tiny", "random", "--episodes", "3"), "even"),
        (("elo", "tiny", "random", "--anchor", "perfect"), "one of the players"),
        (("elo", "tinny", "random"), "tiny"),
        (("elo", "random", "perfect"), "give a model"),
        (("elo", "tiny"), "any_perfect"),
        (("elo", "tiny", "tiny"), "twice"),
        (("elo", "tiny", "random", "--task", "games.tictactos"), "tictactoe"),
        (("elo", "tiny", "perfect", "--task", "games.kuhn_poker"), "no perfect player. Its players: random, nash"),
        (("exploitability", "tiny", "--task", "math.arithmetic"), "no game"),
    ],
)
def test_bad_arguments_are_told_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        run(*arguments)


def test_ratings_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {("tiny", "random"): Result(10, 0, 30, 5), ("tiny", "perfect"): Result(0, 4, 36, 7)}
    asked: list[Any] = []

    def meet(task: str, player: str, other: str, **options: Any) -> Result:
        asked.append((task, options))
        return results[player, other]

    monkeypatch.setattr("grpo_tasks_games.elo.meet", meet)
    monkeypatch.setitem(ratings.__kwdefaults__, "resamples", 100)
    found = json.loads(run("elo", "tiny", "random", "perfect", "--episodes", "40", "--anchor", "random", "--json"))
    numbers = {"wins": 10, "draws": 0, "losses": 30, "illegal": 5}
    assert found["results"][0] == {"player": "tiny", "other": "random", **numbers}
    assert found["ratings"]["random"] == {"elo": 0.0, "low": 0.0, "high": 0.0}
    # 400 · log10((10 + 0.75) / (30 + 0.75)) = −182.6
    assert found["ratings"]["tiny"]["elo"] == pytest.approx(-182.6, abs=0.5)
    assert found["ratings"]["perfect"]["elo"] > 0 > found["ratings"]["tiny"]["high"]
    assert asked[0] == ("games.tictactoe", {"episodes": 40, "seed": 0, "device": "auto"})
    text = run("elo", "tiny", "random", "perfect", "--episodes", "40", "--anchor", "random")
    assert "random" in text and "anchor" in text and "-183" in text


def test_a_model_really_plays() -> None:
    task = "games.tictactoe?style=short"
    found = json.loads(run("elo", "tiny", "random", "--task", task, "--episodes", "4", "--json"))
    (result,) = found["results"]
    # It has learned sums alone: 4 games, all lost by its first move.
    assert result == {"player": "tiny", "other": "random", "wins": 0, "draws": 0, "losses": 4, "illegal": 4}


@pytest.fixture
def made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models that were trained with other options."""
    options = {"a": "style=short&canonical=false", "b": "style=short&canonical=true"}
    monkeypatch.setattr("grpo_sdk.check_model", lambda model: None)
    monkeypatch.setattr(
        "grpo_core.task_for_model", lambda task, model: (f"{task}?{options[model]}", f"the run of {model} had them")
    )


@pytest.mark.usefixtures("made_with")
def test_models_that_were_trained_with_other_options_do_not_meet_with_those_of_one() -> None:
    with pytest.raises(UserError, match=r"a: games.tictactoe\?style=short&canonical=false; b: .*in --task"):
        run("elo", "a", "b", "random")


@pytest.mark.usefixtures("made_with")
def test_each_model_is_asked_with_the_options_that_it_was_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def play_of(task: str, model: str, **options: Any) -> Play:
        asked[model] = task
        return Play({}, {}, 1, 1, 1)

    monkeypatch.setattr("grpo_tasks_games.best_response.play_of", play_of)
    monkeypatch.setattr(Play, "exploitability", 0.0)
    found = json.loads(run("exploitability", "a", "b", "random", "--task", "games.tictactoe", "--json"))
    options = {"a": "?style=short&canonical=false", "b": "?style=short&canonical=true", "random": ""}
    assert asked == {model: f"games.tictactoe{given}" for model, given in options.items()}
    assert {model: each["task"] for model, each in found["models"].items()} == asked


def test_games_that_raise_are_no_result(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from grpo_tasks_games.nim import GAME\n"
        "def parse(text, heaps):\n    raise RuntimeError('boom')\n"
        "nim = replace(GAME, name='nim', parse=parse)\n"
    )
    with pytest.raises(UserError, match=r"tiny against random: .*RuntimeError \(broken.py:4\): boom"):
        run("elo", "tiny", "random", "--task", f"{file}:nim?style=short", "--episodes", "2")


def test_exploitability_is_that_of_the_strategy() -> None:
    task = "games.kuhn_poker?style=short"
    found = json.loads(run("exploitability", "tiny", "--task", task, "--json"))["models"]["tiny"]
    assert list(found["strategy"]) == list(NAMES)
    assert found["exploitability"] == exploitability(found["strategy"]) > 0
    assert 0.9 < found["illegal"] <= 1
    assert f"{found['exploitability']:.4f}" in run("exploitability", "tiny", "--task", task)
