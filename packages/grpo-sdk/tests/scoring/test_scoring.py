from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import scoring_tasks
import small_games
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_clusters import EXECUTORS, executing

from grpo_sdk import Row, Score, Scorer, load_task
from grpo_sdk.errors import AbstentionLimitError, DataError, InfrastructureError, UserError
from grpo_sdk.plugins.task_files import MAX_BYTES
from grpo_sdk.scoring import abstention
from grpo_sdk.scoring.abstention import check_abstentions, is_out_of_time, out_of_time_reason
from grpo_sdk.scoring.scorer import MAX_TEXT_CHARS, shared_scorer

FILE = Path(scoring_tasks.__file__)
SPEC = f"{FILE}:sums"
SUMS = load_task(SPEC)
ROWS = SUMS.rows()  # 0 + 0, 1 + 1, … 4 + 4


@pytest.fixture(autouse=True, scope="module", params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[str]:
    with executing(request.param, __name__, {"Scorer": Scorer}):
        yield request.param


@pytest.fixture(scope="module")
def scorer(executor: str) -> Iterator[Scorer]:
    with Scorer(SUMS, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def bounded(executor: str) -> Iterator[Scorer]:
    """Of a task that calls what takes too long wrong."""
    with Scorer(f"{FILE}:bounded", workers=1, timeout_s=0.3, max_abstain_share=0.0) as made:
        yield made


@pytest.fixture(scope="module")
def guess(executor: str) -> Iterator[Scorer]:
    with Scorer(f"{FILE}:guess", workers=1, timeout_s=0.5) as made:
        yield made


# Equal to scoring in process


def in_process(texts: list[str], rows: list[Row]) -> list[Score]:
    """Scores of this process as a worker would give them: other tests of the suite have brought torch here."""
    torch = sys.modules.pop("torch", None)
    try:
        return [SUMS.score(text, row) for text, row in zip(texts, rows, strict=True)]
    finally:
        if torch is not None:
            sys.modules["torch"] = torch


def test_scores_are_in_order_and_equal_to_those_in_process(scorer: Scorer) -> None:
    texts = ["4", "5", " 4 ", "four", "", "4\n"] * 10
    scores = scorer.score(texts, [ROWS[2]] * 60)
    assert scores == in_process(texts, [ROWS[2]] * 60)
    # 2 + 2 = 4, weight 2; the other part is a penalty and torch is not there.
    assert scores[0].parts == {"right": 1.0, "without_torch": 0.0}
    assert (scores[0].valid, scores[0].solved, scores[3].valid, scores[1].solved) == (True, True, False, False)
    assert [score.value for score in scores[:6]] == [2.0, 0.0, 2.0, 0.0, 0.0, 2.0]
    assert scores[3].why == "invalid: not a number: 'four'"


# Pieces, because among all characters lone surrogates would hardly ever be drawn.
SURROGATES = st.text(st.characters(categories=["Cs"]), max_size=3)
ANY_TEXT = st.lists(st.text(max_size=8) | SURROGATES, max_size=5).map("".join)


@settings(max_examples=12, deadline=None)
@given(texts=st.lists(ANY_TEXT | st.integers(-9, 9).map(str), max_size=20), data=st.data())
def test_any_text_scores_as_in_process(scorer: Scorer, texts: list[str], data: st.DataObject) -> None:
    rows = [data.draw(st.sampled_from(ROWS)) for _ in texts]
    assert scorer.score(texts, rows) == in_process(texts, rows)


def test_scores_say_how_long_each_part_took(scorer: Scorer) -> None:
    score, again = scorer.score(["4", "4"], [ROWS[2]] * 2)
    assert score.seconds.keys() == {"validate", "right", "without_torch"}
    assert all(0 <= seconds < 20 for seconds in score.seconds.values())
    assert score == again, "equal scores are equal, however long they took"
    assert "seconds" not in score.as_json()
    assert scorer.out_of_time(ROWS[2], "too long").result().seconds == {}


# Abstention


FAULTS = {
    "404": ("reward", r"reward right\(\) raised LookupError \(scoring_tasks.py:45\): no such number: 404"),
    "500": ("reward", "task scoring_tasks.sums: its worker exited with status 1, twice"),
    "501": ("reward", "task scoring_tasks.sums: its worker was killed by SIGSEGV, twice"),
    "502": ("reward", r"reward right\(\) raised MemoryError .*memory limit is scoring.memory_mib"),
    "spin": ("timeout", "task scoring_tasks.sums: no answer within 0.5 s"),
}


def test_failing_rewards_abstain_and_harm_nobody_else() -> None:
    texts = ["4", "3", *FAULTS, "4", "x"]
    with Scorer(SUMS, workers=2, timeout_s=0.5, memory_mib=512) as scorer:
        scorer.warm()
        scores = scorer.score(texts, [ROWS[2]] * len(texts))
        assert (scorer.stats.scored, scorer.stats.abstained) == (4, {"reward": 4, "timeout": 1})
    assert [score.value for score in scores] == [2.0, 0.0, *[None] * 5, 2.0, 0.0]
    for score, (fault, why) in zip(scores[2:7], FAULTS.values(), strict=True):
        assert (score.fault, score.abstained, score.solved) == (fault, True, False) and re.match(why, score.why)


def test_poison_is_quarantined_and_reasons_are_counted() -> None:
    with Scorer(SUMS, workers=1, timeout_s=0.3) as scorer:
        scores = scorer.score(["spin"] * 8 + ["404", "x"], [ROWS[0]] * 10)
        stats = scorer.stats
    assert [score.fault for score in scores] == ["timeout"] * 8 + ["reward", ""]
    assert scores[7].why.endswith(": quarantined, as for the same input before: no answer within 0.3 s")
    assert stats.reasons == {
        "timeout: no answer within 0.3 s": 8,
        "reward: reward right() raised LookupError (scoring_tasks.py:45)": 1,
    }
    assert (stats.scored, stats.quarantined, stats.restarts) == (1, 7, 1)


def test_a_task_can_call_what_takes_too_long_wrong(bounded: Scorer) -> None:
    texts = ["4", "spin", "7" * (MAX_TEXT_CHARS + 1), "spin", "x"]
    scores, stats = bounded.score(texts, [ROWS[2]] * 5), bounded.stats
    # As an empty completion that the validator refused: -0.5, and nothing for the rewards that do not need an answer.
    assert [score.value for score in scores] == [2.1, -0.5, -0.5, -0.5, -0.5]
    assert [(score.valid, score.solved, score.fault) for score in scores[1:4]] == [(False, False, "")] * 3
    assert scores[1].parts == {"right": 0.0, "decimal": 0.0, "without_torch": 0.0}
    assert scores[1].why == scores[3].why == "task scoring_tasks.bounded: no answer within 0.3 s"
    assert [is_out_of_time(score) for score in scores] == [False, True, False, True, False]
    assert scores[2].why.startswith("task scoring_tasks.bounded: text too long to be scored: 1048577 characters")
    assert (stats.scored, stats.abstained, stats.quarantined) == (5, {}, 1)


@pytest.mark.parametrize(("text", "why"), [("404", "LookupError"), ("500", "exited with status 1, twice")])
def test_a_crash_abstains_whatever_a_time_out_means(bounded: Scorer, text: str, why: str) -> None:
    score = bounded.submit(text, ROWS[2]).result()
    assert (score.value, score.fault) == (None, "reward") and why in score.why


def test_a_text_too_long_to_score_abstains(scorer: Scorer) -> None:
    padding = " " * (MAX_TEXT_CHARS - 1)
    longest, too_long = scorer.score([f"{padding}4", f"{padding} 4"], [ROWS[2]] * 2)
    assert longest.value == 2.0
    assert (too_long.value, too_long.fault) == (None, "infrastructure")
    assert "text too long to be scored: 1048577 characters; the limit is 1048576" in too_long.why


def test_a_task_that_workers_cannot_load_abstains_as_infrastructure(tmp_path: Path) -> None:
    words, file = tmp_path / "words.txt", tmp_path / "moved_tasks.py"
    words.touch()
    file.write_text(f"{FILE.read_text()}\nopen({str(words)!r}).close()\n")
    task = load_task(f"{file}:sums")
    words.unlink()
    with Scorer(task, workers=1) as scorer:
        (score,) = scorer.score(["4"], [ROWS[2]])
        with pytest.raises(InfrastructureError, match=r"moved_tasks.py: FileNotFoundError: .*words.txt"):
            scorer.warm()
    assert (score.value, score.fault) == (None, "infrastructure")
    assert score.why.startswith("task moved_tasks.sums: ")
    assert re.search(r"no worker for grpo_sdk\.scoring\.\w+:\w+: UserError", score.why)


def test_what_waits_for_a_closed_scorer_abstains_and_nothing_else_is_taken() -> None:
    scorer = Scorer(SUMS, workers=1)
    pending = scorer.submit("spin", ROWS[0])
    scorer.close()
    assert pending.result() == Score(None, why="task scoring_tasks.sums: the pool was closed", fault="infrastructure")
    with pytest.raises(InfrastructureError, match=r"'score-scoring_tasks\.sums' workers is closed"):
        scorer.score(["4"], [ROWS[0]])


# Files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(FILE, tmp_path / "edited_tasks.py"))


def revalue(file: Path) -> None:
    file.write_text(file.read_text().replace("weight=2.0", "weight=0.5"))


def test_new_workers_score_with_the_file_that_the_task_was_loaded_from(file: Path) -> None:
    with Scorer(load_task(f"{file}:sums"), workers=1, timeout_s=1.0) as scorer:
        assert scorer.score(["4"], [ROWS[2]])[0].value == 2.0
        for change, row in ((revalue, ROWS[0]), (Path.unlink, ROWS[1])):
            change(file)
            killed, after = scorer.score(["spin", "4"], [row, ROWS[2]])
            assert killed.fault == "timeout", "its worker was replaced"
            assert after.value == 2.0


def test_a_file_that_was_edited_is_loaded_anew(file: Path) -> None:
    first = load_task(f"{file}:sums")
    assert load_task(f"{file}:sums").task is first.task
    revalue(file)
    second = load_task(f"{file}:sums")
    assert first.identity != second.identity
    row = second.rows()[2]
    assert [shared_scorer(task).score(["4"], [row])[0].value for task in (first, second)] == [2.0, 0.5]
    file.write_text("1 / 0")
    with pytest.raises(UserError, match=r"edited_tasks.py: ZeroDivisionError: .* \(edited_tasks.py:1\)"):
        load_task(f"{file}:sums")


def test_a_file_that_is_too_large_is_named(file: Path) -> None:
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UserError, match=r"edited_tasks.py has more than 8 MiB"):
        load_task(f"{file}:sums")


# Bad input


class Other(Row):
    question: str


class Loose(Row):
    value: object


@pytest.mark.parametrize(("ask", "error", "message"), [
    (lambda scorer: scorer.submit(None, ROWS[0]), UserError, "a completion to score must be text, not None"),
    (lambda scorer: scorer.score(["1"], [{"id": "0"}]), UserError, "a row must be a Row, not a dict"),
    (lambda scorer: scorer.score(["4"], [Loose(id="7", value=object())]), DataError, "row '7' is no plain JSON"),
    (lambda scorer: scorer.score("abc", [*"abc"]), UserError, "a list of completions, not a text: 'abc'"),
    (lambda scorer: scorer.score(["4", "5"], [ROWS[0]]), UserError, "2 texts, 1 rows; give one of each"),
    (lambda scorer: scorer.score(["4"], [ROWS[0]], predictions=[[], []]), UserError, "2 lists of predictions"),
    (lambda scorer: Scorer("math.no_such_task"), LookupError, "no task"),
    (lambda scorer: Scorer(SUMS, timeout_s=0), UserError, "timeout_s=0 must be a number of seconds above 0"),
    (lambda scorer: Scorer(SUMS, max_abstain_share=1.5), UserError, "between 0 and 1"),
])  # fmt: skip
def test_what_cannot_be_scored_is_refused(scorer, ask, error, message):
    with pytest.raises(error, match=message):
        ask(scorer)


def test_a_row_of_another_task_abstains_as_infrastructure(scorer: Scorer) -> None:
    (score,) = scorer.score(["4"], [Other(id="1", question="?")])
    assert (score.value, score.fault) == (None, "infrastructure")
    assert "a row does not fit Sum: a: Field required" in score.why


# Opponents


def test_predictions_reach_the_reward_and_must_be_given(guess: Scorer) -> None:
    scores = guess.score(["4", "4", "x"], [ROWS[2]] * 3, predictions=[["4", "5"], ["4", "4"], []])
    assert [score.value for score in scores] == [0.5, 1.0, 0.0]
    assert guess.submit("4", ROWS[2], ["5", "4", "3", "4"]).result().value == 0.5
    with pytest.raises(UserError, match="has an opponent: give the predictions"):
        guess.score(["4"], [ROWS[2]])


def test_opponent_prompts_are_made_where_they_can_be_killed(guess: Scorer) -> None:
    texts = ["4", "x", "600", "5", " " * (MAX_TEXT_CHARS + 1)]
    assert guess.opponent_prompts(texts, ROWS) == ["what is 4 \udcff?", None, None, "what is 5 \udcff?", None]
    assert guess.opponent_prompts(["4"], [Other(id="1", question="?")]) == [None]


def test_a_completion_that_hangs_where_the_opponent_is_asked_is_wrong_too() -> None:
    with Scorer(f"{FILE}:bounded_guess", workers=1, timeout_s=0.3) as scorer:
        assert scorer.opponent_prompts(["600"], ROWS[:1]) == [None]
        (score,) = scorer.score(["600"], ROWS[:1], predictions=[()])
    assert (score.value, score.valid, score.fault) == (0.0, False, "")


# Callers


def test_coroutines_and_copies_score_too(scorer: Scorer) -> None:
    texts = ["4" if index % 2 else "5" for index in range(30)]

    async def main() -> list[list[Score]]:
        return await asyncio.gather(*(scorer.ascore(texts, [ROWS[2]] * 30) for _ in range(4)))

    for scores in asyncio.run(main()):
        assert [score.value for score in scores] == [0.0, 2.0] * 15
    with pickle.loads(pickle.dumps(scorer)) as copy:
        assert repr(copy) == repr(scorer) == f"Scorer({SPEC!r}, workers=2, timeout_s=20)"
        assert copy.score(["4"], [ROWS[2]])[0].value == 2.0


def _score_in_child(scorer: Scorer, answers: multiprocessing.Queue[object]) -> None:
    answers.put((scorer.score(["4", "5"], [ROWS[2]] * 2)[0].value, scorer.stats.scored))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_scores_are_counted_harms_nobody(scorer: Scorer) -> None:
    """As torch's DataLoader forks."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    scorer.score(["4"] * 3, [ROWS[2]] * 3)
    with scorer._counts._lock:  # as another thread may hold it at the moment of the fork
        child = context.Process(target=_score_in_child, args=(scorer, answers), daemon=True)
        child.start()
    assert answers.get(timeout=30) == (2.0, 2)  # counts are each process's own
    child.join()
    answers.close()


# The limit of abstentions


def score(value: float | None, why: str = "", fault: str = "") -> Score:
    return Score(value, why=why, fault=fault)  # type: ignore[arg-type] # literals of the table


def test_the_limit_is_on_the_share_above_it() -> None:
    batch = [score(1.0)] * 8 + [score(None, "no answer within 5 s", "timeout")] * 2
    check_abstentions(batch, "math.x", 0.2)  # 2 of 10 is not more than 0.2
    check_abstentions([], "math.x", 0.0)
    check_abstentions([score(0.0)], "math.x", 0.0)
    with pytest.raises(AbstentionLimitError):
        check_abstentions(batch, "math.x", 0.19)
    with pytest.raises(UserError, match="must be a share between 0 and 1"):
        check_abstentions([], "math.x", 20)


def test_the_limit_names_task_count_share_and_reasons() -> None:
    crash = "reward right() raised ValueError (x.py:3): {}"
    batch = [
        *[score(None, crash.format(index), "reward") for index in range(3)],
        *[score(None, "task math.x: no answer within 5 s", "timeout")] * 2,
        *[score(1.0)] * 3,
    ]
    with pytest.raises(AbstentionLimitError) as caught:
        check_abstentions(batch, "math.x", 0.25)
    reasons = "3 × reward: reward right() raised ValueError (x.py:3); 2 × timeout: no answer within 5 s. The first: rew"
    for said in ("task 'math.x': 5 of 8 ", "(62%; the limit is 25%)", reasons, "grpo explain math.x --completion TEXT"):
        assert said in str(caught.value)
    assert caught.value.exit_code == 3


HEAP = load_task(f"{small_games.__file__}:HEAP")
JUDGED = "judge nice: m at http://localhost/v1: max_cost=1 would be exceeded (0.9 spent): more"
MOVED = "task games.heap: the next turn raised ValueError (rules.py:1): no move"


@pytest.mark.parametrize(("why", "fault", "task", "message"), [
    (JUDGED, "infrastructure", None, r"1 × infrastructure: judge nice: m at .*: max_cost=1 would be"),
    ("group reward rank() raised TypeError (x.py:3): no order", "reward", None, r"grpo check math\.x -k group"),
    # No completion by itself shows what happens between the turns of a game.
    (MOVED, "reward", HEAP, r"\. The first: .* \(rules\.py:1\): no move\.$"),
])  # fmt: skip
def test_the_limit_says_what_to_do_about_its_first(why: str, fault: str, task: object, message: str) -> None:
    with pytest.raises(AbstentionLimitError, match=message):
        check_abstentions([score(None, why, fault)], "math.x", 0.5, *([task] if task else []))  # type: ignore[arg-type]


def test_a_scorer_may_hold_its_batches_to_a_limit() -> None:
    with Scorer(SUMS, workers=1, max_abstain_share=0.5) as scorer:
        assert len(scorer.score(["4", "404"], [ROWS[2]] * 2)) == 2
        with pytest.raises(AbstentionLimitError, match=r"task 'scoring_tasks\.sums': 2 of 3.*grpo explain \S*py:sums"):
            scorer.score(["4", "404", "404"], [ROWS[2]] * 3)


@pytest.mark.parametrize(("value", "why", "fault", "is_late"), [
    (0.0, out_of_time_reason("a.b", 0.3), "", True),
    (None, "reward f() ran out of time: no more", "timeout", True),
    (0.0, "invalid: no answer within <answer> tags", "", False),
    (0.0, f"invalid: {out_of_time_reason('a.b', 5)}", "", False),
    (None, "task a.b: no answer within 5 s (tried 2 times)", "infrastructure", False),  # a judge's server
])  # fmt: skip
def test_only_the_scorer_says_that_time_ran_out(value: float | None, why: str, fault: str, is_late: bool) -> None:
    assert is_out_of_time(score(value, why, fault)) is is_late


def test_the_number_of_distinct_reasons_is_bounded() -> None:
    counts: Counter[str] = Counter()
    abstention.count_reasons((score(None, f"reason {index}", "reward") for index in range(500)), counts)
    assert len(counts) == abstention.MAX_REASONS + 1
    assert counts[abstention.OTHER_REASONS] == 500 - abstention.MAX_REASONS
    assert counts.total() == 500
