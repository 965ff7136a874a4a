from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import group_tasks
import pytest
import scoring_tasks
import small_games

from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import run
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, answer_text, check_replayable
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.tools.calls import Reading, ToolCall

SHOP = f"{Path(__file__).parents[5]}/examples/tasks/shop.py:shop"
CLOSED = f"{Path(__file__).parents[1]}/trl/programs/trl_tool_tasks.py:closed"
ROW = '{"id": "x", "secret": 7}'


def heap(**options: object) -> BoundTask:
    return load_task(small_games.HEAP, **{"opponent": "greedy", "seat": "first", "size": 1, **options})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_replay_scores_as_the_episode_did():
    with TaskAdapter(small_games.GUESS, "a trainer", "episode", workers=1) as guess:
        for texts, value in ((["3", "7"], 1.0), (["3"], 0.0), (["7", "3"], 1.0)):  # whole, cut off, and beyond its end
            assert run(Conversation(guess, ROW).replay(texts)).value == value
        with pytest.raises(UnscoredError, match="no completion to score"):
            run(Conversation(guess, ROW).replay([]))


def test_messages_of_a_task_stay_messages():
    chat = replace(small_games.CHAT_GUESS, respond=lambda text, row, turn: [user("again:")])
    with TaskAdapter(chat, "a trainer", "episode", workers=1) as adapter:
        conversation = Conversation(adapter, ROW)
        assert run(conversation.begin()) == [user("guess:")]
        assert run(conversation.reply("3")) == [user("again:")]
        assert conversation.messages == [user("guess:"), {"role": "assistant", "content": "3"}, user("again:")]


@pytest.fixture(scope="module")
def shop() -> Iterator[TaskAdapter]:
    with TaskAdapter(SHOP, "a trainer", "episode", workers=1, takes_tools="text") as adapter:
        yield adapter


def test_a_prompt_that_shows_calls_shows_them_in_text(shop):
    row = shop.task.rows()[0]
    conversation = Conversation(shop, row)
    system, *examples = run(conversation.begin())
    assert [system, *examples] == shop.first_messages(row) == conversation.messages
    assert system["role"] == "system" and '"name": "look_up"' in system["content"]
    assert examples[1]["content"] == '<tool_call>{"name": "look_up", "arguments": {"item": "hat"}}</tool_call>'
    assert examples[2] == user("<tool_result>4 coins</tool_result>")


@pytest.mark.parametrize(("text", "told"), [
    ('<tool_call>{"name": "look_up"</tool_call>', "broken JSON"),
    ('<tool_call>{"name": "steal", "arguments": {}}</tool_call>', "no tool 'steal'"),
    ('Hm.</think><tool_call>{"name": "look_up", "arguments": {"item": "x"}}</tool_call><|im_end|>', "no x here"),
])  # fmt: skip
def test_a_completion_that_calls_wrongly_is_told_what_is_wrong(shop, text, told):
    conversation = Conversation(shop, shop.task.rows()[0])
    run(conversation.begin())
    (message,) = run(conversation.reply(text))
    assert message["role"] == "user" and told in message["content"] and not conversation.is_over
    assert conversation.messages[-2:] == [{"role": "assistant", "content": text.removesuffix("<|im_end|>")}, message]


def test_calls_in_thinking_are_none_and_a_call_that_is_cut_off_ends_the_episode(shop):
    call = '<tool_call>{"name": "look_up", "arguments": {"item": "cup"}}</tool_call>'
    for text, is_cut in ((f"<think>{call}</think>No.", False), (call[:-20], True)):
        conversation = Conversation(shop, shop.task.rows()[0])
        run(conversation.begin())
        assert run(conversation.reply(text, is_cut=is_cut)) == [] and conversation.is_over
        assert run(conversation.score()).value == 0.0


def test_an_environment_that_cannot_begin_is_not_scored_and_named():
    adapter = TaskAdapter(CLOSED, "a trainer", "episode", workers=1, takes_tools="text")
    with adapter, pytest.raises(UnscoredError, match=r"reset\(\) raised RuntimeError.*closed on day 1"):
        run(Conversation(adapter, adapter.task.rows()[0]).begin())


def test_a_prompt_of_one_turn_needs_no_beginning_and_ends_at_its_stop_string():
    with TaskAdapter(replace(scoring_tasks.sums, stop=("\n",)), "a trainer", "episode", workers=1) as adapter:
        row = adapter.task.rows()[2]
        assert run(Conversation(adapter, row).replay(["3", "4\nor 5"])).value == 2.0  # the last completion counts


def test_what_has_no_single_reward_is_refused():
    with pytest.raises(UserError, match=r"first and second, each .* a trainer takes one per episode.*=random"):
        TaskAdapter(heap(opponent="self", seat="both"), "a trainer", "episode")
    with pytest.raises(UserError, match="has a model as its opponent: serve one"):
        TaskAdapter(scoring_tasks.guess, "a trainer")
    TaskAdapter(group_tasks.words, "a trainer", "episodes").close()


def test_a_model_as_opponent_cannot_be_replayed():
    adapter = TaskAdapter(heap(opponent="http://127.0.0.1:9/v1#m"), "a trainer", "episode", workers=1)
    with adapter, pytest.raises(UserError, match="a model's moves as the opponent"):
        check_replayable(adapter)


def test_reasoning_that_was_split_off_is_part_of_the_completion():
    assert answer_text("4", "2 + 2") == "<think>2 + 2</think>4"
    assert answer_text("4") == "4"
    assert answer_text(None) == ""


def test_messages_have_calls_and_results_where_a_trainer_takes_them():
    with TaskAdapter(SHOP, "a trainer", "episode", takes_tools="calls", workers=1) as adapter:
        conversation = Conversation(adapter, adapter.task.rows()[0])
        opening = run(conversation.begin())
        assert opening == adapter.first_messages(adapter.task.rows()[0])
        assert opening[1]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"item": "hat"}'}
        assert opening[2]["tool_call_id"] == opening[1]["tool_calls"][0]["id"]
        item = opening[-1]["content"].removesuffix("s.").rpartition(" ")[2]
        calls = (ToolCall("look_up", {"item": item}),)
        (told,) = run(conversation.call(Reply("Let me look.", None, Reading("Let me look.", calls=calls))))
        assert told["role"] == "tool" and told["content"].endswith(" coins")
        said, result = conversation.messages[len(opening) :]
        assert said["content"] == "Let me look." and said["tool_calls"][0]["id"] == result["tool_call_id"]
        assert result["content"] == told["content"]


def test_a_prefill_is_refused_where_messages_have_calls():
    prefilled = replace(load_task(SHOP).task, prompt=lambda row: [user("Buy."), {"role": "assistant", "content": "I"}])
    with (
        TaskAdapter(prefilled, "a trainer", "episode", takes_tools="calls", workers=1) as adapter,
        pytest.raises(UserError, match="prefilled message by the assistant"),
    ):
        adapter.first_messages(adapter.task.rows()[0])
