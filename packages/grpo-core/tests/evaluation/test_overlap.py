"""Problems that are trained on and held out at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

from grpo_core import Row, Task, TaskConfig, UserError, reward
from grpo_core.cli import main as entry
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.evaluation.held_out import held_out_tasks
from grpo_core.evaluation.overlap import NAMED, Overlap, TrainedProblems, overlap_choices, own_overlap
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Message, Prompt
from grpo_core.task.spec import TaskSpec
from grpo_core.training.trainer import train


class Problem(Row):
    text: str


class Config(TaskConfig):
    template: str = "plain"


@reward()
def right(answer):
    return float(bool(answer))


def task(problems: Iterable[tuple[str, str | None]], name: str = "t.one", **options: Any) -> BoundTask:
    rows = [Problem(id=f"{name}{index}", text=text, gold=gold) for index, (text, gold) in enumerate(problems)]

    def prompt(row: Problem, config: Config) -> Prompt:
        if config.template == "chat":
            return (Message(role="user", content=row.text),)
        return row.text if config.template == "plain" else f"{config.template}: {row.text}"

    exempt = options.pop("exempt", {})
    made = Task("one", lambda config: rows, prompt, lambda text, row: text, (right,), config=Config, row=Problem,
                exempt=exempt)  # fmt: skip
    return BoundTask(made, name, Config(**options), TaskSpec(name))


def shared(trained: BoundTask, held: BoundTask) -> dict[str, str]:
    found = TrainedProblems([trained]).overlap(held, held.rows())
    assert found is not None
    return dict(found.pairs)


@pytest.mark.parametrize(
    ("trained", "held", "is_same"),
    [
        (("2 + 2 =", "4"), ("2 + 2 =", "4"), True),
        (("2 + 2 =", "4"), ("2 + 2 =", "5"), True),  # two golds of one problem are still one problem
        (("2 + 2 =", "4"), ("  2  +\n2 = ", "4"), True),
        (("What is two plus two?", "4"), ("what is TWO plus two?", " 4 "), True),
        (("caf\N{LATIN SMALL LETTER E WITH ACUTE}?", None), ("cafe\N{COMBINING ACUTE ACCENT}?", None), True),
        (("a\r\nb", None), ("a\nb", None), True),
        (("if a:\n  b\nc", "1"), ("if a:\n  b\n  c", "2"), False),  # here whitespace is the problem
        (("8/8/4K3 w", "Ke7"), ("8/8/4k3 w", "Kd6"), False),  # and here case is
        (("the letter a", None), ("the letter A", None), False),
        (("2 + 3 =", "4"), ("2 + 2 =", "4"), False),
    ],
)
def test_the_same_problem(trained: tuple[str, str | None], held: tuple[str, str | None], is_same: bool) -> None:
    found = shared(task([("other", "9"), trained]), task([held]))
    assert found == ({"t.one0": "t.one1"} if is_same else {})


def test_another_template_hides_nothing() -> None:
    problems = [("a", "1"), ("b", "2")]
    assert len(shared(task(problems), task(problems, template="Question"))) == 2
    assert len(shared(task(problems, template="chat"), task(problems))) == 2


def test_another_task_with_the_same_prompts() -> None:
    assert shared(task([("a", "1")]), task([("a", "1"), ("b", "1")], "t.two")) == {"t.two0": "t.one0"}


def test_a_prompt_that_many_problems_share_does_not_name_one() -> None:
    def guess(numbers: range) -> BoundTask:
        rows = [Problem(id=f"{number}", text=str(number)) for number in numbers]
        made = Task("guess", lambda config: rows, lambda row: "Guess: ", lambda text, row: text, (right,),
                    config=Config, row=Problem)  # fmt: skip
        return BoundTask(made, "t.guess", Config(), TaskSpec("t.guess"))

    assert shared(guess(range(5)), guess(range(5, 9))) == {}
    assert shared(guess(range(5)), guess(range(4, 9))) == {"4": "4"}


def test_a_problem_that_is_trained_on_twice_is_found() -> None:
    assert shared(task([("a", "1"), ("a", "1")]), task([("a", "1")])) == {"t.one0": "t.one0"}


def test_several_trained_tasks() -> None:
    problems = TrainedProblems([task([("a", None)]), task([("b", None)], "t.two")])
    held = task([("a", None), ("b", None), ("c", None)], "t.three")
    found = problems.overlap(held, held.rows())
    assert found == Overlap(3, {"t.three0": "t.one0", "t.three1": "t.two0"})


def test_a_task_without_a_split_is_not_compared_with_itself() -> None:
    one = task([("the only prompt", None)], exempt={"split": "there is one prompt"})
    assert TrainedProblems([one]).overlap(one, one.rows()) is None
    assert own_overlap(one) is None


def test_a_task_without_training_rows_has_nothing_to_compare() -> None:
    class TestSet(Config):
        split: Literal["test"] = "test"  # type: ignore[assignment]

    rows = [Problem(id="1", text="a")]
    made = Task("one", lambda config: rows, lambda row: row.text, lambda text, row: text, (right,), config=TestSet,
                row=Problem)  # fmt: skip
    assert own_overlap(BoundTask(made, "t.one", TestSet(), TaskSpec("t.one"))) is None


def test_some_are_counted_and_named() -> None:
    problems = [(f"problem {index}", None) for index in range(9)]
    held = task([*problems, ("new", None)])
    overlap = TrainedProblems([task(problems)]).overlap(held, held.rows())
    (choice,) = overlap_choices("t.one", held, overlap)
    assert choice.why.startswith("9 of 10 held-out rows are trained on (t.one0 is t.one0, ")
    assert choice.why.count(" is t.one") == NAMED
    assert overlap is not None and (overlap.as_json()["n"], len(overlap.as_json()["pairs"])) == (9, NAMED)


def test_all_are_refused_unless_training_rows_are_asked_for() -> None:
    one = task([("a", "1"), ("b", "2")], split="test")
    overlap = TrainedProblems([one]).overlap(one, one.rows())
    with pytest.raises(UserError, match=r"2 of 2 held-out rows are trained on .*config\.split.*eval\.split=train"):
        overlap_choices("t.one", one, overlap)
    asked = task([("a", "1"), ("b", "2")], split="train")
    assert len(overlap_choices("t.one", asked, overlap)) == 1
    assert overlap_choices("t.one", one, Overlap(2, {})) == overlap_choices("t.one", one, None) == []


FILE = """
from grpo_core import Row, Task, TaskConfig, reward

