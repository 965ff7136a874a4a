"""The page of other trainers, from the table of tests/peers and what its test has stored."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markdown_tables import table

from grpo_sdk.interop.adapter import DOORS

PEERS = Path(__file__).parents[1] / "tests" / "peers"

INTRODUCTION = """\
# Trainers

<!-- Written by docs/generate.py from tests/peers: change it there. -->

Compare what each trainer can do with grpo tasks, and see what was run with it. To choose one, see
[Which to take](../how-to/another-trainer.md#which-to-take).

## What is supported

A task gives the same score in every trainer below: it is a function of task, row and text, computed in worker processes
that are killed when a completion takes too long.
"""

TOOLS = """\
## Tools

Tasks with [tools](../how-to/tools.md) are trained where the policy may read results and go on. Their tools run in our
killable workers there, too. A tool that hangs or crashes leaves its episode without a score, and the reason names it.

*In text* means that a system message describes the tools, that the policy writes
`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and that results are messages of the user. A task's prompt that
is text is a message of the user, too.

`pytest -m peers tests/test_peers.py -k recorded` plays recorded episodes by the trainer's own code: wrong names
and arguments, several calls in a turn, tools that fail and hang. Rewards, results and abstentions are those of our
player; where the trainer shows its tokens, exactly the sampled ones are trained. Recorded turns stand for the engine or
the endpoint, and no weights are updated, which needs a GPU, or the trainer's service.
"""

DOOR = """\
Where tools are refused, this is what the trainer's door takes:
"""

UNSCORED = """\
## Completions that could not be scored

A reward that hangs or crashes says nothing about the completion. The table shows what each trainer then does with the
completion, and with the others of its prompt:
"""

BESIDE = """\
## What is installed beside it

`pytest -m peers tests/test_peers.py -k beside` asks uv which versions a trainer gets alone, and which together with
`grpo-sdk` and `grpo-tasks-math`, for Python 3.12 on Linux. No version changes; what is added are packages that the
trainer does not have:
"""

PARITY = """\
## What was run

`pytest -m peers tests/test_peers.py` installs each released trainer into a separate environment, and lets its code
score one batch: sums, programs and chess positions with right, wrong and invalid answers, and rewards that hang, crash
and kill their process. It compares every reward, every part that the trainer logs, and which samples have no reward.
"""


def trainers_page() -> str:
    """The page of the trainers that tasks run in."""
    peers = {
        name: Peer(entry, PEERS / "results" / f"{name}.json")
        for name, entry in sorted(
            tomllib.loads((PEERS / "peers.toml").read_text()).items(), key=lambda item: item[1]["title"].casefold()
        )
    }
    supported = [
        (f"[{peer.title}](../how-to/trainers/{peer.page})", f"`{peer['use']}`", peer.turns, peer.tools, peer.groups)
        for peer in peers.values()
    ]
    resolved = [json.loads(file.read_text()) for file in sorted((PEERS / "resolved").glob("*.json"))]
    beside = [
        (f"`{each['requirement']}`", str(each["packages"]), "none", ", ".join(each["added"])) for each in resolved
    ]
    played = {name: PEERS / "results" / f"tools_{name}.json" for name in peers}
    tools = [
        (peers[name].title, made["version"], f"`{made['path']}`")
        for name, file in played.items()
        if file.is_file() and (made := json.loads(file.read_text()))
    ]
    doors = [(peer.title, peer["door"]) for peer in peers.values() if peer.has("door")]
    unscored = [(peer.title, peer["unscored"]) for peer in peers.values()]
    run = [(peer.title, peer.version, peer.path, peer.parts) for peer in peers.values()]
    return "\n".join(
        (
            INTRODUCTION,
            table(("trainer", "one line", "several turns, games", "tools", "rewards that compare a group"), supported),
            TOOLS,
            table(("trainer", "version", "code that ran"), tools),
            DOOR,
            table(("trainer", "what its door takes"), doors),
            UNSCORED,
            table(("trainer", "a completion that could not be scored"), unscored),
            BESIDE,
            table(("trainer", "packages", "versions that change", "packages that are added"), beside),
            PARITY,
            table(("trainer", "version", "code that ran", "parts logged"), run),
        )
    )


class Peer:
    """A trainer: its entry in the table, and what the test has stored."""

    def __init__(self, entry: Mapping[str, Any], result: Path) -> None:
        self._entry = entry
        self._result = json.loads(result.read_text()) if "not_run" not in entry else {}
        self.title = entry["title"]
        self.page = f"{self.title.casefold()}.md"
        self.turns, self.groups = entry["turns"] or "refused", entry["groups"] or "refused"
        self.tools = entry.get("tools") or f"refused: {DOORS.get(self.title, 'not yet')}"
        self.version = self._result.get("version", "not run")
        self.path = f"`{self._result['path']}`" if self._result else entry["not_run"]
        self.parts = ("yes" if self._result["parts"] else "no") if self._result else ""

    def __getitem__(self, name: str) -> str:
        return str(self._entry[name])

    def has(self, name: str) -> bool:
        """Whether its entry says something."""
        return name in self._entry
