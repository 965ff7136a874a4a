#!/usr/bin/env bash
# What: inspect-ai shows the model an MCP tool without what its schema says by `$ref`, `const` or `oneOf`: the parameter
#   is left with no type and no fields at all.
# Versions: inspect-ai==0.3.285, mcp==2.3.0
# Expected: the schema goes to the model as the server gave it; or with its references resolved, which inspect does
#   for its own Python tools.
# Seen: the server of the MCP SDK writes a parameter that is a model as {"$ref": "#/$defs/Order"}; inspect's tool has
#   {"description": "order"} for it. The constant {"const": "kg"} and the choice {"oneOf": [...]} are lost as well;
#   an enum is kept.
# Matters: in an evaluation with MCP tools the model has to guess the fields of every nested argument, and scores of
#   tool use fall; the same server in another client shows the fields.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv inspect-ai==0.3.285 mcp==2.3.0
cat >"$work/server.py" <<'PYTHON'
from typing import Annotated, Literal

from mcp.server import MCPServer
from pydantic import BaseModel, Field

server = MCPServer("orders")


class Order(BaseModel):
    item: str
    count: int


class Parcel(BaseModel):
    kind: Literal["parcel"]


class Letter(BaseModel):
    kind: Literal["letter"]


@server.tool()
def ship(
    order: Order,
    unit: Literal["kg"],
    way: Literal["air", "sea"],
    form: Annotated[Parcel | Letter, Field(discriminator="kind")],
) -> str:
    """Ship an order."""
    return "shipped"


server.run()
PYTHON
run <<'PYTHON'
import asyncio
import sys

from inspect_ai.tool import ToolDef, mcp_server_stdio
from mcp import Client, StdioServerParameters

COMMAND = {"command": sys.executable, "args": ["server.py"]}


async def main():
    async with Client(StdioServerParameters(**COMMAND)) as client:
        (tool,) = (await client.list_tools()).tools
    server = mcp_server_stdio(name="orders", **COMMAND)
    (ours,) = await server.tools()
    shown = ToolDef(ours).parameters.model_dump(exclude_none=True)
    for name, schema in tool.input_schema["properties"].items():
        print(f"{name}: the server says {schema}, inspect shows {shown['properties'][name]}")
    return shown


shown = asyncio.run(main())
properties = shown["properties"]
assert properties["way"]["enum"] == ["air", "sea"], f"an enum is {properties['way']} now"
assert properties["order"] == {"description": "order"}, f"a reference is {properties['order']} now"
assert properties["unit"] == {"type": "string", "description": "unit"}, f"a constant is {properties['unit']} now"
assert properties["form"] == {"description": "form"}, f"a choice is {properties['form']} now"
PYTHON
