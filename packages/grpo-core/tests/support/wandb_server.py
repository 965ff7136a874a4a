"""Answers what wandb's public API asks for, in GraphQL, as W&B's server does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def node(name: str, summary: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    """A run as wandb's RunFragment names its fields."""
    values = {key: {"value": value} for key, value in {**config, "_wandb": {"version": 1}}.items()}
    return {
        "id": f"id-{name}", "projectId": "1", "name": name, "displayName": f"run of {name}", "state": "finished",
        "tags": [], "sweepName": None, "group": None, "jobType": None, "commit": None, "readOnly": False,
        "description": "", "notes": "", "user": {"name": "me", "username": "me"}, "historyKeys": {},
        "createdAt": "2026-11-20T10:00:00Z", "heartbeatAt": "2026-11-20T10:10:00Z", "historyLineCount": 2,
        "config": json.dumps(values), "summaryMetrics": json.dumps(summary), "systemMetrics": "{}",
    }  # fmt: skip


class WandBServer(ThreadingHTTPServer):
    """The stand-in.

    Attributes:
        project: `ENTITY/PROJECT` that exists.
        runs: Its runs, newest first.
        history: Metric -> (step, value).
        queries: (query, variables) that were asked.
        keys: Keys that were sent.
        status: Status of every answer.
    """

    daemon_threads = True

    def __init__(self, runs: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.project, self.runs, self.status = "us/sums", runs, 200
        self.history: dict[str, list[tuple[int, float]]] = {}
        self.queries: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        if "viewer" in query:
            return {
                "viewer": {
                    "id": "1",
                    "entity": "us",
                    "username": "me",
                    "email": "e",
                    "flags": "{}",
                    "teams": {"edges": []},
                }
            }
        if f"{variables.get('entity')}/{variables.get('project')}" != self.project:
            return {"project": None}
        if "query Runs(" in query:
            first = int(variables.get("after") or variables.get("cursor") or 0)
            last = first + int(variables["perPage"])
            edges = [{"node": each, "cursor": str(first + i + 1)} for i, each in enumerate(self.runs[first:last])]
            page = {"endCursor": str(last), "hasNextPage": last < len(self.runs)}
            runs = {"edges": edges, "pageInfo": page}
            return {"project": {"internalId": "1", "runCount": len(self.runs), "readOnly": False, "runs": runs}}
        if "sampledHistory" in query:
            keys = json.loads(variables["specs"][0])["keys"]
            lines = [{"step": step, keys[1]: value} for step, value in self.history.get(keys[1], [])]
            return {"project": {"run": {"sampledHistory": [lines]}}}
        found = next((each for each in self.runs if each["name"] == variables.get("name")), None)
        return {"project": {"internalId": "1", "run": found}}


class _Handler(BaseHTTPRequestHandler):
    server: WandBServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data: dict[str, Any] = {}
        if self.path == "/graphql":
            request = json.loads(content)
            self.server.queries.append((request["query"], request.get("variables") or {}))
            self.server.keys.add(self.headers.get("Authorization", ""))
            data = self.server.answer(*self.server.queries[-1])
        body = json.dumps({"data": data} if self.server.status == 200 else {"error": "no"}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def wandb_server(runs: list[dict[str, Any]]) -> Iterator[WandBServer]:
    with WandBServer(runs) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
