import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from environments import SCHEMA, Session, environment, error, observation, played
from scoring_tasks import sums
from served import ask, serving
from small_games import GUESS, HEAP

from grpo_sdk import BoundTask, Score, Scorer, UserError, load_task
from grpo_sdk.data import DataError
from grpo_sdk.episodes.episode import Episode
from grpo_sdk.serve.server import TaskServer


def bound(address: str, **options: Any) -> BoundTask:
    return load_task(f"openenv.remote?url={quote(address, safe='')}", **options)


def play(task: BoundTask, texts: list[list[str]]) -> tuple[list[Episode[str]], list[Score]]:
    """Rollouts of the first row, and their scores."""
    with Scorer(task, workers=1) as scorer:
        return played(scorer, task.rows()[0], texts)


# Round trips: a task that grpo serve offers, read back.


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    with serving(sums, GUESS, HEAP) as server:
        for name in ("scoring_tasks.sums", "small_games.guess", "python.heap"):
            # Before a task of this process loads its own rows, in which Python 3.11 lets no other thread load any.
            ask(server, f"/{name}/num_tasks", {"split": "train"})
        yield server


def test_a_served_task_scores_as_it_does_here(server: TaskServer) -> None:
    here = load_task(sums, size=8)
    there = bound(f"{server.address}/scoring_tasks.sums", size=8)
    rows, others = here.rows(), there.rows()
    assert [there.prompt(row) for row in others] == [here.prompt(row) for row in rows]
    texts = [str(rows[0].gold), "nonsense", "", "\ud800", "404"]  # of which `sums` abstains
    with Scorer(here, workers=1) as ours:
        scores = ours.score(texts, rows[:5])
    for text, mine, row in zip(texts, scores, others, strict=False):
        other = there.score(text, row)
        assert (other.value, other.solved) == (mine.value, mine.solved)
        assert mine.parts.items() <= other.parts.items()
        assert not mine.abstained or server.address in other.why


def test_a_served_task_of_several_turns_is_the_same_conversation(server: TaskServer) -> None:
    plays, scores = play(load_task(GUESS), texts := [["1", "2", "3"], ["9", "8", "0"], ["x", "4", "5"]])
    other_plays, other_scores = play(bound(f"{server.address}/small_games.guess", max_turns=3), texts)
    assert [each.story for each in other_plays] == [each.story for each in plays]
    assert [score.value for score in other_scores] == [score.value for score in scores]


def test_a_served_game_is_an_environment(server: TaskServer) -> None:
    (episode,), (score,) = play(bound(f"{server.address}/python.heap", max_turns=20, size=1), [["1"] * 20])
    assert score.parts["finished"] == 1.0 and score.value in (-1.0, 0.0, 1.0) and len(episode.turns) > 2


# Environments of other people.


def counting(session: Session, text: str) -> Any:
    """Three turns; each earns its number."""
    turn = len(session.steps)
    return observation(f"turn {turn}, you said {text}", float(turn), turn == 3)


def test_rewards_of_the_steps_are_summed_or_the_last_one_counts() -> None:
    with environment(counting) as server:
        for options, value, turns in (({}, 6.0, 3), ({"reward": "last"}, 3.0, 3), ({"max_turns": 2}, 3.0, 2)):
            task = bound(server.address, size=2, **options)
            row = task.rows()[0]
            assert task.prompt(row) == f"guess {row.id.removeprefix('seed-')}"
            (episode,), (score,) = play(task, [["a", "b", "c"]])
            assert (score.value, score.parts["turns"], score.parts["finished"]) == (value, turns, float(turns == 3))
            assert episode.story.startswith("assistant: a\nuser: \nturn 1, you said a\n\nassistant: b")


def test_observations_are_messages_of_the_user_in_a_chat() -> None:
    with environment(counting) as server:
        task = bound(server.address, size=1, chat=True, instruction="Guess.")
        assert [message["role"] for message in task.prompt(task.rows()[0])] == ["system", "user"]  # type: ignore[index]
        (episode,), _ = play(task, [["a", "b", "c"]])
    roles = [message["role"] for message in episode.turns[-1].prompt]  # type: ignore[index]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("limits", [{}, {"sessions": 2}, {"most": 1}])
