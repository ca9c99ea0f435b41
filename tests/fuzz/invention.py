"""Cases of each area: something valid, made a little or very odd, and commands that read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.cases import DB, Case, of_bytes
from tests.fuzz.mutation import TEXTS, Source, dumped
from tests.fuzz.questions import expression, question
from tests.fuzz.tool_files import ways_in
from tests.oracles.matching_oracle import World
from tests.oracles.matching_worlds import invent

FIXTURES = Path(__file__).parents[2] / "fixtures"
METRICS = ("mrr", "hit@5", "hit_at_k.5", "recall@3", "latency_ms.p95", "support_mrr", "groundedness", "cost_usd", "own")
TABLES = ("hits", "per_hit", "results", "citations", "scores", "per_query", "aggregates", "configurations")
VIEWS = ("regressions", "metric_trend", "flaky_queries", "slowest_queries", "coverage", "never_hit")
FORMATS = ("table", "json", "csv", "md")
# What rows may have besides hits: answers of a knowledge base, of the anchor-labelled harness, of grounded answering.
ANSWERS: tuple[dict[str, Any], ...] = (
    {},
    {
        "query_id": "q0",
        "query": "how?",
        "mode": "hybrid",
        "elapsed_ms": 12,
        "error": None,
        "tokens": {"total": 12, "prompt": 3},
        "cost_usd": 0.01,
        "usage": {"total_tokens": 9, "input_tokens": 4, "output_tokens": 5},
        "answer": {
            "answer": "It is fifteen minutes.",
            "grounded": True,
            "refusal_reason": None,
            "citations": [
                {
                    "marker": "[#1]",
                    "citation": {"kind": "line", "path": "docs/1.md", "start": 1, "end": 9, "section": None},
                },
                {
                    "marker": "[#2]",
                    "citation": {"kind": "page", "path": "docs/2.md", "page": 1, "char_start": 3, "char_end": 9},
                },
                {
                    "marker": "[#3]",
                    "chunk_id": "c1",
                    "citation": {"kind": "region", "path": "docs/1.md", "x": 1, "y": 2, "w": 3, "h": 4},
                },
                {"citation": {"kind": "time", "path": "docs/1.md", "start_ms": 0, "end_ms": 500}},
                {"citation": {"kind": "caption", "path": "docs/2.md"}},
            ],
        },
    },
    {"answer": {"answer": "", "grounded": False, "refusal_reason": "nothing found", "citations": []}},
    {
        "abstained": False,
        "abstention": {"abstained": False, "hallucinated": False},
        "references": [{"vault": "help", "rel_path": "docs/1.md", "heading_path": "# A > ## B", "chunk_index": 0}],
        "answer": {"answer": "nine euros"},
        "debug": {"folder_selection": {"selected_folders": ["docs"], "available_folders": ["docs", "other"]}},
        "folder_selection": ["docs"],
        "config": {"k": 5, "folder_mode": "on_with_fallback"},
        "latency": {"total_ms": 2455, "judge_ms": 52},
        "groundedness": {"score": 5, "reasoning": "all", "unsupported_claims": []},
        "correctness": {"score": 4},
        "cost": {"judge_tokens": 900, "judge_cost_usd": 0.01},
    },
)
HIT = {"rel_path": "docs/1.md", "heading_path": "# A > ## B", "text": "nine euros", "score": 0.5, "score_final": 0.6}
LABELS: tuple[dict[str, Any], ...] = (
    {},
    {"must_contain": ["fifteen"], "forbidden": ["never"], "lang": "en", "tags": ["a", "b"], "difficulty": "easy"},
    {
        "gold_supports": [{"rel_path": "docs/1.md", "heading_path": ["A"], "snippets": ["nine euros"]}],
        "required_support_groups": [[0]],
    },
    {"answerable": False},
    {"answerable": True, "gold_claim_substr": ["fifteen", "nine"]},
    {"relevance": {"c1": 2, "c2": 0.5}, "expected_key_facts": ["x"], "folders": ["docs"], "vaults": ["help"]},
)


# --- a workspace -----------------------------------------------------------------------------------


def tables_of(world: World) -> dict[str, list[dict[str, Any]]]:
    """An invented world as rows, with JSON not yet spelt."""
    chunks = [
        {
            "chunk_id": chunk.chunk_id,
            "doc_id": chunk.doc_id,
            "text": "t" * 50,
            "heading_path_json": [],
            "source_spans_json": chunk.spans,
            "token_estimate": chunk.tokens or 0,
            "chunker_version": chunk.version,
            "policy_hash": chunk.policy,
            "block_ids_json": [],
            "created_at": "now",
        }
        for chunk in world.table
    ]
    kept = [
        {
            "chunk_id": chunk.chunk_id,
            "chunker_version": chunk.version,
            "policy_hash": chunk.policy,
            "doc_id": chunk.doc_id,
            "source_spans_json": chunk.spans,
            "tokens": chunk.tokens,
            "seen_in": chunk.seen_in,
            "first_seen": chunk.first_seen,
        }
        for chunk in world.kept
    ]
    return {
        "documents": [{"doc_id": doc, "workspace_path": path} for path, doc in world.documents.items()],
        "chunks": chunks,
        "eval_runs": [
            {
                "run_id": run.run_id,
                "suite": "suite",
                "config_snapshot_json": dict(run.config),
                "aggregate_json": "",
                "created_at": run.created_at,
            }
            for run in world.runs
        ],
        "eval_query_results": [
            {"run_id": run.run_id, "query_id": query_id, "result_json": row}
            for run in world.runs
            for query_id, row in run.rows.items()
        ],
        **({"kbeval_chunk_spans": kept} if kept else {}),
    }


class Invention:
    """A valid workspace of some size, and what can be made of it."""

    def __init__(self, seed: str, queries: int = 6, runs: int = 3) -> None:
        self.source = Source(seed)
        world = invent(self.source.randrange(10**9), queries=queries, runs=runs)
        self.tables = tables_of(world)
        self.golden: list[dict[str, Any]] = [{**entry, **self.source.choice(LABELS)} for entry in world.golden]
        for entry in self.golden:
            # Queries of one group expect the same documents.
            if self.source.chance(0.3):
                entry["group"] = f"g{entry.get('expected_doc_ids')}"
        for row in self.tables["eval_query_results"]:
            row["result_json"] = {**row["result_json"], **self.source.choice(ANSWERS)}
            for hit in row["result_json"].get("hits_top_k") or ():
                if self.source.chance(0.3):
                    hit.update(HIT)

    @property
    def run_ids(self) -> list[str]:
        return [str(run["run_id"]) for run in self.tables["eval_runs"]]

    def spelt(self, oddly: float = 0.0) -> dict[str, list[dict[str, Any]]]:
        """The tables, with JSON as text."""
        return {
            table: [{name: self._cell(name, value, oddly) for name, value in row.items()} for row in rows]
            for table, rows in self.tables.items()
        }

    def _cell(self, name: str, value: Any, oddly: float) -> Any:
        if name.endswith("_json") and not isinstance(value, str):
            return self.source.spelt(value, oddly)
        # What SQLite cannot hold.
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return float(value) if abs(value) < 10**300 else str(value)
        is_raw = isinstance(value, dict) and set(value) in ({"hex"}, {"text"})
        return dumped(value) if isinstance(value, list | dict) and not is_raw else value

    def case(self, *calls: Sequence[str], oddly: float = 0.0, **files: Any) -> Case:
        """A case over this workspace; `golden` may be handed in as a file."""
        named = {name.replace("__", "."): content for name, content in files.items()}
        if not any(name.startswith("golden.") for name in named):
            named["golden.json"] = dumped(self.golden)
        return Case([list(call) for call in calls], named, self.spelt(oddly))

    # --- commands ----------------------------------------------------------------------------------

    def how(self) -> list[str]:
        """Options that say how to score."""
        source = self.source
        found: list[str] = []
        for share, options in (
            (0.25, ("--match", source.choice(("auto", "exact", "span")))),
            (0.1, ("--min-overlap", source.choice(("0.1", "1", "1e-9", "0.5")))),
            (0.1, ("--overlap-of", source.choice(("smaller", "expected", "hit", "union")))),
            (0.2, ("--missing", source.choice(("skip", "zero")))),
            (0.1, ("--threads", source.choice(("1", "2", "3")))),
            (0.05, ("--memory-limit", source.choice(("50MB", "1GB")))),
        ):
            found += options if source.chance(share) else ()
        return found

    def place(self, golden: str = "golden.json") -> list[str]:
        """Where the workspace is."""
        return ["--db", DB, "--golden", golden]

    def score(self) -> list[str]:
        """Most of what is wrong with rows shows here."""
        how = [*self.how(), *(["--skip-bad-rows"] if self.source.chance(0.8) else [])]
        by = ["--by", self.source.choice(("category", "tags", "group", "lang"))] if self.source.chance(0.2) else []
        dry = ["--dry-run"] if self.source.chance(0.2) else []
        cache = ["--cache", "on"] if self.source.chance(0.15) else []
        return ["score", "--all", *self.place(), *how, *by, *dry, *cache, "--format", self.source.choice(FORMATS)]

    def others(self, count: int) -> list[list[str]]:
        """Other commands that read rows."""
        source, place, form = self.source, self.place(), ["--format", self.source.choice(FORMATS)]
        a, b = self.run(), self.run()
        worst = ["--worst", "4", "--metric", source.choice(METRICS)]
        query = ["--query", str(source.choice(self.tables["eval_query_results"] or [{"query_id": "q0"}])["query_id"])]
        bad = ["--skip-bad-rows"] if source.chance(0.7) else []
        menu: list[list[str]] = [
            ["show", a, *place, *form, *self.how(), *source.choice(([], worst, query, query))],
            ["show", a, *place, *form, *query],
            ["explain", source.choice(METRICS), "--run", a, *query, *place, *self.how()],
            ["explain", source.choice(METRICS), "--run", a, *query, *place, "--format", source.choice(("json", "md"))],
            ["compare", a, b, *place, *form, *self.how(), *bad, "--ignore-invariants"],
            ["compare", a, b, *place, *form, *bad, "--slices", "category", "--report", "out.md"],
            ["check", *place, *form, *self.how()],
            [
                "gate",
                a,
                *place,
                *bad,
                "--min",
                f"{source.choice(METRICS)}=0.1",
                "--format",
                source.choice((*FORMATS, "junit", "github")),
            ],
            ["gate", a, "--baseline", b, *place, *bad, "--not-worse", "--no-regressions", "--max-drop", "mrr=0.1"],
            [
                "history",
                source.choice(METRICS),
                "--db",
                DB,
                *form,
                "--by",
                source.choice(("suite", "chunker_version", "retriever")),
            ],
            ["recompute", "--explain", *place, *form, *self.how()],
            ["recompute", "--store", *place, *form],
            [
                "sql",
                f"SELECT * FROM {source.choice(TABLES)}",
                *place,
                "--format",
                source.choice(("table", "json", "jsonl", "csv", "md")),
            ],
            [
                "sql",
                f"FROM {source.choice(VIEWS)}",
                *place,
            ],
            ["runs", "--db", DB, *form],
            ["export", "duckdb", "out.duckdb", *place],
            ["export", "anchors", a, "out-anchors", *source.choice((["--db", DB], place))],
            ["archive", "out-archive", *place],
        ]
        chosen = source.sample(menu, count)
        if any(call[0] == "archive" for call in chosen):
            chosen.append(["score", "--all", "--db", "out-archive", "--format", "json"])
        return chosen

    def run(self) -> str:
        """A run, by one of its names."""
        return self.source.choice([*self.run_ids, *self.run_ids, "latest", "latest~1", *TEXTS[:3]])


# --- the areas -------------------------------------------------------------------------------------


def rows(seed: str) -> Case:
    """Rows of results, as damaged programs would write them."""
    made = Invention(seed, queries=12, runs=4)
    source = made.source
    found = made.tables["eval_query_results"]
    for row in found:
        if source.chance(0.7):
            spare = source.choice(found)["result_json"]
            row["result_json"] = source.changed(row["result_json"], source.choice((1, 1, 2, 4)), spare)
        if source.chance(0.02):
            row["query_id"] = source.choice(TEXTS)
    return made.case(made.score(), *made.others(source.choice((1, 2))), oddly=source.choice((0.0, 0.02, 0.2)))


def stored(seed: str) -> Case:
    """What else is in the database: configurations, stored numbers, chunks, documents, kept spans, names, times."""
    made = Invention(seed, queries=5, runs=5)
    source = made.source
    config = {
        "chunker_version": "md@1",
        "embedding": {"model": "e", "version": "1", "dimensions": 8, "provider": "p"},
        "llm": {"model_id": "m", "provider": "p"},
        "prompt_template_version": "3",
        "eval_k": 5,
        "judge_model": "j",
        "retriever": "bm25",
        "policy_hash": "p",
        "api_key": "sk-1",
        "folder_mode": "off",
        "kbeval": {"system": "anchors", "theirs": {}},
        "golden_hash": "x",
    }
    numbers = json.loads((FIXTURES / "eval" / "compare-1.json").read_text(encoding="utf-8"))
    for run in made.tables["eval_runs"]:
        run["config_snapshot_json"] = source.changed(
            {**config, **run["config_snapshot_json"]}, source.choice((0, 1, 3))
        )
        if source.chance(0.6):
            run["aggregate_json"] = source.changed(AGGREGATE | numbers, source.choice((0, 1, 3, 8)))
        for name in ("run_id", "suite", "created_at", "commit_hash"):
            if source.chance(0.15):
                run[name] = source.choice(TEXTS)
    for run, new in zip(made.tables["eval_runs"], made.run_ids, strict=True):
        if source.chance(0.15):
            for row in made.tables["eval_query_results"]:
                row["run_id"] = new if row["run_id"] == run["run_id"] else row["run_id"]
    for table in ("chunks", "documents", "kbeval_chunk_spans"):
        for row in made.tables.get(table, ()):
            for name in row:
                if source.chance(0.04):
                    row[name] = source.changed(row[name], source.choice((1, 2)))
                    if row[name] is None:
                        row[name] = ""
    if source.chance(0.1):
        table, name = source.choice(
            (("eval_query_results", "query_id"), ("eval_runs", "suite"), ("eval_query_results", "result_json"))
        )
        source.choice(made.tables[table] or [{}])[name] = source.choice(
            ({"text": "61ff62"}, {"hex": "00ff"}, {"text": "c3"})
        )
    calls = [["runs", "--db", DB, "--format", source.choice(FORMATS)], ["history", source.choice(METRICS), "--db", DB]]
    scored = [made.score()] if source.chance(0.7) else []
    return made.case(*scored, *calls, *made.others(source.choice((1, 2))), oddly=source.choice((0.0, 0.05, 0.2)))


AGGREGATE = {
    "hit_at_k": {"1": 0.5, "3": 0.5, "5": 1.0, "10": 1.0},
    "mrr": 0.5,
    "recall_at_k_doc": {"1": 0.5},
    "precision_at_k_chunk": {"1": 0.1},
    "citation_coverage": None,
    "groundedness": 0.0,
    "empty_result_rate": 0.0,
    "refusal_correctness": None,
    "total_queries": 5,
    "failed_queries": 0,
    "latency_ms": {"p50": 3, "p95": 12.5, "total": 100},
    "ledger": {"mrr": {"scored": 4, "not_applicable": 1}, "rows": 5, "missing": 0},
    "provenance": {"kbeval": "0.9", "definitions": "abc", "golden": "def", "matching": "exact", "rows": "123"},
}


def golden(seed: str) -> Case:
    """Golden files in three formats, of odd structure or odd bytes."""
    made = Invention(seed, queries=5, runs=2)
    source = made.source
    entries: Any = made.golden
    if source.chance(0.6):
        entries = source.changed(entries, source.choice((1, 1, 2, 5)), LABELS)
    form = source.choice(("yaml", "yaml", "json", "jsonl"))
    if source.chance(0.15):
        text = (FIXTURES / source.choice(("golden_queries.yaml", "anchors/golden.yaml"))).read_text(encoding="utf-8")
        form = "yaml"
    elif form == "yaml":
        try:
            text = yaml.safe_dump(
                entries, allow_unicode=source.chance(0.5), default_flow_style=source.choice((None, True, False))
            )
        except (RecursionError, yaml.YAMLError):
            text = dumped(entries)
    elif form == "json" or not isinstance(entries, list):
        text = source.spelt(entries, 0.3)
    else:
        text = "\n".join(source.spelt(entry, 0.1) for entry in entries)
    content = text.encode("utf-8", "surrogatepass")
    if source.chance(0.45):
        content = source.spoilt_bytes(content, source.choice((1, 1, 3)))
    name = f"golden.{form}"
    place = made.place(name)
    calls = [["check", *place, "--format", source.choice(FORMATS)]]
    if source.chance(0.5):
        calls.append(["score", "--all", *place, *made.how(), "--format", "json"])
    if source.chance(0.3):
        calls.append(
            [
                "sql",
                f"FROM {source.choice(('queries', 'expected_places', 'supports', 'query_slices', 'never_hit'))}",
                *place,
            ]
        )
    return made.case(*calls, **{name.replace(".", "__"): of_bytes(content)})


SETTINGS = """
db = "kb.db"
golden = "golden.json"
threads = 2
memory_limit = "200MB"
cache = "off"
match = "auto"
min_overlap = 0.5
overlap_of = "smaller"
missing = "skip"
k = [2, 20]
metrics_dir = "own"
runs_dir = "out-runs"
[metrics]
deepest = "MAX(rank)"
slow = { expression = "elapsed_ms", grain = "per_query", better = "lower", agg = "percentiles" }
[gates]
baseline = "latest~1"
min = { "hit_at_k.5" = 0.1, mrr = 0.0 }
max = { empty_result_rate = 1 }
max_drop = { mrr = 0.9 }
min_scored = { hit_at_k = 1 }
max_missing = 5
no_regressions = false
not_worse = true
[check]
ignore = ["ranks-with-gaps"]
"""
_TOML_VALUES = (
    '""',
    '"x"',
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9223372036854775808",
    "true",
    "[]",
    "{}",
    "[1, true]",
    '["a"]',
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "[[1]]",
    "{ a = { b = 1 } }",
    '"""\\u0000"""',
    '"\\u202e"',
    '"latest"',
    '"MAX(rank"',
    '"COUNT(*) OVER ()"',
    '"1; DROP TABLE x"',
    '"../.."',
    '"kb.db"',
    '"0.0001KB"',
    '"1e9GB"',
    '"99999999999999999999GB"',
    '"AVG(elapsed_ms)"',
    "0x10",
    "+1",
    "0.0",
    '"mrr"',
    "[0]",
    "[1000000001]",
    "1_000",
)


def settings(seed: str) -> Case:
    """Config files: each key with values of every kind, unknown keys, odd TOML."""
    made = Invention(seed, queries=3, runs=2)
    source = made.source
    lines = [line for line in SETTINGS.strip().splitlines() if line.startswith("[") or source.chance(0.6)]
    for _ in range(source.choice((0, 1, 1, 2))):
        number = source.randrange(len(lines))
        key, equals, _ = lines[number].partition(" = ")
        lines[number] = source.choice(
            (
                f"{key} = {source.choice(_TOML_VALUES)}",
                f"{key} = {source.choice(_TOML_VALUES)}",
                f"{source.spoilt(key)} = 1",
                f"{key} = {{ {source.choice(METRICS)!r} = {source.choice(_TOML_VALUES)} }}",
                f"{key}{equals}{dumped(source.odd())}",
                f"[{source.choice(('metrics', 'gates', 'check', 'x', 'gates.min', 'metrics.own'))}]",
            )
        )
    if source.chance(0.2):
        lines.append(f"{source.choice(('expression', 'over', 'k', 'none', 'agg'))} = {source.choice(_TOML_VALUES)}")
    text = "\n".join(lines)
    name = "kbeval.toml"
    if source.chance(0.2):
        name = "pyproject.toml"
        text = "[tool.kbeval]\n" + "\n".join(
            f"[tool.kbeval.{line[1:]}" if line.startswith("[") else line for line in lines
        )
    content = text.encode("utf-8", "surrogatepass")
    if source.chance(0.15):
        content = source.spoilt_bytes(content)
    calls = [["config", "--format", source.choice(FORMATS)], ["metrics", "--format", source.choice(FORMATS)]]
    calls += source.choice(
        (
            [["gate", "latest"]],
            [["score", "--all"]],
            [["check"]],
            [["compare", "latest~1", "latest", "--format", "json"]],
            [],
        )
    )
    return made.case(*calls, **{name.replace(".", "__"): of_bytes(content)})


METRIC = """-- own: how deep?
-- grain: per_hit
-- where: is_golden
-- k: 1 5
-- if_empty: 0
-- agg: mean
-- better: lower
MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)
"""
_HEADERS = (
    *("grain", "where", "k", "if_empty", "agg", "better", "comparable", "system", "missing", "labels", "unit", "x"),
    *("over", "none"),
)


def metrics(seed: str) -> Case:
    """Own metrics: odd heads, and SQL of every kind."""
    made = Invention(seed, queries=4, runs=2)
    source = made.source
    lines = METRIC.splitlines()
    lines[1] = f"-- grain: {source.choice(('per_hit', 'per_hit', 'per_query', 'per_expected_hit', 'answered'))}"
    lines[5] = f"-- agg: {source.choice(('mean', 'mean', 'sum', 'count', 'percentiles'))}"
    for _ in range(source.choice((0, 0, 0, 1, 2))):
        value = source.choice(
            (
                "per_hit",
                "per_query",
                "per_expected_hit",
                "ranked",
                "0",
                "nan",
                "1e400",
                "1 2 3",
                "1,2",
                "true",
                "mean",
                "sum",
                "count",
                "percentiles",
                "lower",
                "neither",
                "within",
                "anchors",
                "tokens",
                "rank > 1",
                "rank >",
                "1) OR (1=1",
                "-- x",
                "/*",
                "'",
                *TEXTS[:20],
            )
        )
        lines.insert(source.randrange(1, len(lines)), f"-- {source.choice(_HEADERS)}: {value}")
    if source.chance(0.7):
        wrap = source.choice(
            (
                "MAX({})",
                "SUM({})",
                "COUNT(*) FILTER (WHERE {})",
                "{}",
                "AVG({}) + COUNT(*)",
                "MAX(CASE WHEN rank <= :k THEN {} END)",
                "CAST({} AS DOUBLE)",
            )
        )
        lines[-1] = wrap.format(
            expression(
                source,
                columns=(
                    "rank",
                    "score",
                    "chunk_id",
                    "doc_id",
                    "n_expected_chunks",
                    "is_expected_chunk",
                    "elapsed_ms",
                    "query_id",
                ),
            )
        )
    if ":k" not in lines[-1] and source.chance(0.9):
        lines.remove("-- k: 1 5")
    text = "\n".join(lines)
    if source.chance(0.1):
        text = source.spoilt(text)
    calls = [
        ["explain", "own", "--metrics", "own"],
        ["score", "--all", *made.place(), "--metrics", "own", "--format", "json"],
    ]
    if source.chance(0.3):
        calls.append(
            source.choice(
                (
                    ["show", "latest", "--worst", "3", "--metric", "own", "--metrics", "own", *made.place()],
                    ["compare", "latest~1", "latest", "--metrics", "own", *made.place(), "--format", "json"],
                    ["sql", "SELECT * FROM scores WHERE metric = 'own'", "--metrics", "own", *made.place()],
                )
            )
        )
    case = made.case(*calls)
    return Case(case.calls, {**case.files, "own/own.sql": text}, case.tables)


def questions(seed: str) -> Case:
    """SQL for `kbeval sql`."""
    made = Invention(seed, queries=4, runs=2)
    source = made.source
    forms = ("table", "json", "jsonl", "csv", "md", "parquet")
    calls: list[list[str]] = []
    for _ in range(12):
        text = question(source, made.run_ids)
        form = source.choice(forms)
        calls.append(["sql", "--db", DB, "--golden", "golden.json", "--format", form])
        calls[-1] += ["-o", f"out.{form}"] if form == "parquet" or source.chance(0.1) else []
        calls[-1] += ["--limit", "3"] if source.chance(0.1) else []
        calls[-1] += ["--", text.replace("\0", "")]
    return made.case(*calls)


def imports(seed: str) -> Case:
    """Files of other systems."""
    source = Source(seed)
    folder = FIXTURES / "anchors" / "2026-03-05-hybrid"
    found = [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    gold, trace = (
        [json.loads(line) for line in (FIXTURES / "grounded" / name).read_text(encoding="utf-8").splitlines()]
        for name in ("gold.jsonl", "trace.jsonl")
    )

    def file(items: list[Any], spare: Any) -> Any:
        lines = [
            source.spelt(source.changed(item, source.choice((1, 2)), spare) if source.chance(0.4) else item, 0.1)
            for item in [*items, *(items if source.chance(0.2) else ())]
        ]
        content = source.choice(("\n", "\n", "\n", "\r\n", "\n\n")).join(lines).encode("utf-8", "surrogatepass")
        return of_bytes(source.spoilt_bytes(content) if source.chance(0.1) else content)

    if source.chance(0.3):
        config = source.changed(config, 2)
    name = source.choice(("a", "a", "latest", "r 1", "é", "-x", "a;b"))
    files = {
        f"results/{name}/results.jsonl": file(found, gold),
        f"results/{name}/config.json": source.spelt(config, 0.1),
        "golden.yaml": (FIXTURES / "anchors" / "golden.yaml").read_text(encoding="utf-8"),
        "gold.jsonl": file(gold, trace),
        "trace.jsonl": file(trace, gold),
    }
    place = ["--db", "out.db", "--golden", "golden.yaml"]
    theirs = [
        ["import", "anchors", f"results/{name}", "--db", "out.db"],
        ["score", "--all", *place, "--format", "json"],
        ["export", "anchors", name if name != "-x" else "latest", "out-folder", *place],
    ]
    grounded = [
        ["grounded", "--gold", "gold.jsonl", "--trace", "trace.jsonl", *(["--k", "2"] if source.chance(0.3) else [])],
        ["import", "grounded", "trace.jsonl", "--run-id", name if name != "-x" else "x", "--db", "out.db"],
        ["score", "--all", "--db", "out.db", "--golden", "gold.jsonl", "--format", "json"],
    ]
    return Case(source.choice((theirs, grounded, grounded[:1], grounded[:1])), files)


AREAS: dict[str, Callable[[str], Case]] = {
    found.__name__: found for found in (rows, stored, golden, settings, metrics, questions, imports, ways_in)
}
