"""The environment for Atropos without it; tests/test_peers.py runs it in Atropos itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
import recorded_shop
from absent_trainers import GUESS, SCORED, SUMS, EpisodeLaws, Played, adapter_of, chat_completion, rows_of, secret_row
from tool_laws import ToolLaws, written

from grpo_sdk.errors import UserError


class BaseEnvConfig(pydantic.BaseModel):
    """Atropos' configuration, as far as the environment uses it."""

    group_size: int = 1
    max_token_length: int = 64


def rendered(messages: list[dict[str, str]]) -> str:
    return "".join(f"<{message['role']}>{message['content']}" for message in messages)


class Server:
    """Atropos' managed server, with a token per character: a conversation that continues a sequence extends it."""

    template: Any = staticmethod(rendered)
    finish_reason = "stop"

    def __init__(self, *answers: str) -> None:
        self.answers, self.requests = list(answers), []

    @asynccontextmanager
    async def managed_server(self, tokenizer: Any) -> AsyncIterator[Server]:
        self.nodes: list[Any] = []
        yield self

    async def chat_completion(self, messages: list[dict[str, str]], **request: Any) -> Any:
        self.requests.append({"messages": list(messages), **request})
        text, prompt = self.answers.pop(0), self.template(messages) + "<assistant>"
        before = next((node for node in self.nodes if prompt.startswith(node.full_text)), None)
        mask = before.masked_tokens if before else []
        mask = [*mask, *[-100] * (len(prompt) - len(mask)), *map(ord, text)]
        self.nodes = [node for node in self.nodes if node is not before]
        node = SimpleNamespace(full_text=prompt + text, tokens=[*map(ord, prompt + text)], masked_tokens=mask)
        node.logprobs = [1.0 if token == -100 else -0.5 for token in mask]
        self.nodes.append(node)
        answer = chat_completion(text)
        answer.choices[0].finish_reason = self.finish_reason
        return answer

    def get_state(self) -> dict[str, Any]:
        return {"nodes": self.nodes}


class Forgetful(Server):
    """A chat template that leaves out what the model wrote before, as those do that drop reasoning."""

    template = staticmethod(lambda messages: rendered([each for each in messages if each["role"] != "assistant"]))


class BaseEnv:
    """Atropos' environment, as far as ours uses it."""

    def __init__(self, server: Server, **config: Any) -> None:
        self.config = self.env_config_cls(**config)  # type: ignore[attr-defined]
        self.server, self.tokenizer, self.evaluated, self.logged = server, None, None, None

    async def evaluate_log(self, metrics: dict[str, float], task_name: str) -> None:
        self.evaluated = (metrics, task_name)

    async def wandb_log(self, metrics: dict[str, float]) -> None:
        self.logged = metrics


types = {"BaseEnv": BaseEnv, "BaseEnvConfig": BaseEnvConfig, "ScoredDataGroup": dict}
adapter = adapter_of("atropos", {"atroposlib.envs.base": types})


def environment(adapter: Any, server: Server, task: str = SUMS, **config: Any) -> Any:
    made = adapter.TaskEnv(server, task=task, **config)
    asyncio.run(made.setup())
    return made


def collected(env: Any, row: str) -> Any:
    group, backlog = asyncio.run(env.collect_trajectories(row))
    assert backlog == []
    return group


def logged(env: Any) -> dict[str, float]:
    asyncio.run(env.wandb_log({"theirs": 1.0}))
    return env.logged  # type: ignore[no-any-return]


def sampled(mask: list[int]) -> str:
    return "".join("|" if token == -100 else chr(token) for token in mask)


class TestAtropos(EpisodeLaws, ToolLaws):
    trainer = "Atropos"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        sampled_again = texts * 2  # as what cannot be scored is
        env = environment(adapter, server := Server(*sampled_again), spec)
        group, lines = collected(env, row), logged(env)
        if group is None:
            assert lines["train/abstained_rate"] == 1.0
            return Played(None, why=self.caplog.text)
        assert lines.pop("theirs") == 1.0 and lines.pop("train/abstained_rate") == 0.0
        assert logged(env) == {"theirs": 1.0}  # each only once
        assert sampled(group["masks"][0]).replace("|", "") == "".join(texts)  # one sequence, of all turns
        told = [request["messages"][-1]["content"] for request in server.requests[1:]]
        parts = {name.removeprefix("train/"): value for name, value in lines.items()}
        return Played(group["scores"][0], parts, told=told)


def test_a_call_that_the_length_limit_cut_off_ends_the_episode(adapter: Any) -> None:
    server = Server(written(recorded_shop.EPISODES[0]["asked"][0])[:-20])
    server.finish_reason = "length"
    env = environment(adapter, server, recorded_shop.SPEC)
    assert collected(env, recorded_shop.EPISODES[0]["row"])["scores"] == [0.0] and len(server.requests) == 1
    assert server.requests[0]["messages"][0]["role"] == "system"


def test_a_group_has_the_tokens_of_each_completion(adapter: Any) -> None:
    env = environment(adapter, Server(*SCORED), group_size=3, temperature=0.5)
    group = collected(env, rows_of(SUMS)[2])
    assert group["scores"] == [reward for reward, _ in SCORED.values()]
    prompt = "<user>2 + 2 =<assistant>"
    assert ["".join(map(chr, tokens)) for tokens in group["tokens"]] == [prompt + text for text in SCORED]
    assert [sampled(mask) for mask in group["masks"]] == ["|" * len(prompt) + text for text in SCORED]
    assert [each[-1] for each in group["inference_logprobs"]] == [-0.5] * 3
    assert env.server.requests[0]["temperature"] == 0.5 and env.server.requests[0]["max_tokens"] == 64


def test_what_cannot_be_scored_is_sampled_again(adapter: Any) -> None:
    mended = environment(adapter, Server("4", "404", "5"), group_size=2)
    assert collected(mended, rows_of(SUMS)[2])["scores"] == [2.0, 0.0]
    assert logged(mended)["train/abstained_rate"] == pytest.approx(1 / 3)
    lost = environment(adapter, Server("4", "404", "404"), group_size=2)
    assert collected(lost, rows_of(SUMS)[2]) is None


def test_a_template_that_changes_earlier_turns_is_an_error(adapter: Any) -> None:
    with pytest.raises(UserError, match=r"guess.*chat template changes earlier turns"):
        collected(environment(adapter, Forgetful("3", "7"), GUESS), secret_row(7))


def test_an_evaluation_is_greedy_and_leaves_out_what_cannot_be_scored(adapter: Any) -> None:
    server = Server("0", "2", "404", "6", "9")
    env = environment(adapter, server, test_task=SUMS)
    asyncio.run(env.evaluate())
    metrics, name = env.evaluated
    assert name.endswith("hurried") and {request["temperature"] for request in server.requests} == {0.0}
    assert metrics["eval/abstained_rate"] == pytest.approx(1 / 5)
    assert metrics["eval/solved"] == pytest.approx(3 / 4) and metrics["eval/reward"] == pytest.approx(6 / 4)
    assert logged(env)["eval/solved"] == pytest.approx(3 / 4)


def test_every_row_comes_once_in_each_pass_in_an_order_of_its_own(adapter: Any) -> None:
    env = environment(adapter, Server())

    async def draw() -> list[str]:
        return [await env.get_next_item() for _ in range(10)]

    drawn = asyncio.run(draw())
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == sorted(rows_of(SUMS)) and drawn[:5] != drawn[5:]
