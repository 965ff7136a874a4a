import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core import train
from grpo_core.config import RunConfig
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.rollouts.thinking import think_tokens
from grpo_core.tracking.rollout_lines import BatchOrigin, GroupOrigin, difficulty_of, rollout_lines
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import DamagedFileWarning, UserError
from grpo_sdk.records import jsonl
from grpo_sdk.records.jsonl import open_log, read_jsonl, read_last
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

SPEC = "math.echo?size=2"
SOLVED = Score(1.0, {"exact": 1.0}, valid=True, solved=True)
WRONG = Score(0.2, {"exact": 0.0}, valid=True, why="exact 0 of 1")
LOST = Score(None, why="RuntimeError: no", fault="reward")


def rollout(group: int, score: Score, text: str = "ab", finish: Any = "stop") -> Rollout:
    completion = Completion((5, 6), (-0.5, -0.25), text, finish, 0)
    return Rollout(SPEC, Row(id=f"r{group}", gold="ab"), group, "", (Turn((1,), completion),), score)


def origin(
    rollouts: list[Rollout], pass_rate: float | None = None, logs_tokens: bool = False, **changed: Any
) -> BatchOrigin:
    trainer, tracking = {"mask_truncated_completions": True}, {"token_logprobs": logs_tokens}
    return BatchOrigin(
        **{
            "config": RunConfig.model_validate({"trainer": trainer, "tracking": tracking}),
            "groups": [GroupOrigin(f"math.echo/r{group}", f"Say {group}", pass_rate) for group in range(3)],
            "rewards": [math.nan if r.score.value is None else r.score.value - 0.5 for r in rollouts],
            "think_tokens": [0] * len(rollouts),
            "generate_s": 1.5,
            "conditions": {},
            "decode": lambda ids: [100 * str(each) for each in ids],
            **changed,
        }
    )


def run_with(folder: Path, *lines: bytes) -> Path:
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    (folder / "logs" / "rollouts.jsonl").write_bytes(b"".join(lines))
    return folder


def solved_line(step: int) -> bytes:
    (line,) = rollout_lines(step, [rollout(0, SOLVED)], {SPEC: ""}, origin([rollout(0, SOLVED)]))
    return line


