import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from remote_tasks import TOKEN_VARIABLE, WAIT_S, Server, several, single

from grpo_sdk import Row, Score, Scorer, UserError, load_task
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.player import Player, play
from grpo_sdk.errors import InfrastructureError
from grpo_sdk.scoring.abstention import reason_head
from grpo_sdk.task.remote import read_moves, write_moves
from grpo_sdk.task.task import Task

ROW = Row(id="r0")


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-1234")
    Server.most_at_once = Server.closed = 0


FAILS = replace(single, on_timeout="fail")
Scored = Callable[[Task, str], Score]


def in_this_process(task: Task, text: str) -> Score:
    return load_task(task).score(text, ROW)


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    with Scorer(single, workers=1) as one, Scorer(FAILS, workers=1) as other:
        yield {single.on_timeout: one, FAILS.on_timeout: other}


@pytest.fixture
def scorer(scorers: dict[str, Scorer]) -> Scorer:
    return scorers[single.on_timeout]


@pytest.fixture(params=["in workers", "in this process"])
def scored(request: pytest.FixtureRequest, scorers: dict[str, Scorer]) -> Scored:
    if request.param == "in this process":
        return in_this_process
    return lambda task, text: scorers[task.on_timeout].score([text], [ROW])[0]


def test_validator_and_rewards_get_the_reply_and_its_parts_are_recorded(scored: Scored) -> None:
    score = scored(single, "three more words")
    assert (score.value, score.valid) == (1.5, True)
    assert score.parts["words"] == 3.0 and score.parts["length"] == 3.0
    assert scored(single, "").why == "invalid: no words"


@pytest.mark.parametrize(("text", "fault", "why"), [
    ("down", "infrastructure", "http://server: connection refused"),
    ("late", "timeout", "http://server: no answer within 1 s"),
    ("bug", "reward", "KeyError"),
])  # fmt: skip
def test_what_is_no_statement_about_the_completion_abstains(scored: Scored, text: str, fault: str, why: str) -> None:
    for task in (single, FAILS):
        score = scored(task, text)
        assert score.abstained and score.fault == fault and why in score.why


def test_what_the_user_has_to_change_ends_the_run(scored: Scored) -> None:
    with pytest.raises(UserError, match="refuses the token"):
        scored(single, "locked")


def test_completions_are_asked_about_at_the_same_time_by_the_process_with_the_token(scorer: Scorer) -> None:
    scorer.warm()
    started = time.monotonic()
    scores = scorer.score(["two words"] * 32, [ROW] * 32)
    assert Server.most_at_once == 32 and time.monotonic() - started < 16 * WAIT_S
    assert {(score.value, score.parts["authorized"], score.parts["leaked"]) for score in scores} == {(1.0, 1.0, 0.0)}


def test_a_count_of_reasons_names_the_server() -> None:
    why = in_this_process(single, "down").why
    assert reason_head(why) == reason_head(f"task single: {why}") == "remote: http://server: connection refused"


def test_a_closed_scorer_waits_for_no_cancelled_completion_and_closes_the_connection() -> None:
    with Scorer(single, workers=1) as scorer:
        assert scorer.submit("down", ROW).result().abstained  # the connection is open
        future = scorer.submit("hang", ROW)
        assert future.cancel()
    assert Server.closed == 1
    with pytest.raises(InfrastructureError, match="closed"):
        scorer.submit("word", ROW)


def test_turns_are_played_by_the_server_and_all_of_them_are_judged() -> None:
    task = load_task(several)
    assert task.has_turns and task.max_turns == 4
    answers = iter(["one two", "three", "stop"])
    with Scorer(task, workers=1) as scorer:
        episode = Episode[str](task, ROW, SampleKey(0, 0, "r0", 0), task.prompt(ROW))
        play([(Player(scorer), episode)], lambda asked: iter([(0, Reply(text := next(answers), text))]))
        score = Player(scorer).score(episode)[""].result()
    assert episode.state.moves == ("one two", 1, "three", 3, "stop")
    said = [("assistant", "one two"), ("user", " 1 "), ("assistant", "three"), ("user", " 3 "), ("assistant", "stop")]
    assert [(each["role"], each["content"]) for each in episode.messages] == said
    assert score.parts["length"] == 4.0 and score.parts["turns"] == 5.0


def test_a_turn_that_fails_leaves_the_rollout_unscored() -> None:
    task = load_task(several)
    with Scorer(task, workers=1) as scorer:
        state = scorer.next_turn(["down"], ROW).result()
        assert state.fault == "infrastructure" and "http://server" in state.why
        with pytest.raises(UserError):
            scorer.next_turn(["locked"], ROW).result()
    assert task.next_turn(ROW, ["one"]).prompt == " 1 "


@pytest.mark.parametrize(
    "text", ['{"moves": [true]}', '{"moves": []}', "[1]", "x", '{"moves": ["1", 2.5]}', "[" * 100_000]
)
def test_moves_survive_as_text_and_any_other_text_is_one_completion(text: str) -> None:
    moves = ("a\ud800", 3, text)
    assert read_moves(write_moves(moves)) == moves
    assert read_moves(text) == (text,)


def test_a_server_plays_the_whole_task_or_nothing_of_it_and_is_in_its_identity() -> None:
    with pytest.raises(UserError, match="remote= excludes"):
        replace(single, respond=lambda text, row, turn: None)
    other = replace(single, remote=lambda config: Server())
    assert load_task(single).identity != load_task(other).identity
