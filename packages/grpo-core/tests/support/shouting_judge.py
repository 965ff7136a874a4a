"""A backend of judges as a plugin brings one: it grades by capitals."""

from grpo_sdk.judges import CustomModel
from grpo_sdk.judges.backend import Admission, Reply
from grpo_sdk.judges.prompts import JudgeCall


class Shouting:
    def __init__(self, model: CustomModel) -> None:
        self.model = model

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        async with admit():
            text = call.question.texts[0]
            grade = 10 if text.isupper() == self.model.options["loud"] else 0
            return Reply(f"verdict-{call.nonce}: {grade}", input_tokens=len(text), output_tokens=1)

    def close(self) -> None:
        pass
