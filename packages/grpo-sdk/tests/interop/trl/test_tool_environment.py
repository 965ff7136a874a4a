"""Tasks with tools in TRL's own trainer, whose tools run in our workers."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import AutoTokenizer
from trl_trainers import Scripted, let_the_engine_say, rewards_logged, save_model, trainer_of, written

from grpo_sdk.errors import UserError
from grpo_sdk.interop.trl import TrlTask

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and accelerate's own warnings are not ours to fail on

TASKS = Path(__file__).with_name("programs") / "trl_tool_tasks.py"
NOTES = Path(__file__).parents[2] / "scoring" / "notes_tasks.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trl_tools")
    save_model(path)
    return path


@pytest.fixture(scope="module")
def shop() -> Iterator[TrlTask]:
    with TrlTask(f"{TASKS}:shop", workers=2) as task:
        yield task


@pytest.fixture
def functions() -> Iterator[TrlTask]:
    with TrlTask(f"{TASKS}:functions", workers=1) as task:
        yield task


Batch = tuple[dict[str, float], Scripted]


def played(folder: Path, task: TrlTask, say: Callable[[str], str], **options: Any) -> Batch:
    """What the trainer measures of a batch in which a model says something, and what that was asked."""
    config = {"max_completion_length": 3000} | options.pop("config", {})
    if not options:
        options = {"environment_factory": task.environment_factory}
    trainer = trainer_of(folder, task.reward_funcs, task.train_dataset, config, **options)
    scripted = trainer._generate_single_turn = Scripted(trainer, say)
    trainer.model.train()
    trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    return {name: sum(values) / len(values) for name, values in trainer._metrics["train"].items()}, scripted


def shopping(prompt: str) -> str:
    """Looks the price up, and orders what the prompt asks for."""
    if "<tool_response>" not in prompt:
        return written("look_up", item="apple")
    count = int(prompt.partition("Buy ")[2].split()[0])
    return written("order", item="apple", count=count) if "apple\n</tool_response>" not in prompt else "bought"


@pytest.fixture(scope="module")
def bought(folder: Path, shop: TrlTask) -> Batch:
    return played(folder, shop, shopping)


def test_the_real_tool_loop_plays_a_task(shop: TrlTask, bought: Batch) -> None:
    logged, scripted = bought
    (name,) = shop.tasks
    assert logged[f"{name}/solved_rate"] == 1.0 and logged[f"{name}/answered_calls"] == 2.0
    assert logged["tools/call_frequency"] == 2.0 and logged["tools/failure_frequency"] == 0.0
    assert "<tool_response>\n3\n</tool_response>" in scripted.prompts[4]
    assert " coins.<|im_end|>" in scripted.prompts[0], "what reset() adds follows the prompt"


def test_the_model_reads_the_schema_of_the_task(folder: Path, shop: TrlTask, bought: Batch) -> None:
    _, scripted = bought
    (task,) = shop.tasks.values()
    asked = [{"role": "user", "content": scripted.prompts[0].partition("user\n")[2].partition("<|im_end|>")[0]}]
    specs = sorted((tool.spec for tool in task.task.all_tools()), key=lambda spec: spec["function"]["name"])
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rendered = tokenizer.apply_chat_template(asked, specs, add_generation_prompt=True, tokenize=False)
    assert scripted.prompts[0] == rendered, "in TRL's order"
    for said in ('"default": "small"', '"enum": ["apple", "pear"]', '"minimum": 1', "What is sold."):
        assert said in rendered
    environment = shop.environment_factory()
    assert (environment.look_up.__name__, environment.look_up.__doc__.split("\n")[0]) == ("look_up", "Look up a price.")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["environment_factory", "tools"])
def test_a_random_model_trains(folder: Path, shop: TrlTask, functions: TrlTask, way: str) -> None:
    task = shop if way == "environment_factory" else functions
    bound = {"max_tool_calling_iterations": task.max_tool_calling_iterations}
    config = {"max_steps": 3, "per_device_train_batch_size": 2, "max_completion_length": 8, **bound}
    options = {way: getattr(task, way)}
    trainer = trainer_of(folder, task.reward_funcs, task.train_dataset, config, **options)
    trainer.train()
    assert [entry["step"] for entry in rewards_logged(trainer)] == [1, 2, 3]
    assert all(entry["tools/failure_frequency"] == 0.0 for entry in rewards_logged(trainer))


class Rollout:
    """A rollout that a test makes in place of TRL: it calls tools, and the messages are those that TRL would keep."""

    def __init__(self, task: TrlTask, index: int = 0) -> None:
        (self.reward,) = task.reward_funcs
        self.row = task.train_dataset[index]
        self.environment = task.environment_factory()
        self.opening = self.environment.reset(**self.row)
        self.messages: list[dict[str, Any]] = []

    def turn(self, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        asked = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
        self.messages.append({"role": "assistant", "content": "", "tool_calls": asked})
        told = [str(getattr(self.environment, name)(**given)) for name, given in calls]
        self.messages += [
            {"role": "tool", "name": name, "content": each} for (name, _), each in zip(calls, told, strict=True)
        ]
        return told

    def say(self, text: str, **fields: Any) -> None:
        self.messages.append({"role": "assistant", "content": text, **fields})

    def score(self) -> dict[str, Any]:
        (score,) = scores([self])
        return score


def scores(rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
    """Rewards and what is logged beside them."""
    logged: dict[str, list[Any]] = {}
    first = rollouts[0]
    first.reward._max_abstain_share = 1.0
    rewards = first.reward(
        completions=[each.messages for each in rollouts],
        environments=[each.environment for each in rollouts],
        row=[each.row["row"] for each in rollouts],
        task=[each.row["task"] for each in rollouts],
        log_extra=lambda name, values: logged.update({name.rpartition("/")[2]: values}),
    )
    return [{"reward": reward, **{name: each[i] for name, each in logged.items()}} for i, reward in enumerate(rewards)]


def test_many_environments_at_once(shop: TrlTask) -> None:
    rollouts = [Rollout(shop, index) for index in range(4)]
    for each in rollouts:
        assert each.turn(("look_up", {"item": "apple"})) == ["3"]
    for coins, count, each in zip((10, 20, 30, 40), (1, 2, 3, 1), rollouts, strict=True):
        assert each.opening == f"You have {coins} coins."
        assert each.turn(("order", {"item": "apple", "count": count})) == [f"{count} small apple"]
    assert [each["reward"] for each in scores(rollouts)] == [1.0, 1.0, 1.0, 0.0]
    rollouts[0].environment.reset(**rollouts[1].row)  # TRL keeps environments
    rollouts[0].messages.clear()
    assert rollouts[0].score()["why"] == "invalid: nothing was ordered"


def test_no_tool_runs_in_the_trainers_process_which_may_have_an_event_loop(shop: TrlTask) -> None:
    async def called() -> list[str]:
        return Rollout(shop).turn(("wait", {"seconds": "0.01"}))

    (process,) = asyncio.run(called())
    assert int(process) != os.getpid() and int(process) in {each.pid for each in psutil.Process().children(True)}


def test_wrong_calls_are_results_that_the_policy_reads(shop: TrlTask) -> None:
    rollout = Rollout(shop)
    assert rollout.turn(("look_up", {"item": "gold"})) == ["no gold here"]
    told = rollout.turn(("look_up", {"self": 1}), ("order", {"item": "apple", "count": "many"}))
    assert "unknown argument 'self'" in told[0] and "count: Input should be a valid integer" in told[1]
    # TRL answers a call of an unknown tool by itself.
    unknown = {"type": "function", "function": {"name": "steal", "arguments": {}}}
    listed = {"type": "function", "function": {"name": "order", "arguments": ["apple"]}}
    rollout.say("", tool_calls=[unknown, listed])
    rollout.messages += [{"role": "tool", "name": "steal", "content": "{'error': …}"}] * 2
    rollout.turn(("order", {"item": "apple"}))
    rollout.say("bought")
    assert rollout.score() == {
        "reward": 1.0, "solved": True, "valid": True, "why": "",
        "right": 1.0, "answered_calls": 1.0, "wrong_calls": 5.0,
    }  # fmt: skip


def test_a_number_that_json_does_not_have_is_a_wrong_argument(shop: TrlTask) -> None:
    rollout = Rollout(shop)
    assert "no number of JSON" in rollout.turn(("order", {"item": "apple", "count": math.nan}))[0]
    rollout.turn(("order", {"item": "apple"}))
    score = rollout.score()
    assert (score["reward"], score["answered_calls"], score["wrong_calls"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("tool", "why"),
    [("haggle", "tool haggle(): no answer within 0.5 s"), ("leave", "tool leave(): its worker exited with status 3")],
)
def test_a_broken_tool_is_named_and_its_rollout_has_no_reward(shop: TrlTask, tool: str, why: str) -> None:
    rollouts = [Rollout(shop), Rollout(shop)]
    for each in rollouts:
        each.turn(("look_up", {"item": "apple"}))
    assert why in rollouts[0].turn((tool, {}))[0]
    assert rollouts[0].turn(("order", {"item": "apple"})) == ["That was the last turn."]
    rollouts[1].turn(("order", {"item": "apple"}))  # its environment was made again where the worker was the same
    broken, other = scores(rollouts)
    assert broken["reward"] is None and why in broken["why"] and "shop" in broken["why"]
    assert other["reward"] == 1.0


def test_calls_whose_results_trl_drops_at_its_length_limit_are_not_called_again(shop: TrlTask) -> None:
    rollout = Rollout(shop)
    rollout.turn(("order", {"item": "apple", "count": math.nan}), ("order", {"item": "apple"}))
    del rollout.messages[-2:]
    score = rollout.score()
    assert (score["reward"], score["answered_calls"], score["wrong_calls"]) == (1.0, 1.0, 1.0)


def test_an_ending_tool_ends_the_episode(shop: TrlTask) -> None:
    rollout = Rollout(shop)
    told = rollout.turn(("order", {"item": "apple"}), ("order", {"item": "apple"}))
    assert told == ["1 small apple", "That was the last turn."]
    rollout.turn(("order", {"item": "apple"}))
    rollout.say("more")
    assert rollout.score()["right"] == 1.0


def test_a_reset_that_raises_has_no_reward() -> None:
    with TrlTask(f"{TASKS}:closed", workers=1) as task:
        rollout = Rollout(task, 1)
        assert rollout.opening is None and rollout.turn(("order", {"item": "apple"})) == ["That was the last turn."]
        score = rollout.score()
        assert score["reward"] is None and "closed: reset() raised RuntimeError" in score["why"]


def test_what_reset_adds_follows_messages_of_the_user() -> None:
    with TrlTask(f"{TASKS}:chat_shop", workers=1) as task:
        assert Rollout(task).opening == "\n\nYou have 10 coins."
    with TrlTask(f"{TASKS}:system_shop", workers=1) as task, pytest.raises(UserError, match="ends with one by system"):
        Rollout(task)


def test_calls_that_trl_leaves_uncalled_at_its_bound_are_called(folder: Path, shop: TrlTask) -> None:
    assert shop.max_tool_calling_iterations == 3, "and the fourth turn"
    bound = {"max_tool_calling_iterations": 1}
    logged, scripted = played(folder, shop, shopping, config=bound)
    (name,) = shop.tasks
    assert logged[f"{name}/solved_rate"] == 1.0 and logged[f"{name}/answered_calls"] == 2.0
    assert len(scripted.prompts) == 8 and logged["tools/call_frequency"] == 1.0


def test_a_result_that_is_too_long_ends_the_rollout_whose_state_counts(folder: Path, shop: TrlTask) -> None:
    bound = {"max_completion_length": len(shopping("Buy 1 ")) + 20}
    logged, _ = played(folder, shop, shopping, config=bound)
    (name,) = shop.tasks
    assert logged[f"{name}/answered_calls"] == 1.0 and logged[f"{name}/valid_rate"] == 0.0


def test_thoughts_are_part_of_the_text(functions: TrlTask) -> None:
    rollout = Rollout(functions)
    rollout.say("12", reasoning_content="easy")
    assert rollout.score()["why"] == "product 0 of 1"
    rollout.messages[0].pop("reasoning_content")
    rollout.environment.reset(**rollout.row)
    assert rollout.score()["reward"] == 1.0


def calculating(prompt: str) -> str:
    if "<tool_response>" not in prompt:
        return "".join(written(name, **given) for name, given in (("multiply", {"left": 12, "right": 1}), ("now", {})))
    return "12"


def test_functions_are_tools_of_every_prompt(folder: Path, functions: TrlTask) -> None:
    logged, scripted = played(folder, functions, calculating, tools=functions.tools)
    (name,) = functions.tasks
    # What now() says is another thing each time, and it isn't called again for the score.
    assert logged[f"{name}/answered_calls"] == 2.0 and logged[f"{name}/abstained_rate"] == 0.0
    assert 0.0 < logged[f"{name}/solved_rate"] < 1.0, "12 is right for one of the rows"
    assert "<tool_response>\n12\n</tool_response>" in scripted.prompts[-1]


def test_a_function_that_hangs_is_named(functions: TrlTask) -> None:
    tools = {tool.__name__: tool for tool in functions.tools}

    def rollout(name: str, **given: int) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": name, "arguments": given}}
        told = {"role": "tool", "name": name, "content": tools[name](**given)}
        said = {"role": "assistant", "content": "12"}
        return [{**said, "content": "", "tool_calls": [call]}, told, said]

    logged: dict[str, list[Any]] = {}
    (reward,), row = functions.reward_funcs, functions.train_dataset[0]
    completions = [rollout("hang"), rollout("multiply", left=3, right=4)]
    assert reward(completions=completions, row=[row["row"]] * 2, log_extra=logged.__setitem__) == [None, 1.0]
    assert "tool hang(): no answer within 0.5 s" in logged[f"{row['task']}/why"][0]


def test_a_mixture_has_the_tools_of_each_task(folder: Path) -> None:
    def say(prompt: str) -> str:
        return shopping(prompt) if "coins" in prompt else calculating(prompt) if "12 times" in prompt else "7"

    with TrlTask(f"{TASKS}:shop,{TASKS}:functions,{TASKS}:single", workers=1) as task:
        config = {"per_device_train_batch_size": 24, "shuffle_dataset": False}
        logged, scripted = played(folder, task, say, config=config)
    for prompt in scripted.prompts:
        assert ("look_up" in prompt) == ("coins" in prompt) and ("multiply" in prompt) == ("12 times" in prompt)
    solved = {name: logged[f"{name}/solved_rate"] for name in task.tasks}
    assert solved == {"trl_tool_tasks.shop": 1.0, "trl_tool_tasks.functions": 0.25, "trl_tool_tasks.single": 1.0}


@pytest.mark.parametrize("name", ["shop", "chat_shop"], ids=["text", "chat"])
def test_our_engine_samples_a_task_with_tools(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def say(prompt: str) -> str:
        count = int(prompt.partition("Buy ")[2].split()[0])
        looked = "<tool_result>3</" in prompt or "<tool_response>\n3\n</" in prompt
        return written("order", item="apple", count=count) if looked else written("look_up", item="apple")

    let_the_engine_say(monkeypatch, say)
    with TrlTask(f"{TASKS}:{name}", workers=1) as task:
        trainer = trainer_of(folder, task.reward_funcs, task.train_dataset, rollout_func=task.rollout_func)
        trainer.model.train()
        batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    assert trainer._metrics["train"][f"trl_tool_tasks.{name}/solved_rate"] == [1.0]
    tokenizer = trainer.processing_class
    for ids, mask, is_trained in zip(
        batch["completion_ids"], batch["completion_mask"], batch["tool_mask"], strict=True
    ):
        trained, told = (tokenizer.decode(ids[(mask * (is_trained == each)).bool()]) for each in (1, 0))
        assert trained.startswith(written("look_up", item="apple")) and '"order"' in trained
        assert "3" in told and "tool_call>" not in told and "<tool_re" not in trained


@pytest.mark.parametrize(("spec", "argument", "why"), [
    (f"{TASKS}:misnamed", "environment_factory", "no tool 'reset'"),
    (f"{TASKS}:shop", "tools", "has an environment: use environment_factory"),
    (f"{NOTES}:PLAIN", "tools", "has tools of a server: use env"),
    (f"{TASKS}:single", "tools", "has no tools"),
    (f"{TASKS}:shop,{TASKS}:single", "tools", r"of several tasks use task\.environment_factory"),
    (f"{TASKS}:shows", "train_dataset", "prompts show calls of tools"),
])  # fmt: skip
def test_what_trl_cannot_train_is_refused_by_name(spec: str, argument: str, why: str) -> None:
    with TrlTask(spec, workers=1) as task, pytest.raises(UserError, match=why):
        getattr(task, argument)
