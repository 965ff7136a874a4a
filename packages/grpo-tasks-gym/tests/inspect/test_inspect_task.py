"""Tasks of inspect-ai itself; tests/test_foreign_tasks.py runs this in an environment that has it."""

from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

from grpo_sdk import BoundTask, Scorer, UserError, load_task
from grpo_sdk.check import check_task

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what inspect-ai uses

EVALS = Path(__file__).with_name("evals.py")


def bound(name: str, **options: str) -> BoundTask:
    return load_task("inspect.task", file=EVALS, name=name, **{"split_by": "none", **options})


def test_the_prompt_is_what_the_solvers_show() -> None:
    task = bound("sums")
    assert task.prompt(task.rows()[2]) == (
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Q: what is 2+1?\nA:"},
    )
    (row,) = bound("few_shot").rows()
    assert [message["role"] for message in row.prompt] == ["system", "user", "assistant", "user"]
    assert (row.id, row.gold) == ("four", "6")
    choices = bound("capitals").rows()[1]
    assert "A) Rome\nB) Paris\nC) Oslo" in choices.prompt[0]["content"] and choices.gold == "ANSWER: B"


def test_settings_are_taken_over_or_named() -> None:
    task = bound("sums")
    assert (task.task.stop, task.task.max_completion_length) == (("\n",), 64)
    assert task.conditions["not used"] == "3 epochs with their reducer, temperature=0.5"
    assert task.task.version.startswith("inspect-ai ")


def test_several_scorers_are_several_rewards() -> None:
    task = bound("sums")
    row = task.rows()[2]
    assert task.score("3", row).parts == {"match": 1.0, "includes": 1.0} and task.score("3", row).solved
    assert task.score("it is 3, or 4", row).parts == {"match": 0.0, "includes": 1.0}
    names = [spec.name for spec in bound("manifold").rewards]
    assert names == ["several_exact", "several_short", "match", "match_2"]
    task = bound("keyed")
    assert task.score("no", task.rows()[0]).parts == {"named_left": 1.0, "named_right": 0.5}


def test_a_choice_is_scored_where_it_was_shown() -> None:
    task = bound("shuffled")
    (row,) = task.rows()
    shown = row.prompt[0]["content"]
    (letter,) = [line[0] for line in shown.splitlines() if line.endswith(") 4444")]
    assert letter != "D", "the shuffle moves it"
    assert task.score(f"ANSWER: {letter}", row).solved and not task.score("ANSWER: D", row).solved


def test_values_are_those_of_value_to_float_and_nothing_else_is_a_verdict() -> None:
    task = bound("moods")
    values = {"yes": 1.0, "no": 0.0, "half": 0.5, "blank": 0.0, "true": 1.0, "third": 0.3}
    reasons = {
        "raise": "RuntimeError (evals.py:",
        "none": "scorer moody gave no score",
        "unscored": "left it unscored: grader_failed",
        "big": "7 is above its maximum 1; state it: ?maximum=7",
        "odd": "gave 'fine', which is no number",
        "dict": "gave a, where its first score had one value",
    }
    texts = [*values, *reasons]
    with Scorer(task, workers=1) as scorer:
        scores = scorer.score(texts, [task.rows()[1]] * len(texts))
    by_text = dict(zip(texts, scores, strict=True))
    assert {text: by_text[text].value for text in values} == pytest.approx(values)
    for text, reason in reasons.items():
        assert by_text[text].value is None and reason in by_text[text].why, text


def test_a_scorer_that_fails_on_what_is_wrong_is_not_tried_with_it_when_rows_are_read() -> None:
    assert [row.gold for row in bound("fatal").rows()] == ["yes"]


def test_a_target_that_does_not_solve_its_row_is_named_by_the_check() -> None:
    (found,) = check_task(bound("misprinted"), checks=["gold"]).results
    assert (found.status, found.example.partition(":")[0]) == ("failed", "row 'r1'")  # the others keep their golds
    (found,) = check_task(bound("hopeless"), checks=["gold"]).results
    assert found.status == "exempt" and "earns the maximum" in found.text and "digits 0" in found.text
    assert not bound("sums").task.exempt


def test_a_scorer_that_asks_the_trained_model_abstains() -> None:
    task = bound("moods")
    score = task.score("ask", task.rows()[0])
    assert score.value is None and "a scorer asks the model by get_model(), which is not answered" in score.why


@pytest.mark.parametrize(("name", "message"), [
    ("critical", "its solver, generate, self_critique, asks the model by get_model()"),
    ("twice", "calls generate more than once; a task must need one completion alone"),
    ("boxed", "it needs a sandbox (docker)"),
    ("silent", "its solver, system_message, never calls generate"),
    ("unscored", "it has no scorer"),
    ("graded", "a scorer asks the model by get_model(), which is not answered here; name another model for it"),
    ("fickle", "its solvers show another prompt each time"),
    ("sum", "has no task 'sum'. Did you mean 'sums'? It has: sums, capitals"),
])  # fmt: skip
def test_what_one_completion_cannot_answer_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        bound(name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_arguments_are_those_of_the_task() -> None:
    assert len(bound("sums", args="count:4").rows()) == 4
    with pytest.raises(UserError, match=r"takes no argument 'cuont'\. Did you mean 'count'"):
        bound("sums", args="cuont:4")


def test_a_file_with_one_task_needs_no_name_and_one_with_several_does(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tasks: choose with &name= one of sums, capitals"):
        load_task("inspect.task", file=EVALS)
    source = EVALS.read_text().partition("@task\ndef capitals")[0]
    (tmp_path / "an eval.py").write_text(source)
    assert load_task(f"inspect.task?file={tmp_path}/an%20eval.py").rows()
    (tmp_path / "empty.py").write_text("")
    for file, message in [("empty.py", "has no function marked @task"), ("gone.py", "does not exist")]:
        with pytest.raises(UserError, match=message):
            load_task("inspect.task", file=tmp_path / file)
    with pytest.raises(UserError, match="no installed package registers the inspect-ai task nowhere/gsm8k"):
        load_task("inspect.task?name=nowhere/gsm8k")


def test_identity_changes_with_the_file(tmp_path: Path) -> None:
    identities = []
    for text in ("match(), includes()", "match(ignore_case=False), includes()"):
        (tmp_path / "evals.py").write_text(EVALS.read_text().replace("match(), includes()", text))
        identities.append(load_task("inspect.task", file=tmp_path / "evals.py", name="sums").identity)
    assert len(set(identities)) == 2
