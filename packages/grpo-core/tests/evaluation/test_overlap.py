"""Problems that are trained on and held out at once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.evaluation.held_out import held_out_tasks
from grpo_core.training.start import train
from grpo_sdk import BoundTask, Message, Prompt, Row, Task, TaskConfig, UserError, load_task
from grpo_sdk.check.overlap import NAMED, Overlap, TrainedProblems, overlap_choices, own_overlap
from grpo_sdk.cli import main as entry
from grpo_sdk.task.spec import TaskSpec

TASK = f"{Path(__file__).parent}/programs/sized_tasks.py:plain"


def sharing(count: int) -> str:
    """A task of four held-out rows, of which so many are those of its training."""
    return f"{TASK}?lengths={','.join(map(str, [20, 21, 22, 23][:count] + [50] * (4 - count)))}"


class Problem(Row):
    text: str


class Config(TaskConfig):
    template: str = "plain"


def prompt(row: Problem, config: Config) -> Prompt:
    if config.template == "chat":
        return (Message(role="user", content=row.text),)
    return row.text if config.template == "plain" else f"{config.template}: {row.text}"


def task(
    problems: Sequence[tuple[str, str | None]], name: str = "t.one", *, ids: Sequence[int] = (),
    config: type[Config] = Config, exempt: Mapping[str, str] | None = None, **options: Any,
) -> BoundTask:  # fmt: skip
    names = list(map(str, ids)) or [f"{name}{index}" for index in range(len(problems))]
    rows = [Problem(id=own, text=text, gold=gold) for own, (text, gold) in zip(names, problems, strict=True)]
    parts = (lambda config: rows, prompt, lambda text, row: text, (lambda text: 1.0,))
    return BoundTask(
        Task("one", *parts, config=config, row=Problem, exempt=exempt or {}), name, config(**options), TaskSpec(name)
    )


def shared(trained: BoundTask, held: BoundTask) -> dict[str, str]:
    found = TrainedProblems([trained]).overlap(held, held.rows())
    assert found is not None
    return dict(found.pairs)


@pytest.mark.parametrize(("trained", "held", "is_same"), [
    (("2 + 2 =", "4"), ("2 + 2 =", "5"), True),  # two golds of one problem are still one problem
    (("2 + 2 =", "4"), ("  2  +\n2 = ", "4"), True),
    (("What is two plus two?", "4"), ("what is TWO plus two?", " 4 "), True),
    (("caf\N{LATIN SMALL LETTER E WITH ACUTE}?", None), ("cafe\N{COMBINING ACUTE ACCENT}?", None), True),
    (("a\r\nb", "1"), ("a\nb", "2"), True),
    (("if a:\n  b\nc", "1"), ("if a:\n  b\n  c", "2"), False),  # here whitespace is the problem
    (("8/8/4K3 w", "Ke7"), ("8/8/4k3 w", "Kd6"), False),  # and here case is
    (("the letter a", None), ("the letter A", None), False),
])  # fmt: skip
def test_the_same_problem(trained: tuple[str, str | None], held: tuple[str, str | None], is_same: bool) -> None:
    found = shared(task([("other", "9"), trained]), task([held]))
    assert found == ({"t.one0": "t.one1"} if is_same else {})


def test_other_templates_tasks_and_several_of_them_hide_nothing() -> None:
    problems = [("a", "1"), ("b", "2")]
    assert len(shared(task(problems), task(problems, template="Question"))) == 2
    assert len(shared(task(problems, template="chat"), task(problems))) == 2
    assert shared(task([("a", "1"), ("a", "1")]), task([("a", "1")])) == {"t.one0": "t.one0"}
    several = TrainedProblems([task([("a", None)]), task([("b", None)], "t.two")])
    held = task([("a", None), ("b", None), ("c", None)], "t.three")
    assert several.overlap(held, held.rows()) == Overlap(3, {"t.three0": "t.one0", "t.three1": "t.two0"})


def test_a_task_without_a_split_or_without_training_rows_has_nothing_to_compare() -> None:
    one = task([("the only prompt", None)], exempt={"split": "there is one prompt"})
    assert TrainedProblems([one]).overlap(one, one.rows()) is None
    assert own_overlap(one) is None

    class TestSet(Config):
        split: Literal["test"] = "test"  # type: ignore[assignment]

    assert own_overlap(task([("a", None)], config=TestSet)) is None


def test_some_are_counted_and_named() -> None:
    problems = [(f"problem {index}", None) for index in range(9)]
    held = task([*problems, ("new", None)])
    overlap = TrainedProblems([task(problems)]).overlap(held, held.rows())
    (choice,) = overlap_choices("t.one", held, overlap)
    assert choice.why.startswith("9 of 10 held-out rows are trained on (t.one0 is t.one0, ")
    assert choice.why.count(" is t.one") == NAMED
    assert str(Overlap(1, {"\x1b[31mX\r\n": "a"})).endswith(r"(\x1b[31mX\r\n is a)"), "a terminal is not controlled"
    assert overlap is not None and (overlap.as_json()["n"], len(overlap.as_json()["pairs"])) == (9, NAMED)


def test_all_are_refused_unless_training_rows_are_asked_for() -> None:
    one = task([("a", "1"), ("b", "2")], split="test")
    overlap = TrainedProblems([one]).overlap(one, one.rows())
    with pytest.raises(UserError, match=r"2 of 2 held-out rows are trained on .*config\.split.*eval\.split=train"):
        overlap_choices("t.one", one, overlap)
    asked = task([("a", "1"), ("b", "2")], split="train")
    assert len(overlap_choices("t.one", asked, overlap)) == 1
    assert overlap_choices("t.one", one, Overlap(2, {})) == overlap_choices("t.one", one, None) == []


def test_a_run_shows_and_records_it(tmp_path: Path) -> None:
    def run(spec: str, **held: Any) -> dict[str, Any]:
        small = TrainerConfig(prompts_per_step=1, num_generations=2, max_completion_length=4, max_steps=1)
        config = RunConfig(task=spec, model="tiny", device="cpu", output_dir=str(tmp_path / "runs"), trainer=small)
        made = train(config.model_copy(update={"eval": EvalConfig(at_start=False, surprisal=False, **held)}))
        return dict(made.summary["tasks"]["sized_tasks.plain"])

    assert run(sharing(1))["also_trained"] == {"n": 1, "of": 4, "pairs": {"test0": "train0"}}
    with pytest.raises(UserError, match="4 of 4 held-out rows are trained on"):
        run(sharing(4))
    assert "final" not in run(sharing(4), at_end=False), "nothing is evaluated"


def test_tasks_evaluated_beside_the_trained_ones_are_compared_too() -> None:
    trained = {"one": load_task(TASK)}
    held, said = held_out_tasks(RunConfig(task="math.echo", model="tiny"), trained, others=sharing(2))
    (one,) = held.values()
    assert one.overlap == Overlap(4, {"test0": "train0", "test1": "train1"})
    assert [choice.value.endswith("not disjoint") for choice in said if "trained on" in choice.why] == [True]


def test_the_facts_of_a_task_count_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["tasks", "show", sharing(1)]) == 0
    assert "4, of which 1 are training rows, too" in capsys.readouterr().out
    assert entry.main(["tasks", "show", sharing(0), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["also_trained"] == {"n": 0, "of": 4, "pairs": {}}
