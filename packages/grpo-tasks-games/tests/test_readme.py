"""What the package's README says about its games is true, and so is the example of docs/how-to/games.md."""

import re
from pathlib import Path
from typing import Any

import pytest

from grpo_sdk import Game, GameConfig, load_task
from grpo_sdk.task.game import GameStart, Rules, replay
from grpo_tasks_games.connect_four import Board, apply
from grpo_tasks_games.kuhn.game import Hand
from grpo_tasks_games.nim import Heaps
from grpo_tasks_games.plugin import grpo_games

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
HOW_TO = (Path(__file__).parents[3] / "docs" / "how-to" / "games.md").read_text(encoding="utf-8")

SHOWN: dict[str, Any] = {
    "tictactoe": "X...O....",
    "kuhn_poker": Hand("QK", ("pass", "bet")),
    "connect_four": apply(apply(Board(4, 5), 2), 3),
    "nim": Heaps((3, 4, 5), misere=False),
}


@pytest.mark.parametrize("game", grpo_games(), ids=lambda game: game.name)
def test_the_table(game: Game) -> None:
    (found,) = re.findall(
        rf"^\| `games\.{game.name}` \| `(.+?)` \| `(.+?)` \| (.+?) \| (.+?) \|$", README, re.MULTILINE
    )
    prompt, move, returns, players = found
    rules, state = Rules(game, game.config(**{"style": "short"})), SHOWN[game.name]
    role = rules.call("to_move", state=state)
    assert rules.call("observe", state=state, role=role) == f"{prompt}\n"
    action = rules.call("parse", text=move, state=state)
    assert rules.call("write", action=action, state=state) == move
    assert players == ", ".join(f"`{name}`" for name in game.scripted)
    assert f"±{game.maximum:g}" in returns


@pytest.mark.parametrize("game", grpo_games(), ids=lambda game: game.name)
def test_every_option_of_a_game_is_there_with_its_default(game: Game) -> None:
    for option in set(game.config.model_fields) - set(GameConfig.model_fields):
        assert re.search(rf"`{option}=", README), (game.name, option)
    for option in GameConfig.model_fields:
        assert option == "path" or f"`{option}`" in README
    defaults: Any = game.config()
    assert f"`demo_errors={defaults.demo_errors}`" in README and defaults.style == "full"
    if game.name == "connect_four":
        assert f"`rows={defaults.rows}`, `columns={defaults.columns}`" in README


def test_the_how_to_games_example_is_a_game_from_a_file(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(from grpo_sdk import Game.*?)^```", HOW_TO, re.MULTILINE | re.DOTALL)
    (tmp_path / "heap.py").write_text(code)
    task = load_task(f"{tmp_path / 'heap.py'}:heap?opponent=perfect&size=4")
    assert task.task.game is not None and isinstance(task.config, GameConfig)
    assert task.prompt(task.rows()[0]) == "12 sticks are left. How many do you take, 1, 2 or 3?\n"
    # 12 is lost: perfect play leaves a multiple of 4.
    rules = Rules(task.task.game, task.config)
    for seed in range(10):
        ended = replay(rules, GameStart(id="e", seed=seed), (), {"first": "random", "second": "perfect"})
        assert ended.returns == {"first": -1.0, "second": 1.0}
