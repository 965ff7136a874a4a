"""AReaL's workflow without AReaL; tests/test_peers.py runs it in AReaL itself."""

import asyncio
from types import SimpleNamespace
from typing import Any

from absent_trainers import AnswerLaws, Played, adapter_of


class Workflow:
    """AReaL's RLVRWorkflow: asks an engine, and then its reward with the columns of the row."""

    def __init__(self, reward_fn: Any, gconfig: Any, tokenizer: Any, enable_thinking: bool = False) -> None:
        self.async_reward_fn: Any = None

    async def arun_episode(self, engine: str, data: dict[str, Any]) -> dict[str, Any]:
        return {"rewards": await self.async_reward_fn("2 + 2 =", engine, [], [], **data)}


STATED: list[dict[str, float]] = []


stats = SimpleNamespace(get=lambda scope: SimpleNamespace(scalar=lambda **values: STATED.append(values)))
adapter = adapter_of("areal", {
    "areal": {"workflow_context": SimpleNamespace(stat_scope=str)},
    "areal.utils": {"stats_tracker": stats},
    "areal.workflow.rlvr": {"RLVRWorkflow": Workflow},
})  # fmt: skip


class TestAReaL(AnswerLaws):
    trainer = "AReaL"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        STATED.clear()
        workflow = adapter.TaskWorkflow(None, None, workers=1, enable_thinking=True)
        result = asyncio.run(workflow.arun_episode(texts[0], {"task": spec, "row": row}))
        if result is None:
            return Played(None, why=self.caplog.text)
        return Played(result["rewards"], *STATED)
