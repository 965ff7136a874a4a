import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_sdk import UserError
from grpo_tasks_chess.engine import finding
from grpo_tasks_chess.engine.finding import EngineMissingError, find_engine, require_engine, why_not
from grpo_tasks_chess.engine.pool import EnginePool

MakeEngine = Callable[..., str]


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any engine."""
    for variable in finding.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(finding, "GAMES_FOLDERS", (tmp_path / "games",))


def program(folder: Path) -> str:
    folder.mkdir()
    path = folder / "stockfish"
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_without_an_engine_there_is_none_and_a_line_says_what_to_do() -> None:
    assert find_engine() is None
    assert "looked for stockfish by GRPO_CHESS_ENGINE, STOCKFISH_PATH, PATH" in why_not()
    assert "apt install stockfish" in why_not()
    with pytest.raises(EngineMissingError, match="apt install stockfish"):
        require_engine()
    with pytest.raises(EngineMissingError):
        EnginePool()


def test_it_is_found_in_debians_games_folder_then_on_the_path_then_by_variable_then_by_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(path: str | None = None) -> tuple[str, str]:
        engine = find_engine(path)
        assert engine is not None and (path is not None or why_not() == "")
        return engine.path, engine.why

    in_games = program(tmp_path / "games")
    assert found() == (in_games, f"in {tmp_path / 'games'}")
    on_path = program(tmp_path / "bin")
    assert found() == (on_path, "on PATH")
    named, first = program(tmp_path / "named"), program(tmp_path / "first")
    monkeypatch.setenv("STOCKFISH_PATH", named)
    assert found() == (named, "STOCKFISH_PATH names it")
    monkeypatch.setenv("GRPO_CHESS_ENGINE", first)
    assert found() == (first, "GRPO_CHESS_ENGINE names it")
    assert found(named) == (named, "asked for")
    assert found("stockfish") == (on_path, "asked for")


def test_what_a_variable_names_and_is_not_there_is_not_replaced_by_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin")
    monkeypatch.setenv("STOCKFISH_PATH", "/nowhere/stockfish")
    assert find_engine() is None
    assert why_not().startswith("the engine that STOCKFISH_PATH names, /nowhere/stockfish is not there")


def test_a_path_that_is_no_program_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the engine /nowhere/fish is not there"):
        find_engine("/nowhere/fish")
    (tmp_path / "notes").write_text("")
    with pytest.raises(UserError, match="notes is no program"):
        find_engine(str(tmp_path / "notes"))
    with pytest.raises(UserError, match="is not there"):
        find_engine(str(tmp_path))


def test_an_engine_says_its_name(make_engine: MakeEngine) -> None:
    engine = find_engine(make_engine())
    assert engine is not None and engine.name == "Fake 1"
