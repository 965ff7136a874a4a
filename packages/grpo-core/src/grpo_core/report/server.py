"""A live report: a server on this machine alone, whose page asks for new data as the run goes on."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from grpo_core.report.data import report_data
from grpo_core.report.page import chart_library, embedded, page
from grpo_sdk.errors import GrpoError
from grpo_sdk.serve import Access, BoundedServer, Bounds

WATCHED = ("logs/train_log.jsonl", "logs/rollouts.jsonl", "logs/events.jsonl", "logs/process.json", "summary.json")
"""Files of a run that change as it goes on."""

REST = 3.0
"""Reading runs anew waits for so many times the seconds that it took, so that a long run is not read all the time."""


class ReportServer(BoundedServer):
    """Serves a report of runs on this machine; listens as soon as it is constructed.

    Args:
        runs: Folders of the runs.
        rollouts: Most completions of a run in the page.
        port: Port to listen on; 0 takes a free one, see `address`.

    Raises:
        UserError: a folder is not a run, the charts are not installed, or the port is taken.
        DataError: a run cannot be read.
    """

    def __init__(self, runs: Sequence[Path], *, rollouts: int, port: int = 0) -> None:
        self._runs, self._rollouts = runs, rollouts
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[float, int], ...] = ()
        self._data: dict[str, Any] = {}
        self._json, self._tag, self._next = "", "", 0.0
        self._refresh()
        chart_library()  # a missing package is named now
        routes = [Route("/", self._page), Route("/data.json", self._new_data)]
        bounds = Bounds(connections=64, requests=4, body_bytes=0)
        super().__init__(
            Starlette(routes=routes), port=port, bounds=bounds, access=Access(frozenset({"GET"}), own_pages=True)
        )

    async def _page(self, request: Request) -> Response:
        await asyncio.to_thread(self._refresh)
        html = await asyncio.to_thread(page, self._data, is_live=True)
        return Response(html, media_type="text/html", headers=_HEADERS)

    async def _new_data(self, request: Request) -> Response:
        try:
            await asyncio.to_thread(self._refresh)
        except GrpoError as error:  # the folder has gone, or a line is corrupt: the page goes on showing what it has
            return Response(str(error), HTTPStatus.CONFLICT, media_type="text/plain")
        if request.headers.get("If-None-Match") == self._tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED)
        return Response(self._json, media_type="application/json", headers={**_HEADERS, "ETag": self._tag})

    def _refresh(self) -> None:
        """Read the runs again if they have changed."""
        with self._lock:
            stamp = tuple(_stamp(run / name) for run in self._runs for name in WATCHED)
            if stamp == self._stamp or time.monotonic() < self._next:
                return
            started = time.monotonic()
            self._data = report_data(self._runs, rollouts=self._rollouts)
            self._json, self._stamp = embedded(self._data), stamp
            self._tag = f'"{hashlib.sha256(self._json.encode()).hexdigest()[:32]}"'
            self._next = time.monotonic() + REST * (time.monotonic() - started)


_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


def _stamp(path: Path) -> tuple[float, int]:
    try:
        found = path.stat()
    except OSError:
        return 0.0, -1
    return found.st_mtime, found.st_size
