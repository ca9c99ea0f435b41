"""`kbeval history` as a user sees it: tables, sparklines, plots, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import logging
import struct
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import at_terminal, call, refused
from tests.support.workspace import Workspace
from tests.test_readme import DOCS

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "\uffff<script>alert(1)</script> $x^2$\x1b[31m\u202e日本\U0001f600"


class Keeper:
    """Puts runs with stored numbers into a database."""

    def __init__(self, workspace: Workspace) -> None:
        self.db = workspace.db
        self._workspace = workspace

    def add(
        self,
        run_id: str,
        numbers: dict[str, Any] | None,
        *,
        day: int = 1,
        suite: str = "nightly",
        config: dict[str, Any] | None = None,
        golden: str = "g1",
    ) -> None:
        provenance = {"golden": golden, "metrics": "m", "matching": "exact"}
        stored = "" if numbers is None else json.dumps({**numbers, "provenance": provenance})
        created = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T02:00:00Z"
        self._workspace.execute(
            "INSERT INTO eval_runs VALUES (?, ?, ?, ?, 'abc', ?)",
            (run_id, suite, json.dumps(config or {}), stored, created),
        )


@pytest.fixture
def keeper(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    return Keeper(workspace)


@pytest.fixture
def four_runs(keeper: Keeper) -> Keeper:
    """Scored, not scored, another configuration, other labels."""
    old, new = {"retriever": {"name": "bm25"}, "api_key": "sk-1"}, {"retriever": {"name": "dense"}, "api_key": "sk-1"}
    keeper.add("a", {"mrr": 0.1, "empty_result_rate": 0.2}, day=1, config=old)
    keeper.add("b", None, day=2, config=old)
    keeper.add("c", {"mrr": 0.3, "empty_result_rate": 0.1}, day=3, config=new)
    keeper.add("d", {"mrr": 0.2, "empty_result_rate": 0.1}, day=4, config=new, golden="g2")
    return keeper


# --- tables ------------------------------------------------------------------------------------------


def test_a_table_has_one_row_per_run_and_notes_the_rest(four_runs: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "history", "mrr", "empty_result_rate")
    assert code == 0
    assert [line.split()[:1] + line.split()[2:] for line in out.splitlines()] == [
        ["run", "mrr", "change", "empty_result_rate", "change", "changed"],
        ["a", "0.1000", "–", "0.2000", "–"],
        ["b", "–", "–", "–", "–"],
        ["c", "0.3000", "+0.2000", "0.1000", "-0.1000", "retriever.name", "bm25", "→", "dense"],
        ["d", "0.2000", "-0.1000", "0.1000", "0", "labels", "changed"],
    ]
    assert "empty_result_rate: lower is better, so a drop is an improvement" in err
    assert "1 run without numbers has not been scored yet (b): run 'kbeval score --all" in err
    assert "labels changed: numbers before and after are not comparable" in err


def test_json_is_series_and_their_points(four_runs: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    four_runs.add("w", {"mrr": 0.9}, suite="weekly")
    _, out, _ = call(capsys, "history", "mrr", "--format", "json")
    found = json.loads(out)
    assert found["metrics"] == [{"name": "mrr", "higher_is_better": True}]
    nightly, weekly = found["series"]
    assert (nightly["suite"], weekly["suite"]) == ("nightly", "weekly")
    assert nightly["summary"] == {"mrr": {"min": 0.1, "max": 0.3, "last": 0.2}}
    assert nightly["points"][1] == {
        "run_id": "b",
        "created_at": "2026-01-03T02:00:00Z",
        "commit_hash": "abc",
        "scored": False,
        "values": {"mrr": {"value": None, "change": None, "comparable": True, "better": None}},
        "breaks": [],
        "config": [],
    }
    third, fourth = nightly["points"][2:]
    assert third["values"]["mrr"] == {"value": 0.3, "change": 0.2, "comparable": True, "better": True}
    assert third["config"] == [{"key": "retriever.name", "before": "bm25", "after": "dense"}]
    assert (fourth["breaks"], fourth["values"]["mrr"]["comparable"]) == (["labels changed"], False)


def test_csv_and_markdown(four_runs: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    four_runs.add("=1+1|x", {"mrr": 0.5}, day=5, suite="<b>")
    _, out, _ = call(capsys, "history", "mrr", "--format", "csv")
    odd, *rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["run_id"], row["mrr"], row["mrr.change"]) for row in rows] == [
        ("a", "0.1", ""),
        ("b", "", ""),
        ("c", "0.3", "0.2"),
        ("d", "0.2", "-0.1"),
    ]
    assert rows[2]["changed"] == "retriever.name bm25 → dense"
    assert odd["run_id"] == "'=1+1|x"
    _, out, _ = call(capsys, "history", "mrr", "--format", "md")
    assert out.splitlines()[0] == "| suite | run | created | mrr | change | changed |"
    assert "| &lt;b&gt; | =1+1\\|x | 2026-01-06T02:00:00Z | 0.5000 |  |  |" in out


def test_runs_can_be_chosen(four_runs: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    four_runs.add("w", {"mrr": 0.9}, day=9, suite="weekly")

    def shown(*arguments: str) -> list[str]:
        _, out, _ = call(capsys, "history", "mrr", "--format", "csv", *arguments)
        return [row["run_id"] for row in csv.DictReader(io.StringIO(out))]

    assert shown() == ["a", "b", "c", "d", "w"]
    assert shown("--suite", "weekly") == ["w"]
    assert shown("--last", "1") == ["d", "w"]
    assert shown("--since", "2026-01-04T03:00+01:00") == ["c", "d", "w"]
    assert shown("--since", "2026-01-04T02:00:01Z") == ["d", "w"]
    assert shown("--since", "2026-01-04", "--last", "1", "--suite", "nightly") == ["d"]
    _, out, _ = call(capsys, "history", "mrr", "--by", "retriever.name", "--suite", "nightly")
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["retriever.name", "run"],
        ["bm25", "a"],
        ["bm25", "b"],
        ["dense", "c"],
        ["dense", "d"],
    ]


def test_no_runs_is_not_a_failure(keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(capsys, "history", "mrr", "--plot", "x.svg")
    assert (code, out) == (0, "")
    assert "holds no runs yet" in err
    assert "nothing to plot" in err
    assert not (tmp_path / "x.svg").exists()
    keeper.add("a", {"mrr": 0.5})
    code, out, err = call(capsys, "history", "mrr", "--since", "2030-01-01", "--format", "json")
    assert (code, json.loads(out)["series"]) == (0, [])
    assert "no run matches" in err


def test_own_metrics_need_no_definition_and_use_one_if_present(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keeper.add("a", {"slow": 2.0})
    keeper.add("b", {"slow": 1.0}, day=2)
    _, out, _ = call(capsys, "history", "slow", "--format", "json")
    assert json.loads(out)["metrics"] == [{"name": "slow", "higher_is_better": None}]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "slow.sql").write_text("-- slow: how slow?\n-- better: lower\nMAX(rank)\n")
    (tmp_path / "kbeval.toml").write_text('metrics_dir = "own"\n')
    _, out, _ = call(capsys, "history", "slow", "--format", "json")
    assert json.loads(out)["metrics"] == [{"name": "slow", "higher_is_better": False}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'METRIC…'"),
        (["mmr"], "did you mean 'mrr'"),
        (["mrr", "--suite", "x\x1b[31m"], "there is no suite 'x"),
        (["mrr", "--by", "retriever.nam"], "did you mean 'retriever.name'"),
        (["mrr", "--by", "api_key"], "look secret"),
        (["mrr", "--since", "tomorrow"], "--since 'tomorrow' is not a date; use e.g. 2026-03-01"),
        (["mrr", "--last", "0"], "--last"),
        (["mrr", "--plot", "x.pdf"], "must be .svg, .png or .html"),
        (["mrr", "--plot", "svg"], "must be .svg, .png or .html"),
        (["mrr", "--plot", "folder.svg"], "is a directory"),
        (["mrr", "--db", "none.db"], "there is no database"),
    ],
)
def test_wrong_input_is_one_line(
    four_runs: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    err = refused(capsys, "history", *arguments)
    assert message in err
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err
    assert "sk-1" not in err
    assert sorted(tmp_path.iterdir()) == before


def test_hits_are_never_read(four_runs: Keeper, capsys: pytest.CaptureFixture[str], workspace: Workspace) -> None:
    workspace.execute("INSERT INTO eval_query_results VALUES ('a', 'q', '{broken')")
    assert call(capsys, "history", "mrr")[0] == 0


# --- at a terminal -----------------------------------------------------------------------------------


def test_a_spark_line_is_for_terminals(four_runs: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    shown = at_terminal("-m", "kbeval", "history", "mrr", COLUMNS="120")
    assert "mrr  ▁ █▅  min 0.1000  max 0.3000  last 0.2000\r\n" in shown
    _, out, _ = call(capsys, "history", "mrr")
    assert "█" not in out
    assert "█" not in at_terminal("-m", "kbeval", "history", "mrr", "--format", "md")
    plain = at_terminal("-m", "kbeval", "history", "mrr", PYTHONIOENCODING="ascii")
    assert "min 0.1000" not in plain


def test_the_docs_show_what_a_terminal_shows(monkeypatch: pytest.MonkeyPatch, own_demo: Path) -> None:
    monkeypatch.chdir(own_demo)
    shown = at_terminal(
        "-m", "kbeval", "history", "mrr", "empty_result_rate", "--suite", "nightly", NO_COLOR="1", COLUMNS="120"
    )
    text = shown.replace("\r\n", "\n").replace("\r\x1b[K", "")
    assert f"$ kbeval history mrr empty_result_rate --suite nightly\n{text}" in DOCS["compare"]


# --- pictures ----------------------------------------------------------------------------------------


def texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter(f"{SVG}text")]


def test_an_svg_has_its_labels_as_text(four_runs: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    four_runs.add("w", {"mrr": 0.9}, day=9, suite="_weekly")
    code, out, err = call(capsys, "history", "mrr", "empty_result_rate", "--plot", "deep/x.svg")
    assert code == 0
    assert out.startswith("suite")
    assert "wrote deep/x.svg" in err
    found = texts(tmp_path / "deep" / "x.svg")
    assert "mrr, empty_result_rate over 5 runs" in found
    assert {"mrr", "run, oldest first", "2026-01-02", "2026-01-10"} <= set(found)
    # A legend, even for names that begin with _, which matplotlib would leave out.
    assert {"nightly", "_weekly"} <= set(found)
    assert "1  c: nightly: retriever.name bm25 → dense" in found
    assert "2  d: nightly: labels changed" in found
    assert "(lower is better)" in found


def test_one_series_needs_no_legend(keeper: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keeper.add("a", {"mrr": 0.5})
    call(capsys, "history", "mrr", "--plot", "x.svg")
    assert "nightly" not in texts(tmp_path / "x.svg")


def lines_drawn(path: Path) -> list[int]:
    """How many points each blue line has."""
    return [line.count("L") + 1 for line in drawn(path)]


def drawn(path: Path) -> list[str]:
    styles = [(element.get("d", ""), element.get("style", "")) for element in ET.parse(path).iter(f"{SVG}path")]
    return [line for line, style in styles if "stroke: #0072b2" in style and "fill: none" in style]


def test_no_line_leads_over_a_break_or_a_gap(
    keeper: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day, value in enumerate((0.1, 0.2, 0.3, 0.4, 0.5)):
        keeper.add(f"r{day}", {"mrr": value}, day=day)
    call(capsys, "history", "mrr", "--plot", "whole.svg")
    assert lines_drawn(tmp_path / "whole.svg") == [5]
    for day, value in enumerate((0.5, 0.4, 0.3)):
        keeper.add(f"s{day}", {"mrr": value}, day=day + 10, golden="g2")
    call(capsys, "history", "mrr", "--plot", "broken.svg")
    assert lines_drawn(tmp_path / "broken.svg") == [5, 3]
    keeper.add("t", None, day=1, suite="t")
    for day in (0, 2):
        keeper.add(f"t{day}", {"mrr": 0.5}, day=day, suite="t")
    call(capsys, "history", "mrr", "--suite", "t", "--plot", "gap.svg")
    # Two pieces of one point each: nothing between them.
    assert "L" not in drawn(tmp_path / "gap.svg")[0]


def test_a_png_is_one(four_runs: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(capsys, "history", "mrr", "--plot", "x.PNG")[0] == 0
    data = (tmp_path / "x.PNG").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1200
    assert 400 < height < 1200
    assert b"matplotlib" not in data.lower()


def test_the_same_history_gives_the_same_bytes(four_runs: Keeper, tmp_path: Path) -> None:
    """In two processes, with other hash seeds and settings."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "matplotlibrc").write_text("axes.facecolor: red\nxtick.direction: in\n")
    endings = ("svg", "png", "html")
    code = (
        "import sys; from kbeval.cli import run;"
        " sys.exit(any([run(['history', 'mrr', '--plot', name]) for name in sys.argv[1:]]))"
    )
    for number, settings in ((1, {}), (2, {"MATPLOTLIBRC": str(own), "SOURCE_DATE_EPOCH": "1"})):
        command = [sys.executable, "-W", "error", "-c", code, *(f"{number}.{ending}" for ending in endings)]
        environment = {"KBEVAL_DB": str(four_runs.db), "PYTHONHASHSEED": str(number), "HOME": str(tmp_path), **settings}
        result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert "matplotlib" not in result.stderr.lower()
    for ending in endings:
        assert (tmp_path / f"1.{ending}").read_bytes() == (tmp_path / f"2.{ending}").read_bytes(), ending


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cells:
            self.cells[-1] += data


