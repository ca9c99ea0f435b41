"""`kbeval label --web` in a real browser, and requests that must be refused."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kbeval.live.labelling.actions import Actions
from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.live.labelling.web import PageServer
from tests.support.browser import accessibility_faults, browser
from tests.support.labelled import AFTER, BEFORE, HOSTILE, label_ten, make
from tests.support.workspace import Workspace

__all__ = ["browser"]


class InBrowser:
    """The page, used by keyboard and by selecting text."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))

    def visit(self, url: str) -> None:
        self.page.goto(url)
        expect(self.page.locator("#candidates > li").first).to_be_visible()

    def settle(self) -> None:
        """Until all that was asked for is answered."""
        for _ in range(2):
            self.page.evaluate("async () => { while (waiting) await turn; await busy; }")

    def open(self, query_id: str) -> None:
        self.page.keyboard.press("/")
        self.page.keyboard.type(query_id)
        expect(self.page.locator("#queue li").first).to_be_visible()
        self.page.keyboard.press("Enter")
        self.settle()
        self.page.locator("#find").fill("")
        self.page.locator("#question").focus()
        expect(self.page.locator("#meta")).to_have_text(re.compile(rf"^{query_id}\b"))

    def choose(self, text: str) -> None:
        self.page.locator("#candidates > li", has_text=text).locator(".where").click()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def select(self, text: str) -> None:
        self.page.evaluate(
            """text => {
                const box = document.querySelector("#candidates > li.current .text");
                const start = box.textContent.indexOf(text);
                const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
                const range = document.createRange();
                let at = 0, begun = false;
                for (let node; (node = walker.nextNode()); at += node.length) {
                    if (!begun && start < at + node.length) { range.setStart(node, start - at); begun = true; }
                    const left = start + text.length - at;
                    if (begun && left <= node.length) { range.setEnd(node, left); break; }
                }
                getSelection().removeAllRanges();
                getSelection().addRange(range);
            }""",
            text,
        )

    def support_line(self, number: int) -> None:
        lines = str(self.page.locator("#candidates > li.current .text").text_content()).split("\n")
        self.select(lines[number - 1])
        self.press("s")

    def must_contain(self, text: str) -> None:
        self.select(text)
        self.press("m")

    def answer(self, key: str, *texts: str) -> None:
        self.page.keyboard.press(key)
        for number, text in enumerate(texts):
            self.page.locator(f"#input-{number}").fill(text)
        self.page.locator("#dialog-ok").click()
        self.page.wait_for_function("() => !document.getElementById('dialog').open")
        self.settle()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, Labelling, PageServer]]:
    workspace = make(tmp_path_factory.mktemp("page"))
    with Labelling(workspace.db, workspace.golden, Chosen("ann")) as session, PageServer(Actions(session)) as server:
        yield workspace, session, server


def test_ten_queries_in_a_browser(browser: Browser, served: tuple[Workspace, Labelling, PageServer]) -> None:
    workspace, session, server = served
    page = browser.new_page()
    driver = InBrowser(page)
    driver.visit(server.url)
    # Hostile text is text: no element is made of it, and nothing of it runs.
    driver.open("q1")
    assert page.locator("#candidates img, #candidates script").count() == 0
    assert HOSTILE.partition("\x1b")[0] in str(page.locator("#candidates").text_content())
    assert "hacked" not in page.title()
    assert accessibility_faults(page) == []
    # The words of the query are marked. One candidate at a time, or all of them.
    driver.open("q2")
    assert set(page.locator("#candidates .word").all_text_contents()) == {"Topic"}
    counts = []
    for _ in range(3):
        counts.append(page.locator("#candidates > li:visible").count())
        driver.press("v")
    assert counts in ([1, 2, 1], [2, 1, 2])
    driver.press("v")
    label_ten(driver)
    driver.open("q10")
    assert workspace.golden.read_bytes().decode() == AFTER
    # A second tab sees what was decided; what it does not know of, it cannot overwrite.
    other = InBrowser(browser.new_page())
    other.visit(server.url)
    other.open("q2")
    expect(other.page.locator("mark")).to_have_text("The answer 2 is here.")
    driver.open("q2")
    driver.choose("The answer 2")
    driver.press("f")
    other.choose("The answer 2")
    other.press("k")
    expect(other.page.locator("#message")).to_contain_text("another decision was made")
    expect(other.page.locator("#candidates > li.no")).to_have_count(1)
    driver.press("u")
    assert list(session.view("q2").passages.values()) == ["The answer 2 is here."]
    assert driver.faults == []
    other.page.close()
    page.locator("#end").click()
    expect(page.locator("#message")).to_contain_text("Saved")
    assert server.wait() == "ended"
    assert workspace.golden.read_bytes().decode() == AFTER
    page.close()


