"""tinker-cookbook's environments without it; tests/test_peers.py runs them in tinker-cookbook itself."""

import asyncio
import dataclasses
import pickle
from typing import Any

import pytest
import recorded_shop
from absent_trainers import GUESS, SUMS, WORDS, EpisodeLaws, Played, adapter_of, rows_of, secret_row, sum_row
from tool_conversations import marked_bytes
from tool_laws import ToolLaws, as_results

from grpo_sdk.errors import UnscoredError, UserError


class Renderer:
    """A renderer whose tokens are characters; 0 ends a completion, and so does the text `END`."""

    tokenizer: Any

    def __init__(self) -> None:
        self.tokenizer = self

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))

    def build_generation_prompt(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"{message['role']}: {message['content']}\n" for message in messages)

    def get_stop_sequences(self) -> list[int | str]:
        return [0, "END"]


@dataclasses.dataclass
class StepResult:
    """tinker-cookbook's StepResult."""

    reward: float
    episode_done: bool
    next_observation: Any
    next_stop_condition: Any
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    logs: dict[str, Any] = dataclasses.field(default_factory=dict)


types = {name: type(name, (), {}) for name in ("Env", "EnvGroupBuilder", "RLDataset", "RLDatasetBuilder")}
adapter = adapter_of("tinker", {
    "chz": {"chz": dataclasses.dataclass(frozen=True, kw_only=True)},
    "tinker": {"ModelInput": type("ModelInput", (), {"empty": staticmethod(str), "from_ints": staticmethod(list)})},
    "tinker_cookbook.renderers": {"Renderer": Renderer, "get_renderer": lambda name, tokenizer: Renderer()},
    "tinker_cookbook.rl.types": {**types, "StepResult": StepResult},
    "tinker_cookbook.tokenizer_utils": {"get_tokenizer": str},
})  # fmt: skip


def group_of(builder: Any, *episodes: list[str]) -> Any:
    """What tinker-cookbook's `do_group_rollout` gets with `MinViableGroup`: steps, group rewards and errors."""

    async def episode(env: Any, texts: list[str]) -> list[Any]:
        seen = [await env.initial_observation()]
        for text in texts:
            seen.append(await env.step(list(map(ord, text))))
        assert seen[-1].episode_done
        return seen

    async def play() -> Any:
        envs = await builder.make_envs()
        assert len(envs) == len(episodes)
        ended = await asyncio.gather(*map(episode, envs, episodes), return_exceptions=True)
        failed = [each for each in ended if isinstance(each, BaseException)]
        assert all(isinstance(each, UnscoredError) for each in failed), failed
        whole = [each for each in ended if not isinstance(each, BaseException)]
        left = [env for env, each in zip(envs, ended, strict=True) if not isinstance(each, BaseException)]
        return whole, await builder.compute_group_rewards(whole, left), list(map(str, failed))

    return asyncio.run(play())


class TestTinker(EpisodeLaws):
    test_a_group_reward_is_refused = None  # type: ignore[assignment] # groups are compared

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        whole, rewards, errors = group_of(adapter.TaskGroupBuilder(spec, row, Renderer(), 1), list(texts))
        if errors:
            return Played(None, why=errors[0])
        assert rewards == [(0.0, {})]  # what compares a group
        return Played(whole[0][-1].reward, whole[0][-1].metrics)


class Templated(Renderer):
    """A renderer of a tokenizer with a chat template."""

    def __init__(self, template: str) -> None:
        self.tokenizer = marked_bytes(template)

    def get_stop_sequences(self) -> list[int | str]:
        return [self.tokenizer.eos_token_id]


class TestTools(ToolLaws):
    """The policy reads what its chat template shows, and its sampled tokens stay as they are."""

    template, end = "qwen2_5", "<|im_end|>"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        renderer = Templated(self.template)
        (env,) = asyncio.run(adapter.TaskGroupBuilder(spec, row, renderer, 1).make_envs())
        encode, decode = renderer.tokenizer.encode, renderer.tokenizer.decode
        prompt, stop = asyncio.run(env.initial_observation())
        assert stop == [renderer.tokenizer.eos_token_id] and "look_up" in decode(prompt)
        told = []
        for text in texts:
            action = encode(f"{text}{self.end}")
            step = asyncio.run(env.step(action, extra={"stop_reason": "stop"}))
            if not step.episode_done:
                whole = step.next_observation
                assert whole[: len(prompt) + len(action)] == [*prompt, *action]
                told.append(as_results(decode(whole[len(prompt) + len(action) :])))
                prompt = whole
        return Played(step.reward, step.metrics, told=told)


