"""An MCP server that keeps notes in its process, and has a tool for each thing that may go wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def write(text: str, times: int = 1) -> int:
    """Write a note; returns how many there are."""
    notes.extend([text] * times)
    return len(notes)


@server.tool()
def read() -> list[str]:
    """All notes."""
    return notes


@server.tool()
def files() -> str:
    """The files of the folder."""
    return " ".join(sorted(os.listdir()))


@server.tool()
def keep(path: str, text: str) -> str:
    """Write a file."""
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise ToolError(str(error)) from None
    return f"{path} is kept"


@server.tool(name="odd name/with.marks")
def odd() -> str:
    return os.environ.get("NOTES_MARK", "no mark")


@server.tool()
def key(context: Context) -> str:
    """The header of the request that holds a key."""
    return (context.headers or {}).get("authorization", "")


@server.tool()
def fail(text: str) -> str:
    """Fail."""
    raise ToolError(text)


@server.tool()
def refuse() -> str:
    """Fail with a code that the SDK has for connections that are closed."""
    raise MCPError(-32000, "no such item")


@server.tool(description=f"Works in {os.getcwd()}.")
def where() -> str:
    return os.getcwd()


@server.tool()
def huge() -> str:
    """Ten megabytes."""
    return "x" * 10_000_000


@server.tool()
def image() -> Image:
    """An image."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def not_a_number() -> float:
    """NaN."""
    return float("nan")


@server.tool()
async def ask(context: Context) -> str:
    """Ask the client's model."""
    message: Any = {"role": "user", "content": {"type": "text", "text": "?"}}
    return str(await context.session.create_message([message], max_tokens=1))


@server.tool()
def stray() -> str:
    """Print to standard output, and start a process that stays."""
    print("stray words", flush=True)
    os.write(1, b"stray bytes\n")
    return str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)


@server.tool()
def hang() -> str:
    """Take forever."""
    time.sleep(600)
    return ""


@server.tool()
def leave() -> str:
    """End the server."""
    print("good bye", file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    if "--empty" in sys.argv:
        MCPServer("empty").run("stdio")
    elif len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
