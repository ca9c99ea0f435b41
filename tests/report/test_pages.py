"""The three kinds of page: their numbers against other commands, their drawings against the numbers, their policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.compare.run import compare_runs
from tests.report.reading import data_of
from tests.support.workspace import Workspace, answer, hits


def section(page: str, name: str) -> str:
    """The markup of a section."""
    return page.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def cells(markup: str) -> list[list[str]]:
    """The texts of the cells of all tables, row by row."""
    found = []
    for row in re.findall(r"<tr[ >].*?</tr>", markup, re.DOTALL):
        texts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        found.append([" ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()) for text in texts])
    return found


def row_of(markup: str, first: str) -> list[str]:
    return next(row for row in cells(markup) if row and row[0] == first)


def wilson(right: int, count: int) -> tuple[float, float]:
    """Wilson's score interval, from its formula."""
    z, share = 1.959963984540054, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """B finds twelve queries that A misses, loses one, and answers worse; four more have no answer."""
    workspace = Workspace(tmp_path_factory.mktemp("decided"))
    names = [f"q{number:02}" for number in range(40)]
    category = {name: "late" if number >= 30 else "early" for number, name in enumerate(names)}
    golden: list[dict[str, Any]] = [
        {"id": name, "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"], "category": category[name],
         "answerable": True, "must_contain": ["yes"]}
        for name in names
    ]  # fmt: skip
    golden += [{"id": f"none{number}", "answerable": False} for number in range(4)]
    workspace.add_golden(*golden)
    rows_a: dict[str, Any] = {}
    rows_b: dict[str, Any] = {}
    for number, name in enumerate(names):
        found_a = 2 if number < 24 else None
        found_b = None if number == 0 else 1 if number < 36 else None
        for rows, rank, said in ((rows_a, found_a, "yes"), (rows_b, found_b, "no" if number % 2 else "yes")):
            listed: list[str | None] = [None, None, None]
            if rank:
                listed[rank - 1] = "c"
            # B refuses three that it has the evidence for, and the last, for which it has none.
            refuses = rows is rows_b and (number in (1, 2, 3) or number == 39)
            rows[name] = {
                "hits_top_k": hits(*listed), "elapsed_ms": 10 * (number + 1),
                "answer": answer("" if refuses else said, grounded=not refuses),
            }  # fmt: skip
    for number in range(4):
        rows_a[f"none{number}"] = {"hits_top_k": hits(None), "answer": answer("", grounded=False)}
        # The same chunk twice, which `check` finds.
        rows_b[f"none{number}"] = {"hits_top_k": hits("x", "x"), "answer": answer("made up", grounded=number > 0)}
    workspace.add_run("a", rows_a)
    workspace.add_run("b", rows_b, created_at="2026-01-02")
    workspace.execute(
        "UPDATE eval_runs SET config_snapshot_json = ?, commit_hash = 'abc123' WHERE run_id = 'b'",
        (json.dumps({"chunker_version": "md@1", "k": 7, "api_key": "sk-123456789012345678901234"}),),
    )
    return workspace


def page_of(workspace: Workspace, *arguments: str) -> str:
    path = workspace.db.parent / "page.html"
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["report", *arguments, *files, "-o", str(path)]) == 0
    return path.read_text()


