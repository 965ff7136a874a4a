"""The resources server for NeMo-Gym without it; tests/test_peers.py runs it in NeMo-Gym itself."""

import asyncio
import enum
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from absent_trainers import GUESS, SUMS, AnswerLaws, Played, adapter_of, rows_of, sum_row

from grpo_sdk.errors import UserError


class Config(pydantic.BaseModel):
    """NeMo-Gym's configuration of a server."""


class VerifyRequest(pydantic.BaseModel):
    """NeMo-Gym's request, with a response of the Responses API."""

    responses_create_params: Any = None
    response: Any


class VerifyResponse(VerifyRequest):
    """NeMo-Gym's response of several rewards."""

    reward: float
    reward_components: dict[str, float] = {}


class Server(pydantic.BaseModel):
    """NeMo-Gym's server, without one."""

    config: Any


class ReverifyMode(enum.Enum):
    """NeMo-Gym's modes."""

    STATELESS = "stateless"


types = {
    "BaseMultiRewardVerifyResponse": VerifyResponse, "BaseResourcesServerConfig": Config,
    "BaseVerifyRequest": VerifyRequest, "ReverifyMode": ReverifyMode, "SimpleResourcesServer": Server,
}  # fmt: skip
adapter = adapter_of("nemo_gym", {"nemo_gym.base_resources_server": types})


def item(*texts: str, type: str = "message") -> Any:
    parts = [SimpleNamespace(type="output_text", text=text) for text in texts]
    return SimpleNamespace(type=type, content=[*parts, SimpleNamespace(type="refusal")])


def verified(adapter: Any, *output: Any, spec: str = SUMS, row: str | None = None) -> dict[str, Any]:
    server = adapter.TaskResourcesServer(config=adapter.TaskServerConfig(task=spec))
    known = {"instance_config": {"id": 7}, "row": sum_row() if row is None else row}
    request = adapter.TaskVerifyRequest(response=SimpleNamespace(output=list(output)), **known)
    answer = asyncio.run(server.verify(request))
    return answer.model_dump(by_alias=True, exclude={"response"})  # type: ignore[no-any-return]


class TestNemoGym(AnswerLaws):
    trainer = "NeMo-Gym"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        answer = verified(adapter, item("earlier"), item(*texts, type="reasoning"), item(*texts), spec=spec, row=row)
        parts = {**answer["reward_components"], "solved": answer["solved"], "valid": answer["valid"]}
        why = f"{answer['failure_kind']} {answer['failure_reason']}"
        return Played(None if answer["mask_sample"] else answer["reward"], parts, why)


def test_what_cannot_be_scored_is_a_failure_and_nothing_else_is(adapter: Any) -> None:
    answer = verified(adapter, item("404"))
    assert answer["instance_config"] == {"id": 7, "mask_sample": True}
    assert answer["_ng_failure_class"] == "verification_failed" and answer["failure_kind"] == "grpo:reward"
    answer = verified(adapter, item("4"))
    assert answer["instance_config"] == {"id": 7}
    # NeMo-Gym takes a response that has this key for a failure, whatever its value.
    assert not {"failure_class", "_ng_failure_class"} & set(answer)


def test_a_response_without_a_message_is_an_empty_completion(adapter: Any) -> None:
    answer = verified(adapter, item("4", type="reasoning"))
    assert (answer["reward"], answer["valid"], answer["mask_sample"]) == (0.0, 0.0, False)
    assert verified(adapter, item("1", "2"))["valid"] == 1.0  # the parts of a message are one text


def test_written_rows_are_those_of_the_task(adapter: Any, tmp_path: Path) -> None:
    adapter.write_rows(SUMS, tmp_path / "train.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == rows_of(SUMS)
    assert lines[2]["responses_create_params"] == {"input": [{"role": "user", "content": "2 + 2 ="}]}
    with pytest.raises(UserError, match="has several turns"):
        adapter.write_rows(GUESS, tmp_path / "turns.jsonl")
    assert not (tmp_path / "turns.jsonl").exists()
