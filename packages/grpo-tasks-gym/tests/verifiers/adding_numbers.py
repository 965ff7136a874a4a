"""Tasksets' parts of verifiers that are used in tests."""

import os
import signal
import time
from typing import Literal

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data]):
    @vf.reward(weight=0.8)
    async def correct(self, trace: vf.Trace) -> float:
        match trace.last_reply:
            case "hang":
                time.sleep(1000)
            case "raise":
                raise RuntimeError("no luck")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "nan":
                return float("nan")
            case "none":
                return None
            case "big":
                return 7.0
            case "dict":
                return {"other": 1.0}
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.2)
    async def short(self, task: Data, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) <= len(task.answer))

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return len(trace.last_reply)

    @vf.metric
    async def files(self, runtime: vf.Runtime) -> float:
        return 0.0


class Config(vf.TasksetConfig):
    count: int = 30
    part: Literal["train", "validation", "test"] = "train"


class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        for number in range(self.config.count):
            data = Data(
                id=f"{self.config.part}-{number}",
                prompt=f"{number}+1=",
                system_prompt="Be terse.",
                answer=str(number + 1),
            )
            yield Sum(data, self.config.task)


__all__ = ["Sums"]
