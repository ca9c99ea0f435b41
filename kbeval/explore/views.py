"""Views over many runs: those that are not files of `sql/views/`, and example queries."""

from __future__ import annotations

import re

from kbeval.engine.relations import read_sql, relations

# The views in addition to the files of sql/views/: name, description, and columns.
ABOUT = {
    "aggregates": (
        "the stored numbers of every run, one row per number",
        "run_id, slice (null: the whole run), metric, k, value (null: scored on no query), scored, not_applicable",
    ),
    "configurations": (
        "every key of every run's configuration; values that look secret are hidden",
        "run_id, field, value, value_no (the same for equal values of a field), part (chunker, embedding, … or null)",
    ),
    "run_details": (
        "settings recorded in each run's configuration and stored numbers",
        "run_id, place (1: the oldest run), is_dated (false: put first), k (hits asked), definitions, labels, matching",
    ),
    "step_pairs": (
        "every run and the previous run of its suite, one row per query of either",
        "as in pairs: run_a is the previous run, run_b the run",
    ),
}
# The ones that SHOW TABLES lists.
SHOWN = ("aggregates", "configurations")
_EXAMPLE = re.compile(r"^-- example: (.+)$", re.MULTILINE)


def examples() -> dict[str, list[str]]:
    """Example queries for each view and for `compare`, from the headers of their files."""
    texts = {name: relation.sql for name, relation in relations().items()}
    texts["compare"] = read_sql("compare/compare_macro.sql")
    return {name: found for name, text in sorted(texts.items()) if (found := _EXAMPLE.findall(text))}
