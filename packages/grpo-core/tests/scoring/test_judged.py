from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from judge_server import Asked, judging
from judged_tasks import KEY_VARIABLE, Question, best, endpoint, polite
from local_endpoint import Reply, Server

from grpo_core import Score, Scorer, Task, UserError, load_task, reward, score
from grpo_core.errors import AbstentionLimitError
from grpo_core.judges import rubric
from grpo_core.scoring.groups import group_scores
from grpo_core.scoring.judged import assume_best, pairs
from grpo_core.task.judging import MAX_QUESTION_CHARS
from grpo_core.task.row import Row

ROW = Question(id="q0", gold="well")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A cache folder and services of this test alone."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GRPO_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(KEY_VARIABLE, "sk-secret-1234")
    yield tmp_path


def by_politeness(asked: Asked) -> str:
    if len(asked.texts) == 2:
        one, other = (text.count("please") for text in asked.texts)
        return asked.grade("tie" if one == other else "A" if one > other else "B")
    return asked.grade(10 if "please" in asked.texts[0] else 3)


@pytest.fixture
def server() -> Iterator[Server]:
    with judging(by_politeness) as server:
        yield server


def scored(task: Task, *texts: str) -> list[Score]:
    with Scorer(task, workers=2) as scorer:
        return scorer.score(texts, [ROW] * len(texts))


def test_a_verdict_is_a_part_like_any_other(server: Server) -> None:
    polite_one, rude_one, long_one = scored(polite(server.url), "please do", "go away", "please, if you may")

    assert (polite_one.value, polite_one.solved) == (1.5, True)
    assert rude_one.value == pytest.approx(1.15) and not rude_one.solved
    assert rude_one.parts["polite"] == 0.3 and "polite 0.3 of 1; polite: Because." in rude_one.why
    assert long_one.value == 0.5 and not long_one.solved


def test_what_the_validator_refuses_is_not_judged(server: Server) -> None:
    [refused] = scored(polite(server.url), " ")

    assert not refused.valid and refused.parts["polite"] == 0.0 and not server.seen


def test_a_judge_is_asked_when_the_part_that_it_needs_is_at_its_maximum(server: Server) -> None:
    task = polite(server.url, needs="short")
    long_one, short_one = scored(task, "please, if you may", "please")

    assert long_one.parts["polite"] == 0.0 and short_one.parts["polite"] == 1.0 and len(server.seen) == 1


def test_a_part_may_need_a_verdict(server: Server) -> None:
    @reward(1.0, needs="polite")
    def bonus(text: str) -> float:
        return 1.0

    task = polite(server.url)
    task = replace(task, rewards=(*task.rewards, bonus))
    kind, rude = scored(task, "please", "go")

    assert (kind.parts["bonus"], rude.parts["bonus"]) == (1.0, 0.0)


def test_the_judge_sees_what_the_author_says(server: Server) -> None:
    options = {
        "question": lambda row: f"asked: {row.text}", "reference": lambda row: f"right: {row.gold}", "shown": "answer",
    }  # fmt: skip
    scored(polite(server.url, **options), "  hello  ")
    content = server.seen[0]["messages"][1]["content"]

    assert "asked: How are you?" in content and "right: well" in content and "\nhello\n" in content


def test_the_judges_time_is_not_the_tasks(server: Server) -> None:
    def slowly(asked: Asked) -> str:
        time.sleep(1.5)  # the task has 1 s
        return asked.grade(10)

    with judging(slowly) as slow:
        assert scored(polite(slow.url), "please")[0].value == 1.5


def test_the_tasks_own_limit_holds_beside_a_judge(server: Server) -> None:
    hung, fine = scored(polite(server.url), "hang", "please")

    assert (hung.value, hung.fault, fine.value) == (None, "timeout", 1.5)


def test_no_verdict_abstains_as_infrastructure_and_costs_no_other(server: Server) -> None:
    with judging(lambda asked: "Hm." if "no" in asked.texts[0] else asked.grade(10)) as mute:
        silent, fine = scored(polite(mute.url), "no", "yes")

        assert (silent.value, silent.fault, fine.value) == (None, "infrastructure", 1.5)
        assert silent.why.startswith("task python.polite: judge polite: judge at http://127.0.0.1")
        with Scorer(polite(mute.url), workers=1, max_abstain_share=0.4) as scorer, pytest.raises(AbstentionLimitError):
            scorer.score(["no", "no no"], [ROW, ROW])


def test_a_refused_key_ends_the_scoring(server: Server) -> None:
    with (
        judging(lambda asked: (401, b"who are you")) as strict,
        pytest.raises(UserError, match="HTTP 401: who are you"),
    ):
        scored(polite(strict.url), "please")


def test_workers_do_not_get_the_key_and_the_endpoint_does(server: Server) -> None:
    [result] = scored(polite(server.url), "please")

    assert result.parts["key_is_seen"] == 0.0
    assert server.seen[0]["key"] == "Bearer sk-secret-1234"


