"""Reports in a real browser, opened from disk: what people see and do, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from kbeval.cli import run
from kbeval.report import evidence
from tests.bench import reports
from tests.bench.reports import make_texts
from tests.report.hostile import RUN_A, RUN_B, make_hostile
from tests.report.reading import data_of, hits_of
from tests.support.browser import accessibility_faults, browser

# A fixture.
__all__ = ["browser"]

# What each page is called in these tests.
PAGES = ("two", "one", "history", "hostile two", "hostile one", "hostile history")
SUMMARY = "#list .q > details > summary"


@dataclass
class Files:
    """The pages, each made once."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.html"

    def uri(self, name: str) -> str:
        return self.path(name).as_uri()


@pytest.fixture(scope="module")
def pages(made_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("pages")
    files = Files(folder)
    hostile = make_hostile(tmp_path_factory.mktemp("hostile"))
    demo = ["--db", str(made_demo / "kb.db"), "--golden", str(made_demo / "golden.yaml")]
    evil = ["--db", str(hostile.db), "--golden", str(hostile.golden)]
    # The second is better in some queries and worse in others.
    assert run(["report", "2026-03-04", "2026-03-02", *demo, "-o", str(files.path("two"))]) == 0
    assert run(["report", "2026-03-02", *demo, "-o", str(files.path("one"))]) == 0
    assert run(["report", "--history", "mrr", "hit@5", *demo, "-o", str(files.path("history"))]) == 0
    assert run(["report", RUN_A, RUN_B, *evil, "-o", str(files.path("hostile two"))]) == 0
    assert run(["report", RUN_A, *evil, "-o", str(files.path("hostile one"))]) == 0
    assert run(["score", "--all", *evil]) == 0
    assert run(["report", "--history", "mrr", *evil, "-o", str(files.path("hostile history"))]) == 0
    return files


@dataclass
class Watched:
    """A page, and what it said and asked for."""

    page: Page
    said: list[str]

    def summaries(self) -> list[str]:
        return self.page.locator(SUMMARY).all_inner_texts()


Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> dict[bool, BrowserContext]:
    """With and without JavaScript: a page in a context that is there already takes half the time."""
    return {
        script: browser.new_context(viewport={"width": 1400, "height": 900}, java_script_enabled=script)
        for script in (True, False)
    }


@pytest.fixture
def context(contexts: dict[bool, BrowserContext]) -> BrowserContext:
    """For pages that only differ from those of the demo in their data."""
    return contexts[True]


@pytest.fixture
def opened(browser: Browser, contexts: dict[bool, BrowserContext], pages: Files) -> Iterator[Open]:
    """Opens a page; afterwards nothing may have been said in the console, or asked for.

    `more`: settings of a context of its own, which a page also needs if it is to remember something.
    """
    own: list[BrowserContext] = []
    every: list[Watched] = []

    def open_page(name: str, fragment: str = "", *, script: bool = True, **more: Any) -> Watched:
        if more:
            own.append(browser.new_context(viewport={"width": 1400, "height": 900}, java_script_enabled=script, **more))
        page = (own[-1] if more else contexts[script]).new_page()
        found = Watched(page, [])
        page.on("console", lambda message: found.said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: found.said.append(f"error: {error}"))
        page.on("request", lambda asked: found.said.append(f"request: {asked.url}"))
        page.on("dialog", lambda dialog: found.said.append(f"dialog: {dialog.message}"))
        page.goto(f"{pages.uri(name)}{fragment}")
        if script and "history" not in name:
            page.wait_for_selector("html[data-ready=yes]")
        every.append(found)
        return found

    yield open_page
    said = [text for found in every for text in found.said if not text.startswith("request: file://")]
    requests = [len([text for text in found.said if text.startswith("request:")]) for found in every]
    for found in every:
        found.page.close()
    for context in own:
        context.close()
    assert said == []
    assert requests == [1] * len(every)


def is_as_wide_as_the_window(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def open_all(page: Page) -> None:
    """Click all of them, in one call to the browser."""
    page.locator(SUMMARY).evaluate_all("items => items.forEach((item) => item.click())")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_disk_at_any_width_and_is_accessible(opened: Open, name: str) -> None:
    page = opened(name).page
    open_all(page)
    if name.startswith("hostile"):
        assert_data_is_not_markup(page, name)
    for width in (1400, 800, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert is_as_wide_as_the_window(page), width
    assert page.evaluate("window.broken") is None
    # A few open queries are as good as all for this, and faster.
    page.locator(SUMMARY).evaluate_all("items => items.slice(2).forEach((item) => item.click())")
    every = [(1400, "light"), (360, "dark"), (1400, "dark"), (360, "light")]
    for width, scheme in every[1:2] if name.startswith("hostile") else every:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert accessibility_faults(page) == [], (width, scheme)
        # The first time with the whole list; what is listed looks the same in the other sizes and colours.
        if name in ("two", "one"):
            page.get_by_label("Category").select_option("billing")
            page.locator(SUMMARY).first.click()


def assert_data_is_not_markup(page: Page, name: str) -> None:
    """Where all data is written to be interpreted."""
    assert page.evaluate("window.broken") is None
    assert page.locator("img, iframe, object, embed, [onerror], [onload], [style]").count() == 0
    assert page.locator("script").count() <= 2
    assert page.locator("style").count() == 1
    text = page.locator("body").inner_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "49" not in page.title()
    if name != "hostile two":
        return
    # It is all there, as text.
    assert page.get_by_text("</script><script>window.broken=1</script>").count() > 3
    assert page.get_by_text("\\u202e").count() > 1
    assert page.get_by_text("👩‍👩‍👧‍👦").count() > 1
    assert page.get_by_text("of 100,000 characters").count() > 0
    judged = page.locator(".judged")
    expect(judged).to_contain_text("correctness 3")
    assert [text.split(":")[0].split()[-1] for text in judged.locator("li").all_inner_texts()] == ["supported"] * 2


def test_search_filters_and_order_choose_from_the_list(opened: Open) -> None:
    found = opened("two")
    page = found.page
    status = page.locator("#status")
    expect(status).to_have_text("1–25 of 25 queries")
    # Regressions first: queries that were found and no longer are.
    kinds = [re.split(r"\s", text.strip(), maxsplit=2)[1] for text in found.summaries()]
    assert kinds[:3] == ["regression"] * 3
    assert kinds == sorted(kinds, key=["regression", "loss", "worse", "win", "better", "draw"].index)

    page.get_by_label("Search").fill("declined card")
    expect(status).to_have_text("1–1 of 1 query, filtered from 25")
    assert "My card was declined" in found.summaries()[0]
    page.get_by_label("Search").fill("no such words")
    expect(status).to_contain_text("No query matches")
    assert found.summaries() == []
    page.get_by_role("button", name="Show all").click()
    expect(status).to_have_text("1–25 of 25 queries")

    # The buttons of the flow: as many as they say.
    button = page.locator("#flows button[data-flow=hm]")
    count = int(button.locator("b").inner_text())
    assert count == kinds.count("regression")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(status).to_have_text(f"1–{count} of {count} queries, filtered from 25")
    button.click()
    expect(status).to_have_text("1–25 of 25 queries")
    page.locator(".ribbon.hm").click()
    expect(status).to_contain_text(f"of {count} queries")
    page.get_by_role("button", name="Show all").click()

    page.get_by_label("Category").select_option("billing")
    assert len(found.summaries()) == 8
    page.get_by_label("Tag").select_option("refund")
    assert len(found.summaries()) == 1
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Kind").select_option("loss")
    assert all("loss" in text for text in found.summaries())
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Cause").select_option("chunker changed")
    assert 0 < len(found.summaries()) < 25
    page.get_by_role("button", name="Show all").click()

    page.get_by_label("Order").select_option("id")
    ids = page.locator("#list .qid").all_inner_texts()
    assert ids == sorted(ids)
    page.get_by_label("Order").select_option("before")
    ranks = [text.split(" → ")[0] for text in page.locator("#list .ranks").all_inner_texts()]
    numbers = [float("inf") if rank == "–" else int(rank) for rank in ranks]
    assert numbers == sorted(numbers, reverse=True)
    page.get_by_label("Order").select_option("rank")
    ranks = [text.split(" → ")[1] for text in page.locator("#list .ranks").all_inner_texts()]
    numbers = [float("inf") if rank == "–" else int(rank) for rank in ranks]
    assert numbers == sorted(numbers, reverse=True)
    # One query timed out after 30 seconds.
    page.get_by_label("Order").select_option("slow")
    assert "Where are conflict copies?" in found.summaries()[0]


def test_a_query_shows_both_rankings_and_both_answers(opened: Open) -> None:
    page = opened("two", "#q-g014").page
    item = page.locator("[id='q-g014']")
    expect(item.locator(".expected .text")).to_contain_text(
        "A failed payment is tried again after three, five and seven"
    )
    before, after = item.locator(".side").all()
    expect(before.locator("h3")).to_have_text("Run A")
    expect(after.locator("h3")).to_have_text("Run B")

    def boxes() -> list[dict[str, float]]:
        """Both at the same moment: the page may still be scrolling."""
        script = "items => items.map((item) => item.getBoundingClientRect().toJSON())"
        found: list[dict[str, float]] = item.locator(".side").evaluate_all(script)
        return found

    # They are side by side, and one below the other on a phone.
    left, right = boxes()
    assert left["y"] == right["y"]
    assert left["right"] <= right["x"]
    # The hit that counts: rank, document, headings, chunk, place, score, by which label, and the words that count.
    hit = before.locator("li.hit.c2")
    expect(hit.locator("summary")).to_have_text(
        re.compile(
            r"^2\s*✓\s*counts billing/invoices.md Invoices and payment › Ways to pay h2-d4-02 lines 6–11 score \S+$"
        )
    )
    expect(hit.locator(".label").first).to_have_text("counts as chunk l1-d4-03 (0.75 of it, 0.50 of the hit)")
    expect(hit.locator("mark")).to_contain_text("After the third failure the workspace becomes read-only")
    assert after.locator("li.hit.c2").count() == 0
    expect(after.locator("li.hit.c1 .label").first).to_have_text("in the expected document d4")
    # Refusal, rules, causes.
    expect(before.locator(".answer .tag")).to_have_text("refused")
    expect(after.locator(".answer .checks")).to_contain_text("must contain three, five and seven: broken")
    expect(item.locator(".cause").first).to_contain_text("not retrieved")
    page.set_viewport_size({"width": 360, "height": 900})
    left, right = boxes()
    assert left["bottom"] <= right["y"]
    # The words of an answer that the other does not have are marked.
    page.evaluate("location.hash = '#q-g021'")
    only = page.locator("[id='q-g021'] mark.only")
    assert only.count() > 0


def write_long(folder: Path, queries: int) -> Path:
    """A report of many queries with few and short hits, written in batches of fifty that the script puts together."""
    files = ["--db", str(folder / "kb.db"), "--golden", str(folder / "golden.json")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "HITS", 3)
        patch.setattr(reports, "CHARACTERS", 100)
        patch.setattr(evidence, "BATCH", 50)
        make_texts(folder, queries)
        assert run(["report", "a", "b", *files, "-o", str(folder / "r.html")]) == 0
    return folder / "r.html"


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long(tmp_path_factory.mktemp("long"), 120)


def test_a_long_list_has_pages(context: BrowserContext, long_page: Path) -> None:
    page = context.new_page()
    page.goto(long_page.as_uri())
    status = page.locator("#status")
    expect(status).to_have_text("1–50 of 120 queries")
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    first = page.locator("#list .qid").all_inner_texts()
    page.get_by_role("button", name="Next").click()
    expect(status).to_have_text("51–100 of 120 queries")
    expect(page.locator(SUMMARY).first).to_be_focused()
    page.get_by_role("button", name="Next").click()
    expect(status).to_have_text("101–120 of 120 queries")
    last = page.locator("#list .qid").all_inner_texts()
    assert len(last) == 20
    # The texts of the last batch are its own, and the same as in the database.
    data = data_of(long_page)
    view = next(view for view in data["queries"] if view["id"] == last[-1])
    page.locator(SUMMARY).last.click()
    shown = page.locator("#list .q").last.locator(".side").first.locator("li.hit .text").first
    expect(shown).to_have_text(data["texts"][hits_of(data, view["sides"][0])[0]["text"]])
    page.locator(SUMMARY).last.click()
    assert not set(first) & set(last)
    # A link leads to the page of its query; an open query stays open.
    page.evaluate("id => { location.hash = '#q-' + id; }", first[7])
    expect(status).to_have_text("1–50 of 120 queries")
    expect(page.locator(f"[id='q-{first[7]}'] .detail")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Previous").click()
    expect(page.locator(f"[id='q-{first[7]}'] .detail")).to_be_visible()
    page.close()


def test_everything_can_be_done_with_the_keyboard(opened: Open) -> None:
    page = opened("two").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    # Tab reaches every control, in the order of the page.
    reached: list[str] = []
    while reached[-1:] != ["SUMMARY "] and len(reached) < 60:
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => { const e = document.activeElement; return `${e.tagName} ${e.dataset.flow || e.id}`"
                " + (e.matches('.more > summary') ? 'more' : ''); }"
            )
        )
    assert [one for one in reached if not one.startswith(("A ", "DIV "))] == [
        "SUMMARY more", *(f"BUTTON {flow}" for flow in ("hh", "hm", "mh", "mm", "none")), "INPUT search",
        *(f"SELECT {name}" for name in ("kind", "category", "tag", "cause", "order")), "BUTTON reset", "SUMMARY ",
    ]  # fmt: skip
    page.get_by_label("Search").focus()
    page.keyboard.type("password")
    expect(page.locator("#status")).to_contain_text("filtered from 25")
    page.get_by_role("button", name="Show all").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    first, second = (page.locator(SUMMARY).nth(place) for place in (0, 1))
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#list .detail").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(second).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(SUMMARY).last).to_be_focused()
    page.keyboard.press("Home")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#list .detail").first).to_be_hidden()


def test_each_query_has_a_link_of_its_own(opened: Open) -> None:
    page = opened("two", "#q-g014").page
    expect(page.locator("[id='q-g014'] .detail")).to_be_visible()
    expect(page.locator("[id='q-g014'] > details > summary")).to_be_focused()
    page.get_by_label("Search").fill("SAML")
    page.evaluate("location.hash = '#q-g021'")
    expect(page.locator("[id='q-g021'] .detail")).to_be_visible()
    # A citation leads to its hit.
    page.evaluate("location.hash = '#q-g001'")
    citation = page.locator("[id='q-g001'] .answer a").first
    citation.click()
    target = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    expect(page.locator(f"[id='{target}'] > details")).to_have_attribute("open", "")

    hostile = opened("hostile two").page
    for link in [item.get_attribute("id") for item in hostile.locator("#list .q").all()]:
        assert link
        hostile.evaluate("link => { location.hash = '#' + link; }", link)
        expect(hostile.locator("#list .q > details[open]").last).to_be_visible()
        assert hostile.evaluate("link => document.getElementById(link).querySelector('details').open", link)


def test_colours_follow_the_system_and_the_switch(opened: Open) -> None:
    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = (opened("two", color_scheme=scheme).page for scheme in ("light", "dark"))
    assert paper(light) != paper(dark)
    day = paper(light)
    light.get_by_label("dark").check()
    assert paper(light) == paper(dark)
    light.get_by_label("system").check()
    assert paper(light) == day
    dark.get_by_label("light").check()
    assert paper(dark) == day


def test_a_page_prints(opened: Open) -> None:
    page = opened("two", color_scheme="dark").page
    page.emulate_media(media="print")
    for hidden in ("#filters", ".theme", ".top nav", "#pages", "#status"):
        expect(page.locator(hidden)).to_be_hidden()
    for visible in (".verdict", ".numbers >> nth=0", "#ledger"):
        expect(page.locator(visible)).to_be_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("#printed")).to_have_text("All 25 queries, in full.")
    expect(page.locator("#printed")).to_be_visible()
    expect(page.locator("#list .detail").last).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 251, 248)"
    assert is_as_wide_as_the_window(page)


# What is on paper, seen at the moment of printing.
SEEN = """
() => addEventListener("beforeprint", () => { window.seen = {
    listed: document.querySelectorAll("#list .q").length,
    full: document.querySelectorAll("#list .detail").length,
    closed: document.querySelectorAll("details:not([open])").length,
    said: document.getElementById("printed").textContent } })
"""


def test_everything_that_is_chosen_is_printed(context: BrowserContext, long_page: Path) -> None:
    """Not only the current page of the list, but all of it; afterwards the page is as before."""
    page = context.new_page()
    page.goto(long_page.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.evaluate(SEEN)
    page.locator(SUMMARY).nth(1).click()
    page.get_by_label("Category").select_option("area 3")
    few = page.pdf()
    assert page.evaluate("window.seen") == {
        "listed": 17, "full": 17, "closed": 0, "said": "17 of 120 queries, filtered by category area 3, in full.",
    }  # fmt: skip
    expect(page.locator("#status")).to_have_text("1–17 of 17 queries, filtered from 120")
    page.get_by_role("button", name="Show all").click()
    everything = page.pdf()
    assert page.evaluate("window.seen") == {
        "listed": 120, "full": 120, "closed": 0, "said": "All 120 queries, in full.",
    }  # fmt: skip
    assert everything.startswith(b"%PDF")
    assert len(everything) > 3 * len(few)
    # As before: a page of fifty, one query open, the rest closed.
    assert page.locator(SUMMARY).count() == 50
    assert page.locator("#list .q > details[open]").count() == 1
    assert page.locator(".more:not([open])").count() == 1
    page.close()


def test_beyond_five_hundred_queries_the_rest_is_printed_as_one_line_each(
    context: BrowserContext, tmp_path: Path
) -> None:
    page = context.new_page()
    page.goto(write_long(tmp_path, 510).as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.evaluate(SEEN)
    page.evaluate("() => { dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint')); }")
    seen = page.evaluate("window.seen")
    assert (seen["listed"], seen["full"]) == (510, 500)
    assert seen["said"] == "All 510 queries; the first 500 in full, the others as one line each."
    assert page.locator(SUMMARY).count() == 50
    page.close()


def test_without_javascript_a_page_prints_with_everything_open(opened: Open) -> None:
    page = opened("one", script=False).page
    closed = page.locator("#static .q > details:not([open]) .detail").first
    expect(closed).to_be_hidden()
    page.emulate_media(media="print")
    expect(closed).to_be_visible()
    expect(page.locator(".more table")).to_be_visible()


def test_the_policy_lets_nothing_else_in(context: BrowserContext, pages: Files) -> None:
    """Even if markup got into the file, it could not run, load or look different."""
    text = pages.path("two").read_text(encoding="utf-8")
    evil = (
        "<script>window.broken=1</script><img src=http://localhost:9/x onerror='window.broken=1'>"
        "<style>h1{display:none}</style><p style='display:none' id=evil>seen</p><iframe src=http://localhost:9/></iframe>"
    )
    copy = pages.folder / "injected.html"
    copy.write_text(text.replace("<main ", f"{evil}<main ", 1), encoding="utf-8")
    page = context.new_page()
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.goto(copy.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    assert page.evaluate("window.broken") is None
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("#evil")).to_be_visible()
    assert asked == [copy.as_uri()]
    page.close()


def words(text: str) -> str:
    """The characters that can be seen: spaces between elements are those of the template."""
    return "".join(text.split())


TEXTS = "items => items.map((item) => [item.id, item.textContent])"
SHAPES = """
items => items.map((item) => [item.id, [...item.querySelectorAll(".detail *")].map(
    (e) => e.tagName + "." + e.className.toString().trim() + (e.open ? "+" : ""))])
"""


@pytest.mark.parametrize("name", ["two", "one", "hostile two", "hostile one"])
def test_without_javascript_the_same_is_there(opened: Open, name: str) -> None:
    """What the templates write and what the script makes is the same text, query by query."""
    plain = opened(name, script=False).page
    expect(plain.locator("#filters")).to_be_hidden()
    expect(plain.locator(".verdict")).to_be_visible()
    static = {link: words(text) for link, text in plain.locator("#static .q").evaluate_all(TEXTS)}
    assert len(static) >= (10 if "hostile" not in name else 1)
    plain.locator("#static .q > details > summary").first.click()
    expect(plain.locator("#static .detail").first).to_be_visible()
    assert is_as_wide_as_the_window(plain)

    page = opened(name).page
    open_all(page)
    expect(page.locator("#static")).to_have_count(0)
    made = {link: words(text) for link, text in page.locator("#list .q").evaluate_all(TEXTS)}
    assert {link: made[link] for link in static} == static
    # The same elements, so that the same style applies; and the same places are marked.
    there, here = (dict(one.locator(".q").evaluate_all(SHAPES)) for one in (plain, page))
    for link in static:
        assert there[link], link
        assert there[link] == here[link], link


def test_the_list_without_javascript_is_accessible(context: BrowserContext, pages: Files) -> None:
    """axe needs JavaScript; the page is the same without its script."""
    for name in ("one",):
        text = re.sub(r"<script>.*?</script>", "", pages.path(name).read_text(encoding="utf-8"), flags=re.DOTALL)
        copy = pages.folder / f"without-{name.replace(' ', '-')}.html"
        copy.write_text(text, encoding="utf-8")
        page = context.new_page()
        page.goto(copy.as_uri())
        page.locator("#static .q > details > summary").first.click()
        assert accessibility_faults(page) == []
        page.close()
