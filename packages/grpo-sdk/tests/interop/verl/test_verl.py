"""verl's reward function and agent loop without verl; tests/test_peers.py runs them in verl itself."""

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import small_games
from absent_trainers import GUESS, HEAP, SUMS, AnswerLaws, EpisodeLaws, Played, rows_of, secret_row, sum_row, trainer

from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import TaskAdapter
from grpo_sdk.interop.verl import record
from grpo_sdk.plugins.tasks import load_task


class Output(SimpleNamespace):
    """verl's AgentLoopOutput, as far as an agent loop uses it."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"reward_score": None, **fields})
        self.metrics = SimpleNamespace(**self.metrics)


class Base:
    """verl's AgentLoopBase with a tokenizer of one token per character, whose chat template has no special tokens."""

    def __init__(self, config: Any, server_manager: Any) -> None:
        self.config, self.server_manager = config, server_manager
        self.rollout_config = config.actor_rollout_ref.rollout
        self.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)))

    async def ct_build_initial_tokens(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(character) for message in messages for character in message["content"]]

    async def ct_merge_assistant_token(
        self, prompt: list[int], answer: list[int], mask: list[int], logprobs: Any, assistant_logprobs: Any
    ) -> tuple[Any, list[int], Any]:
        return SimpleNamespace(token_ids=prompt + answer), [1] * len(answer), assistant_logprobs


class Server:
    """A server that answers prompts from a list, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.requests = list(answers), []

    async def generate(self, **request: Any) -> Any:
        self.requests.append(request)
        ids = [ord(character) for character in self.answers.pop(0)]
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.5] * len(ids), routed_experts=None, num_preempted=None, extra_fields={}
        )


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    types = {"AgentLoopBase": Base, "AgentLoopOutput": Output}
    with trainer("verl", {"verl.experimental.agent_loop.agent_loop": types}) as adapter:
        yield adapter


class TestReward(AnswerLaws):
    trainer = "verl"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        values = asyncio.run(adapter.compute_score(spec, f"{texts[0]}<|im_end|>", row, {"index": 2}, workers=1))
        return Played(values.pop("score"), values)


def test_a_row_holds_the_task_and_the_row_and_its_error_pickles() -> None:
    with TaskAdapter(SUMS, "verl", workers=1) as sums:
        made = record(sums, sums.task.rows()[2], 2)
    assert (made["data_source"], made["reward_model"]["ground_truth"]) == (SUMS, sum_row())
    assert made["prompt"] == [{"role": "user", "content": "2 + 2 ="}]
    assert isinstance(pickle.loads(pickle.dumps(UnscoredError("why"))), UnscoredError)  # Ray sends it


def config(*, use_v1: bool = True, filters: bool = False, length: int = 100) -> Any:
    rollout = SimpleNamespace(response_length=length, agent=SimpleNamespace(num_workers=4))
    return SimpleNamespace(
        trainer=SimpleNamespace(use_v1=use_v1),
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        algorithm=SimpleNamespace(filter_groups=SimpleNamespace(enable=filters)),
    )


def played(adapter: Any, server: Server, spec: str, row: str, **settings: Any) -> list[Output]:
    loop = adapter.TaskAgentLoop(config(**settings), server, workers=1)
    columns = {"data_source": spec, "reward_model": {"ground_truth": row}}
    outputs: list[Output] = asyncio.run(loop.run({"temperature": 1.0}, session_id=1, **columns))
    return outputs


def text(ids: list[int]) -> str:
    return "".join(map(chr, ids))


class TestAgentLoop(EpisodeLaws):
    trainer = "verl"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        *earlier, last = played(adapter, Server(*texts), spec, row, filters=True)
        assert all(output.reward_score is None for output in earlier)
        values = last.extra_fields["reward_extra_info"]
        assert values.pop("score") == last.reward_score
        return Played(last.reward_score, values)


def test_turns_that_continue_are_one_sequence_with_what_the_task_said_masked(adapter: Any) -> None:
    (output,) = played(adapter, Server("3", "7"), GUESS, secret_row(7))
    hint = "\n1: higher:"
    assert text(output.prompt_ids) == "guess:" and text(output.response_ids) == f"3{hint}7"
    assert output.response_mask == [1] + [0] * len(hint) + [1]
    assert output.response_logprobs == [-0.5] + [0.0] * len(hint) + [-0.5]
    assert output.reward_score == 1.0 and output.num_turns == 4
    assert output.extra_fields["reward_extra_info"] == {"score": 1.0, "solved": 1.0, "valid": 1.0, "right": 1.0}


def test_a_turn_that_would_exceed_the_response_is_a_sequence_of_its_own(adapter: Any) -> None:
    outputs = played(adapter, Server("3", "7"), GUESS, secret_row(7), length=8)
    assert [text(output.response_ids) for output in outputs] == ["3", "7"]
    assert [output.reward_score for output in outputs] == [None, 1.0]


def test_each_turn_of_a_game_is_a_sequence_and_self_play_is_refused(adapter: Any) -> None:
    (row,) = rows_of(HEAP)
    outputs = played(adapter, Server("1", "1"), HEAP, row)
    assert [text(output.prompt_ids) for output in outputs] == ["first sees 5:", "first sees 1:"]
    with pytest.raises(UserError, match=r"first and second, each with its own score.*\?opponent=random"):
        played(adapter, Server("3"), f"{Path(small_games.__file__)}:HEAP", row)


def test_what_cannot_be_scored_has_no_sequence_where_no_filter_needs_one(adapter: Any) -> None:
    assert played(adapter, Server("404"), SUMS, sum_row()) == []


def test_stop_strings_reach_the_server_and_the_deprecated_trainer_is_refused(adapter: Any) -> None:
    server, spec = Server("0"), "math.arithmetic?size=1"
    played(adapter, server, spec, *rows_of(spec))
    stop = list(load_task(spec).task.stop)
    assert stop and server.requests[0]["sampling_params"] == {"temperature": 1.0, "stop": stop}
    with pytest.raises(UserError, match=r"trainer\.use_v1=true"):
        played(adapter, Server("0"), SUMS, sum_row(), use_v1=False)