class TestToolsInText(TestTools):
    template = "lfm2"


def test_a_call_that_the_length_limit_cut_off_ends_the_episode(adapter: Any) -> None:
    row, renderer = recorded_shop.EPISODES[0]["row"], Templated("qwen2_5")
    for extra in ({"stop_reason": "length"}, None):
        (env,) = asyncio.run(adapter.TaskGroupBuilder(recorded_shop.SPEC, row, renderer, 1).make_envs())
        asyncio.run(env.initial_observation())
        step = asyncio.run(env.step(renderer.tokenizer.encode('<tool_call>{"name": "ord'), extra=extra))
        assert step.episode_done and "cut a call off" in step.logs["why"]


def test_what_cannot_be_scored_fails_alone_in_its_group(adapter: Any) -> None:
    builder = adapter.TaskGroupBuilder(SUMS, sum_row(), Renderer(), 3)
    assert builder.logging_tags()[0].endswith("hurried")
    whole, _, (error,) = group_of(builder, ["4"], ["404"], ["5"])
    assert [steps[-1].reward for steps in whole] == [2.0, 0.0] and "LookupError" in error


def test_a_completion_ends_before_what_the_renderer_ends_it_with(adapter: Any) -> None:
    whole, _, _ = group_of(adapter.TaskGroupBuilder(SUMS, sum_row(), Renderer(), 2), ["4\0"], ["4END"])
    assert [steps[-1].reward for steps in whole] == [2.0, 2.0]


def test_turns_have_the_whole_conversation(adapter: Any) -> None:
    ((begin, middle, _),), _, _ = group_of(adapter.TaskGroupBuilder(GUESS, secret_row(7), Renderer(), 1), ["3", "7"])
    assert begin == ("user: guess:\n", [0, "END"])
    assert (middle.reward, middle.episode_done, middle.metrics) == (0.0, False, {})
    assert middle.next_observation == "user: guess:\nassistant: 3\nuser: \n1: higher:\n"


def test_group_rewards_are_added_once_and_logged_once(adapter: Any) -> None:
    builder = adapter.TaskGroupBuilder(WORDS, rows_of(WORDS)[0], Renderer(), 4)
    whole, rewards, (error,) = group_of(builder, ["aaa"], ["b"], ["1"], ["ownfault"])
    # 0.5 for an a, -1 where there is no word, and of the group 0.25 for the shortest
    assert [steps[-1].reward for steps in whole] == [0.5, 0.0, -1.0]
    assert [reward for reward, _ in rewards] == [0.0, 0.25, 0.0]
    assert [metrics["shortest"] for _, metrics in rewards] == [0.0, 1.0, 0.0]
    assert all(steps[-1].metrics == {} for steps in whole)  # tinker takes the mean over both, and 0 is not yet known
    assert "ZeroDivisionError" in error


def test_a_group_that_cannot_be_compared_has_no_reward(adapter: Any) -> None:
    with pytest.raises(UnscoredError, match="boom"):
        group_of(adapter.TaskGroupBuilder(WORDS, rows_of(WORDS)[0], Renderer(), 2), ["aaa"], ["crash"])


def test_a_builder_of_a_group_pickles(adapter: Any) -> None:
    builder = adapter.TaskGroupBuilder(SUMS, sum_row(), "a renderer", 2)
    assert pickle.loads(pickle.dumps(builder)) == builder


def test_a_data_set_has_every_row_once_in_each_pass(adapter: Any) -> None:
    def built(**options: Any) -> Any:
        known = {"batch_size": 2, "group_size": 3, "model_name_for_tokenizer": "m", "renderer_name": "r"}
        return asyncio.run(adapter.TaskDatasetBuilder(task=SUMS, **known | options)())

    train, test = built(passes=2, test_task=f"{SUMS}?size=2")
    assert (len(train), len(test)) == (5, 2)
    builders = [builder for index in range(5) for builder in train.get_batch(index)]
    assert sorted(builder.row for builder in builders) == sorted(rows_of(SUMS) * 2)
    assert [builder.row for builder in builders[:5]] != [builder.row for builder in builders[5:]]
    assert {builder.group_size for builder in builders} == {3}
    assert [builder.group_size for builder in test.get_batch(0)] == [1]
    assert built()[1] is None
    with pytest.raises(UserError, match="5 rows, fewer than batch_size=9"):
        built(batch_size=9)