def test_a_text_that_is_too_long_for_the_judge_is_out_of_its_limit(server: Server) -> None:
    abstains = polite(server.url, max_chars=20)
    [late], [wrong] = scored(abstains, "x" * 21), scored(replace(abstains, on_timeout="fail"), "x" * 21)

    assert (late.value, late.fault) == (None, "timeout") and "too long for judge polite: 21 characters" in late.why
    assert (wrong.value, wrong.valid, wrong.fault) == (0.0, False, "") and not server.seen


def small_context(asked: Asked) -> str | Reply:
    if sum(map(len, asked.texts)) > 30:
        return 400, b"This model's maximum context length is 30 tokens."
    return by_politeness(asked)


def test_texts_that_do_not_fit_the_judges_model_are_out_of_their_limit_and_no_outage() -> None:
    with judging(small_context) as small:
        abstains = polite(small.url, model={"concurrency": 1})
        texts = ["x" * 31, "y" * 31, "z" * 31, "please"]
        *late, fine = scored(abstains, *texts)
        *wrong, good = scored(replace(abstains, on_timeout="fail"), *texts)

    assert [(each.value, each.fault) for each in late] == [(None, "timeout")] * 3
    assert "judge polite: http://127.0.0.1" in late[0].why and "maximum context length" in late[0].why
    assert [(each.value, each.valid, each.fault) for each in wrong] == [(0.0, False, "")] * 3
    assert fine.value == good.value == 1.5


@pytest.mark.parametrize(("on_timeout", "rate"), [("abstain", None), ("fail", 0.0)])
def test_of_a_pair_that_does_not_fit_the_judges_model_the_longer_one_is_too_long(
    on_timeout: Literal["abstain", "fail"], rate: float | None
) -> None:
    with judging(small_context) as small:
        task = replace(best(small.url), on_timeout=on_timeout)
        with Scorer(task, workers=1) as scorer:
            texts = ["go", "please", "please " * 5]
            [scores] = group_scores(scorer, [(texts, ROW, scorer.score(texts, [ROW] * 3))])
    assert [each.parts.get("kinder") for each in scores] == [0.0, 1.0, rate]
    assert scores[2].fault == ("timeout" if rate is None else "")


def test_a_prompt_that_is_too_long_to_be_shown_to_a_judge_is_a_fault(server: Server) -> None:
    [result] = scored(replace(polite(server.url), prompt=lambda row: "x" * (MAX_QUESTION_CHARS + 1)), "please")

    assert (result.value, result.fault) == (None, "reward") and not server.seen
    assert "the question of judge polite has 200001 characters; the limit is 200000" in result.why


def test_one_at_a_time_from_asyncio_and_from_copies(server: Server) -> None:
    task = polite(server.url)
    assert score(task, "please", ROW).value == 1.5
    with Scorer(task, workers=1) as scorer:
        assert asyncio.run(scorer.ascore(["please", "go"], [ROW, ROW]))[0].value == 1.5
        with pickle.loads(pickle.dumps(scorer)) as copy:
            assert copy.score(["go"], [ROW])[0].parts["polite"] == 0.3
    assert len(server.seen) == 2, "the others were in the cache"


def test_a_closed_scorer_leaves_nothing_waiting(server: Server) -> None:
    with judging(lambda asked: time.sleep(1) or asked.grade(1)) as slow:
        scorer = Scorer(polite(slow.url), workers=1)
        future = scorer.submit("please", ROW)
        while not slow.seen:
            time.sleep(0.01)
        scorer.close()
        closed = future.result(timeout=5)
    assert (closed.value, closed.fault) == (None, "infrastructure")


def test_an_interruption_takes_the_questions_back(server: Server) -> None:
    let_go = threading.Event()
    with judging(lambda asked: asked.grade(int(let_go.wait(30)))) as slow, Scorer(polite(slow.url)) as scorer:
        futures = [scorer.submit(f"please {number}", ROW) for number in range(20)]
        while not slow.seen:
            time.sleep(0.01)
        for future in futures:
            future.cancel()
        let_go.set()
        time.sleep(0.3)
        assert len(slow.seen) <= 8, "those that were in flight"


def test_comparisons_are_asked_in_both_orders_and_are_win_rates(server: Server) -> None:
    task = best(server.url)
    with Scorer(task, workers=1) as scorer:
        texts = ["go", "please", "please please", "go"]
        own = scorer.score(texts, [ROW] * 4)
        [[first, *others]] = group_scores(scorer, [(texts, ROW, own)])

    assert [first.parts["kinder"], *(other.parts["kinder"] for other in others)] == pytest.approx(
        [1 / 6, 2 / 3, 1, 1 / 6]
    )
    assert first.parts["count"] == 4.0 and "kinder" not in own[0].parts
    assert len(server.seen) == 6, "three different texts, both orders; equal texts are a tie"


