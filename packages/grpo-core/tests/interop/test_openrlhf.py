"""OpenRLHF's hooks without OpenRLHF; tests/test_peers.py runs them in OpenRLHF itself."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import scoring_tasks
import small_games

from grpo_core.errors import UnscoredError, UserError
from grpo_core.interop.adapter import TaskAdapter
from grpo_core.interop.openrlhf import TaskReward, agent_executor, record

SUMS = f"{Path(scoring_tasks.__file__)}:sums"
GUESS = f"{Path(small_games.__file__)}:GUESS"
CHAT_GUESS = f"{Path(small_games.__file__)}:CHAT_GUESS"
HEAP = f"{Path(small_games.__file__)}:HEAP"


@pytest.fixture(scope="module")
def reward() -> Iterator[TaskReward]:
    reward = TaskReward(SUMS, workers=1)
    yield reward
    reward.adapter.close()


def label(spec: str = SUMS, index: int = 2) -> str:
    with TaskAdapter(spec, "OpenRLHF", "episode", workers=1) as adapter:
        return str(record(adapter, adapter.task.rows()[index])["label"])


def test_the_reward_scores_what_follows_the_prompt(reward: TaskReward) -> None:
    row = label()
    answer = reward(["<s>2 + 2 =4</s>", "<s>2 + 2 =5</s>"], ["2 + 2 ="] * 2, [row] * 2)
    assert answer["rewards"].tolist() == answer["scores"].tolist() == [2.0, 0.0]
    assert {name: values.tolist() for name, values in answer["extra_logs"].items()} == {
        "solved": [1.0, 0.0], "valid": [1.0, 1.0], "right": [1.0, 0.0], "without_torch": [0.0, 0.0],
    }  # fmt: skip
    with pytest.raises(UserError, match="does not contain its prompt"):
        reward(["3 + 3 =6"], ["2 + 2 ="], [row])


def test_the_reward_logs_why_a_run_ends(reward: TaskReward, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnscoredError, match="LookupError"):
        reward(["2 + 2 =404"], ["2 + 2 ="], [label()])
    assert "LookupError" in caplog.text and "agent_executor()" in caplog.text


BOS, EOS = 1, 2


class Engine:
    """vLLM with one token per character, which answers from a list and ends as vLLM does, with the token of the end."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.prompts = list(answers), []

    async def generate(self, tokens: list[int], sampling: Any) -> Any:
        self.prompts.append(list(tokens))
        ids = [*map(ord, self.answers.pop(0)), EOS][: sampling.max_tokens]
        logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in ids] if sampling.logprobs is not None else None
        reason = "stop" if ids[-1] == EOS else "length"
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, finish_reason=reason, logprobs=logprobs)])


class Tokenizer:
    """One token per character, one that begins a text and one that ends it."""

    eos_token_id, all_special_ids = EOS, (BOS, EOS)
    chat_template = "<role>content</s>"

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [BOS] * add_special_tokens + [*map(ord, text.replace("</s>", chr(EOS)))]}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(self.convert_ids_to_tokens, ids))

    def convert_ids_to_tokens(self, token: int) -> str:
        return {BOS: "<s>", EOS: "</s>"}.get(token, chr(token))

    def apply_chat_template(self, messages: Any, tokenize: bool, add_generation_prompt: bool) -> str:
        return "".join(f"<{message['role']}>{message['content']}</s>" for message in messages) + "<assistant>"


