"""A local endpoint that judges: it reads the criterion, the texts and the number of a request, as a model would."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from local_endpoint import Reply, Server, serving


@dataclass(frozen=True)
class Asked:
    """One request to a judge."""

    content: str
    nonce: str
    texts: tuple[str, ...]
    criterion: str

    def grade(self, value: object) -> str:
        return f"Because.\nverdict-{self.nonce}: {value}"


def chat(text: str) -> Reply:
    """What a server says to `/v1/chat/completions`."""
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    reply = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}
    return 200, json.dumps(reply).encode()


def asked(request: dict[str, Any]) -> Asked:
    """What a judge was asked."""
    content = request["messages"][-1]["content"]
    nonce = re.findall(r"^verdict-([0-9a-f]+): ", content, re.MULTILINE)[-1]
    texts = re.findall(rf"<<<(?:text|A|B) {nonce}\n(.*?)\n{nonce} (?:text|A|B)>>>", content, re.DOTALL)
    criterion = content.partition("Criterion:\n")[2].partition("\n\n")[0]
    return Asked(content, nonce, tuple(texts), criterion)


@contextmanager
def judging(answer: Callable[[Asked], str | Reply]) -> Iterator[Server]:
    """An endpoint for as long as the context lasts; `answer` gives a reply's text, or a whole reply."""

    def respond(request: dict[str, Any]) -> Reply:
        reply = answer(asked(request))
        return chat(reply) if isinstance(reply, str) else reply

    with serving(respond) as server:
        yield server