def test_a_preference_for_the_first_text_cancels(server: Server) -> None:
    with judging(lambda asked: asked.grade("A")) as biased, Scorer(best(biased.url), workers=1) as scorer:
        texts = ["one", "two", "three"]
        [scores] = group_scores(scorer, [(texts, ROW, scorer.score(texts, [ROW] * 3))])
    assert [each.parts["kinder"] for each in scores] == [0.5, 0.5, 0.5]


def test_an_answer_without_any_comparison_abstains(server: Server) -> None:
    def answer(asked: Asked) -> str:
        return "Hm." if "odd" in asked.texts else by_politeness(asked)

    with judging(answer) as moody, Scorer(best(moody.url), workers=1) as scorer:
        texts = ["go", "please", "odd"]
        [scores] = group_scores(scorer, [(texts, ROW, scorer.score(texts, [ROW] * 3))])
    assert [each.parts.get("kinder") for each in scores] == [0.0, 1.0, None]
    assert scores[2].fault == "infrastructure" and "judge kinder" in scores[2].why


@pytest.mark.parametrize(("on_timeout", "rate"), [("abstain", None), ("fail", 0.0)])
def test_one_overlong_answer_does_not_cost_the_others_their_comparison(
    server: Server, on_timeout: Literal["abstain", "fail"], rate: float | None
) -> None:
    task = replace(best(server.url, max_chars=20), on_timeout=on_timeout)
    with Scorer(task, workers=1) as scorer:
        texts = ["go", "please", "please " * 4]
        [scores] = group_scores(scorer, [(texts, ROW, scorer.score(texts, [ROW] * 3))])
    assert [each.parts.get("kinder") for each in scores] == [0.0, 1.0, rate]
    assert scores[2].value == rate and (rate is not None or "too long for judge kinder" in scores[2].why)
    assert scores[2].fault == ("timeout" if rate is None else "")


def test_an_empty_answer_is_compared_like_any_other(server: Server) -> None:
    task = replace(best(server.url), validate=lambda text: text, on_timeout="fail")
    with Scorer(task, workers=1) as scorer:
        texts = ["", "please"]
        [scores] = group_scores(scorer, [(texts, ROW, scorer.score(texts, [ROW] * 2))])
    assert [each.parts["kinder"] for each in scores] == [0.0, 1.0]
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("count", "comparisons", "number"), [(4, None, 6), (4, 2, 4), (8, 2, 8), (8, 4, 16), (3, 2, 3), (2, 2, 1)]
)
def test_each_answer_is_compared_with_as_many_others(count: int, comparisons: int | None, number: int) -> None:
    chosen = pairs(count, comparisons)

    assert len({frozenset(pair) for pair in chosen}) == len(chosen) == number
    each = [sum(index in pair for pair in chosen) for index in range(count)]
    assert set(each) == {min(comparisons or count, count - 1)}


def test_a_scorer_that_assumes_verdicts_asks_nobody(server: Server) -> None:
    with Scorer(polite(server.url), workers=1, ask=assume_best) as scorer:
        assert scorer.score(["go"], [ROW])[0].value == 1.5
    assert not server.seen


def test_in_process_there_are_no_verdicts_and_it_is_said(server: Server) -> None:
    result = load_task(polite(server.url)).score("please", ROW)

    assert (result.value, result.fault) == (None, "infrastructure")
    assert "judge polite has to be asked: score with grpo_core.score(…) or a Scorer" in result.why


@pytest.mark.parametrize(
    ("option", "value"), [("weight", 0.25), ("scale", 5), ("shown", "answer"), ("reference", lambda row: row.gold)]
)
def test_the_identity_is_of_the_judge(option: str, value: object) -> None:
    url = "http://localhost:1/v1"

    assert load_task(polite(url)).identity != load_task(polite(url, **{option: value})).identity


@pytest.mark.parametrize(
    ("options", "is_same"),
    [
        ({"temperature": 0.7}, False),
        ({"max_tokens": 100}, False),
        ({"concurrency": 1, "timeout_s": 9.0, "max_cost": 1.0, "input_price": 1.0}, True),
        ({"api_key_env": "OTHER_KEY"}, True),
    ],
)
def test_the_identity_is_of_what_decides_a_verdict(options: dict[str, object], is_same: bool) -> None:
    url = "http://localhost:1/v1"

    one = load_task(polite(url)).identity
    assert (one == load_task(polite(url, model=options)).identity) == is_same
    assert one == load_task(polite("http://elsewhere:2/v1")).identity, "the same model at another address"


def test_tasks_with_turns_or_an_opponent_refuse_a_judge_by_name() -> None:
    task = polite("http://localhost:1/v1")

    with pytest.raises(UserError, match="'polite': judge 'polite' sees one completion; a task with turns"):
        replace(task, respond=lambda text, row, turn: None, max_turns=2)


def test_two_rewards_of_one_name_are_refused() -> None:
    judge = rubric("It is polite.", model=endpoint("http://localhost:1/v1"))
    task = polite("http://localhost:1/v1")

    with pytest.raises(UserError, match="two rewards named 'rubric'"):
        replace(task, rewards=(judge, judge))
    assert isinstance(ROW, Row)
