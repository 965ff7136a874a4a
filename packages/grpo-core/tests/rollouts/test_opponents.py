import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import local_endpoint
import pytest
import torch

from grpo_core.config import ScoringConfig
from grpo_core.evaluation.candidate import evaluate_model
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.plan import EvaluationPlan
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.load import load_policy
from grpo_core.rollouts.task_scoring import PolicyOpponent, engine_answers
from grpo_sdk import Row, Task, load_task, reward
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.episodes.opponents import EndpointOpponent, Unanswered, opponent_key, play_opponents
from grpo_sdk.errors import EmptyPromptError
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.score import Score

Answers = list[tuple[str, ...] | Unanswered]


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(f"{Path(__file__).parent / 'programs' / 'guessing.py'}:guess", workers=1) as scorer:
        yield scorer


def keys(n: int) -> list[SampleKey]:
    return [SampleKey(0, 1, f"guess/{index}", 0) for index in range(n)]


class Fake:
    """Answers as it was told, or guesses 7 three times and 8 once; remembers what it was asked."""

    def __init__(self, *answers: tuple[str, ...] | Unanswered) -> None:
        self.answers = list(answers)
        self.calls: list[list[Prompt]] = []

    def sample(self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]) -> Answers:
        self.calls.append(list(prompts))
        return self.answers or [("7", "7", "7", "8")] * len(prompts)


def play(scorer: Scorer, texts: Sequence[str], sampler: Fake) -> list[Score]:
    rows = scorer.task.rows()
    rows = [rows[index % 2] for index in range(len(texts))]
    return list(play_opponents(scorer, texts, rows, sampler, keys=keys(len(texts))).scores)


def asked(row: str, answer: int) -> Prompt:
    return (Message(role="user", content=f"{row}: guess the number from {answer}"),)


def test_rewards_receive_what_the_opponent_answered_who_is_not_asked_about_invalid_answers(scorer: Scorer) -> None:
    fake = Fake()
    # 7: three of four guesses hit, 1 − 2·3/4; 8: one does, 1 − 2·1/4; 9: none.
    scores = play(scorer, ["7", "8", "\ud800", "none", "9"], fake)
    assert [score.value for score in scores] == [-0.5, 0.5, 0.0, 0.0, 1.0]
    assert fake.calls == [[asked("a", 7), asked("b", 8), asked("a", 9)]]
    assert [score.value for score in play(scorer, ["none", ""], fake)] == [0.0, 0.0]
    assert play(scorer, [], fake) == []
    assert len(fake.calls) == 1, "with nothing to ask nobody is asked"


def test_a_missing_answer_and_a_prompt_that_crashes_abstain(scorer: Scorer) -> None:
    first, second = play(scorer, ["7", "8"], Fake(("9",) * 4, Unanswered("HTTP 500")))
    assert (first.value, second.value, second.fault) == (1.0, None, "infrastructure")
    assert second.why.endswith("guessing.guess, the opponent did not answer: HTTP 500")
    (score,) = play(scorer, ["666"], fake := Fake())
    assert (score.value, score.fault) == (None, "reward")
    assert score.why == "opponent prompt raised RuntimeError (guessing.py:21): cursed"
    assert fake.calls == []


def test_a_question_that_the_opponent_cannot_read_makes_the_completion_invalid(scorer: Scorer) -> None:
    sampler = Fake(("9",) * 4, Unanswered("a prompt of 600 tokens", is_unreadable=True))
    first, second = play(scorer, ["7", "8"], sampler)
    why = "the opponent cannot read it: a prompt of 600 tokens"
    assert first.value == 1.0
    assert second == scorer.task.refuse("8", scorer.task.rows()[1], why)
    assert (second.value, second.valid, second.fault, second.why) == (0.0, False, "", f"invalid: {why}")


# --- samplers


