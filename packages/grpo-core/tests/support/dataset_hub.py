"""A server of one dataset repository, as far as `datasets` and huggingface_hub ask for it, and the hub's cache."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from local_servers import Handler, listening

REPOSITORY = "o/n"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def dataset_hub(files: Mapping[str, str]) -> Iterator[str]:
    """Serve a repository; yields the address.

    Args:
        files: Name of a file -> its text.
    """
    data = {name: text.encode() for name, text in files.items()}
    with listening(type("Hub", (_Hub,), {"data": data})) as address:
        yield address


def cache_repository(root: Path, files: Mapping[str, str]) -> Path:
    """Write the cache's folder of a repository, as a download of the whole leaves it; returns the snapshot."""
    snapshot = root / "snapshots" / REVISION
    for name, text in files.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_text(text)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(REVISION)
    return snapshot


class _Hub(Handler):
    data: Mapping[str, bytes]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        missing = {"X-Error-Code": "EntryNotFound"}
        api, resolve = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{REVISION}"):
            siblings = [{"rfilename": name} for name in self.data]
            self.reply(200, json.dumps({"id": REPOSITORY, "sha": REVISION, "siblings": siblings}).encode())
        elif path.startswith(f"{api}/tree/{REVISION}"):
            found = self._children(path.removeprefix(f"{api}/tree/{REVISION}").strip("/"))
            self.reply(200 if found else 404, json.dumps(found or {}).encode(), **({} if found else missing))
        elif path.startswith(resolve):
            body = self.data.get(path.removeprefix(resolve).partition("/")[2])
            facts = {"X-Repo-Commit": REVISION}
            if body is None:
                self.reply(404, b"", **facts, **missing)
            else:
                self.reply(200, body, **facts, ETag=f'"{hashlib.sha1(body).hexdigest()}"')
        else:
            self.reply(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

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
