"""A taskset of verifiers with tools, of each task and shared by all, and a state; its own harness plays it, too."""

import os
import time

import verifiers.v1 as vf
from mcp.server.mcpserver import Image
from shared_sums import Sums


class Seen(vf.State):
    looks: int = 0


class Shelf(vf.Toolset[vf.ToolsetConfig, Seen]):
    TOOL_PREFIX = "shelf"

    async def setup_task(self, task) -> None:
        self.secret = task.answer

    @vf.tool
    async def look(self, place: int, *, kind: str = "word") -> str:
        """Look at a place.

        Args:
            place: Its number.
        """
        self.state.looks += 1
        match place:
            case 7:
                raise ValueError("there is no place 7")
            case 8:
                time.sleep(1000)
            case 9:
                os._exit(3)
        return self.secret if place == 3 else f"no {kind} at {place}"

    @vf.tool
    async def draw(self) -> Image:
        """Draw the shelf."""
        return Image(data=b"png", format="png")


class Data(vf.TaskData):
    answer: str


class Find(vf.Task[Data, Seen]):
    @vf.reward(weight=0.75)
    async def found(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def few_looks(self, trace: vf.Trace) -> float:
        return float(0 < trace.state.looks <= 2)

    @vf.metric
    async def calls(self, trace: vf.Trace) -> float:
        return sum(len(message.tool_calls or []) for message in trace.assistant_messages)

    @classmethod
    def toolsets(cls, config):
        return [Shelf(vf.ToolsetConfig())]


class Finds(vf.Taskset[Find, vf.TasksetConfig]):
    def load(self):
        for number in range(20):
            yield Find(Data(id=f"row-{number}", prompt=f"Find word {number}.", answer=f"w{number}"), self.config.task)

    @classmethod
    def toolsets(cls, config):
        return [Sums(vf.SharedToolsetConfig())]


__all__ = ["Finds"]

if __name__ == "__main__":
    Shelf.run()
