import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from local_servers import Handler, listening
from served import serving

from grpo_sdk import BoundTask, Scorer, UserError, load_task
from grpo_sdk.data import DataError
from grpo_tasks_gym.nemo_gym.client import response_of
from grpo_tasks_gym.nemo_gym.records import messages_of

LINE = {"responses_create_params": {"input": [{"role": "user", "content": "2 + 2 ="}]}, "expected": "4"}

Reply = tuple[int, Any, Mapping[str, str]]
Handle = Callable[[str, dict[str, Any], Mapping[str, str]], Reply]
"""Path, body and headers of a request -> status, content and headers of the answer."""


@contextmanager
def resources(handle: Handle, mode: str = "stateless") -> Iterator[str]:
    """The address of a resources server."""

    class Resources(Handler):
        def do_GET(self) -> None:
            self.answer(200, mode if self.path == "/reverify_mode" else "nothing", {})

        def do_POST(self) -> None:
            self.answer(*handle(self.path, self.body(), self.headers))

        def answer(self, status: int, content: Any, headers: Mapping[str, str]) -> None:
            self.reply(status, content if isinstance(content, bytes) else json.dumps(content).encode(), **headers)

    with listening(Resources) as address:
        yield address


def text_of(body: dict[str, Any]) -> str:
    (message,) = body["response"]["output"]
    (part,) = message["content"]
    assert (message["type"], message["role"], part["type"]) == ("message", "assistant", "output_text")
    return str(part["text"])


def by_equality(path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Reply:
    assert path == "/verify"
    reward = float(text_of(body) == body["expected"])
    return 200, {**body, "reward": reward, "reward_components": {"equal": reward, "length": 2.5}}, {}


def bound(address: str, folder: Path, *lines: Any, **options: Any) -> BoundTask:
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines or [LINE]))
    path = str(folder / "{split}.jsonl")
    return load_task(f"nemo_gym.rows?path={quote(path, safe='')}&verify={quote(address, safe='')}", **options)


def test_rewards_and_their_components_are_the_servers(tmp_path: Path) -> None:
    with resources(by_equality) as address:
        task = bound(f"{address}/verify", tmp_path, LINE, {**LINE, "expected": "5"}, LINE)
        first, second = task.rows()
        assert task.prompt(first) == ({"role": "user", "content": "2 + 2 ="},)
        right, wrong = task.score("4", first), task.score("4", second)
    assert (right.value, right.solved, right.parts) == (1.0, True, {"earned": 1.0, "equal": 1.0, "length": 2.5})
    assert (wrong.value, wrong.solved) == (0.0, False)


def test_rows_of_a_served_task_score_as_it_does_here(tmp_path: Path) -> None:
    here = load_task("math.arithmetic", size=4)
    rows = here.rows()
    prompts = [{"responses_create_params": {"input": str(here.prompt(row))}} for row in rows]
    lines = [{**prompt, "row": row.model_dump_json()} for prompt, row in zip(prompts, rows, strict=True)]
    texts = [str(rows[0].gold), "nonsense", "", "\ud800"]
    with serving("math.arithmetic") as server:
        task = bound(f"{server.address}/math.arithmetic", tmp_path, *lines, chat=False)
        for text, row, other_row in zip(texts, rows, task.rows(), strict=True):
            mine, other = here.score(text, row), task.score(text, other_row)
            assert (other.value, other.solved) == (mine.value, mine.solved)
            assert mine.parts.items() <= other.parts.items()


