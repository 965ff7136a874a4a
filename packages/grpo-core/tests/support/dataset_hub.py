"""A server that has one dataset repository, as far as `datasets` and huggingface_hub ask for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

REPOSITORY = "o/n"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def dataset_hub(files: Mapping[str, str]) -> Iterator[str]:
    """Serve a repository; yields the address.

    Args:
        files: Name of a file -> its text.
    """
    data = {name: text.encode() for name, text in files.items()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"data": data}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    data: Mapping[str, bytes]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        api, resolve = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{REVISION}"):
            siblings = [{"rfilename": name} for name in self.data]
            self._answer(json.dumps({"id": REPOSITORY, "sha": REVISION, "siblings": siblings}).encode())
        elif path.startswith(f"{api}/tree/{REVISION}"):
            found = self._children(path.removeprefix(f"{api}/tree/{REVISION}").strip("/"))
            missing = {"X-Error-Code": "EntryNotFound"}
            self._answer(json.dumps(found or {}).encode(), 200 if found else 404, **({} if found else missing))
        elif path.startswith(resolve):
            body = self.data.get(path.removeprefix(resolve).partition("/")[2])
            facts = {"X-Repo-Commit": REVISION}
            if body is None:
                self._answer(b"", 404, **facts, **{"X-Error-Code": "EntryNotFound"})
            else:
                self._answer(body, **facts, ETag=f'"{hashlib.sha1(body).hexdigest()}"')
        else:
            self._answer(b"{}", 404, **{"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _children(self, folder: str) -> list[dict[str, object]]:
        """Files and folders of a folder, as the hub lists them."""
        entries: dict[str, dict[str, object]] = {}
        begin = f"{folder}/" if folder else ""
        for name, body in self.data.items():
            if name.startswith(begin):
                child, is_folder, _ = name.removeprefix(begin).partition("/")
                size = 0 if is_folder else len(body)
                kind = "directory" if is_folder else "file"
                entries[child] = {"type": kind, "path": begin + child, "size": size, "oid": "0" * 40}
        return list(entries.values())

    def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
