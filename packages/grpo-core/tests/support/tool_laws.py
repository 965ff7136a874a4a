"""What trainers with tools have to do: play the recorded episodes of recorded_shop.py as our own player does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import recorded_shop

from grpo_sdk.errors import UnscoredError

EACH_EPISODE = pytest.mark.parametrize("recorded", recorded_shop.EPISODES, ids=lambda episode: str(episode["name"]))
"""Has a test play each recorded episode."""


@dataclass(frozen=True)
class Played:
    """What a trainer gets of an episode.

    Attributes:
        reward: The reward; None where it is not scored.
        parts: What is logged beside it; None where nothing is.
        why: Why it is not scored.
        told: What the policy was told after each turn, where it is told.
    """

    reward: float | None
    parts: Mapping[str, float] | None = None
    why: str = ""
    told: Sequence[str] = ()


def results_of(recorded: Mapping[str, Any]) -> list[str]:
    """The results of a recorded episode's calls, in order."""
    return [call["result"] for turn in recorded["turns"] for call in turn.get("calls", ())]


def sent(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Recorded calls as a client sends them, in OpenAI's form."""
    return [{"type": "function", "function": {**call, "arguments": json.dumps(call["arguments"])}} for call in calls]


def check_score(recorded: Mapping[str, Any], played: Played) -> None:
    """Check that a recorded episode has the score of our own player, or names the tool that broke."""
    score = recorded["score"]
    assert played.reward == score["value"]
    if score["value"] is None:
        assert f"tool {score['named']}()" in played.why
        return
    parts = {name: score["parts"][name] for name in ("looked", "spent")}
    assert played.parts == {"solved": float(score["solved"]), "valid": float(score["valid"]), **parts}


def written(turn: Mapping[str, Any]) -> str:
    """A turn of a recorded episode as a policy writes it that calls tools in text."""
    calls = (json.dumps({"name": call["name"], "arguments": call["arguments"]}) for call in turn["calls"])
    return "\n".join(filter(None, (turn["text"], *(f"<tool_call>{call}</tool_call>" for call in calls))))


def as_results(shown: str) -> str:
    """What a chat template of Qwen shows of results, in the text form."""
    return shown.replace("<tool_response>\n", "<tool_result>").replace("\n</tool_response>", "</tool_result>")


class ToolLaws:
    """For a trainer whose policy calls tools in text: recorded episodes are played there as by our own player."""

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        """As in `Laws`, with what the policy was told."""
        raise NotImplementedError

    @EACH_EPISODE
    def test_a_recorded_episode_has_its_reward_calls_and_abstention(self, adapter: Any, recorded: Any) -> None:
        try:
            played = self.played(adapter, recorded_shop.SPEC, recorded["row"], *map(written, recorded["asked"]))
        except UnscoredError as error:
            played = Played(None, why=str(error))
        check_score(recorded, played)
        if played.reward is None:
            return
        assert len(played.told) == len(recorded["turns"]) - 1
        for told, turn in zip(played.told, recorded["turns"], strict=False):
            results = [f"<tool_result>{call['result']}</tool_result>" for call in turn["calls"]]
            assert "\n".join(results) in told