def test_a_server_with_few_connections_plays_episodes_again(limits: dict[str, int]) -> None:
    most = limits.pop("most", 10_000)
    with environment(counting, most=most) as server:
        task = bound(server.address, size=2, **limits)
        task.rows()
        before = server.sessions
        plays, scores = play(task, [[name, "b", "c"] for name in "abcdef"])
        assert limits or most == 1 or server.sessions - before == 6, "a rollout keeps its connection"
    assert [(score.value, score.why) for score in scores] == [(6.0, "")] * 6
    assert [each.turns[1].prompt for each in plays] == [
        f"{plays[0].turns[0].prompt}{name}\nturn 1, you said {name}\n" for name in "abcdef"
    ]


def test_an_environment_that_does_not_repeat_itself_is_not_believed() -> None:
    with environment(lambda session, text: observation(f"{session.number}", 1.0)) as server:
        _, scores = play(bound(server.address, size=1, sessions=1), [["a"] * 8, ["b"] * 8])
    assert any(score.abstained and "another way" in score.why for score in scores)


def test_rows_need_an_environment_that_uses_its_seed() -> None:
    with (
        environment(counting, lambda session, _: observation(f"{session.number}")) as server,
        pytest.raises(DataError, match="gave different observations"),
    ):
        bound(server.address, size=2).rows()


def test_splits_have_no_seed_in_common() -> None:
    with environment(counting) as server:
        options: list[dict[str, Any]] = [{"split": "train"}, {"split": "test"}, {"seed": 1}]
        train, test, more = ({row.id for row in bound(server.address, size=16, **each).rows()} for each in options)
    assert len(train) == 16 and not train & test and not train & more


def test_an_episode_without_a_reward_abstains() -> None:
    with environment(lambda session, text: observation("", None, True, abstained="the grader hangs")) as server:
        task = bound(server.address, size=1)
        score = task.score("a", task.rows()[0])
    assert score.abstained and "ended without a reward: the grader hangs" in score.why


