import asyncio
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_server import Asked, chat, judging
from judged_tasks import KEY_VARIABLE, endpoint
from local_endpoint import Reply, Server

from grpo_sdk.errors import UserError
from grpo_sdk.judges import Endpoint, pairwise, rubric
from grpo_sdk.judges import service as services
from grpo_sdk.judges.backend import Reply as Replied
from grpo_sdk.judges.prompts import JudgeCall
from grpo_sdk.judges.service import JudgeService, Verdict
from grpo_sdk.scoring.abstention import reason_head
from grpo_sdk.task.judging import JudgedReward, JudgeQuestion


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("grpo_sdk.endpoints.openai.MAX_WAIT_S", 0.05)


class Judge:
    """A judge with a service of its own, whose files are in a folder of the test."""

    def __init__(self, folder: Path, url: str, criterion: str = "It is polite.", **options: Any) -> None:
        model = endpoint(url, **options)
        self.judge: JudgedReward = rubric(criterion, model=model, name="polite")
        self.service = JudgeService(model, folder)

    def ask(self, *texts: str) -> list[Verdict]:
        futures = [self.service.submit(self.judge, JudgeQuestion("How are you?", (text,))) for text in texts]
        return [future.result(30) for future in futures]


@pytest.fixture
def polite() -> Iterator[Server]:
    with judging(lambda asked: asked.grade(10 if "please" in asked.texts[0] else 2)) as server:
        yield server


def test_a_verdict_has_a_value_and_a_reason_and_is_known_to_the_next_process(polite: Server, tmp_path: Path) -> None:
    one, other = Judge(tmp_path, polite.url).ask("yes, please", "no")
    assert (one.value, other.value) == (1.0, 0.2) and one.why.startswith("Because.")

    again = Judge(tmp_path, polite.url)
    assert [verdict.value for verdict in again.ask("no", "yes, please", "new")] == [0.2, 1.0, 0.2]
    assert len(polite.seen) == 3
    assert (again.service.usage.cached, again.service.usage.requests) == (2, 1)


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"max_tokens": 99}, {"model": "other"}, {"criterion": "It is short."}]
)
def test_a_verdict_is_of_its_model_sampling_and_criterion(polite, tmp_path, change):
    Judge(tmp_path, polite.url).ask("no")
    Judge(tmp_path, polite.url, **change).ask("no")
    assert len(polite.seen) == 2


def test_equal_questions_are_one_request_unless_nothing_is_kept(polite: Server, tmp_path: Path) -> None:
    Judge(tmp_path / "none", polite.url, cache=False).ask("no", "no")
    assert len(polite.seen) == 2 and not (tmp_path / "none" / "verdicts.sqlite").exists()
    assert len({verdict.value for verdict in Judge(tmp_path, polite.url).ask(*["no"] * 20)}) == 1
    assert len(polite.seen) == 3


def test_no_more_are_in_flight_than_is_allowed(tmp_path: Path) -> None:
    def answer(asked: Asked) -> str:
        time.sleep(0.02)
        return asked.grade(1)

    with judging(answer) as server:
        Judge(tmp_path, server.url, concurrency=3).ask(*map(str, range(20)))
        assert server.most_in_flight == 3


def test_a_value_out_of_range_in_the_cache_is_no_verdict(polite: Server, tmp_path: Path) -> None:
    Judge(tmp_path, polite.url).ask("no")
    with sqlite3.connect(tmp_path / "verdicts.sqlite") as connection:
        connection.execute("UPDATE verdicts SET value = 7.0")
    assert Judge(tmp_path, polite.url).ask("no")[0].value == 0.2


@pytest.mark.parametrize("first", [
    (500, b"oops"),
    (429, b"slow down"),
    (200, b"{not json"),
    (200, json.dumps({"choices": []}).encode()),
    chat("I would rather not say."),
])  # fmt: skip
def test_what_may_succeed_yet_is_asked_again(tmp_path: Path, first: Reply) -> None:
    replies = [first]
    with judging(lambda asked: replies.pop() if replies else asked.grade(5)) as server:
        judge = Judge(tmp_path, server.url)
        assert judge.ask("no")[0].value == 0.5
        assert len(server.seen) == judge.service.usage.requests == 2


