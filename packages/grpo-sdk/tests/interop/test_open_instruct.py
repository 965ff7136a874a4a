"""The verifier for open-instruct without it; tests/test_peers.py runs it in open-instruct itself."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import SUMS, AnswerLaws, Played, adapter_of

from grpo_sdk.errors import DataError


class VerifierFunction:
    """open-instruct's base of verifiers."""

    def __init__(self, name: str, verifier_config: Any, weight: float) -> None:
        self.name, self.weight = name, weight


types = {"VerificationResult": SimpleNamespace, "VerifierConfig": object, "VerifierFunction": VerifierFunction}
adapter = adapter_of("open_instruct", {"open_instruct.ground_truth_utils": types})


class TestOpenInstruct(AnswerLaws):
    trainer, logs_parts = "open-instruct", False

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        verifier, label = adapter.TaskVerifier(), json.dumps({"task": spec, "row": row})
        assert (verifier.name, verifier.weight) == ("grpo", 1.0)
        result = verifier([0], texts[0], label, query="2 + 2 =")
        assert asyncio.run(verifier.async_call([0], texts[0], label)) == result
        assert ("not a number" in result.reasoning) == (texts[0] == "four")
        return Played(result.score)


def test_rows_of_a_data_set_are_scored(adapter: Any) -> None:
    row = adapter.dataset(SUMS)[2]
    assert row["messages"] == [{"role": "user", "content": "2 + 2 ="}] and row["dataset"] == "grpo"
    assert adapter.TaskVerifier()([0], "4", row["ground_truth"]).score == 2.0


@pytest.mark.parametrize("wrong", ["4", "[]", '{"task": "no.such"}', None])
def test_a_label_of_something_else_is_refused(adapter: Any, wrong: Any) -> None:
    with pytest.raises(DataError, match=r"interop\.open_instruct\.dataset\(TASK\)"):
        adapter.TaskVerifier()([0], "4", wrong)
