"""SQL that a person or a program might send: valid questions, odd ones, and text that is not SQL."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import duckdb

from kbeval.explore.tables import tables
from tests.fuzz.mutation import TEXTS, Source

COLUMNS = (
    "run_id",
    "query_id",
    "rank",
    "value",
    "metric",
    "chunk_id",
    "doc_id",
    "score",
    "config",
    "created_at",
    "suite",
    "nothing",
)
LITERALS = (
    *"""
0
1
-1
NULL
TRUE
''
'a'
'1'
1.5
1e300
1e-300
'NaN'::DOUBLE
'inf'::DOUBLE
9223372036854775807
170141183460469231731687303715884105727
DATE '2026-01-01'
TIMESTAMP '2026-01-01 10:00:00'
TIMESTAMPTZ '2026-01-01 10:00:00+02'
TIME '10:00'
INTERVAL 1 DAY
INTERVAL '9999999 years'
INTERVAL 2147483647 MONTH
'\\xFF'::BLOB
[1, 2]
[]
{'a': 1}
MAP {'a': 1}
'{"a": [1]}'::JSON
'a'::VARCHAR COLLATE NOCASE
x -> x
CAST(3 AS UTINYINT)
'101'::BIT
uuid()
'infinity'::DATE
'-infinity'::TIMESTAMP
'epoch'::TIMESTAMP
TIMESTAMP '294247-01-10 04:00:54'
DATE '5877642-06-25 (BC)'
1::DECIMAL(38,10)
union_value(a := 1)
[NULL]
[[1], NULL]
{'a': NULL, 'a b': [1]}
ROW(1, 'x')
'😀'
chr(0)
E'\\x1b[31m'
$$x$$
?
$1
$name
current_date
*
""".strip().splitlines(),
    "'\u202e'",
)
TYPES = (
    "INT",
    "VARCHAR",
    "DOUBLE",
    "BLOB",
    "DATE",
    "TIMESTAMPTZ",
    "INTERVAL",
    "DECIMAL(38,37)",
    "JSON",
    "INT[]",
    "STRUCT(a INT)",
    "MAP(INT, INT)",
    "BIT",
    "HUGEINT",
    "UUID",
    "TIME",
    "VARINT",
    "no_type",
)
_NUMBERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL"))
OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "=",
    "<>",
    "<",
    ">=",
    "AND",
    "OR",
    "||",
    "LIKE",
    "SIMILAR TO",
    "IS DISTINCT FROM",
    "->",
    "->>",
    "<<",
    "&",
    "^",
    "~",
    "IN",
    "::",
    "@>",
    "<=>",
    "GLOB",
)
STATEMENTS = (
    *"""
