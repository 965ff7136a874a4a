import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_sdk.errors import UnknownNameError, UserError
from grpo_sdk.judges import CustomModel, rubric
from grpo_sdk.judges.database import UnusableDatabaseError
from grpo_sdk.judges.service import JudgeService, Verdict
from grpo_sdk.plugins import variants
from grpo_sdk.task.judging import JudgeQuestion


@pytest.fixture(autouse=True)
def backends() -> Iterator[None]:
    variants.register("judge", "shouting", "plugin_judges:Shouting")
    variants.register("judge", "mine", "plugin_judges:Failing")
    yield
    variants.unregister("judge", "shouting")
    variants.unregister("judge", "mine")


def verdicts_of(service: JudgeService, model: CustomModel, *texts: str) -> list[Verdict]:
    judge = rubric("It is loud.", model=model)
    return [service.submit(judge, JudgeQuestion("", (text,))).result(10) for text in texts]


def test_a_backend_by_name_has_limits_cache_and_cost(tmp_path: Path) -> None:
    model = CustomModel("shouting", "v1", options={"loud": True}, input_price=1e6)
    service = JudgeService(model, tmp_path)
    assert [verdict.value for verdict in verdicts_of(service, model, "AH", "ah", "AH")] == [1.0, 0.0, 1.0]
    assert (service.usage.requests, service.usage.cached, service.usage.cost) == (2, 1, 4.0)


def test_what_a_backend_raises_is_no_verdict_and_names_it(tmp_path: Path) -> None:
    model = CustomModel("mine", "m", concurrency=9)
    reasons = {
        "key": r"m by mine: backend 'mine' raised KeyError \(plugin_judges.py:.*'choices'",
        "reset": "raised ConnectionResetError.*peer reset",
        "none": r"ask\(\) gave a NoneType and no Reply",
        "word": "raised ValueError",
    }
    *failed, fine = verdicts_of(JudgeService(model, tmp_path), model, *reasons, "fine")
    assert fine.value == 0.5
    unmade = CustomModel("mine", "unmade")  # a backend that cannot be made
    reasons["fine"] = "backend 'mine' raised ImportError"
    failed += verdicts_of(JudgeService(unmade, tmp_path), unmade, "fine")
    for verdict, reason in zip(failed, reasons.values(), strict=True):
        assert re.search(reason, verdict.why) and not verdict.is_refused and verdict.value is None


def test_a_cache_that_cannot_be_written_costs_no_verdict(tmp_path, monkeypatch, caplog):
    def full(*args: object) -> None:
        raise UnusableDatabaseError("database or disk is full")

    monkeypatch.setattr("grpo_sdk.judges.service.VerdictCache.put", full)
    model = CustomModel("mine", "m")
    assert [each.value for each in verdicts_of(JudgeService(model, tmp_path), model, "one", "two")] == [0.5, 0.5]
    [record] = caplog.records
    assert "verdicts cannot be kept for later: database or disk is full" in record.getMessage()


def test_a_backend_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no judge 'endpiont'\. Did you mean 'endpoint'\?"):
        JudgeService(CustomModel("endpiont", "m"), tmp_path)


def test_options_are_plain_values_and_part_of_the_identity() -> None:
    with pytest.raises(UserError, match="options must be plain JSON values"):
        CustomModel("x", "m", options={"client": object()})
    assert CustomModel("x", "m", options={"a": 1}).meaning() != CustomModel("x", "m", options={"a": 2}).meaning()
