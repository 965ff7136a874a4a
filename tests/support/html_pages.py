"""The pages of a built site, as a test follows their links."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """A page: what can be linked to in it, and what it links to."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    _in_paragraph: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values.get("href", ""))
        elif "src" in values:
            self.loads.append(values["src"])
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_paragraph = self._in_paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._in_paragraph:
            self.paragraphs[-1] += data

    def target(self, link: str, root: Path) -> tuple[Path, str] | None:
        """The file and the anchor that a link of this page leads to; None if it leaves the site."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        folder = root if parts.path.startswith("/") else self.path.parent
        file = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else self.path.resolve()
        return (file / "index.html" if file.is_dir() else file), unquote(parts.fragment)