def thought_only() -> Reply:
    """The length limit ended the judge's thought, in which no verdict is looked for."""
    message = {"content": None, "reasoning_content": "verdict: 10"}
    return 200, json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode()


@pytest.mark.parametrize(("reply", "why"), [
    ((500, b"oops"), "HTTP 500: oops (tried 2 times)"),
    ((400, b"no such field"), "HTTP 400: no such field"),
    ((200, b"x" * (5 << 20)), "a reply of more than 4194304 bytes"),
    (chat("Hm."), "no verdict in 3 replies: the last ends 'Hm.'"),
    (thought_only(), "a reply without text; a model that reasons first may need a larger max_tokens"),
])  # fmt: skip
def test_no_verdict_is_an_abstention_that_names_the_endpoint(tmp_path: Path, reply: Reply, why: str) -> None:
    with judging(lambda asked: reply) as server:
        judge = Judge(tmp_path, server.url)
        [verdict] = judge.ask("no")

    assert verdict.value is None and why in verdict.why and server.url in verdict.why
    assert verdict.why.startswith("judge polite: ")
    assert judge.service.usage.abstained == 1 and judge.service.usage.verdicts == 0


def test_a_slow_reply_runs_into_the_judges_own_limit(tmp_path: Path) -> None:
    is_over = threading.Event()
    with judging(lambda asked: asked.grade(int(is_over.wait(20)))) as server:
        [verdict] = Judge(tmp_path, server.url, timeout_s=0.2, max_retries=0).ask("no")
        is_over.set()
    assert "no answer within 0.2 s (tried 1 times)" in verdict.why


def test_a_dead_endpoint_is_not_waited_for_by_everyone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    judge = Judge(tmp_path, url, concurrency=2, max_retries=50)
    started = time.monotonic()
    verdicts = [judge.ask(str(number))[0] for number in range(12)]

    assert all(verdict.value is None for verdict in verdicts)
    assert "not tried: 3 questions in a row failed" in verdicts[-1].why
    assert time.monotonic() - started < 10


