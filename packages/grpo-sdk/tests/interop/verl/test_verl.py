"""verl's reward function and agent loop without verl; tests/test_peers.py runs them in verl itself."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import recorded_shop
import roomy_shop
from absent_trainers import GUESS, HEAP, SUMS, AnswerLaws, EpisodeLaws, Played, adapter_of, rows_of, secret_row, sum_row
from tool_conversations import marked_bytes
from tool_laws import ToolLaws, as_results, written

from grpo_sdk.errors import UserError
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
        self.tokenizer = server_manager.tokenizer
        self.apply_chat_template_kwargs = config.template

    async def ct_build_initial_tokens(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(character) for message in messages for character in message["content"]]

    async def ct_merge_assistant_token(
        self, prompt: list[int], answer: list[int], mask: list[int], logprobs: Any, assistant_logprobs: Any
    ) -> tuple[Any, list[int], Any]:
        return SimpleNamespace(token_ids=prompt + answer), [1] * len(answer), assistant_logprobs


class Server:
    """A server that answers prompts from a list, and remembers what it was asked."""

    tokenizer: Any = SimpleNamespace(
        decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)), encode=lambda text: [*map(ord, text)]
    )

    def __init__(self, *answers: str, template: str = "") -> None:
        self.answers, self.requests = list(answers), []
        if template:
            self.tokenizer = marked_bytes(template)

    async def generate(self, **request: Any) -> Any:
        self.requests.append(request)
        ids = self.tokenizer.encode(self.answers.pop(0))[: request["sampling_params"].get("max_tokens")]
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.5] * len(ids), routed_experts=None, num_preempted=None, extra_fields={}
        )


types = {"AgentLoopBase": Base, "AgentLoopOutput": Output}
adapter = adapter_of("verl", {"verl.experimental.agent_loop.agent_loop": types})


class TestReward(AnswerLaws):
    trainer = "verl"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        values = asyncio.run(adapter.compute_score(spec, f"{texts[0]}<|im_end|>", row, {"index": 2}, workers=1))
        return Played(values.pop("score"), values)


def test_a_row_holds_the_task_and_the_row() -> None:
    with TaskAdapter(SUMS, "verl", workers=1) as sums:
        made = record(sums, sums.task.rows()[2], 2)
    assert (made["data_source"], made["reward_model"]["ground_truth"]) == (SUMS, sum_row())
    assert made["prompt"] == [{"role": "user", "content": "2 + 2 ="}]


def config(*, use_v1=True, filters=False, length=100, prompt_length=9999, template=None):
    rollout = SimpleNamespace(response_length=length, prompt_length=prompt_length, agent=SimpleNamespace(num_workers=4))
    return SimpleNamespace(
        template=template or {},
        trainer=SimpleNamespace(use_v1=use_v1),
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        algorithm=SimpleNamespace(filter_groups=SimpleNamespace(enable=filters)),
    )


def played(adapter: Any, server: Server, spec: str, row: str, **settings: Any) -> Any:
    loop = adapter.TaskAgentLoop(config(**settings), server, workers=1)
    columns = {"data_source": spec, "reward_model": {"ground_truth": row}}
    return asyncio.run(loop.run({"temperature": 1.0}, session_id=1, **columns))


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


END = "<|im_end|>"
ROW, ROOMY = recorded_shop.EPISODES[0]["row"], f"{Path(roomy_shop.__file__)}:roomy"


def played_with_tools(adapter: Any, *texts: str, spec: str = ROOMY, **settings: Any) -> tuple[Server, list[Output]]:
    server = Server(*(f"{text}{END}" for text in texts), template="qwen2_5")
    return server, played(adapter, server, spec, ROW, **{"length": 9999, **settings})


class TestTools(ToolLaws):
    """An episode is one sequence, in which the sampled tokens alone are trained."""

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        server, outputs = played_with_tools(adapter, *texts, filters=True)
        (output,) = outputs
        decode = server.tokenizer.decode
        assert "look_up" in decode(output.prompt_ids)
        told, sampled, masked = [], [], []
        for token, is_trained, logprob in zip(
            output.response_ids, output.response_mask, output.response_logprobs, strict=True
        ):
            assert logprob == (-0.5 if is_trained else 0.0)
            if masked and is_trained:
                told.append(as_results(decode(masked)))
                masked = []
            (sampled if is_trained else masked).append(token)
        assert decode(sampled) == "".join(f"{text}{END}" for text in texts) and not masked
        values = output.extra_fields["reward_extra_info"]
        assert values.pop("score") == output.reward_score
        return Played(output.reward_score, values, told=told)


def test_an_episode_ends_where_verl_has_no_place_for_its_next_turn(adapter: Any) -> None:
    looks = [written(recorded_shop.EPISODES[0]["asked"][0])] * 4
    server, (output,) = played_with_tools(adapter, *looks, length=300)
    assert 1 < len(server.requests) < 4 and len(output.response_ids) <= 300
    assert output.reward_score == 0.2 and sum(output.response_mask) < len(output.response_mask)
    server, outputs = played_with_tools(adapter, *looks, length=300, prompt_length=9)
    assert (server.requests, outputs) == ([], [])


def test_a_completion_has_the_tasks_limit_and_one_that_it_cuts_off_calls_nothing(adapter: Any) -> None:
    call = written(recorded_shop.EPISODES[0]["asked"][0])
    server, (output,) = played_with_tools(adapter, call, spec=recorded_shop.SPEC)
    assert server.requests[0]["sampling_params"]["max_tokens"] == len(output.response_ids) == 48
    assert output.reward_score == 0.0


def test_the_chat_template_gets_the_arguments_of_the_configuration(adapter: Any) -> None:
    for arguments, thinks in (({"enable_thinking": False}, False), ({}, True)):
        server = Server(f"no{END}", template="qwen3")
        (output,) = played(adapter, server, recorded_shop.SPEC, ROW, template=arguments, length=9999)
        assert server.tokenizer.decode(output.prompt_ids).endswith("</think>\n\n") is not thinks


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


def test_each_turn_of_a_game_is_a_sequence(adapter: Any) -> None:
    (row,) = rows_of(HEAP)
    outputs = played(adapter, Server("1", "1"), HEAP, row)
    assert [text(output.prompt_ids) for output in outputs] == ["first sees 5:", "first sees 1:"]


def test_what_cannot_be_scored_has_no_sequence_where_no_filter_needs_one(adapter: Any) -> None:
    assert played(adapter, Server("404"), SUMS, sum_row()) == []


def test_stop_strings_reach_the_server_and_the_deprecated_trainer_is_refused(adapter: Any) -> None:
    server, spec = Server("0"), "math.arithmetic?size=1"
    played(adapter, server, spec, *rows_of(spec))
    stop = list(load_task(spec).task.stop)
    assert stop and server.requests[0]["sampling_params"] == {"temperature": 1.0, "stop": stop}
    with pytest.raises(UserError, match=r"trainer\.use_v1=true"):
        played(adapter, Server("0"), SUMS, sum_row(), use_v1=False)