def test_two_runs_verdict_numbers_and_what_they_rest_on(decided: Workspace) -> None:
    page = page_of(decided, "a", "b")
    report = compare_runs("a", "b", db=decided.db, golden=decided.golden)
    evidence = report.verdict.evidence
    # It ranks better and answers worse.
    assert (report.verdict.answer, report.verdict.metric) == ("mixed", "mrr")
    assert evidence is not None
    assert evidence.low is not None
    assert evidence.high is not None
    verdict = html.unescape(page.partition('<p class="verdict mixed">')[2].partition("</p>")[0])
    assert "◆" in verdict
    assert "Mixed" in verdict
    lead = page.partition('<p class="lead">')[2].partition("<section")[0]
    assert f"{evidence.low:+.4f} to {evidence.high:+.4f}".replace("-", "−") in lead
    # What could have been detected.
    assert f"a change in mrr of about {evidence.detectable:.4f} is detected in four out of five trials" in lead

    numbers = section(page, "numbers")
    row = row_of(numbers, "mrr")
    whole = report.whole
    assert row[1:3] == [f"{whole.aggregate_a.mrr:.4f}", f"{whole.aggregate_b.mrr:.4f}"]
    assert row[-1] == "▲ better"
    # B keeps fewer rules: worse, with a sign of its own; what did not change is neither.
    assert row_of(numbers, "grounded")[-1].split()[0] == "▼"
    # One axis for all, and each interval is drawn where its numbers are.
    drawn = re.search(r'<tr role="row" class="better">\s*<th[^>]*>mrr</th>.*?</tr>', numbers, re.DOTALL)
    assert drawn
    (start, end), *_ = re.findall(r'class="range better" x1="([\d.]+)%" x2="([\d.]+)%" y1="11" y2="11"', drawn[0])
    ticks = re.findall(r'class="(?:tick|zero)" x1="([\d.]+)%"', drawn[0])
    assert [float(tick) for tick in ticks] == [0, 25, 50, 75, 100]
    high = float(re.search(r'<span class="scale">.*?<span>\+([\d.]+)</span></span>', numbers, re.DOTALL)[1])  # type: ignore[index]
    assert float(start) == pytest.approx(50 + 50 * evidence.low / high, abs=0.01)
    assert float(end) == pytest.approx(50 + 50 * evidence.high / high, abs=0.01)
    assert 'class="mark better" d="M0,-6' in drawn[0]

    # The flow: what compare says about each query, counted here.
    flows = Counter(
        "".join("m" if rank is None else "h" for rank in (one.a_hit_rank, one.b_hit_rank))
        for one in report.per_query
        if one.matching
    )
    assert flows == {"hh": 23, "hm": 1, "mh": 12, "mm": 4}
    said = dict(re.findall(r'<li data-flow="(\w+)".*?<b>(\d+)</b>', page))
    assert {name: int(count) for name, count in said.items() if name != "none"} == flows
    views = data_of(decided.db.parent / "page.html")["queries"]
    assert views[0]["kind"] == "regression"
    assert Counter(view["flow"] for view in views if view["flow"] != "none") == flows

    # Configuration that differs, without secrets; ledger and provenance at the end.
    assert row_of(section(page, "configuration"), "k") == ["k", "–", "7"]
    assert "sk-1234" not in page
    ledger = section(page, "ledger")
    assert row_of(ledger, "golden") == ["golden", "44", "44"]
    assert row_of(ledger, "commit") == ["commit", "–", "abc123"]
    for name in ("metrics", "golden", "matching"):
        assert [whole.aggregate_a.provenance[name], whole.aggregate_b.provenance[name]] in [
            row[1:] for row in cells(ledger) if row[0] == name
        ]
    assert page.index('id="numbers"') < page.index('id="queries"') < page.index('id="configuration"')
    assert page.index('id="configuration"') < page.index('id="ledger"') < page.index("<footer>")


def test_what_is_matched_by_span_says_so(made_demo: Path, tmp_path: Path) -> None:
    files = [
        "--db",
        str(made_demo / "kb.db"),
        "--golden",
        str(made_demo / "golden.yaml"),
        "-o",
        str(tmp_path / "r.html"),
    ]
    assert run(["report", "2026-03-03", "2026-03-04", *files]) == 0
    assert "Matched by spans: chunker lines@1 → headings@2" in (tmp_path / "r.html").read_text()
    assert run(["report", "2026-03-02", "2026-03-03", *files]) == 0
    assert "Matched by spans" not in (tmp_path / "r.html").read_text()