def test_a_key_is_neither_repeated_nor_kept(polite: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "sk-secret-1234")
    with judging(lambda asked: (401, b"bad key sk-secret-1234")) as server:
        [verdict] = Judge(tmp_path, server.url).ask("no")
        assert server.seen[0]["key"] == "Bearer sk-secret-1234"
    assert verdict.is_refused and "sk-secret-1234" not in verdict.why  # the user's mistake
    assert f"The key comes from {KEY_VARIABLE}, which is set" in verdict.why
    Judge(tmp_path, polite.url).ask("no")
    assert all(b"sk-secret-1234" not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_bound_on_requests_abstains_and_says_so(polite: Server, tmp_path: Path) -> None:
    verdicts = Judge(tmp_path, polite.url, max_requests=3).ask(*map(str, range(5)))
    assert [verdict.value for verdict in verdicts].count(None) == 2 and len(polite.seen) == 3
    assert "max_requests=3 is reached" in next(verdict.why for verdict in verdicts if verdict.value is None)


def test_cost_is_counted_and_never_exceeds_its_bound(polite: Server, tmp_path: Path) -> None:
    # A reply of the server has 100 tokens of prompt and 10 of reply: 1 $/M · 100 + 10 $/M · 10 = 0.0002 $.
    prices = {"input_price": 1.0, "output_price": 10.0, "max_tokens": 20}
    judge = Judge(tmp_path, polite.url, **prices, max_cost=0.002)
    verdicts = judge.ask(*map(str, range(50)))
    usage = judge.service.usage

    assert usage.requests == len(polite.seen) == usage.verdicts > 3
    assert usage.cost == pytest.approx(0.0002 * usage.requests) and usage.cost <= 0.002
    assert (usage.input_tokens, usage.output_tokens) == (100 * usage.requests, 10 * usage.requests)
    assert "max_cost=0.002 would be exceeded" in next(verdict.why for verdict in verdicts if verdict.value is None)


def test_a_cancelled_question_is_taken_back_and_its_slot_with_it(tmp_path: Path) -> None:
    arrived, let_go = threading.Event(), threading.Event()

    def answer(asked: Asked) -> str:
        arrived.set()
        let_go.wait(20 if asked.texts[0] == "first" else 0)
        return asked.grade(1)

    with judging(answer) as server:
        judge = Judge(tmp_path, server.url, concurrency=1, timeout_s=20)
        first = judge.service.submit(judge.judge, JudgeQuestion("", ("first",)))
        arrived.wait(10)
        first.cancel()
        assert judge.ask("second")[0].value == 0.1
        let_go.set()


def test_a_question_that_is_being_taken_back_is_asked_again(tmp_path: Path) -> None:
    """Another completion may ask the same while the request of a cancelled one is still ending."""
    begun, ending = threading.Event(), threading.Event()

    class SlowToEnd:
        async def ask(self, call: JudgeCall, admit: object) -> Replied:
            if begun.is_set():
                return Replied("Because.", value=0.5)
            begun.set()
            try:
                await asyncio.sleep(20)
            finally:
                ending.set()
                await asyncio.sleep(0.2)
            raise AssertionError

        def close(self) -> None: ...

    judge = Judge(tmp_path, "http://localhost:1")
    judge.service._backend = SlowToEnd()
    first = judge.service.submit(judge.judge, JudgeQuestion("How are you?", ("no",)))
    assert begun.wait(10) and first.cancel() and ending.wait(10)
    assert judge.ask("no")[0].value == 0.5


def test_replies_without_a_verdict_have_one_reason(tmp_path: Path) -> None:
    """A run warns once of each reason; a reply's own words are none, such as the number that a judge repeats."""
    with judging(lambda asked: f"I say {asked.texts[0]}") as server:
        verdicts = Judge(tmp_path, server.url).ask("a", "b")
    assert len({verdict.why for verdict in verdicts}) == 2
    assert len({reason_head(verdict.why) for verdict in verdicts}) == 1


def test_two_judges_of_one_model_share_a_service() -> None:
    one, other = endpoint("http://localhost:1/v1"), endpoint("http://localhost:1/v1", max_requests=1)
    assert services.service_for(one) is services.service_for(one) is not services.service_for(other)


@pytest.mark.parametrize(("options", "message"), [
    ({"url": "localhost:8000"}, "is no address"),
    ({"url": "http://user:secret@host/v1"}, "holds a user"),
    ({"concurrency": 0}, "concurrency=0: .*greater than 0"),
    ({"max_cost": 1.0}, "needs input_price and output_price"),
    ({"temperature": float("nan")}, "temperature=nan: .*finite"),
    ({"url": None}, "url=None: .*valid string"),
    ({"api_key_env": "sk-secret-123"}, "is the name of an environment variable in capitals"),
    ({"output_price": 2.0, "max_cost": 0.001}, "below what one verdict of max_tokens=512 may cost, 0.001024"),
])  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        Endpoint(**{"url": "http://localhost:1/v1", "model": "m", **options})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("make", "options", "message"), [
    (rubric, {"criterion": " "}, "the criterion must be a text"),
    (rubric, {"wieght": 2}, "no option 'wieght'; .*weight"),
    (rubric, {"scale": 0}, "scale=0 must be a whole number from 1 to 100"),
    (rubric, {"name": "not a name"}, "use letters, digits and _"),
    (rubric, {"model": "gpt"}, "must be an Endpoint, a LocalModel or a CustomModel"),
    (rubric, {"weight": float("inf")}, "weight=inf must be a finite number"),
    (rubric, {"shown": "all"}, "must be text or answer"),
    (rubric, {"question": "why?"}, "must be a function of row"),
    (pairwise, {"comparisons": 3}, "comparisons=3 must be an even number"),
])  # fmt: skip
def test_a_judge_that_cannot_be_meant_is_refused(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**{"criterion": "It is polite.", "model": endpoint("http://localhost:1/v1"), **options})
