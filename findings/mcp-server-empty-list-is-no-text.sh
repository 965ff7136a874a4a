#!/usr/bin/env bash
# What: an MCP server made with the Python SDK gives no content at all for a tool that returns an empty list, and one
#   block an element otherwise, so the text of a result says neither "[]" nor that it was a list.
# Versions: mcp==2.3.0
# Expected: the text is the JSON of what the tool returned, as it is for a dict ("{}") and for False ("false").
# Seen: [] -> no block; ["a"] -> one block, "a", as if the tool had returned the text; ["a", "b"] -> two blocks.
#   An untyped tool has no structured content beside it, so [] and None are the same answer.
# Matters: a model that searched without a hit gets an empty tool message, which many chat templates leave out or a
#   policy reads as a failure; a client that joins blocks can't tell ["a\nb"] from ["a", "b"].
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv mcp==2.3.0
run <<'PYTHON'
import asyncio

from mcp import Client
from mcp.server import MCPServer

RESULTS = {"none": [], "one": ["a"], "two": ["a", "b"], "null": None, "dict": {}, "false": False}
server = MCPServer("results")


@server.tool()
def result(name: str):
    """The result of this name."""
    return RESULTS[name]


async def main():
    async with Client(server) as client:
        texts = {}
        for name in RESULTS:
            answer = await client.call_tool("result", {"name": name})
            assert not answer.is_error and answer.structured_content is None, answer
            texts[name] = [block.text for block in answer.content]
            print(repr(RESULTS[name]), "->", texts[name])
    seen = {"none": [], "one": ["a"], "two": ["a", "b"], "null": [], "dict": ["{}"], "false": ["false"]}
    assert texts == seen, f"the texts are {texts} now"


asyncio.run(main())
PYTHON
