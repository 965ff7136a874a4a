"""A replay says what a changed reward would have done to a run: verdicts, means, signs of advantages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from grpo_core.config import RunConfig, ScoringConfig, TrainerConfig
from grpo_core.evaluation.replay import Replay, replay
from grpo_core.evaluation.rescoring import NEVER_ASKED, NEVER_SCORED, NO_PREDICTIONS, NO_SCORED_TEXT
from grpo_sdk import Score, load_task
from grpo_sdk.cli.main import main
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.game import GameStart, write_transcript

TASKS = Path(__file__).parents[1] / "support" / "replayed_tasks.py"
BEFORE, AFTER = f"{TASKS}:before", f"{TASKS}:after"
SCORING = ScoringConfig(workers=1)

GROUPS: Sequence[tuple[int, int, int, tuple[str, ...]]] = [
    # step, group, the row's number, completions
    (1, 0, 1, ("1", "2", "9")),  # rewards 1 0 0, then with `near` 1 1 0
    (1, 1, 3, ("x", "8", "9")),  # 0 0 0, invalid and wrong under both
    (2, 0, 2, ("1", "3", "1")),  # 0 0 0, then 1 1 1
]


def record(step: int, group: int, number: int, text: str, **fields: Any) -> dict[str, Any]:
    row = {"id": f"r{number}", "gold": str(number), "difficulty": None, "number": number}
    score = load_task(BEFORE).score(text, load_task(BEFORE).row_from_json(json.dumps(row)))
    value = score.value
    return {
        "step": step, "task": BEFORE, "identity": load_task(BEFORE).identity, "group": group, "row": row, "text": text,
        "tokens": len(text), "finish_reason": "stop", "status": "scored", "reward": value,
        "score": {name: getattr(score, name) for name in score.__slots__}, **fields,
    }  # fmt: skip


def written(folder: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text("scoring:\n  workers: 1\n")
    (folder / "logs" / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    texts = [record(step, group, number, text) for step, group, number, texts in GROUPS for text in texts]
    return written(tmp_path / "run_1", texts)


def replayed(run: Path, trainer: TrainerConfig | None = None, **options: Any) -> Replay:
    return replay(run, RunConfig(scoring=SCORING, trainer=trainer or TrainerConfig()), **options)


def test_an_unchanged_task_changes_nothing(run: Path) -> None:
    result = replayed(run)
    assert (result.completions, result.baseline) == (9, "group_mean")
    assert not result.changes and not result.advantages.differ
    ingredients = {BEFORE: {**load_task(BEFORE).ingredients, "code": "0123456789abcdef"}}
    same = replayed(run, ingredients=ingredients).tasks[BEFORE]
    assert same.is_same and same.changed_ingredients == "", "the identity is the same"
    after = replayed(run, task=AFTER, ingredients=ingredients).tasks[BEFORE]
    assert "its code (" in after.changed_ingredients and "0123456789abcdef then" in after.changed_ingredients


def test_a_changed_reward_flips_verdicts_and_signs(run: Path) -> None:
    result = replayed(run, task=AFTER)
    task = result.tasks[BEFORE]
    assert not task.is_same
    assert task.identities_then == {load_task(BEFORE).identity}
    assert task.flips == {("unsolved", "solved"): 4}
    assert (task.changed, task.means.then, task.means.now) == (4, 1.0, 5.0)
    assert [(change.step, change.text, change.new.value) for change in result.changes] == [
        (1, "2", 1.0), (2, "1", 1.0), (2, "3", 1.0), (2, "1", 1.0),
    ]  # fmt: skip
    assert {step: means.now for step, means in result.steps.items()} == {1: 2.0, 2: 3.0}
    # Step 1: the second completion's advantage goes from -1/3 to +1/3. All others keep their sign: a group of equal
    # rewards has none.
    assert (result.advantages.n, result.advantages.differ, result.advantages.reversed) == (9, 1, 1)
    assert (result.advantages.groups, result.advantages.equal_then, result.advantages.equal_now) == (3, 2.0, 2.0)


def test_group_rewards_compare_the_completions_of_a_prompt(run: Path) -> None:
    result = replayed(run, task=f"{TASKS}:compared")
    # Step 2: "1", "3", "1" differ from one, both and one of the two others; half of each share is added.
    assert result.steps[2].now == pytest.approx(0.25 + 0.5 + 0.25)
    # Step 1: "1", "2", "9" all differ, 1 + 3 · 0.5; of "x", "8", "9" the two that are valid, 2 · 0.5.
    assert result.steps[1].now == pytest.approx(2.5 + 1.0)


def test_steps_and_the_number_of_changes_are_chosen(run: Path) -> None:
    assert replayed(run, task=AFTER, step=2).completions == 3
    assert len(replayed(run, task=AFTER, limit=2).changes) == 2
    with pytest.raises(UserError, match="no completions of step 3"):
        replayed(run, step=3)
    for other in ("math.arithmetic", "games.tictactoe"):
        with pytest.raises(DataError, match="a row that the run stored is none of this task"):
            replayed(run, task=other)


def test_the_runs_baseline_is_used_where_the_log_has_its_inputs(run: Path) -> None:
    running = TrainerConfig(baseline="ema")
    assert replayed(run, running).baseline == "ema"
    assert replayed(run, running, step=2).baseline.startswith("group_mean, since the run's ema has running values")
    assert "the run's remax needs greedy_rewards" in replayed(run, TrainerConfig(baseline="remax")).baseline


def test_a_baseline_of_every_reward_function_sees_a_new_penalty(tmp_path: Path) -> None:
    records = [record(1, 0, 2, "2"), record(1, 0, 2, "02")]
    result = replayed(written(tmp_path / "run_1", records), TrainerConfig(baseline="gdpo"), task=f"{TASKS}:penalised")
    assert result.baseline == "gdpo"
    assert (result.advantages.n, result.advantages.differ) == (2, 2)  # 0 and 0, then + and −


def test_the_length_penalty_of_the_run_is_kept(tmp_path: Path) -> None:
    # Equal scores, but the second completion was penalised for its length: that decides the signs, then and now.
    records = [record(1, 0, 1, "1"), record(1, 0, 1, "1", reward=0.5)]
    result = replayed(written(tmp_path / "run_1", records), task=AFTER)
    assert (result.advantages.equal_then, result.advantages.equal_now, result.advantages.differ) == (0.0, 0.0, 0)


def test_what_crashes_now_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table folds what is looked for
    run = written(tmp_path / "run_1", [record(1, 0, 1, "666"), record(1, 0, 1, "1"), record(1, 0, 1, "666")])
    assert main(["replay", str(run), "--task", AFTER]) == 3
    out, err = capsys.readouterr()
    assert "2 × unsolved → abstained" in out and "not scored (reward)" in out
    assert "2 of 3 completions could not be scored now" in err


def stored(name: str, row: Mapping[str, Any], text: str, score: Score, **fields: Any) -> dict[str, Any]:
    """A line of the log, of a task that is not `before`."""
    return record(1, 0, 1, "1") | {
        "task": f"{TASKS}:{name}", "row": dict(row), "text": text, "score": score.as_json(), "reward": score.value,
        "status": "abstained" if score.abstained else "scored", **fields,
    }  # fmt: skip


SECRET = {"id": "5", "gold": None, "difficulty": None, "secret": 5}


def test_the_last_completion_of_a_conversation_is_scored_again(tmp_path: Path) -> None:
    task = load_task(f"{TASKS}:guess")
    row = task.row_from_json(json.dumps(SECRET))
    lines = [
        stored("guess", SECRET, f"9\n1: lower:{last}", task.score(last, row), turns=2, scored_text=last)
        for last in ("5", "3", "8")
    ]
    run = written(tmp_path / "run_1", lines)
    result = replayed(run, task=f"{TASKS}:guess_after")
    assert result.tasks[f"{TASKS}:guess"].flips == {("unsolved", "solved"): 1}
    assert [(change.text, change.new.value) for change in result.changes] == [("9\n1: lower:3", 1.0)]


def test_the_moves_of_a_game_are_scored_by_todays_rules(tmp_path: Path) -> None:
    task = load_task(f"{TASKS}:heap")
    row = GameStart(id="e", seed=0, seat="")
    moves = ("3", "2")  # of a heap of five: the second player takes the last one and wins
    lines = [
        stored("heap", row.model_dump(), "a story", task.score(write_transcript(role, moves), row),
               group=group, role=role, turns=1, scored_text=write_transcript(role, moves))
        for group, role in enumerate(("first", "second"))
    ]  # fmt: skip
    run = written(tmp_path / "run_1", lines)
    result = replayed(run, task=f"{TASKS}:heap_after")
    (changed,) = result.tasks.values()
    assert changed.flips == {("unsolved", "solved"): 1, ("solved", "unsolved"): 1}
    assert (changed.means.then, changed.means.now) == (0.0, 0.0)  # what one wins, the other loses
    # Illegal moves, which a reward of today may read otherwise, are part of the transcript as they were written.
    assert {change.text for change in result.changes} == {"a story"}


def test_the_opponents_answers_are_those_of_the_run(tmp_path: Path) -> None:
    task = load_task(f"{TASKS}:opposed_strictly")
    row = task.rows()[0]

    def line(text: str, predictions: Sequence[str] | None) -> dict[str, Any]:
        score = task.score(text, row, predictions or ())
        return stored("opposed_strictly", row.model_dump(), text, score, predictions=predictions)

    run = written(tmp_path / "run_1", [line("2", ["2", "3"]), line("4", ["1", "1"]), line("3", None), line("x", None)])
    (changed,) = replayed(run, task=f"{TASKS}:opposed_after").tasks.values()
    # "2" fooled one of two and does not unite them; "4" does both; "3" was invalid, so that nobody was asked.
    assert (changed.completions, changed.means.then, changed.means.now) == (3, 1.5, 1.0)
    assert changed.skipped == {NEVER_ASKED: 1}


def test_what_the_log_does_not_hold_is_counted_with_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = load_task(f"{TASKS}:opposed").rows()[0].model_dump()
    right, failed = Score(1.0, {"right": 1.0}, True, True), Score(None, why="respond() crashed", fault="reward")
    lines = [
        stored("guess", SECRET, "9\n1: lower:5", right, turns=2),  # as an earlier version wrote it
        stored("guess", SECRET, "9", failed, turns=2),
        stored("opposed", number, "2", right),
        stored("opposed", number, "2", failed),
        record(1, 0, 1, "1"),
    ]
    run = written(tmp_path / "run_1", lines)
    tasks = replayed(run).tasks
    assert tasks[f"{TASKS}:guess"].skipped == {NO_SCORED_TEXT: 1, NEVER_SCORED: 1}
    assert tasks[f"{TASKS}:opposed"].skipped == {NO_PREDICTIONS: 1, NEVER_SCORED: 1}
    assert tasks[BEFORE].completions == 1
    with (run / "logs" / "rollouts.jsonl").open("ab") as log:
        log.write(b'{"step":')
    assert main(["replay", str(run)]) == 0
    captured = capsys.readouterr()
    assert "its last line is cut: it is left out" in " ".join(captured.err.split())
    assert f"1 not scored again: {NO_SCORED_TEXT}" in captured.out
    nothing = written(tmp_path / "run_2", lines[:1])
    assert main(["replay", str(nothing)]) == 0, "nothing to score is no failure"


def test_the_command_prints_tables_or_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(run), "--task", AFTER]) == 0
    out = capsys.readouterr().out
    assert "9 completions   mean reward 0.1111 → 0.5556   4 changed   4 verdicts flipped" in out
    assert "4 × unsolved → solved" in out and "advantages with another sign: 11.1% (1 of 9; 1 reversed)" in out
    assert main(["replay", str(run), "--task", AFTER, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["advantages"]["share"] == pytest.approx(1 / 9)
    assert facts["tasks"][BEFORE]["same_identity"] is False and len(facts["changes"]) == 4
