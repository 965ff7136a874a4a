"""The page in a headless Chromium: it draws, filters, and obeys the keyboard, and hostile text stays text."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, browser
from reported_runs import HOSTILE, make_run, rollout, rollouts, write_lines

from grpo_core.report import rollouts as reported
from grpo_core.report.data import report_data
from grpo_core.report.page import page as html_of
from grpo_sdk.plugins.facts import Frame
from grpo_sdk.task.row import story_of

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("chromium"),
]

GAME = [{"role": role, "content": text} for role, text in (
    ("", " 0 | 1"), ("first", "0"), ("", " X | 1"), ("second", "1"), ("", " X | O"), ("", "first +1, second -1"),
)]  # fmt: skip
TALK = [{"role": role, "content": text} for role, text in (("assistant", "3\nuser: 7"), ("user", HOSTILE))]
BOARD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><script>window.hacked = 1</script>'
    '<rect width="9" height="9"/></svg>'
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens pages; a message of the console or an error on one fails the test."""
    problems: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})

    def open_page(*runs: Path, **options: Any) -> Any:
        target = tmp_path / "page.html"
        target.write_text(html_of(report_data(runs)))
        shown = context.new_page()
        shown.emulate_media(color_scheme=options.get("scheme", "light"))
        shown.on("console", lambda message: problems.append(message.text))
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.goto(target.as_uri())
        return shown

    yield open_page
    context.close()
    assert problems == []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a drawing, a game, tokens, an abstention and hostile text."""
    draw = lambda record: (Frame("a board", BOARD), Frame("after", text="x")) if record.row["id"] == "row-1" else ()  # noqa: E731
    monkeypatch.setattr(reported, "drawer", lambda _: draw)
    monkeypatch.setattr("grpo_core.report.data.drawer", lambda _: draw)
    lines = rollouts(10)
    lines += [
        rollout(11, 0, 0, 1.0, text=HOSTILE, prompt=HOSTILE, token_texts=["an", HOSTILE], token_logprobs=[0.0, -5.0]),
        rollout(11, 0, 1, None),
        rollout(11, 1, 0, 0.5, text=story_of(GAME), messages=GAME, role="first", turns=2, row={"id": "game"}),
        rollout(11, 2, 0, 0.5, text=story_of(TALK), messages=TALK, turns=2, row={"id": "talk"}),
    ]
    return make_run(tmp_path / "run", lines)


def count(page: Any) -> int:
    return int(page.locator(".count").inner_text().split(" ")[0].replace(",", ""))


def test_charts_are_drawn_and_nothing_is_loaded(run: Path, opened: Any) -> None:
    requests: list[str] = []
    page = opened(run)
    page.on("request", lambda request: requests.append(request.url))
    page.locator("#learning .plot svg").first.wait_for()
    assert page.locator("#overview strong").first.inner_text() == "0.25 → 0.75"
    assert page.locator("nav a").count() == 9
    # The healthy range is a rectangle behind the line.
    page.locator("#diagnostics").scroll_into_view_if_needed()
    page.locator("#diagnostics .plot svg .mark-rect path").first.wait_for()
    assert [url for url in requests if not url.startswith("data:")] == []


def test_filters(run: Path, opened: Any) -> None:
    page = opened(run)
    assert count(page) == 164
    steps = page.get_by_label("steps", exact=True)
    steps.fill("2-3")
    assert count(page) == 32
    steps.fill("abc")
    assert steps.get_attribute("aria-invalid") == "true"
    steps.fill("11")
    assert count(page) == 4
    page.get_by_label("verdict").select_option("abstained")
    assert count(page) == 1 and "timeout" in page.locator(".card.chosen").inner_text()
    page.get_by_label("verdict").select_option("")
    page.get_by_label("Lowest reward").fill("0.4")
    page.get_by_label("Highest reward").fill("0.6")
    assert count(page) == 2
    for label in ("Lowest reward", "Highest reward", "steps"):
        page.get_by_label(label, exact=True).fill("")
    page.get_by_label("search").fill("ANSWER 2 of 7-")
    assert count(page) == 4
    page.get_by_label("search").fill("no such text")
    assert count(page) == 0 and "No completion matches" in page.locator(".detail").inner_text()


def test_a_group_stands_side_by_side_with_drawings_games_and_tokens(run: Path, opened: Any) -> None:
    page = opened(run)
    page.get_by_label("search").fill("row-1")
    assert page.locator(".card").count() == 4
    picture = page.locator(".card.chosen img")
    assert picture.get_attribute("src").startswith("data:image/svg+xml") and picture.get_attribute("alt") == "a board"
    assert page.evaluate("document.querySelector('.card img').naturalWidth") > 0
    page.locator(".card.chosen").get_by_label("Next").click()
    assert page.locator(".card.chosen .frame").inner_text().split() == ["after", "x"]
    page.get_by_label("search").fill("first: 0")
    assert page.locator(".line .excerpt").first.inner_text() == "1. first: 0 2. second: 1"
    assert page.locator(".card.chosen .completion").first.is_hidden(), "the stepper shows its text"
    stepper = page.locator(".card.chosen .stepper")
    assert "2 of 2" not in stepper.inner_text() and "3 of 3" in stepper.inner_text()
    stepper.get_by_label("Previous").click()
    assert "1. first: 0" in stepper.inner_text() and "X | 1" in stepper.inner_text()
    page.get_by_label("search").fill("talk")
    card = page.locator(".card.chosen")
    assert card.locator(".speaker").all_inner_texts() == ["assistant", "user"]
    assert card.locator(".completion").first.inner_text() == "3\nuser: 7", "what it says of itself is no label"
    page.get_by_label("search").fill("hacked")
    page.locator(".line").first.click()
    assert page.locator(".card.chosen .tokens .s4").get_attribute("title") == "p = 0.00674, log p = −5.00"


def test_every_completion_of_a_group_is_in_sight(tmp_path: Path, opened: Any) -> None:
    """None hides to the right, and the chosen one is scrolled to."""
    page = opened(make_run(tmp_path / "many", rollouts(2, groups=1, samples=16)))
    width = page.locator(".detail").evaluate("detail => detail.clientWidth - detail.scrollWidth")
    assert width == 0 and page.locator(".cards").evaluate("cards => cards.clientWidth - cards.scrollWidth") == 0
    page.locator(".list").focus()
    page.keyboard.press("End")
    inside = "card => card.getBoundingClientRect().bottom <= card.closest('.detail').getBoundingClientRect().bottom"
    assert page.locator(".card.chosen").evaluate(inside)


def test_hostile_text_stays_text_and_control_characters_are_named(run: Path, tmp_path: Path, opened: Any) -> None:
    page = opened(run)
    page.get_by_label("search").fill("hacked")
    assert page.evaluate("window.hacked") is None
    shown = page.locator(".prompt").inner_text()
    assert shown.startswith("</script><script>") and "␛[31m⟨U+202E⟩␀" in shown
    assert "␛" in page.locator("#warnings").inner_text()
    lines = [rollout(1, 0, 0, -1.0, text="\u061c\u2028")]
    page = opened(make_run(tmp_path / "odd", lines, metrics={"step_s": 359.97}))  # ten steps
    assert page.locator(".line .reward").inner_text() == "−1"
    assert page.locator(".line .excerpt").inner_text() == "⟨U+061C⟩"
    assert page.locator(".card .completion").inner_text() == "⟨U+061C⟩⟨U+2028⟩"
    assert page.locator(".tile", has_text="evaluations included").locator("strong").inner_text() == "1 h 0 min"


@pytest.mark.parametrize(("scheme", "runs"), [("light", 2), ("dark", 1)])
def test_axe_finds_no_serious_fault_and_a_page_turns_dark_or_light_and_narrow(
    run: Path, tmp_path: Path, opened: Any, scheme: str, runs: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(*[run, make_run(tmp_path / "other", rollouts(10, seed=1))][:runs], scheme=scheme)
    page.locator("#learning .plot svg").first.wait_for()
    found = [each for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(background) != before
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_runs_are_compared(tmp_path: Path, opened: Any) -> None:
    runs = [make_run(tmp_path / name, rollouts(10, seed=1, gain=gain)) for name, gain in (("a", 0.0), ("b", 0.8))]
    page = opened(*runs)
    assert "training reward, steps 8 to 10" in page.locator("#comparison").inner_text()
    assert page.locator("#learning .plot svg").first.inner_html()
    page.get_by_label("run", exact=True).select_option(label="b")
    assert count(page) == 160


def test_a_game_that_is_evaluated_against_two_players_has_two_curves(tmp_path: Path, opened: Any) -> None:
    """The events name the trained task without its options, and another player with all of them."""
    rates = {"math.a": (0.25, 0.75), "math.a?style=short&opponent=nash": (0.5, 0.6)}
    events: list[dict[str, Any]] = [
        {"kind": "evaluation", "step": step, "task": task, "phase": phase,
         "result": {"solved_rate": rate, "n": 16, "temperature": 1.0}}
        for task, both in rates.items()
        for step, phase, rate in zip((0, 10), ("initial", "final"), both, strict=True)
    ]  # fmt: skip
    page = opened(make_run(tmp_path / "run", rollouts(10), events=events))
    tiles = page.locator("#overview .tile").all_inner_texts()
    assert "math.a, sampled at temperature 1, solved" in tiles[0] and "opponent=nash, sampled" in tiles[1]
    page.locator("#learning .plot svg").first.wait_for()
    assert "held out style=short opponent=nash, sampled" in page.locator("#learning .plot svg").first.inner_html()
    assert page.locator("#evaluation tbody th").all_inner_texts() == [task for task in rates for _ in range(2)]


def test_a_live_page_follows_the_run_and_keeps_the_filters(chromium: Any, tmp_path: Path) -> None:
    from grpo_core.report.server import ReportServer

    run = make_run(tmp_path / "run", rollouts(2))
    with ReportServer([run], rollouts=1000) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = chromium.new_page()
        try:
            page.goto(server.address)
            page.get_by_label("search").fill("answer 1")
            assert count(page) == 8
            write_lines(run / "logs" / "rollouts.jsonl", rollouts(3))
            page.locator(".count", has_text="12 of 48").wait_for(timeout=30_000)
            assert page.get_by_label("search").input_value() == "answer 1"
            (run / "logs" / "rollouts.jsonl").write_text("{}\n" * 2)
            (run / "config.yaml").unlink()
            page.get_by_text("no new data").wait_for(timeout=30_000)
            assert count(page) == 12
        finally:
            page.close()
            server.shutdown()
            thread.join()