@pytest.fixture
def openrlhf(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openrlhf", "openrlhf.utils", "openrlhf.utils.agent"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["openrlhf.utils.agent"], "AgentExecutorBase", object, raising=False)


def executed(
    spec: str, prompt: str, engine: Engine, index: int = 2, length: int = 100, **options: Any
) -> dict[str, Any]:
    executor: Any = agent_executor(spec, workers=1, **options)()
    sampling = SimpleNamespace(max_tokens=50, logprobs=1, stop=None)
    response: dict[str, Any] = asyncio.run(
        executor.execute(prompt, label(spec, index), sampling, length, Tokenizer(), engine)
    )
    return response


@pytest.mark.usefixtures("openrlhf")
def test_an_agent_answers_once_and_is_scored() -> None:
    response = executed(SUMS, "2 + 2 =", Engine("4"))
    assert response["reward"] == response["scores"] == 2.0 and response["extra_logs"]["solved"] == 1.0
    assert response["action_ranges"] == [(8, 10)] and response["rollout_log_probs"] == [0.0] * 8 + [-0.5] * 2
    assert Tokenizer().decode(response["observation_tokens"]) == "<s>2 + 2 =4</s>" and not response["truncated"]
    in_a_template = executed(SUMS, "<user>2 + 2 =</s><assistant>", Engine("4"))
    assert in_a_template["reward"] == 2.0 and in_a_template["observation_tokens"][0] != BOS


@pytest.mark.usefixtures("openrlhf")
def test_what_cannot_be_scored_is_sampled_again_and_ends_the_run_after_some(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine("404", "5")
    response = executed(SUMS, "2 + 2 =", engine)
    assert (response["reward"], response["action_ranges"]) == (0.0, [(8, 10)]) and not engine.answers
    assert "sampling another completion" in caplog.text
    with pytest.raises(UnscoredError, match="LookupError"):
        executed(SUMS, "2 + 2 =", Engine("404", "404"), attempts=2)


@pytest.mark.usefixtures("openrlhf")
@pytest.mark.parametrize(
    ("spec", "prompt", "begin", "between", "end"),
    [
        (GUESS, "guess:", "<s>guess:", "", ""),
        (CHAT_GUESS, "<user>guess:</s><assistant>", "<user>guess:</s><assistant>", "<user>", "</s><assistant>"),
    ],
)
def test_turns_are_one_sequence_in_which_only_the_model_is_trained(
    spec: str, prompt: str, begin: str, between: str, end: str
) -> None:
    with TaskAdapter(spec, "OpenRLHF", "episode", workers=1) as adapter:
        secret = int(adapter.task.rows()[0].id)
    wrong, long = "0" if secret else "1", "?" * 60
    engine = Engine(wrong, long, str(secret))
    response = executed(spec, prompt, engine, index=0, length=200)
    decode, tokens = Tokenizer().decode, response["observation_tokens"]
    hint = "higher" if secret > int(wrong) else "lower"
    cut = f"{long[:50]}{end.partition('<assistant>')[0]}"  # a turn that was cut off is closed by the template
    assert decode(tokens) == (
        f"{begin}{wrong}</s>{between}\n1: {hint}:{end}{cut}{between}\n2: a digit, please:{end}{secret}</s>"
    )
    trained = [(start, tokens[start:stop]) for start, stop in response["action_ranges"]]
    assert [decode(turn) for _, turn in trained] == [f"{wrong}</s>", long[:50], f"{secret}</s>"]
    assert [tokens[:start] for start, _ in trained] == engine.prompts  # what the model saw before each
    assert response["rollout_log_probs"] == [
        -0.5 * any(start <= place < stop for start, stop in response["action_ranges"]) for place in range(len(tokens))
    ]
    assert response["reward"] == 1.0


@pytest.mark.usefixtures("openrlhf")
def test_a_full_context_ends_an_episode() -> None:
    with TaskAdapter(GUESS, "OpenRLHF", "episode", workers=1) as adapter:
        secret = int(adapter.task.rows()[0].id)
    response = executed(GUESS, "guess:", Engine("0" if secret else "1", "never sampled"), index=0, length=10)
    assert response["reward"] == 0.0 and len(response["action_ranges"]) == 1
    with pytest.raises(UnscoredError, match="does not fit"):
        executed(SUMS, "2 + 2 =", Engine(), length=5)


@pytest.mark.usefixtures("openrlhf")
def test_what_openrlhf_cannot_train_is_refused() -> None:
    with pytest.raises(UserError, match=r"is a game.*as one sequence"):
        agent_executor(f"{HEAP}?opponent=random")
    with pytest.raises(UserError, match=r"<user>guess:.*leave out --data\.apply_chat_template"):
        executed(GUESS, "<user>guess:</s><assistant>", Engine("x"), index=0)
    with pytest.raises(UserError, match="has several turns; OpenRLHF's reward gets one completion"):
        TaskReward(GUESS)


def test_without_openrlhf_an_agent_says_what_to_install() -> None:
    with pytest.raises(UserError, match="pip install openrlhf"):
        agent_executor(SUMS)