@pytest.mark.parametrize(("mode", "session", "begins"), [
    ("stateless", "auto", False),
    ("unknown", "auto", True),
    ("unknown", "never", False),
    ("stateless", "always", True),
])  # fmt: skip
def test_a_server_with_sessions_gets_its_cookie_back(tmp_path: Path, mode: str, session: str, begins: bool) -> None:
    seen: list[str] = []

    def handle(path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        seen.append(path)
        if path == "/seed_session":
            assert body["expected"] == "4"
            return 200, {}, {"Set-Cookie": f"session={len(seen)}; Path=/; HttpOnly"}
        assert headers.get("Cookie") == ("session=1" if begins else None)
        return 200, {"reward": 1}, {}

    with resources(handle, mode) as address:
        task = bound(address, tmp_path, session=session)
        assert task.score("4", task.rows()[0]).value == 1.0
    assert seen == ["/seed_session"] * begins + ["/verify"]


WRONG: dict[str, tuple[tuple[int, Any], str]] = {
    "error": ((500, {"detail": "judge\nfailed"}), 'HTTP 500: {"detail": "judge\\nfailed"}'),
    "no reward": ((200, {"score": 1.0}), "a reply without a reward"),
    "large": ((200, {"reward": 1e300}), "'reward' is no finite number"),
    "huge": ((200, b" " * 5_000_000), "a reply of more than"),
    "deep": ((200, b"[" * 200_000), "a reply without a reward"),
    "masked": ((200, {"reward": 0.0, "mask_sample": True, "failure_reason": "timeout"}), "not verified: timeout"),
    "instance": ((200, {"reward": 0.0, "instance_config": {"mask_sample": True}}), "not verified"),
    "failed": ((200, {"reward": 0.0, "_ng_failure_class": "judge_failed"}), "not verified: judge_failed"),
    "parts": ((200, {"reward": 0.0, "reward_components": {"a": None}}), "reward_components"),
    "silent": ((200, None), "no answer within 2 s"),
}


def test_a_server_that_misbehaves_leaves_completions_without_a_score(tmp_path: Path) -> None:
    is_over = threading.Event()

    def handle(path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        name = text_of(body)
        if name == "silent":
            is_over.wait(30)
        return (*WRONG[name][0], {})

    with resources(handle) as address:
        task = bound(address, tmp_path, timeout_s=2)
        with Scorer(task, workers=1) as scorer:
            scores = scorer.score(list(WRONG), task.rows() * len(WRONG))
        is_over.set()
    for (name, (_, why)), score in zip(WRONG.items(), scores, strict=True):
        assert score.fault == "infrastructure" and why in score.why and address in score.why, (name, score.why)


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    answers: Iterator[Reply] = iter([(429, {}, {"Retry-After": "0"}), (503, {}, {}), (200, {"reward": 0.5}, {})])
    with resources(lambda path, body, headers: next(answers)) as address:
        task = bound(address, tmp_path)
        assert task.score("4", task.rows()[0]).value == 0.5


def test_completions_are_not_verified_one_after_another(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def handle(path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        together.wait(60)
        return 200, {"reward": 1.0}, {}

    with resources(handle) as address:
        task = bound(address, tmp_path)
        with Scorer(task, workers=1) as scorer:
            scores = scorer.score(["4"] * 8, task.rows() * 8)
    assert [score.value for score in scores] == [1.0] * 8


def test_a_dead_server_is_not_waited_for_by_each_completion(tmp_path: Path) -> None:
    with resources(by_equality) as address:
        task = bound(address, tmp_path, concurrency=4)
        rows = task.rows() * 40
    with Scorer(task, workers=1) as scorer:
        scores = scorer.score(["4"] * 40, rows)
    assert all(score.fault == "infrastructure" and address in score.why for score in scores)
    assert sum("not tried" in score.why for score in scores) > 20


def test_a_refused_token_ends_the_run_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFIER_TOKEN", "secret-1234")

    def handle(path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        token = headers.get("Authorization", "")
        return (200, {"reward": 1.0}, {}) if token == "Bearer secret-1234" else (401, {"you sent": token}, {})

    with resources(handle) as address:
        task = bound(address, tmp_path, api_key_env="VERIFIER_TOKEN")
        assert task.score("4", task.rows()[0]).value == 1.0
        monkeypatch.setenv("VERIFIER_TOKEN", "secret-5678")
        with Scorer(task, workers=1) as scorer, pytest.raises(UserError, match="HTTP 401") as refusal:
            scorer.score(["4"], task.rows())
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(("params", "message"), [
    ({"input": "x", "tools": [{"name": "search"}]}, "tools: search; rows with tools cannot be used"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "'function_call'; only messages"),
    ({"input": [{"role": "tool", "content": "x"}]}, "role is 'tool'"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "holds 'input_image'; only text"),
    ({"input": "x" * (1 << 21)}, "more than 1048576 characters"),
    ([], "is an object with 'input'"),
])  # fmt: skip
def test_rows_that_are_more_than_text_are_refused_by_name(tmp_path: Path, params: Any, message: str) -> None:
    task = bound("http://127.0.0.1:9", tmp_path, {"responses_create_params": params})
    with pytest.raises(DataError, match=r"train.jsonl:1: ") as refusal:
        task.rows()
    assert message in str(refusal.value)


def test_messages_are_those_of_the_responses_api() -> None:
    blocks = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    request = {
        "instructions": "Be brief.",
        "input": [{"role": "developer", "content": "x"}, {"type": "message", "role": "user", "content": blocks}],
    }
    expected = [("system", "Be brief."), ("system", "x"), ("user", "ab")]
    assert [(each["role"], each["content"]) for each in messages_of(request)] == expected


@pytest.mark.parametrize(("options", "message"), [
    ({"verify": ""}, "verify=http://localhost:8000"),
    ({"verify": "http://u:secret@host"}, "holds a user"),
    ({"path": "no.jsonl"}, "no file"),
])  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, options: dict[str, str], message: str) -> None:
    task = {"path": str(tmp_path / "train.jsonl"), "verify": "http://127.0.0.1:9", **options}
    (tmp_path / "train.jsonl").write_text(json.dumps(LINE) + "\n")
    with pytest.raises(UserError, match=message) as refusal:
        load_task("nemo_gym.rows", **task).rows()
    assert "secret" not in str(refusal.value)


@pytest.mark.network
@pytest.mark.peers
def test_a_response_is_one_of_openai(tmp_path: Path) -> None:
    # NeMo-Gym 0.7.0 subclasses this model of the version that it pins, and refuses what does not fit it.
    code = (
        "import json, sys; from openai.types.responses import Response; Response.model_validate(json.load(sys.stdin))"
    )
    python = ("uv", "run", "--no-project", "--isolated", "--python", "3.11", "--with", "openai==2.7.2", "python")
    subprocess.run([*python, "-c", code], input=json.dumps(response_of("4", {})), text=True, check=True, cwd=tmp_path)