def test_one_run_numbers_pictures_and_findings(decided: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """Each count is counted again from the rows that the fixture made."""
    page = page_of(decided, "b")
    numbers = section(page, "numbers")
    low, high = wilson(35, 40)
    hit = row_of(numbers, "hit@1")
    assert hit[1] == "0.8750"
    assert f"{low:.4f} to {high:.4f}" in hit
    assert "mrr 0.8750, between" in page.partition('<p class="verdict">')[2].partition("</p>")[0]

    pictures = section(page, "pictures")
    ranks = [row for row in cells(pictures.partition("Answered and refused")[0]) if row[0] in ("1", "2", "not found")]
    assert [row[:2] for row in ranks] == [["1", "35"], ["2", "0"], ["not found", "5"]]
    # Answered or refused, with or without the evidence: 2 × 2, and the queries without an answer below.
    square = [row for row in cells(pictures.partition('class="square"')[2].partition("</table>")[0]) if len(row) == 3]
    counts = {row[0]: [int(cell.split()[0]) for cell in row[1:]] for row in square[1:]}
    assert counts == {"evidence in the top 7": [32, 3], "evidence not found": [4, 1], "has no answer": [3, 1]}
    assert page.count('<svg class="bar"') >= 6
    # Time: all 40 rows that have one.
    times = pictures.partition("Time per query")[2].partition("</table>")[0]
    assert sum(int(row[1]) for row in cells(times) if row[1].isdigit()) == 40
    assert "median 205 ms" in pictures
    # Slices as small multiples, on the same axis as the numbers.
    slices = pictures.partition("mrr by category")[2]
    assert row_of(slices, "early")[1:3] == ["30", "0.9667"]
    assert row_of(slices, "late")[1:3] == ["10", "0.6000"]

    # The worst first: those without evidence, answered or refused, then what breaks its rules.
    views = data_of(decided.db.parent / "page.html")["queries"]
    assert [view["kind"] for view in views[:6]] == ["miss"] * 5 + ["hit"]
    assert {view["id"] for view in views[:5]} == {"q00", "q36", "q37", "q38", "q39"}

    files = ["--db", str(decided.db), "--golden", str(decided.golden)]
    capsys.readouterr()
    run(["check", "b", *files, "--format", "json"])
    found = [one["code"] for one in json.loads(capsys.readouterr().out)]
    assert found
    shown = re.findall(r"<code>([\w-]+)</code>", section(page, "check"))
    assert [code for code in shown if code != "kbeval"] == found


def test_a_history_marks_changed_labels_and_does_not_join_across_them(workspace: Workspace) -> None:
    """Another configuration, then other labels, then other definitions."""
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for day in (1, 2):
        workspace.add_run(f"run{day}", {"q": {"hits_top_k": hits("c")}}, created_at=f"2026-01-0{day}")
    workspace.execute(
        "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'run2'",
        (json.dumps({"chunker_version": "md@1", "k": 7}),),
    )
    assert run(["score", "--all", *files]) == 0
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c", "other"]})
    workspace.add_run("run3", {"q": {"hits_top_k": hits(None, "c")}}, created_at="2026-01-03")
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'run3'", ('{"k": 7}',))
    assert run(["score", "run3", *files]) == 0
    # And one whose numbers were made by other definitions.
    workspace.add_run("run4", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-04")
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'run4'", ('{"k": 7}',))
    assert run(["score", "run4", *files]) == 0
    made = json.loads(workspace.stored("run4"))
    made["provenance"]["metrics"] = "sha256:" + "0" * 16
    workspace.execute("UPDATE eval_runs SET aggregate_json = ? WHERE run_id = 'run4'", (json.dumps(made),))
    page = page_of(workspace, "--history", "mrr")
    assert re.findall(r'<line class="change (\w+)" x1="([\d.]+)%"', page) == [
        ("config", "37.5"),
        ("break", "62.5"),
        ("break", "87.5"),
    ]
    # The first two are joined by a line, the others are not.
    assert page.count('<line class="series s0" x1=') == 1
    table = cells(section(page, "time"))
    assert [row[2] for row in table if len(row) == 4 and row[0] in "▮┆"] == ["run4", "run3", "run2"]
    assert any("labels" in row[3] for row in table if row[2:3] == ["run3"])
    assert any("definitions" in row[3] for row in table if row[2:3] == ["run4"])
    assert [row[0] for row in cells(section(page, "runs"))] == ["run", "run1", "run2", "run3", "run4"]


def test_the_policy_names_the_hashes_of_the_one_style_and_the_one_script(decided: Workspace) -> None:
    for arguments in (["a", "b"], ["b"]):
        page = page_of(decided, *arguments)
        policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
        parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert parts["default-src"] == "'none'"
        for name, tag in (("style-src", "style"), ("script-src", "script")):
            inside = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
            assert len(inside) == 1
            digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
            assert parts[name] == f"'sha256-{digest}'"
        assert not re.search(r"""(?:src|href|action)\s*=\s*["'](?!#)""", page)
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert "https://" not in page
        assert "@import" not in page
        assert "url(" not in page


def test_shapes_of_data(tmp_path: Path) -> None:
    """A run with one query, one without any label, one whose rows hold no answer; and both kinds of page for each."""
    workspace = Workspace(tmp_path)
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]}, {"id": "plain"})
    workspace.add_run("single", {"q": {"hits_top_k": hits("c")}})
    workspace.add_run("unlabelled", {"plain": {"hits_top_k": hits("c"), "answer": answer("yes")}})
    workspace.add_run("nothing", {"elsewhere": {}})
    assert "mrr 1.0000, over 1 query" in page_of(workspace, "single")
    page = page_of(workspace, "unlabelled")
    assert "1 query: 1 with nothing to find" in page
    assert "No label of the golden file applies to this run" in page_of(workspace, "nothing")
    for pair in (("single", "unlabelled"), ("unlabelled", "nothing"), ("single", "single")):
        page = page_of(workspace, *pair)
        assert 'class="verdict' in page
        assert not re.search(
            r"\b(?:None|nan|inf)\b", re.sub(r"<s(?:cript|tyle).*?</s(?:cript|tyle)>", "", page, flags=re.DOTALL)
        )
