"""A backend of judges with the mistakes that a plugin's may have."""

from grpo_sdk.judges import CustomModel
from grpo_sdk.judges.backend import Admission, Reply
from grpo_sdk.judges.prompts import JudgeCall


class Failing:
    """Raises what the text names, or replies with something else."""

    def __init__(self, model: CustomModel) -> None:
        if model.model == "unmade":
            raise ImportError("no library")

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        async with admit():
            errors = {"key": KeyError("choices"), "reset": ConnectionResetError("peer reset")}
            if error := errors.get(call.question.texts[0]):
                raise error
            return {"none": None, "word": Reply(value="high")}.get(call.question.texts[0], Reply(value=0.5))  # type: ignore[return-value, arg-type]

    def close(self) -> None:
        pass