def asked(
    server: PageServer, method: str = "GET", path: str = "/api/work", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """A request with headers as given, and no others."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    sent = {
        "Host": server.address,
        "X-Kbeval-Token": server.token,
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    for name, value in sent.items():
        if value:
            connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_requests_of_others_are_refused(served: tuple[Workspace, Labelling, PageServer]) -> None:
    server = served[2]
    assert asked(server)[0] == 200
    port = server.address.partition(":")[2]
    wrong: list[dict[str, str]] = [
        {"Host": f"localhost:{port}"},
        {"Host": f"attacker.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"X_Kbeval_Token": ""},
        {"X_Kbeval_Token": "a" * 32},
        {"X_Kbeval_Token": server.token[:-1]},
        {"Origin": "https://attacker.example"},
        {"Origin": f"http://localhost:{port}"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"path": "/"},
        {"path": "/?token=wrong"},
        {"path": f"/?token={server.token}", "Host": f"attacker.example:{port}"},
    ]
    for case in wrong:
        path, headers = case.get("path", "/api/work"), {name: case[name] for name in case if name != "path"}
        status, text, _ = asked(server, "GET", path, None, **headers)
        assert status == 403, case
        assert b"topic" not in text, case
    # A form of another site cannot send JSON, and anything else is not read.
    for kind, body in (("text/plain", b"{}"), ("application/json", b"[1]"), ("application/json", b"{"), ("", b"{}")):
        assert asked(server, "POST", "/api/undo", body, Content_Type=kind)[0] == 400, (kind, body)
    assert asked(server, path="/../../etc/passwd")[0] == 404
    assert asked(server, path="/api/query/%2e%2e")[0] == 422
    large = {"Content_Type": "application/json", "Content_Length": "99999999999"}
    assert asked(server, "POST", "/api/undo", None, **large)[0] == 400
    for value in (
        {},
        {"query": 7},
        {"query": "q1", "key": "x"},
        {"query": "q1", "key": "x", "value": "yes", "part": [1]},
    ):
        status, *_ = asked(server, "POST", "/api/decide", json.dumps(value).encode(), Content_Type="application/json")
        assert status in (400, 422), value
    assert asked(server, "POST", "/api/nothing", b"{}", Content_Type="application/json")[0] == 404


def test_the_page_allows_nothing_but_itself(served: tuple[Workspace, Labelling, PageServer]) -> None:
    server = served[2]
    _, page, headers = asked(server, path=f"/?token={server.token}")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    for path in ("/label.css", "/label.js"):
        text = asked(server, path=path)[1].decode()
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text
        assert "eval(" not in text
    assert not re.search(rb"<script(?! src)|style=|onclick", page)


def test_a_killed_process_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    command = [sys.executable, "-m", "kbeval", "label", "--web", "--annotator", "eva", "--db", str(workspace.db)]
    process = subprocess.Popen([*command, "--golden", str(workspace.golden)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        address, token = re.fullmatch(r"http://(127\.0\.0\.1:\d+)/\?token=(\S+)", url).groups()  # type: ignore[union-attr]
        connection = http.client.HTTPConnection(address, timeout=20)
        head = {"X-Kbeval-Token": token, "Content-Type": "application/json"}
        confirmed = 0
        for n in range(1, 5):
            connection.request("GET", f"/api/query/q{n}", headers=head)
            view = json.loads(connection.getresponse().read())
            for one in view["candidates"]:
                body = {"query": f"q{n}", "key": one["key"], "value": "yes", "after": 0}
                connection.request("POST", "/api/decide", json.dumps(body), head)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200
                confirmed += 1
        os.kill(process.pid, signal.SIGKILL)
        connection.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert workspace.execute("SELECT COUNT(*) FROM kbeval_labels") == [(confirmed,)]
    assert workspace.golden.read_text(encoding="utf-8") == BEFORE
    with Labelling(workspace.db, workspace.golden, Chosen("eva")) as session:
        assert session.saved_before.written == confirmed
        while session.undo():
            pass
    assert workspace.golden.read_text(encoding="utf-8") == BEFORE


def test_the_page_ends_when_it_is_not_used(served: tuple[Workspace, Labelling, PageServer]) -> None:
    with PageServer(Actions(served[1]), idle_seconds=0.1) as server:
        assert server.wait() == "idle"


# --- what people disagree on, and answers to be scored ------------------------------------------------------


def test_settling_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    workspace = make(tmp_path)
    for who, value in (("ann", "yes"), ("bob", "no")):
        with Labelling(workspace.db, workspace.golden, Chosen(who)) as session:
            key = next(one.key for one in session.view("q7").candidates if "The answer 7" in one.text)
            session.decide("q7", key, value)
            session.set_answerable("q7", value=value == "yes", is_sure=True)
            session.set_rule("q7", "answer 7", is_wanted=value == "yes")
    chosen = Chosen("eva", to_settle=True)
    with Labelling(workspace.db, workspace.golden, chosen) as session, PageServer(Actions(session)) as server:
        page = browser.new_page()
        driver = InBrowser(page)
        driver.visit(server.url)
        expect(page.locator("#left")).to_contain_text("1 query left, 3 disagreements")
        expect(page.locator("#candidates > li")).to_have_count(3)
        expect(page.locator(".dispute").first).to_contain_text("ann: yes · bob: no")
        assert accessibility_faults(page) == []
        # Keys that are pressed before the answer to the last one are about what is shown then.
        for key in "sss":
            page.keyboard.press(key)
        driver.settle()
        expect(page.locator("#left")).to_contain_text("everything is settled")
        expect(page.locator("#candidates > li.yes")).to_have_count(3)
        driver.press("u")
        expect(page.locator("#left")).to_contain_text("1 disagreement")
        driver.press("s")
        page.locator("#end").click()
        expect(page.locator("#message")).to_contain_text("Saved")
        assert driver.faults == []
        page.close()
    line = "  query: What is topic 7?\n"
    spans = "  expected_spans: [{doc_id: d7, kind: line, start: 1, end: 3}]\n"
    wanted = BEFORE.replace(line, f"{line}  answerable: true\n{spans}  must_contain: [answer 7]\n")
    assert workspace.golden.read_text(encoding="utf-8") == wanted


def test_scoring_answers_in_a_browser(browser: Browser, tmp_path: Path) -> None:  # noqa: PLR0915  (a whole work)
    """`kbeval label --as-judge RUN --web` as a process, by keyboard; then what two people disagree on."""
    workspace = Workspace(tmp_path)
    hit = {"chunk_id": "c", "doc_id": "d", "text": f"The context {HOSTILE}"}
    workspace.add_golden(*({"id": f"q{n}", "expected_key_facts": [f"fact {n}"]} for n in range(3)))
    rows = {
        f"q{n}": {
            "query": f"Question {n}?",
            "hits_top_k": [hit],
            "answer": {"answer": f"Answer {n}.", "grounded": True},
        }
        for n in range(3)
    }
    workspace.add_run("run", rows)

    def served_by(who: str, *more: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "kbeval", "label", "--as-judge", "run", "--web", "--annotator", who, *more]
        where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
        process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    scores = {"ann": [(5, 4), (3, 3), (0, 1)], "bob": [(5, 4), (2, 3), (0, 1)]}
    for who, wanted in scores.items():
        process, url = served_by(who)
        try:
            page = browser.new_page()
            driver = InBrowser(page)
            driver.visit(url)
            expect(page.locator("#left")).to_contain_text("3 answers left, 6 scores")
            if who == "ann":
                assert accessibility_faults(page) == []
                assert page.locator("#candidates img, #candidates script").count() == 0
            for _ in range(3):
                n = int(str(page.locator("#meta").text_content())[1:])
                expect(page.locator("#scores")).to_contain_text(f"fact {n}")
                for value in (*wanted[n], "n"):
                    page.keyboard.press(str(value))
                driver.settle()
            expect(page.locator("#left")).to_contain_text("everything is decided")
            # A score off the scale is nothing; an undo takes back the last one.
            driver.press("9")
            driver.press("u")
            expect(page.locator("#left")).to_contain_text("1 answer left, 1 score")
            n = int(str(page.locator("#meta").text_content())[1:])
            driver.press(str(wanted[n][1]))
            page.locator("#end").click()
            expect(page.locator("#message")).to_contain_text("Saved")
            assert driver.faults == []
            page.close()
            assert "next: 'kbeval judge run --agreement --db " in process.communicate(timeout=60)[1]
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()
    stored = workspace.execute(
        "SELECT annotator, query_id, field, value_json FROM kbeval_labels WHERE undone_at IS NULL"
    )
    names = ("score:groundedness", "score:correctness")
    assert sorted(stored) == sorted(
        (who, f"q{n}", name, str(value))
        for who, wanted in scores.items()
        for n, pair in enumerate(wanted)
        for name, value in zip(names, pair, strict=True)
    )
    process, url = served_by("eva", "--settle")
    try:
        page = browser.new_page()
        driver = InBrowser(page)
        driver.visit(url)
        expect(page.locator("#left")).to_contain_text("1 answer left, 1 score")
        expect(page.locator(".dispute")).to_have_text("ann: 3 · bob: 2")
        driver.press("3")
        expect(page.locator("#left")).to_contain_text("everything is")
        page.locator("#end").click()
        expect(page.locator("#message")).to_contain_text("Saved")
        page.close()
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    settled = "SELECT annotator, query_id, field, value_json FROM kbeval_labels WHERE is_settlement"
    assert workspace.execute(settled) == [("eva", "q1", "score:groundedness", "3")]
