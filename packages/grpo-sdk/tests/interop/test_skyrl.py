"""The environment for SkyRL without it; tests/test_peers.py runs it in skyrl-gym itself."""

from typing import Any

import pytest
import recorded_shop
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, adapter_of, secret_row
from tool_laws import ToolLaws

from grpo_sdk.errors import UserError


class BaseTextEnv:
    """skyrl-gym's BaseTextEnv, as far as an environment uses it."""

    def __init__(self) -> None:
        self.turns, self.max_turns = 0, 1


REGISTERED: dict[str, type] = {}

adapter = adapter_of("skyrl", {
    "skyrl_gym": {"register": lambda id, entry_point: REGISTERED.update({id: entry_point})},
    "skyrl_gym.envs.base_text_env": {"BaseTextEnv": BaseTextEnv, "BaseTextEnvStepOutput": dict},
})  # fmt: skip


@pytest.fixture(autouse=True)
def registered(adapter: Any) -> None:
    adapter.register()


def environment(spec: str, row: str) -> Any:
    extras = {"reward_spec": {"method": "rule", "ground_truth": row}, "task": spec}
    return REGISTERED["grpo"](env_config={}, extras=extras)


class TestSkyRL(EpisodeLaws, ToolLaws):
    trainer = "SkyRL"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        env = environment(spec, row)
        env.init([])
        told = []
        for text in texts:
            step = env.step(text)
            told += [message["content"] for message in step["observations"]]
        assert step["done"] and step["observations"] == [] and "why" in step["metadata"]
        return Played(step["reward"], env.get_metrics(), told=told)


def test_turns_are_steps(adapter: Any) -> None:
    env = environment(GUESS, secret_row(7))
    assert env.max_turns == 3 and env.init([]) == ([{"role": "user", "content": "guess:"}], {})
    step = env.step("3")
    assert (step["reward"], step["done"], env.turns) == (0.0, False, 1)
    assert step["observations"] == [{"role": "user", "content": "\n1: higher:"}] and env.get_metrics() == {}


def test_tools_are_described_in_a_system_message_and_their_results_are_the_users(adapter: Any) -> None:
    rows = adapter.dataset(recorded_shop.SPEC)
    env = REGISTERED["grpo"](None, rows[0])
    messages, _ = env.init(rows[0]["prompt"])
    assert messages[0] == rows[0]["prompt"][0] and messages[0]["role"] == "system"
    assert all(set(message) == {"role", "content"} for message in messages)
    assert all(f'"name": "{tool}"' in messages[0]["content"] for tool in ("undescribed", "look_up", "order"))
    assert messages[-1]["content"].startswith("You have 9 coins. Buy cups.") and env.max_turns == 4
    step = env.step('<tool_call>{"name": "look_up", "arguments": {"item": "cup"}}</tool_call>')
    assert step["observations"] == [{"role": "user", "content": "<tool_result>3 coins</tool_result>"}]


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
