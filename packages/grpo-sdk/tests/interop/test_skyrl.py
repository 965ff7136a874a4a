"""The environment for SkyRL without it; tests/test_peers.py runs it in skyrl-gym itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, secret_row, trainer

from grpo_sdk.errors import UserError


class BaseTextEnv:
    """skyrl-gym's BaseTextEnv, as far as an environment uses it."""

    def __init__(self) -> None:
        self.turns, self.max_turns = 0, 1


REGISTERED: dict[str, type] = {}


def register(id: str, entry_point: type) -> None:
    REGISTERED[id] = entry_point


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    base = {"BaseTextEnv": BaseTextEnv, "BaseTextEnvStepOutput": dict}
    with trainer("skyrl", {"skyrl_gym": {"register": register}, "skyrl_gym.envs.base_text_env": base}) as adapter:
        adapter.register()
        yield adapter


def environment(spec: str, row: str) -> Any:
    extras = {"reward_spec": {"method": "rule", "ground_truth": row}, "task": spec}
    return REGISTERED["grpo"](env_config={}, extras=extras)


class TestSkyRL(EpisodeLaws):
    trainer = "SkyRL"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        env = environment(spec, row)
        env.init([])
        for text in texts:
            step = env.step(text)
        assert step["done"] and step["observations"] == [] and "why" in step["metadata"]
        return Played(step["reward"], env.get_metrics())


def test_turns_are_steps(adapter: Any) -> None:
    env = environment(GUESS, secret_row(7))
    assert env.max_turns == 3 and env.init([]) == ([{"role": "user", "content": "guess:"}], {})
    step = env.step("3")
    assert (step["reward"], step["done"], env.turns) == (0.0, False, 1)
    assert step["observations"] == [{"role": "user", "content": "\n1: higher:"}] and env.get_metrics() == {}


def test_rows_of_a_data_set_make_environments(adapter: Any) -> None:
    rows = adapter.dataset(SUMS)
    assert set(rows.column_names) == {"data_source", "prompt", "env_class", "reward_spec", "task"}
    env = REGISTERED[rows[2]["env_class"]](None, rows[2])
    env.init(rows[2]["prompt"])
    assert env.step("4")["reward"] == 2.0


def test_a_row_without_its_columns_says_how_data_is_written(adapter: Any) -> None:
    for extras in (None, {"task": SUMS}, {"task": SUMS, "reward_spec": None}):
        with pytest.raises(UserError, match=r"interop\.skyrl\.dataset\(TASK\)"):
            REGISTERED["grpo"](None, extras)
