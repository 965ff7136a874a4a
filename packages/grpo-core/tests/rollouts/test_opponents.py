from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from grpo_core.callbacks import Callbacks
from grpo_core.config import ScoringConfig
from grpo_core.engines.base import Request, SampleKey, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.engines.openai import OpenAIEngine
from grpo_core.errors import EmptyPromptError, UserError
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, evaluate_model
from grpo_core.plugins.tasks import load_task
from grpo_core.policy.load import load_policy
from grpo_core.rollouts.model_opponents import PolicyOpponent
from grpo_core.rollouts.opponents import (
    EndpointOpponent,
    EngineOpponent,
    OpponentSampler,
    Unanswered,
    opponent_key,
    play_opponents,
)
from grpo_core.scoring.scorer import Scorer
from grpo_core.task.opponent import Opponent
from grpo_core.task.row import Message, Prompt

TASK = """
from grpo_core import Invalid, Message, Opponent, Row, Task, reward

def load(config) -> list[Row]:
    return [Row(id="a"), Row(id="b")]

def prompt(row):
    return "Name a number that nobody guesses."

def validate(text, row):
    try:
        return int(text)
    except ValueError:
        raise Invalid("no number") from None

def ask(answer, row):
    if answer == 666:
        raise RuntimeError("cursed")
    return (Message(role="user", content=f"{row.id}: guess the number from {answer}"),)

@reward(maximum=1.0)
def unguessed(answer, predictions):
    return 1.0 - 2.0 * sum(guess == str(answer) for guess in predictions) / max(1, len(predictions))

guess = Task("guess", load, prompt, validate, (unguessed,), opponent=Opponent(prompt=ask, samples=4, stop=("\\n",)))
"""


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    file = tmp_path_factory.mktemp("opponents") / "guessing.py"
    file.write_text(TASK)
    with Scorer(f"{file}:guess", workers=1) as scorer:
        yield scorer


def keys(n: int) -> list[SampleKey]:
    return [SampleKey(0, 1, f"guess/{index}", 0) for index in range(n)]


