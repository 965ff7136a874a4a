from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shouting_judge import Shouting

from grpo_core.errors import UnknownNameError, UserError
from grpo_core.judges import CustomModel, rubric
from grpo_core.judges.database import UnusableDatabaseError
from grpo_core.judges.service import JudgeService, Verdict
from grpo_core.plugins import variants
from grpo_core.task.judging import JudgeQuestion


@pytest.fixture
def shouting() -> Iterator[CustomModel]:
    variants.register("judge", "shouting", f"{Shouting.__module__}:Shouting")
    yield CustomModel("shouting", "v1", options={"loud": True}, input_price=1e6)
    variants.unregister("judge", "shouting")


def test_a_backend_by_name_has_limits_cache_and_cost(shouting: CustomModel, tmp_path: Path) -> None:
    judge = rubric("It is loud.", model=shouting)
    service = JudgeService(shouting, tmp_path)
    values = [service.submit(judge, JudgeQuestion("", (text,))).result(10).value for text in ("AH", "ah", "AH")]

    assert values == [1.0, 0.0, 1.0]
    assert (service.usage.requests, service.usage.cached, service.usage.cost) == (2, 1, 4.0)


@pytest.fixture
def mine() -> Iterator[None]:
    variants.register("judge", "mine", "failing_judge:Failing")
    yield
    variants.unregister("judge", "mine")


def verdicts_of(folder: Path, model: CustomModel, *texts: str) -> list[Verdict]:
    service = JudgeService(model, folder)
    judge = rubric("It is loud.", model=model)
    return [service.submit(judge, JudgeQuestion("", (text,))).result(10) for text in texts]


@pytest.mark.usefixtures("mine")
def test_what_a_backend_raises_is_no_verdict_and_names_it(tmp_path: Path) -> None:
    key, reset, none, word, fine = verdicts_of(
        tmp_path, CustomModel("mine", "m", concurrency=9), "key", "reset", "none", "word", "fine"
    )

    assert "m by mine: backend 'mine' raised KeyError (failing_judge.py:" in key.why and "'choices'" in key.why
    assert "raised ConnectionResetError" in reset.why and "peer reset" in reset.why
    assert "ask() gave a NoneType and no Reply" in none.why and "raised ValueError" in word.why
    assert not any(each.is_refused or each.value for each in (key, reset, none, word)) and fine.value == 0.5


@pytest.mark.usefixtures("mine")
def test_a_backend_that_cannot_be_made_is_no_verdict_and_names_it(tmp_path: Path) -> None:
    [verdict] = verdicts_of(tmp_path, CustomModel("mine", "unmade"), "fine")

    assert verdict.value is None and "backend 'mine' raised ImportError" in verdict.why


@pytest.mark.usefixtures("mine")
def test_a_cache_that_cannot_be_written_costs_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise UnusableDatabaseError("database or disk is full")

    monkeypatch.setattr("grpo_core.judges.cache.VerdictCache.put", full)
    assert [each.value for each in verdicts_of(tmp_path, CustomModel("mine", "m"), "one", "two")] == [0.5, 0.5]
    [record] = caplog.records
    assert record.getMessage() == "m by mine: verdicts cannot be kept for later: database or disk is full"


def test_a_backend_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no judge 'endpiont'\. Did you mean 'endpoint'\?"):
        JudgeService(CustomModel("endpiont", "m"), tmp_path)


def test_options_are_plain_values_and_part_of_the_identity() -> None:
    with pytest.raises(UserError, match="options must be plain JSON values"):
        CustomModel("x", "m", options={"client": object()})
    assert CustomModel("x", "m", options={"a": 1}).meaning() != CustomModel("x", "m", options={"a": 2}).meaning()