SHOW TABLES
SHOW ALL TABLES
DESCRIBE {t}
SUMMARIZE {t}
EXPLAIN {q}
EXPLAIN ANALYZE {q}
FROM {t}
FROM {t} SELECT {e}
VALUES ({e}), ({e})
TABLE {t}
PIVOT {t} ON {c} IN ('a', 'b') USING COUNT(*)
PIVOT {t} ON {c}
UNPIVOT {t} ON {c} INTO NAME n VALUE v
SELECT * FROM compare('{r}', '{r}')
SELECT * FROM compare({e}, {e})
INSERT INTO {t} VALUES (1)
UPDATE {t} SET x = 1
DELETE FROM {t}
CREATE TABLE x AS {q}
DROP TABLE {t}
ATTACH 'x.db'
DETACH memory
COPY {t} TO 'out.csv'
COPY ({q}) TO 'x.parquet'
INSTALL httpfs
LOAD httpfs
UPDATE EXTENSIONS
PRAGMA database_list
PRAGMA version
SET threads = 1
RESET threads
CALL pragma_version()
USE memory
BEGIN
COMMIT
ROLLBACK
CHECKPOINT
VACUUM
ANALYZE
EXPORT DATABASE 'x'
IMPORT DATABASE 'x'
PREPARE p AS {q}
EXECUTE p
DEALLOCATE p
SELECT * FROM 'kb.db'
SELECT * FROM read_csv('golden.json')
SELECT * FROM sqlite_scan('kb.db', 'eval_runs')
SELECT getenv('HOME')
SELECT * FROM glob('*')
CREATE MACRO f(x) AS x
ALTER TABLE {t} ADD COLUMN x INT
MERGE INTO {t} USING {t} ON TRUE WHEN MATCHED THEN DELETE
COMMENT ON TABLE {t} IS 'x'
CREATE SECRET (TYPE S3)
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_settings()
SET VARIABLE x = 1
SELECT getvariable('x')
SELECT * FROM query('SELECT 1')
SELECT * FROM query_table('{t}')
FORCE CHECKPOINT
SELECT nextval('s')
SHOW DATABASES
DESCRIBE SELECT {e}
SUMMARIZE {q}
EXPLAIN
SELECT
;
--
/*
/* x */ SELECT 1 -- y
SELECT 1;;SELECT 2
SELECT json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT 1 AS a, 2 AS a, 3 AS A
SELECT * FROM {t} AS OF 1
SELECT * FROM {t} TABLESAMPLE 10%
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50) SELECT * FROM n
WITH a AS ({q}) SELECT * FROM a
WITH a AS MATERIALIZED ({q}), b AS (FROM a) FROM b, a
SELECT COLUMNS('.*id') FROM {t}
SELECT * EXCLUDE ({c}) FROM {t}
SELECT * REPLACE ({e} AS {c}) FROM {t}
SELECT {c}, COUNT(*) FROM {t} GROUP BY ALL ORDER BY ALL
SELECT * FROM {t} a JOIN {t} b USING ({c})
SELECT * FROM {t} ASOF JOIN {t} b USING (rank)
SELECT {e} OVER (PARTITION BY {c} ORDER BY {c}) FROM {t}
SELECT (SELECT {e} FROM {t} LIMIT 1)
SELECT * FROM {t} WHERE {e}
SELECT * FROM {t} POSITIONAL JOIN {t} b
SELECT UNNEST({e}), UNNEST({e})
SELECT * FROM unnest({e})
SELECT * FROM {t} WHERE {c} IN ({q})
{q} UNION {q}
{q} EXCEPT ALL {q}
{q} INTERSECT BY NAME {q}
SELECT LIST({c}) FROM {t}
SELECT HISTOGRAM({c}) FROM {t}
SELECT {e} FROM {t} GROUP BY CUBE ({c})
SELECT * FROM range({e})
SELECT * FROM {t} QUALIFY ROW_NUMBER() OVER () < 3
SELECT {e} FROM {t} ORDER BY {e} LIMIT {e} OFFSET {e}
SELECT a.b.c.d FROM {t} a
SELECT * FROM {t} WHERE {c} = (SELECT MAX({c}) FROM {t})
""".strip().splitlines(),
    "",
    'SELECT "a""b", "\u202e" FROM {t}',
)


@functools.cache
def functions() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """What the engine can call: the name, the kind, and the types of its arguments."""
    with duckdb.connect(":memory:") as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name, function_type, parameters, parameter_types FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'aggregate', 'macro', 'table')"
            " AND regexp_full_match(function_name, '[a-z_0-9]+') ORDER BY ALL"
        ).fetchall()
    return tuple(
        (str(name), str(kind), tuple(map(str, types if len(types or ()) == len(names) else names)))
        for name, kind, names, types in found
    )


@functools.cache
def _callable(*kinds: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return tuple(found for found in functions() if found[1] in kinds)


@functools.cache
def literals(kind: str) -> tuple[str, ...]:
    """Literals that the engine takes for an argument of a type; all where none fits."""
    with duckdb.connect(":memory:") as connection:
        found = []
        for literal in LITERALS:
            with contextlib.suppress(duckdb.Error):
                ((name,),) = connection.execute(f"SELECT typeof({literal})").fetchall()
                if name == kind or (name in _NUMBERS and kind in _NUMBERS):
                    found.append(literal)
    return tuple(found) or LITERALS


def expression(source: Source, depth: int = 0, columns: Sequence[str] = COLUMNS) -> str:
    """An expression that need not mean anything."""
    luck = source.random()
    if depth > 3 or luck < 0.3:
        return source.choice(LITERALS)
    if luck < 0.45:
        return source.choice(columns)

    def inner() -> str:
        return expression(source, depth + 1, columns)

    if luck < 0.72:
        name, _, types = source.choice(_callable("scalar", "aggregate", "macro"))
        # Mostly what it asks for, so that it is computed and not only refused.
        arguments = [source.choice(literals(kind)) if source.chance(0.75) else inner() for kind in types]
        return f"{name}({', '.join(arguments[: None if source.chance(0.95) else -1])})"
    if luck < 0.82:
        return f"({inner()} {source.choice(OPERATORS)} {inner()})"
    return source.choice(
        (
            f"CAST({inner()} AS {source.choice(TYPES)})",
            f"TRY_CAST({inner()} AS {source.choice(TYPES)})",
            f"CASE WHEN {inner()} THEN {inner()} ELSE {inner()} END",
            f"COUNT(DISTINCT {inner()})",
            f"SUM({inner()}) FILTER (WHERE {inner()})",
            f"({inner()})[{inner()}]",
            f"NOT {inner()}",
            f"{inner()} IS NULL",
            f"{inner()} BETWEEN {inner()} AND {inner()}",
            f"[x FOR x IN {inner()} IF x > 1]",
            f"EXTRACT(year FROM {inner()})",
            f"{inner()}.a",
            f"ARRAY[{inner()}]",
            f"EXISTS (SELECT {inner()})",
            f"(SELECT {inner()})",
            f"LAG({inner()}) OVER (ORDER BY {inner()})",
            f"list_transform({inner()}, x -> {inner()})",
            f"{inner()} AT TIME ZONE 'Europe/Berlin'",
            f"{inner()}::{source.choice(TYPES)}",
            f"COALESCE({inner()}, {inner()})",
        )
    )


def question(source: Source, run_ids: Sequence[str]) -> str:
    """A statement, or several, or nearly one."""
    names = [
        *tables(),
        "nothing",
        "duckdb_tables()",
        "information_schema.tables",
        "(SELECT 1 AS rank)",
        "main.hits",
        "memory.main.runs",
    ]

    def simple() -> str:
        table = source.choice(names)
        return source.choice(
            (
                f"SELECT * FROM {table} LIMIT 3",
                f"SELECT COUNT(*) FROM {table}",
                f"SELECT {expression(source)}",
                f"SELECT {expression(source)} FROM {table} LIMIT 2",
            )
        )

    luck = source.random()
    if luck < 0.3:
        text = simple()
    elif luck < 0.36:
        name, _, types = source.choice(_callable("table"))
        text = f"SELECT * FROM {name}({', '.join(source.choice(literals(kind)) for kind in types)}) LIMIT 5"
    elif luck < 0.42:
        deep = source.choice((10, 100, 400))
        text = source.choice(
            (
                "SELECT " + "(" * deep + "1" + ")" * deep,
                "SELECT " + "-" * deep + "1",
                "SELECT " + "NOT " * deep + "TRUE",
                "SELECT " + " + ".join(["1"] * deep),
                "SELECT * FROM " + "(SELECT * FROM " * deep + "runs" + ")" * deep,
                "SELECT [" * 1 + "[" * deep + "]" * deep + "]",
                "SELECT 1" + " UNION ALL SELECT 1" * deep,
                "SELECT " + "CASE WHEN " * deep + "1",
                "SELECT " + "abs(" * deep + "1" + ")" * deep,
                "SELECT '" + "x" * 100 * deep + "'",
                "SELECT 1 " + "/*" * deep + "*/" * deep,
                ";" * deep,
                "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(deep)),
            )
        )
    else:
        text = source.choice(STATEMENTS)
        parts: dict[str, Callable[[], str]] = {
            "{t}": lambda: source.choice(names),
            "{q}": simple,
            "{e}": lambda: expression(source),
            "{c}": lambda: source.choice(COLUMNS),
            "{r}": lambda: source.choice([*run_ids, "latest", *TEXTS[:4]]),
        }
        for mark, part in parts.items():
            while mark in text:
                text = text.replace(mark, part(), 1)
    if source.chance(0.08):
        text = source.spoilt(text)
    if source.chance(0.05):
        text = f"{text}; {simple()}"
    return text if source.chance(0.97) else source.choice(TEXTS)
