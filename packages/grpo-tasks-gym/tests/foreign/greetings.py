"""A library's task that does whatever its arguments say; what reads it is tested on it."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from grpo_sdk import UserError
from grpo_tasks_gym.foreign.source import Description, ForeignReward, NoVerdict, Record


class Greetings:
    """Rows `Say hello 0.`, …, scored by equality."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.args = {"count": 40, "act": "", "wide": 0, **args}

    def describe(self) -> Description:
        match self.args["act"]:
            case "refuse":
                raise UserError("it needs a sandbox.")
            case "raise":
                raise RuntimeError("no luck")
            case "hang":
                time.sleep(1000)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "seed":
                return Description(os.environ["PYTHONHASHSEED"], (ForeignReward("exact"),))
        rewards = (ForeignReward("exact", 0.8), ForeignReward("short", 0.2), ForeignReward("length", 0.0))
        return Description("greetings 1", rewards, ("2 epochs",), ("\n",), 32)

    def records(self) -> Iterator[Record]:
        for number in range(self.args["count"]):
            data = {"answer": f"hello {number}", "odd": {1} if self.args["act"] == "set" else None}
            filler = "x" * self.args["wide"]
            name = f"g{number}" if number % 2 else None
            name = "same" if self.args["act"] == "ids" else name
            text = f"Say hello {number}.{filler}"
            message = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]
            if self.args["act"] == "ids":
                text = f"Say hello {number // 2}."  # each twice, with different answers but for the first
                data["answer"] = f"hello {max(number, 1)}"
            yield Record(name, message if self.args["act"] == "chat" else text, data, gold=f"hello {number}")

    def score(self, prompt: str | list[Any], data: Any, text: str) -> Mapping[str, float]:
        if text == "none":
            raise NoVerdict("scorer exact gave no score")
        exact = 7.0 if text == "big" else float(text == data["answer"])
        values = {"exact": exact, "short": float(len(text) < 9), "length": float(len(text))}
        return {"exact": exact} if text == "few" else values


def open_greetings(target: Mapping[str, str], args: Mapping[str, Any]) -> Greetings:
    """Open them."""
    assert target == {"greeting": "hello"}
    return Greetings(args)
