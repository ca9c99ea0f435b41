"""The oracle itself, checked against numbers that were worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests.oracles import span_oracle
from tests.oracles.matching_oracle import Chunk, Oracle, Run, World
from tests.oracles.span_oracle import covered

OLD, NEW = "md@1", "md@2"


def line(start: int, end: int) -> dict[str, Any]:
    return {"kind": "line", "start": start, "end": end}


def page(number: int, *characters: int) -> dict[str, Any]:
    return {"kind": "page", "page": number, **dict(zip(("char_start", "char_end"), characters, strict=False))}


def chunk(name: str, *spans: Mapping[str, Any], version: str = OLD, policy: str = "", **more: Any) -> Chunk:
    return Chunk(name, version, policy, more.pop("doc", "d"), list(spans), **more)


def kept(name: str, *spans: Mapping[str, Any], since: int = 1, **more: Any) -> Chunk:
    return chunk(name, *spans, first_seen=f"2026-01-{since:02}", **more)


def hit(name: str, *spans: Mapping[str, Any], doc: str | None = "d", **more: Any) -> dict[str, Any]:
    found = {"chunk_id": name, **({"doc_id": doc} if doc else {}), **more}
    return {**found, "source_spans": list(spans)} if spans else found


def run(*hits: Mapping[str, Any], version: str | None = NEW, name: str = "run", **more: Any) -> Run:
    config = {**({"chunker_version": version} if version else {}), **more.pop("config", {})}
    return Run(name, config, {"q": {"hits_top_k": list(hits), **more}})


def entry(*chunks: str, name: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": name, **({"expected_chunk_ids": list(chunks)} if chunks else {}), **more}


def world(golden: Mapping[str, Any], *runs: Run, **more: Any) -> World:
    return World([golden], runs, **more)


def decided(made: World, **options: Any) -> tuple[str, str, int | None]:
    """How the first run is matched, how its query is, and the rank of the first correct hit."""
    oracle = Oracle(made, **options)
    first = made.runs[0]
    judged = oracle.judge(first, "q", oracle.matching(first))
    return oracle.matching(first), judged.matching, judged.first_rank


# --- positions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "shared", "of_a", "of_b"),
    [
        ([line(1, 10)], [line(6, 15)], 5, 10, 10),
        ([line(1, 4), line(5, 8), line(2, 6)], [line(1, 8)], 8, 8, 8),
        ([line(1, 10)], [{"kind": "code", "line_start": 10, "line_end": 10}], 1, 10, 1),
        ([{"kind": "char", "start": 0, "end": 10}], [{"kind": "byte", "start": 0, "end": 10}], 0, 10, 10),
        ([{"kind": "char", "start": 0, "end": 10}], [{"kind": "char", "start": 10, "end": 11}], 0, 10, 1),
        ([{"kind": "time", "start_ms": 0, "end_ms": 10}], [{"kind": "time", "start_ms": 5, "end_ms": 15}], 5, 10, 10),
        ([page(1, 0, 10), page(2, 0, 10)], [page(2, 5, 10)], 5, 20, 5),
        ([page(1)], [page(1, 5, 10)], 5, span_oracle.WHOLE_PAGE, 5),
        (
            [
                {"kind": "region", "x": 0, "y": 0, "w": 10, "h": 10},
                {"kind": "region", "x": 5, "y": 0, "w": 10, "h": 10},
            ],
            [{"kind": "region", "x": 0, "y": 5, "w": 15, "h": 10}],
            75,
            150,
            150,
        ),
        ([line(5, 4), {"kind": "byte", "start": 3, "end": 3}, {"kind": "caption"}, {}], [line(1, 1)], 0, 0, 1),
    ],
)
def test_sizes(a: list[Any], b: list[Any], shared: int, of_a: int, of_b: int) -> None:
    assert [*span_oracle.sizes(covered(a), covered(b))] == [Fraction(n) for n in (shared, of_a, of_b)]


@pytest.mark.parametrize(
    ("of", "least", "is_match"),
    [
        ("smaller", "1", True),
        ("hit", "1", True),
        ("expected", "0.4", True),
        ("expected", "0.41", False),
        ("union", "0.4", True),
        ("union", "0.400000002", False),
        ("union", "0.4000000005", True),
    ],
)
def test_four_lines_of_ten(of: str, least: str, is_match: bool) -> None:
    assert span_oracle.is_match(covered([line(3, 6)]), covered([line(1, 10)]), Fraction(least), of) is is_match


# --- where a hit is ----------------------------------------------------------------------------------

LABEL = entry(expected_spans=[{"doc_id": "d", **line(1, 10)}])
FIRST_BLOCK = {"kind": "line", "path": "d.md", "start": 30, "end": 30}


@pytest.mark.parametrize(
    ("found", "known", "rank"),
    [
        (hit("n", line(1, 10), citation=FIRST_BLOCK), [chunk("n", line(30, 40), version=NEW)], 1),
        (hit("n", citation=FIRST_BLOCK), [chunk("n", line(1, 10), version=NEW)], 1),
        (hit("n", citation=FIRST_BLOCK), [chunk("n", line(1, 10), version=OLD)], None),
        (hit("n", citation=FIRST_BLOCK, chunker_version=OLD), [chunk("n", line(1, 10), version=OLD)], 1),
        (hit("n", line(9, 1), citation=FIRST_BLOCK), [chunk("n", line(1, 10), version=NEW)], 1),
        (hit("n", {"kind": "caption"}), [chunk("n", line(1, 10), version=NEW)], None),
        (hit("n", citation=line(2, 9)), [chunk("n", version=NEW)], 1),
        (hit("n", citation={"path": "d.md"}), [], 1),  # not known: the document decides
    ],
)
def test_a_hit_is_where_it_says_then_where_the_tables_say_then_where_it_is_cited(
    found: dict[str, Any], known: list[Chunk], rank: int | None
) -> None:
    assert decided(world(LABEL, run(found), table=known))[2] == rank
    again = [kept(c.chunk_id, *c.spans, version=c.version) for c in known]
    assert decided(world(LABEL, run(found), kept=again))[2] == rank


def test_a_hit_is_not_located_by_other_hits() -> None:
    found = hit("n", citation=line(1, 9))
    sighted = kept("n", line(30, 40), version=NEW, seen_in="hits")
    assert decided(world(LABEL, run(found), kept=[sighted]))[2] == 1
    assert decided(world(LABEL, run(found), run(hit("n", line(30, 40)), name="other")))[2] == 1


def test_of_several_policies_that_of_the_run_takes_precedence_then_the_table_then_the_first_seen() -> None:
    right, wrong = line(1, 10), line(50, 60)
    found = hit("n")
    first = kept("n", right, version=NEW, policy="p1", since=2)
    second = kept("n", wrong, version=NEW, policy="p2", since=1)
    assert decided(world(LABEL, run(found, config={"policy_hash": "p1"}), kept=[first, second]))[2] == 1
    assert decided(world(LABEL, run(found), kept=[first, second]))[2] is None
    assert decided(world(LABEL, run(found), kept=[second], table=[chunk("n", right, version=NEW, policy="p3")]))[2] == 1


def test_the_version_of_a_run() -> None:
    known = [chunk("n", version=NEW), chunk("m", version=OLD)]

    def version(made: Run) -> tuple[str | None, str | None]:
        return Oracle(world(LABEL, made, table=known)).version_and_source(made)

    assert version(run(hit("n", chunker_version="a"), version="x")) == ("x", "config")
    assert version(run(hit("n", chunker_version="a"), hit("n"), version=None)) == ("a", "hits")
    assert version(run(hit("n", chunker_version="a"), hit("n", chunker_version="b"), version=None)) == (None, None)
    assert version(run(hit("n"), hit("other"), version=None)) == (NEW, "tables")
    assert version(run(hit("n"), hit("m"), version=None)) == (None, None)
    assert version(run(version=None)) == (None, None)


def test_the_policy_of_a_run() -> None:
    known = [
        chunk("a", policy="p1"),
        chunk("e", policy=""),
        chunk("f", policy="p2"),
        kept("f", policy=""),
        chunk("b", policy="p1"),
        kept("b", policy="p2"),
        chunk("c", policy="p2"),
        chunk("n", policy="p3", version=NEW),
    ]
    seen = [kept("h", policy="p9", seen_in="hits")]

    def policy(*names: str, **config: Any) -> str | None:
        made = run(*map(hit, names), version=OLD, config=config)
        return Oracle(world(LABEL, made, table=known, kept=seen)).policy(made)

    assert policy("a", policy_hash="mine") == "mine"
    assert policy("a", "b", "e", "f", "n", "h", "gone") == "p1"
    assert policy("b") is None
    assert policy("a", "c") is None


def test_the_document_of_a_hit() -> None:
    golden = entry(expected_doc_ids=["d", "e"])
    hits = [
        hit("n", doc="x"),
        hit("t", doc=None, doc_path="e.md"),
        hit("u", doc=None, citation={"path": "e.md"}),
        hit("v", doc=None, doc_path="unknown.md"),
    ]
    table = [chunk("t", doc="d", version=NEW), chunk("u", doc="d", version=OLD), chunk("n", doc="d", version=NEW)]
    oracle = Oracle(world(golden, run(*hits), table=table, documents={"e.md": "e"}))
    assert oracle.score("run")["recall_at_k_doc"] == {"1": 0.0, "3": 1.0, "5": 1.0, "10": 1.0}
    assert [oracle.doc_or_path(oracle.runs["run"], h) for h in hits] == ["x", "d", "e", "unknown.md"]


# --- own, foreign ------------------------------------------------------------------------------------


def ownership(label: str, made: Run, *table: Chunk, archive: tuple[Chunk, ...] = ()) -> str:
    return Oracle(world(entry(label), made, table=table, kept=archive)).ownership(made, label)


def test_chunks_of_another_version_are_foreign() -> None:
    assert ownership("c", run(hit("n")), chunk("c")) == "foreign"
    assert ownership("c", run(hit("n"), version=OLD), chunk("c")) == "own"
    assert ownership("c", run(hit("n"))) == "unknown"


def test_an_id_that_is_not_among_the_chunks_of_its_version_is_foreign_to_a_current_run() -> None:
    there = [chunk(name, version=NEW) for name in ("n", "m")]
    assert ownership("c", run(hit("n"), hit("m")), *there) == "foreign"
    assert ownership("c", run(hit("n"), hit("x")), *there) == "foreign"  # half of its hits are there
    assert ownership("c", run(hit("n"), hit("x"), hit("y")), *there) == "unknown"
    assert ownership("c", run(), *there) == "foreign"


def test_an_id_that_was_there_earlier_is_foreign_to_a_current_run_and_own_to_an_older_one() -> None:
    there, earlier = chunk("n", line(1, 10)), (kept("c", line(1, 10)),)
    assert ownership("c", run(hit("n"), version=OLD), there, archive=earlier) == "foreign"
    assert ownership("c", run(hit("c"), version=OLD), there, archive=earlier) == "own"


def test_what_the_table_holds_now_is_foreign_to_a_run_of_an_earlier_index() -> None:
    now, gone = [chunk("c", line(1, 7)), chunk("m", line(8, 9))], [kept("n", line(1, 10)), kept("o", line(11, 20))]
    made = run(hit("n"), hit("o"), hit("x"), version=OLD)
    assert ownership("c", made, *now, archive=(*gone,)) == "foreign"
    assert ownership("n", made, *now, archive=(*gone,)) == "own"
    assert ownership("c", run(hit("n"), hit("x"), version=OLD), *now, archive=(*gone,)) == "own"  # half of them
    assert ownership("c", run(hit("n"), hit("o"), version=OLD), *now) == "own"  # it is not known that they were there


def test_an_id_of_another_policy_is_foreign() -> None:
    archive = (kept("c", line(1, 10), policy="p1"),)
    assert ownership("c", run(version=OLD, config={"policy_hash": "p2"}), archive=archive) == "foreign"
    assert ownership("c", run(version=OLD, config={"policy_hash": "p1"}), archive=archive) == "own"
    assert ownership("c", run(version=OLD), archive=archive) == "own"
    both = (*archive, kept("c", line(1, 10), policy="p2", since=2))
    assert ownership("c", run(version=OLD, config={"policy_hash": "p2"}), archive=both) == "own"
    reused = (*archive, kept("c", line(1, 50), policy="p2", since=2))
    assert ownership("c", run(version=OLD, config={"policy_hash": "p2"}), archive=reused) == "foreign"
    nameless = (kept("c", line(1, 10), policy=""),)
    assert ownership("c", run(version=OLD, config={"policy_hash": "p2"}), archive=nameless) == "own"


def test_an_id_that_a_new_version_uses_for_another_text_is_foreign() -> None:
    archive = (kept("c", line(1, 10), since=1),)
    assert ownership("c", run(hit("c")), chunk("c", line(20, 30), version=NEW), archive=archive) == "foreign"
    assert ownership("c", run(hit("c")), chunk("c", line(1, 10), version=NEW), archive=archive) == "own"
    elsewhere = chunk("c", line(1, 10), version=NEW, doc="e")
    assert ownership("c", run(hit("c")), elsewhere, archive=archive) == "foreign"


def test_more_than_half_of_the_labels_must_be_foreign() -> None:
    table = [chunk("a", line(1, 10)), chunk("b", line(11, 20)), chunk("n", line(1, 20), version=NEW)]
    made = run(hit("n"), hit("x"), hit("y"))  # not current

    def matching(*labels: tuple[str, ...], **options: Any) -> str:
        golden = [entry(*chunks, name=f"q{n}") for n, chunks in enumerate(labels)]
        return Oracle(World(golden, [made], table), **options).matching(made)

    assert matching(("a",), ("n",)) == "exact"
    assert matching(("a", "b"), ("n",)) == "span"
    assert matching(("a",), ("a",), ("n",)) == "span"
    assert matching(("a",), ("b",), ("n",), ("gone",)) == "exact"
    assert matching(("a",), match="exact") == "exact"
    assert matching(("n",), match="span") == "span"
    assert matching() == "exact"


# --- what decides a query ----------------------------------------------------------------------------


def test_what_decides_a_query() -> None:
    table = [chunk("c", line(1, 10)), chunk("bare", doc="d")]
    near, far = hit("n", line(1, 5)), hit("m", line(40, 50))
    assert decided(world(entry("c"), run(far, near), table=table)) == ("span", "span", 2)
    assert decided(world(entry("c"), run(far, near), table=table), match="exact") == ("exact", "exact", None)
    assert decided(world(entry("c"), run(far, hit("u")), table=table)) == ("span", "doc", 1)
    assert decided(world(entry("c"), run(hit("u", doc="e"), near), table=table)) == ("span", "span", 2)
    assert decided(world(entry("bare"), run(far), table=table)) == ("span", "doc", 1)
    assert decided(world(entry("gone"), run(far), table=table), match="span") == ("span", "unmatched", None)
    assert decided(world(entry(expected_doc_ids=["d"]), run(far), table=table)) == ("exact", "doc", 1)
    assert decided(world(entry(gold_supports=[{}]), run(far), table=table)) == ("exact", "support", None)
    assert decided(world(entry(), run(far), table=table)) == ("exact", "none", None)


def test_a_chunk_label_is_a_share_of_the_smaller_and_a_span_label_of_the_expected_one() -> None:
    small = hit("n", line(1, 2))
    by_span = entry(expected_spans=[{"doc_id": "d", **line(1, 10)}])
    assert decided(world(entry("c"), run(small), table=[chunk("c", line(1, 10))]))[2] == 1
    assert decided(world(by_span, run(small)))[2] is None
    assert decided(world(by_span, run(small)), overlap_of="smaller")[2] == 1
    assert decided(world(entry("c"), run(small), table=[chunk("c", line(1, 10))]), overlap_of="expected")[2] is None


def test_labels_that_only_hits_know() -> None:
    before = run(hit("c", line(1, 10), chunker_version=OLD), name="before")
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), before), match="span") == ("span", "span", 1)
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), before)) == ("span", "span", 1)
    nameless = run(hit("c", line(1, 10)), version=None, name="before")
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), nameless)) == ("exact", "exact", None)
    itself = run(hit("n", line(1, 9)), hit("c", line(20, 30)))
    assert decided(world(entry("c"), itself, before)) == ("exact", "exact", 2)
    sighted = kept("c", line(1, 10), seen_in="hits")
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), kept=[sighted])) == ("span", "span", 1)
    cited = run(hit("c", citation=line(30, 40)), name="before")
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), cited), match="span") == ("span", "span", None)
    somewhere = run(hit("c"), name="before")
    assert decided(world(entry("c"), run(hit("n", line(1, 9))), somewhere), match="span") == ("span", "doc", 1)


def test_a_path_stands_in_for_an_unknown_document() -> None:
    golden = entry(expected_spans=[{"path": "d.md", **line(1, 10)}])
    found = hit("n", line(1, 10), doc=None, doc_path="d.md")
    named = hit("n", line(1, 10), doc_path="d.md")
    assert decided(world(golden, run(named))) == ("exact", "span", 1)
    assert decided(world(golden, run(named), documents={"d.md": "e"})) == ("exact", "span", None)
    assert decided(world(golden, run(found))) == ("exact", "span", 1)
    assert decided(world(golden, run(found), documents={"d.md": "d"})) == ("exact", "span", 1)
    assert decided(world(golden, run(hit("n", line(1, 10))), documents={"d.md": "d"})) == ("exact", "span", 1)


# --- numbers -----------------------------------------------------------------------------------------


def test_numbers_by_span() -> None:
    """Three places, of which the first is found at rank 2 (and again at 4), the second at 4; the third has no spans."""
    table = [chunk("a", line(1, 10)), chunk("b", line(11, 20)), chunk("x", doc="e")]
    hits = [
        hit("n1", line(30, 40), token_count=400),
        hit("n2", line(1, 5), token_count=100),
        hit("n2", line(1, 5), token_count=100),
        hit("n3", line(6, 15), token_count=1),
    ]
    numbers = Oracle(world(entry("a", "b", "x", expected_doc_ids=["d"]), run(*hits, error="no"), table=table)).score(
        "run"
    )
    assert numbers == {
        "hit_at_k": {"1": 0.0, "3": 1.0, "5": 1.0, "10": 1.0},
        "mrr": 0.5,
        "recall_at_k_doc": {"1": 1.0, "3": 1.0, "5": 1.0, "10": 1.0},
        "precision_at_k_chunk": {"1": 0.0, "3": 0.3333, "5": 0.4, "10": 0.2},
        "empty_result_rate": 0.0,
        "total_queries": 1,
        "failed_queries": 1,
        "recall_at_k_chunk": {"1": 0.0, "3": 0.5, "5": 1.0, "10": 1.0},
        "hit_within_tokens": {"500": 1.0, "1000": 1.0, "2000": 1.0, "4000": 1.0},
    }


def test_numbers_by_id_and_by_document() -> None:
    exact = Oracle(world(entry("a", "b", "c"), run(hit("b"), hit("z"), hit("a")))).score("run")
    assert exact["recall_at_k_chunk"] == {"1": 0.3333, "3": 0.6667, "5": 0.6667, "10": 0.6667}
    assert "hit_within_tokens" not in exact
    golden = entry("a", expected_doc_ids=["d"])
    by_doc = Oracle(world(golden, run(hit("z", doc="e"), hit("y", token_count=1))), match="span").score("run")
    assert by_doc["mrr"] == 0.5
    assert "recall_at_k_chunk" not in by_doc
    assert "hit_within_tokens" not in by_doc
    unmatched = Oracle(world(entry("a"), run(hit("z", doc="e"))), match="span").score("run")
    assert unmatched["mrr"] == 0.0
    assert "hit_within_tokens" not in unmatched


@pytest.mark.parametrize(
    ("hits", "within"),
    [
        ([hit("c", token_count=500)], [1, 1, 1, 1]),
        ([hit("c", token_count=500.5)], [0, 1, 1, 1]),
        ([hit("x", token_count=999), hit("c", token_count=1)], [0, 1, 1, 1]),
        ([hit("x", token_count=999), hit("x", token_count=999), hit("c", token_count=1)], [0, 1, 1, 1]),
        ([hit("x", rank=2, token_count=9999), hit("c", rank=1, token_count=1)], [1, 1, 1, 1]),
        ([hit("c", rank=1, token_count=1), hit("x", rank=1)], [1, 1, 1, 1]),
        ([hit("x", rank=1), hit("c", rank=1, token_count=1)], None),
        ([hit("x"), hit("y", token_count=1)], None),
        ([hit("x", token_count=1), hit("y", token_count=1)], [0, 0, 0, 0]),
        ([], None),
        ([hit("c", text="x" * 2000)], [1, 1, 1, 1]),
        ([hit("c", text="x" * 2001)], [0, 1, 1, 1]),
        ([hit("c", text="x" * 200 + "...")], None),
        ([hit("c", token_count=-1, text="x" * 8000)], [0, 0, 1, 1]),
        ([hit("estimated", text="x"), hit("c", token_count=0)], [0, 0, 0, 1]),
        ([hit("long", text="x"), hit("c", token_count=0)], [0, 0, 1, 1]),
    ],
)
def test_a_correct_hit_within_a_budget(hits: list[dict[str, Any]], within: list[int] | None) -> None:
    table = [chunk("estimated", tokens=4000), chunk("long", characters=8000)]
    made = world(entry("c"), run(*hits, version=OLD), table=table)
    found = Oracle(made, match="exact").score("run").get("hit_within_tokens")
    assert (list(found.values()) if found else None) == within


def test_empty_results_count_if_sizes_are_known() -> None:
    golden = [entry("c", name="q"), entry("c", name="r")]

    def within(*hits: dict[str, Any]) -> Any:
        rows: dict[str, dict[str, Any]] = {"q": {"hits_top_k": list(hits)}, "r": {}}
        return Oracle(World(golden, [Run("run", {}, rows)])).score("run").get("hit_within_tokens")

    assert within(hit("c", token_count=1)) == {"500": 0.5, "1000": 0.5, "2000": 0.5, "4000": 0.5}
    assert within(hit("c")) is None


def test_a_half_is_rounded_away_from_zero() -> None:
    golden = [entry("c", name=f"q{n}") for n in range(32)]
    rows = {f"q{n}": {"hits_top_k": [hit("c" if n == 0 else "x")]} for n in range(32)}
    assert Oracle(World(golden, [Run("run", {}, rows)])).score("run")["mrr"] == 0.0313  # 1/32 = 0.03125


# --- two runs ----------------------------------------------------------------------------------------


def test_two_runs() -> None:
    table = [chunk("c", line(1, 10))]
    a = run(hit("x"), hit("c"), version=OLD, name="a")
    b = run(hit("n", line(1, 10)), name="b")
    assert Oracle(world(entry("c"), a, b, table=table)).compare("a", "b") == {"q": ("draw", 1, 1, "doc")}
    placed = run(hit("x", line(50, 60)), hit("c"), version=OLD, name="a")
    assert Oracle(world(entry("c"), placed, b, table=table)).compare("a", "b") == {"q": ("win", 2, 1, "span")}
    assert Oracle(world(entry("c"), placed, b, table=table), match="exact").compare("a", "b") == {
        "q": ("regression", 2, None, "exact")
    }
    again = Run("b", {"chunker_version": OLD}, {"r": {}})
    assert Oracle(world(entry("c"), placed, again, table=table)).compare("a", "b") == {
        "q": ("regression", 2, None, "exact"),
        "r": ("draw", None, None, "none"),
    }
