"""OpenRLHF's hooks without OpenRLHF; tests/test_peers.py runs them in OpenRLHF itself."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import GUESS, HEAP, SUMS, AnswerLaws, Played, adapter_of, secret_row, sum_row

from grpo_sdk.errors import UnscoredError, UserError

CHAT_GUESS = GUESS.replace("GUESS", "CHAT_GUESS")


adapter = adapter_of("openrlhf", {"openrlhf.utils.agent": {"AgentExecutorBase": object}})


class TestReward(AnswerLaws):
    trainer = "OpenRLHF"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        reward = adapter.TaskReward(spec, workers=1)
        with reward.adapter:
            answer = reward([f"<s>2 + 2 ={texts[0]}</s>"], ["2 + 2 ="], [row])
        assert answer["rewards"].tolist() == answer["scores"].tolist()
        return Played(answer["rewards"].item(), {name: each.item() for name, each in answer["extra_logs"].items()})


def test_the_reward_scores_what_follows_the_prompt_and_logs_why_a_run_ends(adapter, caplog):
    reward = adapter.TaskReward(SUMS, workers=1)
    with reward.adapter:
        with pytest.raises(UserError, match="does not contain its prompt"):
            reward(["3 + 3 =6"], ["2 + 2 ="], [sum_row()])
        with pytest.raises(UnscoredError):
            reward(["2 + 2 =404"], ["2 + 2 ="], [sum_row()])
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


def executed(adapter: Any, engine: Engine, spec: str, prompt: str, row: str, length: int = 100, **options: Any) -> Any:
    executor = adapter.agent_executor(spec, workers=1, **options)()
    sampling = SimpleNamespace(max_tokens=50, logprobs=1, stop=None)
    return asyncio.run(executor.execute(prompt, row, sampling, length, Tokenizer(), engine))


def test_an_agent_answers_once_and_is_scored(adapter: Any) -> None:
    response = executed(adapter, Engine("4"), SUMS, "2 + 2 =", sum_row())
    assert response["reward"] == response["scores"] == 2.0 and response["extra_logs"]["solved"] == 1.0
    assert response["action_ranges"] == [(8, 10)] and response["rollout_log_probs"] == [0.0] * 8 + [-0.5] * 2
    assert Tokenizer().decode(response["observation_tokens"]) == "<s>2 + 2 =4</s>" and not response["truncated"]
    in_a_template = executed(adapter, Engine("4"), SUMS, "<user>2 + 2 =</s><assistant>", sum_row())
    assert in_a_template["reward"] == 2.0 and in_a_template["observation_tokens"][0] != BOS


def test_what_cannot_be_scored_is_sampled_again_and_ends_the_run_after_some(adapter, caplog):
    engine = Engine("404", "5")
    response = executed(adapter, engine, SUMS, "2 + 2 =", sum_row())
    assert (response["reward"], response["action_ranges"]) == (0.0, [(8, 10)]) and not engine.answers
    assert "sampling another completion" in caplog.text
    with pytest.raises(UnscoredError, match="LookupError"):
        executed(adapter, Engine("404", "404"), SUMS, "2 + 2 =", sum_row(), attempts=2)


@pytest.mark.parametrize(("spec", "prompt", "begin", "between", "end"), [
    (GUESS, "guess:", "<s>guess:", "", ""),
    (CHAT_GUESS, "<user>guess:</s><assistant>", "<user>guess:</s><assistant>", "<user>", "</s><assistant>"),
])  # fmt: skip
def test_turns_are_one_sequence_in_which_only_the_model_is_trained(adapter, spec, prompt, begin, between, end):
    long = "?" * 60
    engine = Engine("3", long, "7")
    response = executed(adapter, engine, spec, prompt, secret_row(7), length=200)
    decode, tokens = Tokenizer().decode, response["observation_tokens"]
    cut = f"{long[:50]}{end.partition('<assistant>')[0]}"  # a turn that was cut off is closed by the template
    assert decode(tokens) == f"{begin}3</s>{between}\n1: higher:{end}{cut}{between}\n2: a digit, please:{end}7</s>"
    trained = [(start, tokens[start:stop]) for start, stop in response["action_ranges"]]
    assert [decode(turn) for _, turn in trained] == ["3</s>", long[:50], "7</s>"]
    assert [tokens[:start] for start, _ in trained] == engine.prompts  # what the model saw before each
    assert response["rollout_log_probs"] == [
        -0.5 * any(start <= place < stop for start, stop in response["action_ranges"]) for place in range(len(tokens))
    ]
    assert response["reward"] == 1.0


def test_a_full_context_ends_an_episode(adapter: Any) -> None:
    response = executed(adapter, Engine("3", "never sampled"), GUESS, "guess:", secret_row(7), length=10)
    assert response["reward"] == 0.0 and len(response["action_ranges"]) == 1
    with pytest.raises(UnscoredError, match="does not fit"):
        executed(adapter, Engine(), SUMS, "2 + 2 =", sum_row(), length=5)


def test_what_openrlhf_cannot_train_is_refused(adapter: Any) -> None:
    with pytest.raises(UserError, match=r"is a game.*as one sequence"):
        adapter.agent_executor(HEAP)
    with pytest.raises(UserError, match=r"<user>guess:.*leave out --data\.apply_chat_template"):
        executed(adapter, Engine("x"), GUESS, "<user>guess:</s><assistant>", secret_row(7))