class Fake:
    """Always guesses 7 three times and 8 once; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[Prompt]] = []

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        self.calls.append(list(prompts))
        return [("7", "7", "7", "8")] * len(prompts)


def play(scorer: Scorer, texts: Sequence[str], sampler: OpponentSampler) -> list[float | None]:
    rows = scorer.task.rows()
    rows = [rows[index % 2] for index in range(len(texts))]
    return [score.value for score in play_opponents(scorer, texts, rows, sampler, keys=keys(len(texts))).scores]


def test_rewards_receive_what_the_opponent_answered(scorer: Scorer) -> None:
    # 7: three of four guesses hit, 1 − 2·3/4; 8: one does, 1 − 2·1/4; 9: none.
    assert play(scorer, ["7", "8", "9"], Fake()) == [-0.5, 0.5, 1.0]


def test_the_opponent_is_asked_once_for_all_and_not_about_invalid_answers(scorer: Scorer) -> None:
    fake = Fake()
    assert play(scorer, ["7", "none", "9"], fake) == [-0.5, 0.0, 1.0]
    assert fake.calls == [
        [
            (Message(role="user", content="a: guess the number from 7"),),
            (Message(role="user", content="a: guess the number from 9"),),
        ]
    ]


def test_with_nothing_to_ask_nobody_is_asked(scorer: Scorer) -> None:
    fake = Fake()
    assert play(scorer, ["none", ""], fake) == [0.0, 0.0]
    assert play(scorer, [], fake) == []
    assert fake.calls == []


def test_a_missing_answer_abstains_as_infrastructure(scorer: Scorer) -> None:
    class Broken(Fake):
        def sample(
            self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
        ) -> list[tuple[str, ...] | Unanswered]:
            return [("9",) * 4, Unanswered("HTTP 500")]

    rows = scorer.task.rows()
    first, second = play_opponents(scorer, ["7", "8"], rows, Broken(), keys=keys(2)).scores
    assert first.value == 1.0
    assert (second.value, second.fault) == (None, "infrastructure")
    assert second.why.endswith("guessing.guess, the opponent did not answer: HTTP 500")


def test_a_prompt_that_crashes_is_not_scored_as_if_nobody_guessed_right(scorer: Scorer) -> None:
    fake = Fake()
    (score,) = play_opponents(scorer, ["666"], scorer.task.rows()[:1], fake, keys=keys(1)).scores
    assert (score.value, score.fault) == (None, "reward")
    assert score.why == "opponent prompt raised RuntimeError (guessing.py:18): cursed"
    assert fake.calls == []


def test_a_question_that_the_opponent_cannot_read_makes_the_completion_invalid(scorer: Scorer) -> None:
    class ShortSighted(Fake):
        def sample(
            self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
        ) -> list[tuple[str, ...] | Unanswered]:
            return [("9",) * 4, Unanswered("a prompt of 600 tokens", is_unreadable=True)]

    first, second = play_opponents(scorer, ["7", "8"], scorer.task.rows(), ShortSighted(), keys=keys(2)).scores
    assert first.value == 1.0
    assert second == scorer.task.refuse(
        "8", scorer.task.rows()[1], "the opponent cannot read it: a prompt of 600 tokens"
    )
    assert (second.value, second.valid, second.fault) == (0.0, False, "")  # the task's value of what is invalid
    assert second.why == "invalid: the opponent cannot read it: a prompt of 600 tokens"


# --- the killable prompts


def test_prompts_are_made_in_order_and_none_where_there_is_nothing_to_ask(scorer: Scorer) -> None:
    a, b = scorer.task.rows()
    assert scorer.opponent_prompts(["7", "\ud800", "666", "8"], [a, a, a, b]) == [
        (Message(role="user", content="a: guess the number from 7"),),
        None,  # invalid
        None,  # the prompt crashed
        (Message(role="user", content="b: guess the number from 8"),),
    ]


def test_prompts_want_a_row_for_each_text(scorer: Scorer) -> None:
    with pytest.raises(UserError, match="2 texts, 1 rows"):
        scorer.opponent_prompts(["1", "2"], scorer.task.rows()[:1])


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


def test_an_engine_answers_grouped_and_in_order() -> None:
    engine = Echo()
    answers = EngineOpponent(engine, lambda prompt: [len(prompt), 0]).sample(["abc", "d"], OPPONENT, keys(2))
    assert answers == [("3.0", "3.1"), ("1.0", "1.1")]
    assert engine.sampling == Sampling(temperature=0.3, max_completion_length=9)
    assert {request.stop for request in engine.requests} == {("\n",)}


def test_a_prompt_beyond_the_context_or_without_tokens_is_unreadable_and_harms_no_other() -> None:
    def encode(prompt: Prompt) -> list[int]:
        if not prompt:
            raise EmptyPromptError("a prompt became no tokens")
        return [len(prompt)] * len(prompt)

    opponent = EngineOpponent(Echo(), encode, max_context=14)  # 9 are for the answer
    first, empty, fits, too_long = opponent.sample(["abc", "", "abcde", "abcdef"], OPPONENT, keys(4))
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


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An endpoint that answers with the seed's parity, and refuses what is about 13."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = {"choices": [{"message": {"content": f"{body['seed']}\nmore"}, "finish_reason": "stop"}]}
            data = json.dumps(reply).encode()
            self.send_response(400 if "13" in body["messages"][0]["content"] else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1#m"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_endpoint_answers_with_distinct_repeatable_seeds(url: str) -> None:
    opponent = EndpointOpponent(OpenAIEngine.from_url(url))
    prompts = [(Message(role="user", content=str(number)),) for number in range(3)]
    answers = opponent.sample(prompts, OPPONENT, keys(3))
    assert answers == opponent.sample(prompts, OPPONENT, keys(3))
    texts = [text for given in answers if not isinstance(given, Unanswered) for text in given]
    assert len(set(texts)) == 6
    assert all(text.endswith("\n") for text in texts)  # cut after the stop string


def test_an_endpoint_that_fails_for_one_prompt_answers_the_others(url: str) -> None:
    prompts = [(Message(role="user", content=text),) for text in ("12", "13", "14")]
    answers = EndpointOpponent(OpenAIEngine.from_url(url)).sample(prompts, OPPONENT, keys(3))
    assert [isinstance(given, Unanswered) for given in answers] == [False, True, False]


BASE_TASK = """
from grpo_core import Opponent, Row, Task, reward

def load(config) -> list[Row]:
    return [Row(id="a")]

def ask(answer):
    return "1 + 2 ="

@reward(maximum=1.0)
def by_the_start(predictions):
    return float(predictions == ({reply!r},))

task = Task(
    "guess", load, lambda row: "Say something.", lambda text, row: text, (by_the_start,),
    opponent=Opponent(prompt=ask, samples=1, temperature=0.0, max_completion_length=4), exempt={{"split": "one row"}},
)
"""


def test_base_is_what_a_run_started_from_and_not_its_checkpoint(tmp_path: Path) -> None:
    start = load_policy("tiny")
    opponent = Opponent(prompt=lambda answer: "", samples=1, temperature=0.0, max_completion_length=4)
    ((reply,),) = PolicyOpponent(start, frozen=False).sample(["1 + 2 ="], opponent, keys(1))
    (tmp_path / "guessing.py").write_text(BASE_TASK.format(reply=reply))
    with torch.no_grad():
        for parameter in start.model.parameters():
            parameter.zero_()  # a checkpoint that answers something else
    start.model.save_pretrained(tmp_path / "checkpoint")
    start.tokenizer.save_pretrained(tmp_path / "checkpoint")
    task = load_task(f"{tmp_path}/guessing.py:task")
    tasks = {"guess": EvaluationTask(task, EvaluationSettings(max_completion_length=4))}
    options, checkpoint = ModelOptions(device="cpu", scoring=ScoringConfig(workers=1)), str(tmp_path / "checkpoint")
    by_start = evaluate_model(checkpoint, None, tasks, options, Callbacks(), start=("tiny", None))["guess"]
    by_itself = evaluate_model(checkpoint, None, tasks, options, Callbacks(), start=(checkpoint, None))["guess"]
    assert [[score.value for score in made.scores] for made in (by_start, by_itself)] == [[1.0], [0.0]]