WRONG: dict[str, tuple[Any, str]] = {
    "silent": (None, "no answer within 1.5 s"),
    "drip": ("drip", "no answer within 1.5 s"),
    "huge": ("x" * 5_000_000, "too big"),
    "no JSON": ("{", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "NaN": ('{"type": "observation", "data": {"observation": {"hint": ""}, "reward": NaN, "done": true}}', "NaN"),
    "infinite": ('{"type": "observation", "data": {"observation": {}, "reward": 1e999, "done": true}}', "no finite"),
    "text": (observation("", "1.0", True), "'reward' is no finite number"),
    "list": ({"type": "observation", "data": {"observation": [], "done": True}}, "no observation"),
    "error": (error("EXECUTION_ERROR"), "EXECUTION_ERROR: no"),
    "dies": ("close", "the environment died"),
    "no field": ({"type": "observation", "data": {"observation": {"hin": ""}, "done": False}}, "without 'hint'"),
    "long": (observation("x" * 2_000_000), "2000000 characters"),
}


def test_a_server_that_misbehaves_leaves_completions_without_a_score() -> None:
    with environment(lambda session, text: WRONG[text][0]) as server:
        task = bound(server.address, size=1, timeout_s=1.5)
        rows = task.rows() * len(WRONG)
        with Scorer(task, workers=1) as scorer:
            scores = scorer.score(list(WRONG), rows)
    for (name, (_, why)), score in zip(WRONG.items(), scores, strict=True):
        assert score.fault == "infrastructure" and why in score.why and server.address in score.why, (name, score.why)


def test_completions_are_not_played_one_after_another() -> None:
    with environment(counting, step_s=0.5) as server:
        task = bound(server.address, size=1, max_turns=1)
        with Scorer(task, workers=1) as scorer:
            scores = scorer.score([str(number) for number in range(32)], task.rows() * 32)
    assert [score.value for score in scores] == [1.0] * 32 and server.most_at_once > 16


def test_a_server_that_has_gone_is_named_at_once() -> None:
    with environment(counting) as server:
        task = bound(server.address, size=1)
        rows = task.rows() * 40
    with Scorer(task, workers=1) as scorer:
        scores = scorer.score(["a"] * 40, rows)
    assert all(score.fault == "infrastructure" and server.address in score.why for score in scores)
    with pytest.raises(DataError, match=r"Is the environment running\?"):
        bound(server.address, size=1).rows()


def test_the_token_comes_from_the_environment_and_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVIRONMENT_TOKEN", "secret-1234")
    with environment(counting, token="secret-1234") as server:
        task = bound(server.address, size=1, api_key_env="ENVIRONMENT_TOKEN", max_turns=1)
        assert task.score("a", task.rows()[0]).value == 1.0
        assert "secret" not in task.spec
        with pytest.raises(UserError, match="HTTP 401") as refusal:
            bound(server.address, size=1).rows()
        monkeypatch.setenv("ENVIRONMENT_TOKEN", "secret-5678")
        with pytest.raises(UserError, match="HTTP 401") as other:
            bound(server.address, size=1, api_key_env="ENVIRONMENT_TOKEN").rows()
        assert "5678" not in f"{refusal.value}{other.value}"
        with pytest.raises(UserError, match="not set"):
            bound(server.address, size=1, api_key_env="NO_SUCH_VARIABLE").rows()


@pytest.mark.parametrize(("options", "message"), [
    ({"url": ""}, "start one, e.g. grpo serve"),
    ({"url": "localhost:8000"}, "is no address"),
    ({"url": "http://user:secret@host"}, "holds a user"),
    ({"action": "gues"}, "Did you mean 'guess'"),
    ({"observation": "hind"}, "Did you mean 'hint'"),
    ({"constants": "tol:x"}, "constants='tol' is no field"),
    ({"rows": "tasks"}, "lists no tasks"),
    ({"path": "rows.jsonl"}, "reads no file"),
])  # fmt: skip
def test_mistakes_are_named(options: dict[str, str], message: str) -> None:
    with environment(counting) as server, pytest.raises(UserError, match=message) as refusal:
        load_task("openenv.remote", **{"url": server.address, "size": 1, **options}).rows()
    assert "secret" not in str(refusal.value)


TEXTS = {"tool": {"type": "string"}, "text": {"type": "string"}}
TWO_ACTIONS = {**SCHEMA, "action": {"properties": TEXTS, "required": ["tool", "text"]}}
TWO_OBSERVATIONS = {**SCHEMA, "observation": {"properties": TEXTS}}


@pytest.mark.parametrize(("schema", "options", "message"), [
    (TWO_ACTIONS, {}, "action=tool or action=text"),
    (TWO_ACTIONS, {"action": "text"}, "needs tool, too"),
    (TWO_OBSERVATIONS, {}, "observation=tool or observation=text"),
])  # fmt: skip
def test_fields_that_are_not_clear_are_asked_for(schema: Any, options: dict[str, str], message: str) -> None:
    with environment(counting, schema=schema) as server, pytest.raises(UserError, match=message):
        bound(server.address, size=1, **options).rows()


def test_fields_are_chosen_by_options() -> None:
    with environment(counting, schema=TWO_ACTIONS | {"observation": TWO_OBSERVATIONS["observation"]}) as server:
        (row,) = bound(server.address, size=1, action="text", constants="tool:guess", observation="*").rows()
    assert json.loads(row.observation) == {"hint": f"guess {row.id.removeprefix('seed-')}"}  # type: ignore[attr-defined]


def test_an_interruption_is_obeyed_while_a_server_is_silent() -> None:
    asked = threading.Event()
    with environment(lambda session, text: asked.set()) as server:  # type: ignore[func-returns-value]
        program = Path(__file__).with_name("programs") / "score_forever.py"
        command = [sys.executable, program, f"openenv.remote?url={server.address}&size=1&timeout_s=600"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