class Problem(Row):
    text: str

class Config(TaskConfig):
    shared: int = 0

def load(config) -> list[Problem]:
    own = [f"{config.split} {number}" for number in range(4)]
    texts = [f"shared {number}" for number in range(config.shared)] + own[config.shared:]
    return [Problem(id=f"{config.split}{number}", text=text) for number, text in enumerate(texts)]

@reward()
def right(answer):
    return 1.0

one = Task("one", load, lambda row: row.text, lambda text, row: text, (right,), config=Config, default_model="tiny")
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "tasks.py").write_text(FILE)
    return f"{tmp_path}/tasks.py:one"


def test_a_run_shows_and_records_it(spec: str, tmp_path: Path) -> None:
    def run(spec: str, **held: Any) -> dict[str, Any]:
        config = RunConfig(
            task=spec, model="tiny", device="cpu", output_dir=str(tmp_path / "runs"),
            trainer=TrainerConfig(prompts_per_step=1, num_generations=2, max_completion_length=4, max_steps=1),
            eval=EvalConfig(at_start=False, **held),
        )  # fmt: skip
        (found,) = train(config).summary["tasks"].values()
        return dict(found)

    assert run(f"{spec}?shared=1")["also_trained"] == {"n": 1, "of": 4, "pairs": {"test0": "train0"}}
    assert run(spec)["also_trained"] == {"n": 0, "of": 4, "pairs": {}}
    with pytest.raises(UserError, match="4 of 4 held-out rows are trained on"):
        run(f"{spec}?shared=4")
    assert run(f"{spec}?shared=4", split="train")["also_trained"]["n"] == 4
    assert "final" not in run(f"{spec}?shared=4", at_end=False), "nothing is evaluated"


def test_tasks_evaluated_beside_the_trained_ones_are_compared_too(spec: str) -> None:
    config = RunConfig(task="math.echo", model="tiny")
    from grpo_core.plugins.tasks import load_task

    trained = {"one": load_task(f"{spec}?shared=2")}
    held, said = held_out_tasks(config, trained, others=f"{spec}?shared=3")
    (one,) = held.values()
    assert one.overlap == Overlap(4, {"test0": "train0", "test1": "train1"})
    assert [choice.value.endswith("not disjoint") for choice in said if "trained on" in choice.why] == [True]


def test_the_facts_of_a_task_count_it(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["tasks", "show", f"{spec}?shared=1"]) == 0
    assert "4, of which 1 are training rows, too" in capsys.readouterr().out
    assert entry.main(["tasks", "show", spec, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["also_trained"] == {"n": 0, "of": 4, "pairs": {}}


def test_ids_that_would_control_a_terminal_are_escaped() -> None:
    assert str(Overlap(1, {"\x1b[31mX\r\n": "a"})) == r"1 of 1 held-out rows are trained on (\x1b[31mX\r\n is a)"