def written(folder: Path, rollouts: list[Rollout], step: int = 1, **changed: Any) -> list[RolloutRecord]:
    lines = rollout_lines(step, rollouts, {SPEC: "1f"}, origin(rollouts, **changed))
    return list(read_rollouts(run_with(folder, *lines)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    first, second, third = written(
        tmp_path, [rollout(0, SOLVED), rollout(0, WRONG, finish="length"), rollout(1, LOST)], step=7
    )
    assert (first.step, first.task, first.identity, first.group, first.row_id) == (7, SPEC, "1f", 0, "r0")
    assert (first.prompt_id, first.prompt, first.prompt_text) == ("math.echo/r0", "Say 0", "Say 0")
    assert (first.text, first.tokens, first.finish_reason, first.status) == ("ab", 2, "stop", "scored")
    assert (first.score, first.reward) == (SOLVED, 0.5), "with what the trainer adds, not the score's value"
    assert first.logprob == -0.75, "-0.5 - 0.25"
    assert (first.generate_s, first.token_logprobs, first.token_surprisals) == (1.5, None, None)
    assert (first.included, second.included, third.included) == (True, False, False), "masked; abstained"
    # One of two scored completions of group 0 solved; group 1 has none that was scored.
    rated = [(each.pass_rate, each.difficulty) for each in (first, second, third)]
    assert rated == [(0.5, "normal"), (0.5, "normal"), (None, None)]
    assert (third.score, third.reward) == (LOST, None)
    (record,) = written(tmp_path, [rollout(0, SOLVED)], pass_rate=0.1)
    assert (record.pass_rate, record.difficulty) == (0.1, "hard"), "a curriculum's stands above the group's"
    assert [difficulty_of(rate, (0.2, 0.8)) for rate in (0.2, 0.8, 0.81)] == ["normal", "normal", "easy"]


def test_log_probs_of_tokens_are_written_where_asked_for(tmp_path: Path) -> None:
    (record,) = written(tmp_path, [rollout(0, SOLVED)], logs_tokens=True)
    assert record.token_logprobs == (-0.5, -0.25)
    assert record.token_surprisals == (0.5, 0.25)
    assert record.token_texts == (64 * "5", 64 * "6"), "of each token, bounded"


def test_chat_prompts_and_lone_surrogates_survive(tmp_path: Path) -> None:
    chat = ({"role": "user", "content": "hé"}, {"role": "assistant", "content": "<think>"})
    groups = [GroupOrigin("p", chat, None)]
    (record,) = written(tmp_path, [rollout(0, WRONG, text="a\ud800b")], groups=groups)
    assert record.prompt == chat
    assert record.prompt_text == "user: hé\nassistant: <think>"
    assert record.text == "a?b"


def test_filters_take_steps_and_tasks_with_or_without_options(tmp_path: Path) -> None:
    lines = [solved_line(step) for step in (1, 2)]
    run = run_with(tmp_path, *lines, lines[0][:40])
    assert [record.step for record in read_rollouts(run)] == [1, 2], "an unfinished last line is passed over"
    assert [record.step for record in read_rollouts(run, step=2)] == [2]
    assert len(list(read_rollouts(run, task="math.echo"))) == len(list(read_rollouts(run, task=SPEC))) == 2
    assert not list(read_rollouts(run, task="math.ech"))


def test_a_log_of_an_older_or_newer_version_is_read(tmp_path: Path) -> None:
    newer = orjson.loads(solved_line(1)) | {"added_later": 1}
    del newer["prompt"]
    newer["score"]["added_later"] = 2
    (record,) = read_rollouts(run_with(tmp_path, orjson.dumps(newer) + b"\n"))
    assert record.score == SOLVED and record.prompt is None and record.prompt_text == ""


@pytest.mark.parametrize(("line", "said"), [
    (b"{not json\n", ""),
    (b"[1]\n", "list in place of an object"),
    (b'{"step": 1, "task": "t"}\n', "group: Field required"),
    (b"[" * 100_000 + b"\n", ""),
    (b"x" * 500_000 + b"\n", "longer than 200000 bytes"),
    (b"\0" * 4096 + b"\n", ""),
])  # fmt: skip
def test_a_damaged_line_is_named_and_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, said: str
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 200_000)
    first, last = map(solved_line, (1, 2))
    run = run_with(tmp_path, first, line, last)
    with pytest.warns(DamagedFileWarning) as warned:
        assert [record.step for record in read_rollouts(run)] == [1, 2]
    (told,) = [str(each.message) for each in warned]
    assert "rollouts.jsonl:2: " in told and said in told


def test_of_many_damaged_lines_some_are_named_and_a_long_last_line_is_read(tmp_path: Path) -> None:
    path, long = tmp_path / "log.jsonl", {"text": "x" * (3 * jsonl.TAIL_BYTES)}
    path.write_bytes(b"!\n" * 50 + orjson.dumps(long) + b"\n")
    problems: list[str] = []
    assert list(read_jsonl(path, problems)) == [long] and read_last(path) == long
    assert "log.jsonl:20:" in problems[-2] and "30 more" in problems[-1]


def test_what_is_no_run_is_said_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        read_rollouts(tmp_path / "nothing")
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(UserError, match="holds no completions"):
        read_rollouts(tmp_path)


@settings(max_examples=40)  # writes a file each time
@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(-9, 9)), max_size=4), st.binary(max_size=9))
def test_the_last_line_and_what_is_appended_ignore_an_unfinished_one(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, int]], rest: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "last_lines.jsonl"
    unfinished = rest.replace(b"\n", b"")
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in objects) + unfinished)
    assert read_last(path) == (objects[-1] if objects else {})
    with open_log(path) as log:
        log.write(b'{"a":1}\n')
    assert list(read_jsonl(path)) == [*objects, {"a": 1}]


def test_a_real_run_writes_every_field(tmp_path: Path) -> None:
    sizes = {"model": "tiny", "max_steps": 2, "prompts_per_step": 2, "num_generations": 4, "max_completion_length": 8}
    more = {"soft_overlong_buffer": 7, "mask_truncated_completions": True, "token_logprobs": True, "at_start": False}
    curriculum = {"curriculum": {"enabled": True, "ema_alpha": 0.5}, "at_end": False, "progress": False}
    result = train("math.arithmetic?size=8", output_dir=str(tmp_path), **sizes, **more, **curriculum)
    records = result.rollouts()
    assert [(each.step, each.group) for each in records] == [(s, g) for s in (1, 2) for g in (0, 1) for _ in range(4)]
    for each in records:
        assert each.token_logprobs is not None and each.logprob is not None and each.reward is not None
        assert each.score.value is not None and each.generate_s is not None
        assert len(each.token_logprobs) == each.tokens == len(each.token_texts or ())
        assert each.reward == pytest.approx(each.score.value + min(0, (1 - each.tokens) / 7)), "8 - 7 tokens are free"
        assert each.included is (each.finish_reason == "stop")
        assert str(each.row["a"]) in each.prompt_text
        group = [other.score.solved for other in records if (other.step, other.group) == (each.step, each.group)]
        # Each row is drawn once here, so its average is 0.5 · 0.5 + 0.5 · its group's share.
        assert each.pass_rate == 0.25 + 0.5 * sum(group) / 4


def test_thinking_is_counted_in_the_tokens_before_its_tag() -> None:
    pieces = ("so ", "it is", " 4", "</th", "ink>", " 4")

    class Words:
        def decode(self, ids: tuple[int, ...], skip_special_tokens: bool) -> str:
            return "".join(pieces[each] for each in ids)

    def tokens(*ids: int) -> int | None:
        return think_tokens(Words(), Words().decode(ids, True), ids)

    assert tokens(0, 1, 2, 3, 4, 5) == 3
    assert tokens(3, 4, 5) == 0, "an empty thought"
    assert tokens(0, 1) is None, "no tag"
