"""Backends of judges as plugins bring them."""

from grpo_sdk.judges import CustomModel
from grpo_sdk.judges.backend import Admission, Reply
from grpo_sdk.judges.prompts import JudgeCall


class Shouting:
    """Grades by capitals."""

    def __init__(self, model: CustomModel) -> None:
        self.model = model
        if model.model == "unmade":
            raise ImportError("no library")

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        async with admit():
            text = call.question.texts[0]
            grade = 10 if text.isupper() == self.model.options["loud"] else 0
            return Reply(f"verdict-{call.nonce}: {grade}", input_tokens=len(text), output_tokens=1)

    def close(self) -> None:
        pass


class Failing(Shouting):
    """Raises what the text names, or replies with something else."""

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        async with admit():
            errors = {"key": KeyError("choices"), "reset": ConnectionResetError("peer reset")}
            if error := errors.get(call.question.texts[0]):
                raise error
            return {"none": None, "word": Reply(value="high")}.get(call.question.texts[0], Reply(value=0.5))  # type: ignore[return-value, arg-type]
