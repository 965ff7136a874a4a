"""Adapters of trainers that are not installed, with the few types of a trainer that they use, and what all have to do.

A test class takes the laws that hold for its trainer, and says by `played` how the trainer plays and scores an episode;
its module has a fixture `adapter`, made by `adapter_of`, which `played` gets.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import group_tasks
import pytest
import scoring_tasks
import small_games
from tool_laws import Played, as_results, written  # noqa: F401 - tests/test_peers.py takes the last two from here

from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.plugins.tasks import load_task

SUMS = f"{Path(scoring_tasks.__file__)}:hurried"
GUESS = f"{Path(small_games.__file__)}:GUESS"
HEAP = f"{Path(small_games.__file__)}:HEAP?opponent=greedy&seat=first&size=1"
WORDS = f"{Path(group_tasks.__file__)}:words"

SCORED = {
    "4": (2.0, {"solved": 1.0, "valid": 1.0, "right": 1.0, "without_torch": 0.0}),
    "5": (0.0, {"solved": 0.0, "valid": 1.0, "right": 0.0, "without_torch": 0.0}),
    "four": (0.0, {"solved": 0.0, "valid": 0.0, "right": 0.0, "without_torch": 0.0}),
}
"""Completion of `sum_row` -> its reward, and what is logged: right, wrong and invalid."""

UNSCORED, REASON = "404", "LookupError"
"""A completion of `sum_row` whose reward crashes, and what the reason holds."""


def rows_of(spec: str) -> list[str]:
    """The rows of a task as JSON."""
    return [row.model_dump_json() for row in load_task(spec).rows()]


def sum_row() -> str:
    """The row 2 + 2 of `SUMS`."""
    return rows_of(SUMS)[2]


def secret_row(secret: int) -> str:
    """A row of `GUESS`."""
    return small_games.Guess(id="x", secret=secret).model_dump_json()


class Laws:
    """What an adapter does in every trainer: the reward of each completion, and never 0 for what cannot be scored.

    Attributes:
        trainer: Name of the trainer in messages.
        logs_parts: Whether the trainer logs what a reward consists of.
        caplog: What is logged, for a trainer that is told there why an episode is not scored.
    """

    trainer, logs_parts = "", True

    @pytest.fixture(autouse=True)
    def listen(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        """Play an episode of these completions as the trainer does; errors pass."""
        raise NotImplementedError

    @pytest.mark.parametrize("completion", SCORED)
    def test_a_completion_has_its_reward_and_its_parts(self, adapter: Any, completion: str) -> None:
        reward, parts = SCORED[completion]
        played = self.played(adapter, SUMS, sum_row(), completion)
        assert (played.reward, played.parts) == (reward, parts if self.logs_parts else None)

    def test_what_cannot_be_scored_has_no_reward_and_says_why(self, adapter: Any) -> None:
        try:
            played = self.played(adapter, SUMS, sum_row(), UNSCORED)
        except UnscoredError as error:
            played = Played(None, why=str(error))
        assert played.reward is None and REASON in played.why

    def test_a_group_reward_is_refused(self, adapter: Any) -> None:
        with pytest.raises(UserError, match=rf"shortest\(\).*{self.trainer}'s reward gets them one by one"):
            self.played(adapter, WORDS, rows_of(WORDS)[0], "a")


class AnswerLaws(Laws):
    """For a trainer whose reward gets one completion."""

    def test_a_task_of_turns_is_refused(self, adapter: Any) -> None:
        with pytest.raises(UserError, match=f"several turns; {self.trainer}'s reward gets one completion"):
            self.played(adapter, GUESS, secret_row(7), "7")


class EpisodeLaws(Laws):
    """For a trainer that plays turns and games."""

    def test_turns_are_an_episode_with_one_reward(self, adapter: Any) -> None:
        assert self.played(adapter, GUESS, secret_row(7), "3", "7").reward == 1.0
        assert self.played(adapter, GUESS, secret_row(7), "3", "4", "5").reward == 0.0

    def test_a_game_is_played_against_its_opponent(self, adapter: Any) -> None:
        (row,) = rows_of(HEAP)
        assert self.played(adapter, HEAP, row, "2").reward == -1.0  # greedy takes the other three
        assert self.played(adapter, HEAP, row, "1", "1").reward == 1.0


def adapter_of(trainer: str, types: Mapping[str, Mapping[str, Any]]) -> Callable[[], Iterator[Any]]:
    """The fixture that is a module of `grpo_sdk.interop`, imported while its trainer seems to be installed.

    Args:
        trainer: Name of the module.
        types: Module of the trainer -> name -> type.
    """
    name = f"grpo_sdk.interop.{trainer}"
    tops = {module.partition(".")[0] for module in types}

    def affected() -> list[str]:
        return [each for each in sys.modules if f"{each}.".startswith(f"{name}.") or each.partition(".")[0] in tops]

    @pytest.fixture(scope="module")
    def adapter() -> Iterator[Any]:
        before = {each: sys.modules.pop(each) for each in affected()}
        try:
            for module, attributes in types.items():
                parts = module.split(".")
                for depth in range(1, len(parts) + 1):
                    path = ".".join(parts[:depth])
                    if path not in sys.modules:
                        sys.modules[path] = ModuleType(path)
                        if depth > 1:
                            setattr(sys.modules[path.rpartition(".")[0]], parts[depth - 1], sys.modules[path])
                vars(sys.modules[module]).update(attributes)
            yield importlib.import_module(name)
        finally:
            for each in affected():
                del sys.modules[each]
            sys.modules.update(before)

    return adapter


def chat_completion(text: str, **fields: Any) -> Any:
    """A chat completion of the openai package."""
    message = SimpleNamespace(**{"role": "assistant", "content": text, "tool_calls": None, **fields})
    return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")])