class Echo:
    """An engine that answers with the key's sample and the first prompt token."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.sampling: Sampling | None = None

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        self.requests, self.sampling = list(requests), sampling
        for index in reversed(range(len(requests))):
            text = f"{requests[index].prompt_ids[0]}.{requests[index].key.sample}"
            yield index, Completion((1,), (0.0,), text, "stop", 0)

    def sync(self, version: int) -> None:
        pass


OPPONENT = Opponent(prompt=lambda answer: "", samples=2, temperature=0.3, max_completion_length=9, stop=("\n",))


def test_an_engine_answers_in_order_and_a_prompt_that_it_cannot_read_harms_no_other() -> None:
    def encode(prompt: Prompt) -> list[int]:
        if not prompt:
            raise EmptyPromptError("a prompt became no tokens")
        return [len(prompt)] * len(prompt)

    engine = Echo()
    prompts = ["abc", "", "abcde", "abcdef"]  # 9 are for the answer
    first, empty, fits, too_long = engine_answers(engine, encode, 14, prompts, OPPONENT, keys(4))
    assert engine.sampling == Sampling(temperature=0.3, max_completion_length=9)
    assert {request.stop for request in engine.requests} == {("\n",)}
    assert (first, fits) == (("3.0", "3.1"), ("5.0", "5.1"))
    assert empty == Unanswered("a prompt became no tokens", is_unreadable=True)
    why = "a prompt of 6 tokens and 9 for the answer; the opponent's context is 14"
    assert too_long == Unanswered(why, is_unreadable=True)


def test_the_starting_policy_does_not_lose_a_batch_to_one_long_prompt() -> None:
    opponent = PolicyOpponent(load_policy("tiny"), frozen=False)
    answers = opponent.sample(["2+2=", "2+" * 500, "", "\ud800"], OPPONENT, keys(4))
    assert [isinstance(each, Unanswered) and each.is_unreadable for each in answers] == [False, True, True, False]


def test_opponents_never_share_random_numbers_with_the_policy_or_each_other() -> None:
    policy = [SampleKey(0, 1, "t/a", sample) for sample in range(3)]
    theirs = [opponent_key(key, sample) for key in policy for sample in range(3)]
    assert len({*policy, *theirs}) == 12


def test_an_endpoint_gets_distinct_repeatable_seeds_and_loses_only_what_it_refuses(monkeypatch: Any) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def respond(request: dict[str, Any]) -> tuple[int, bytes]:
        said = {"message": {"content": f"{request['seed']}\nmore"}, "finish_reason": "stop"}
        return 400 if "13" in request["messages"][0]["content"] else 200, json.dumps({"choices": [said]}).encode()

    prompts = [(Message(role="user", content=text),) for text in ("12", "13", "14")]
    with local_endpoint.serving(respond) as server:
        opponent = EndpointOpponent(OpenAIEngine.from_url(f"{server.url}#m"))
        answers, again = (opponent.sample(prompts, OPPONENT, keys(3)) for _ in range(2))
    assert answers == again
    first, refused, third = answers
    assert isinstance(refused, Unanswered)
    assert len({*first, *third}) == 4
    assert all(text.endswith("\n") for text in (*first, *third))  # cut after the stop string


def test_base_is_what_a_run_started_from_and_not_its_checkpoint(tmp_path: Path) -> None:
    start = load_policy("tiny")
    opponent = Opponent(prompt=lambda answer: "1 + 2 =", samples=1, temperature=0.0, max_completion_length=4)
    (by_start,) = PolicyOpponent(start, frozen=False).sample(["1 + 2 ="], opponent, keys(1))

    @reward(maximum=1.0)
    def by_the_start(predictions: Sequence[str]) -> float:
        return float(tuple(predictions) == by_start)

    with torch.no_grad():
        for parameter in start.model.parameters():
            parameter.zero_()  # a checkpoint that answers something else
    start.model.save_pretrained(tmp_path / "checkpoint")
    start.tokenizer.save_pretrained(tmp_path / "checkpoint")
    made = Task(
        "guess", lambda config: [Row(id="a")], lambda row: "Say something.", lambda text, row: text, (by_the_start,),
        opponent=opponent, exempt={"split": "one row"}, row=Row,
    )  # fmt: skip
    plan = EvaluationPlan(settings=EvaluationSettings(max_completion_length=4))
    tasks = {"guess": HeldOutTask.of(load_task(made), plan)}
    options, checkpoint = ModelOptions(device="cpu", scoring=ScoringConfig(workers=1)), str(tmp_path / "checkpoint")
    values = []
    for model in ("tiny", checkpoint):
        found = evaluate_model(checkpoint, None, tasks, options, Callbacks(), start=(model, None))["guess"]
        values.append([score.value for score in found.scores])
    assert values == [[1.0], [0.0]]
