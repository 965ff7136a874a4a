import asyncio
from types import SimpleNamespace

import art
from openai.types.chat.chat_completion import ChatCompletion
from report import answer, batch, report

from grpo_sdk.interop.art import rollout


class Answering:
    """A model of ART whose client answers with one text."""

    def __init__(self, text):
        self._text = text

    def openai_client(self):
        return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=self._create)))

    def get_inference_name(self):
        return "answering"

    async def _create(self, **request):
        message = {"role": "assistant", "content": self._text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        known = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
        return ChatCompletion.model_validate({**known, "choices": [choice]})


async def score(sample):
    """What a gathered group holds of a rollout."""
    one = rollout(Answering(sample["completion"]), sample["task"], sample["row"])
    (group,) = await art.gather_trajectory_groups([art.TrajectoryGroup([one])], pbar_desc=None, max_exceptions=1)
    if group.exceptions:
        assert not group.trajectories and "UnscoredError" in group.exceptions[0].type
        return answer(None, unscored="an exception of the group, which goes on without it")
    (trajectory,) = group.trajectories
    metrics = {name: float(value) for name, value in trajectory.metrics.items() if name != "duration"}
    return answer(trajectory.reward, metrics)


async def main():
    return [await score(sample) for sample in batch()]


report("openpipe-art", "gather_trajectory_groups, TrajectoryGroup", asyncio.run(main()))
