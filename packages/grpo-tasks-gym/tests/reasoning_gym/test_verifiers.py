"""No completion is executed, and every gold is still right."""

from pathlib import Path

import pytest

from grpo_sdk import load_task
from grpo_tasks_gym.reasoning_gym.scorers import EXPRESSIONS
from grpo_tasks_gym.reasoning_gym.sources import EVALUATE

EVALUATING = sorted({*EVALUATE, *EXPRESSIONS})


def attacks(file: Path) -> list[str]:
    touch = f"open({str(file)!r}, 'w').close()"
    return [
        f"__import__('os').system('touch {file}')",
        f"[{touch}]",
        f'exec("{touch}")',
        f"print({touch})",
        f"Symbol({str(file)!r}).func({touch})",
        f"(lambda: {touch})()",
        f"x.__class__.__init__.__globals__['__builtins__']['open']({str(file)!r}, 'w')",
    ]


@pytest.mark.parametrize("name", EVALUATING)
def test_an_answer_is_not_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where nothing but the verifier would stop it."""
    monkeypatch.setattr("grpo_tasks_gym.reasoning_gym.rows._needs_process", lambda config: False)
    task = load_task(f"reasoning_gym.{name}?size=1")
    (row,) = task.rows()
    if row.gold is not None:
        assert task.score(row.gold, row).solved
    for attack in attacks(file := tmp_path / "owned"):
        score = task.score(f"<answer>{attack}</answer>", row)
        assert not score.solved and not file.exists(), attack


@pytest.mark.parametrize(("name", "field"), [("bitwise_arithmetic", "problem"), ("simple_integration", "integrand")])
def test_a_row_from_elsewhere_is_not_run_either(name: str, field: str, tmp_path: Path) -> None:
    task = load_task(f"reasoning_gym.{name}?size=1")
    (row,) = task.rows()
    attack = f"open({str(tmp_path / 'owned')!r}, 'w')"
    changed = {field: attack, "source_dataset": "chain_sum"}
    pairs = [[key, changed.get(key, value)] for key, value in row.metadata["dict"]]
    hostile = row.model_copy(update={"metadata": {"dict": pairs}})

    assert not task.score(row.gold or "", hostile).solved
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("name", "answer"), [("complex_arithmetic", "nan"), ("complex_arithmetic", "1 + Infj"), ("coin_flip", "1E-99999")]
)
def test_no_number_is_no_answer(name: str, answer: str) -> None:
    task = load_task(f"reasoning_gym.{name}?size=2")
    for row in task.rows():
        assert not task.score(f"<answer>{answer}</answer>", row).valid
        assert task.score(row.gold or "", row).solved


def test_a_scorer_that_raises_abstains_unless_told_that_the_answer_is_wrong() -> None:
    task = load_task("reasoning_gym.prime_factorization?size=1")
    wrong = load_task("reasoning_gym.prime_factorization?size=1&on_error=wrong")
    (row,) = task.rows()

    raised, refused = task.score("<answer>banana</answer>", row), wrong.score("<answer>banana</answer>", row)
    assert raised.fault == "reward" and "ValueError" in raised.why
    assert refused.value == 0.0 and not refused.fault


def test_the_last_answer_counts_and_none_is_invalid() -> None:
    task = load_task("reasoning_gym.leg_counting?size=1")
    plain = load_task("reasoning_gym.leg_counting?size=1&template=plain")
    (row,) = task.rows()

    assert task.score(f"<answer>1</answer> no, <answer> {row.answer} </answer>", row).solved
    assert not task.score(f"It is {row.answer}.", row).valid
    assert not task.score("<answer> </answer>", row).valid
    assert plain.score(f" {row.answer}", row).solved
