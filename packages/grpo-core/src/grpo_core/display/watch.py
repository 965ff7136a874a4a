"""`grpo watch` as an application of textual: status, curves, completions and events of a run that goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import ContentSwitcher, Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from grpo_core.display.live_text import curves_text, events_text, group_line, group_text, status_text

if TYPE_CHECKING:
    from textual import events

    from grpo_core.tracking.live import Group, LiveRun


class WatchApp(App[None]):
    """Shows a run, and reads what is new in its folder at an interval.

    Args:
        run: The run.
        every_s: Seconds between two looks at the folder.
    """

    CSS = """
    Screen { background: ansi_default; }
    #status { height: auto; max-height: 5; padding: 0 1; }
    #views { height: 1fr; border-top: solid $primary; }
    #curves, #events { padding: 0 1; }
    #groups { height: 40%; border: none; padding: 0; }
    #completions { height: 1fr; border-top: dashed $primary; padding: 0 1; }
    #search { height: 1; border: none; display: none; }
    #search.open { display: block; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("1", "view('curves')", "Curves"),
        Binding("2", "view('rollouts')", "Rollouts"),
        Binding("3", "view('events')", "Log"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("escape", "clear", "Clear", show=False),
    ]

    def __init__(self, run: LiveRun, every_s: float = 1.0) -> None:
        super().__init__(ansi_color=True)
        self.run_folder, self._every_s = run, every_s
        self._is_polling = False
        self._shown: list[Group] = []
        self._listed: tuple[int, list[tuple[int, int, int]]] | None = None
        self._open: tuple[int, int] | None = None

    def compose(self) -> ComposeResult:
        """Lay the parts out."""
        yield Static(id="status", markup=False)
        with ContentSwitcher(id="views", initial="curves"):
            with VerticalScroll(id="curves"):
                yield Static(id="curves-text", markup=False)
            with Container(id="rollouts"):
                yield OptionList(id="groups", markup=False)
                with VerticalScroll(id="completions"):
                    yield Static(id="group-text", markup=False)
            with VerticalScroll(id="events"):
                yield Static(id="events-text", markup=False)
        yield Input(id="search", placeholder="search prompts and completions; Esc clears", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#curves").focus()
        self._follow()

    def on_resize(self, event: events.Resize) -> None:
        """Draw again for the new size."""
        self.call_after_refresh(self.draw)

    @work
    async def _follow(self) -> None:
        """Read what is new in a thread, so that keys work meanwhile, and draw it."""
        while True:
            self._is_polling = True
            more = await asyncio.to_thread(self.run_folder.poll)
            self._is_polling = False
            self.draw()
            if not more:
                await asyncio.sleep(self._every_s)

    def draw(self) -> None:
        """Draw the status and the open view."""
        if self._is_polling:
            return  # a thread changes the run; `_follow` draws when it has ended
        if not self.query("#status"):
            return  # before the parts are laid out, or after the end
        run = self.run_folder
        self.query_one("#status", Static).update(status_text(run, self.size.width - 2))
        match self.query_one("#views", ContentSwitcher).current:
            case "curves":
                size = self.query_one("#curves").container_size
                self.query_one("#curves-text", Static).update(curves_text(run, size.width - 4, size.height - 1))
            case "rollouts":
                self._draw_groups()
            case "events":
                self.query_one("#events-text", Static).update(events_text(run))

    def _draw_groups(self) -> None:
        """List the groups anew if they changed; the highlighted one stays, unless it was the newest."""
        listing = self.query_one("#groups", OptionList)
        groups = list(self.run_folder.newest_groups(self.query_one("#search", Input).value))
        listed = (self.size.width, [(group.step, group.number, len(group.records)) for group in groups])
        if listed == self._listed:
            return
        self._listed = listed
        at = listing.highlighted
        kept = self._shown[at] if at else None  # at the top, it follows the newest
        self._shown = groups
        listing.set_options(Option(group_line(group, self.size.width - 4)) for group in groups)
        found = next((i for i, group in enumerate(groups) if kept is not None and _is_same(group, kept)), 0)
        listing.highlighted = found if groups else None
        if not groups:
            self._show_group(None)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the completions of a group."""
        if event.option_index < len(self._shown):
            self._show_group(self._shown[event.option_index])

    def _show_group(self, group: Group | None) -> None:
        has_text = bool(self.query_one("#search", Input).value)
        nothing = "No completion contains this text." if has_text else "The run has no completions yet."
        self.query_one("#group-text", Static).update(nothing if group is None else group_text(group))
        shown = None if group is None else (group.step, group.number)
        if shown != self._open:
            self._open = shown
            self.query_one("#completions").scroll_home(animate=False)

    def action_view(self, name: str) -> None:
        """Open a view."""
        self.query_one("#views", ContentSwitcher).current = name
        self.query_one("#groups" if name == "rollouts" else f"#{name}").focus()
        self._listed = None
        self.call_after_refresh(self.draw)

    def action_search(self) -> None:
        """Open the search among the completions."""
        self.action_view("rollouts")
        search = self.query_one("#search", Input)
        search.add_class("open")
        search.focus()

    def action_clear(self) -> None:
        """End the search."""
        search = self.query_one("#search", Input)
        search.value = ""
        search.remove_class("open")
        if search.has_focus:
            self.query_one("#groups").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """List the groups that contain the text."""
        self._listed = None
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go from the search to its results."""
        self.query_one("#groups").focus()


def _is_same(group: Group, other: Group) -> bool:
    return (group.step, group.number) == (other.step, other.number)