def test_a_page_is_self_contained_and_data_is_never_executed(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keeper.add(EVIL, {"mrr": 0.25}, suite=EVIL, config={"a": "x"})
    keeper.add(EVIL + "2", {"mrr": 0.5}, day=2, suite=EVIL, config={"a": EVIL})
    keeper.add(EVIL + "3", None, day=3, suite=EVIL)
    keeper.add("plain", {"mrr": 0.5}, day=3)
    assert call(capsys, "history", "mrr", "--plot", "x.html")[0] == 0
    written = (tmp_path / "x.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(written)
    assert written.startswith("<!DOCTYPE html>")
    assert page.tags.count("svg") == page.tags.count("table") == page.tags.count("title") == 1
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert "\x1b" not in written
    assert page.text.count("<script>alert(1)</script> $x^2$") >= 5
    assert "1 run without numbers has not been scored yet (\\uffff<script>" in page.text
    assert "mrr over 4 runs" in page.text
    assert {"0.2500", "+0.2500", "plain"} <= set(page.cells)
    assert "url(http" not in written


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_text_from_data_is_drawn_verbatim(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str
) -> None:
    keeper.add(EVIL, {"mrr": 0.25}, suite="$\\frac{1}{", config={"a": "x"})
    keeper.add("$\\undefined{", {"mrr": 0.5}, day=2, suite="$\\frac{1}{", config={"a": EVIL})
    keeper.add("x", {"mrr": 0.5}, day=3, suite="\x00\ud800".encode("utf-8", "replace").decode())
    code, _, err = call(capsys, "history", "mrr", "--plot", f"x.{ending}")
    assert (code, err) == (0, f"wrote x.{ending}\n")
    if ending == "svg":
        found = texts(tmp_path / "x.svg")
        assert "$\\frac{1}{" in found
        assert any(text.startswith("1  $\\undefined{: ") for text in found)


def test_font_warnings_of_matplotlib_are_not_shown(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from kbeval.render.plot import _quiet

    logger = logging.getLogger("matplotlib.font_manager")
    with _quiet():
        warnings.warn("Glyph 26085 missing from font(s)", UserWarning, stacklevel=1)  # elsewhere this is an error
        logger.warning("inside")
    logger.warning("outside")
    assert caplog.messages == ["outside"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("count", [1, 2, 200])
def test_few_and_many_runs_are_drawn(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path, count: int
) -> None:
    for day in range(count):
        keeper.add(f"r{day:03}", {"mrr": 1.0, "failed_queries": day}, day=day, config={"version": day})
    assert call(capsys, "history", "mrr", "failed", "--plot", "x.svg")[0] == 0
    found = texts(tmp_path / "x.svg")
    assert 1 <= sum(text.startswith("2026-") for text in found) <= 8
    notes = [text for text in found if ": version " in text]
    assert len(notes) == min(count - 1, 8)
    if count == 200:
        assert "dotted line: the configuration changed; 191 earlier changes not drawn" in found
        assert notes[-1] == "8  r199: version 198 → 199"


def test_a_picture_of_runs_without_values_says_so(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keeper.add("a", None)
    assert call(capsys, "history", "mrr", "--plot", "x.svg")[0] == 0
    assert "no value" in texts(tmp_path / "x.svg")


def test_series_whose_names_begin_alike_can_be_distinguished(
    keeper: Keeper, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In the picture, where the legend must not leave it, and in the table."""
    names = [f"provider/some-very-long-model-name-{number}" for number in range(18)]
    for number, name in enumerate(names):
        keeper.add(f"run-with-a-name-that-says-very-much-{number:02}", {"mrr": 0.5}, config={"llm": name})
    code, out, _ = call(capsys, "history", "mrr", "--by", "llm", "--plot", "a.svg")
    assert code == 0
    rows = [line.split()[:2] for line in out.splitlines()[1:]]
    assert len({group for group, _ in rows}) == len({run for _, run in rows}) == 18
    svg = (tmp_path / "a.svg").read_text()
    assert all(f"-model-name-{number}</text>" in svg for number in range(18))
    call(capsys, "history", "mrr", "--by", "llm", "--plot", "a.png")
    from matplotlib.image import imread  # not in each process that collects tests

    # A strip at the right edge is empty.
    assert imread("a.png")[:, -12:, :3].min() == 1.0


def test_what_cannot_be_distinguished_is_not_drawn(keeper: Keeper, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(22):
        keeper.add(f"r{number}", {"mrr": 0.5}, suite=f"s{number:02}")
    assert "22 series are too many for one plot" in refused(capsys, "history", "mrr", "--plot", "x.svg")
    many = [f"hit@{k}" for k in (1, 3, 5, 10)] + [f"recall@{k}" for k in (1, 3, 5, 10)] + ["mrr"]
    assert "maximum 8" in refused(capsys, "history", *many, "--suite", "s01", "--plot", "x.svg")


def test_the_database_and_the_labels_are_never_drawn_over(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keeper = Keeper(workspace)
    keeper.add("a", {"mrr": 0.5})
    database = tmp_path / "kb.svg"
    workspace.db.rename(database)
    (tmp_path / "link.html").symlink_to(database)
    (tmp_path / "golden.png").write_text("[]")
    before = database.read_bytes()
    for target in ("kb.svg", "link.html"):
        err = refused(capsys, "history", "mrr", "--db", "kb.svg", "--plot", target)
        assert "read by this command; choose another file" in err
    (tmp_path / "kbeval.toml").write_text('golden = "golden.png"\n')
    assert "choose another file" in refused(capsys, "history", "mrr", "--db", "kb.svg", "--plot", "golden.png")
    assert database.read_bytes() == before


def test_without_matplotlib_everything_but_pictures_works(four_runs: Keeper, tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['matplotlib'] = None; from kbeval.cli import main; main(sys.argv[1:])"

    def history(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", blocked, "history", "mrr", "--db", str(four_runs.db), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    assert history().returncode == 0
    for target in ("x.svg", "x.html"):
        result = history("--plot", target)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == "kbeval: plotting needs matplotlib; install it with: pip install 'kbeval[plot]'\n"
        assert not (tmp_path / target).exists()


def test_matplotlib_is_loaded_for_pictures_only(four_runs: Keeper) -> None:
    code = (
        "import sys; from kbeval.cli import run; run(['--help']); assert not {'polars', 'duckdb'} & set(sys.modules);"
        " run(['history', 'mrr']); assert 'matplotlib' not in sys.modules; assert 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
