from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shouting_judge import Shouting

from grpo_core.errors import UnknownNameError, UserError
from grpo_core.judges import CustomModel, rubric
from grpo_core.judges.service import JudgeService
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


def test_a_backend_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no judge 'endpiont'\. Did you mean 'endpoint'\?"):
        JudgeService(CustomModel("endpiont", "m"), tmp_path)


def test_options_are_plain_values_and_part_of_the_identity() -> None:
    with pytest.raises(UserError, match="options must be plain JSON values"):
        CustomModel("x", "m", options={"client": object()})
    assert CustomModel("x", "m", options={"a": 1}).meaning() != CustomModel("x", "m", options={"a": 2}).meaning()
