"""Questions that people ask of many runs: what there is next to the files of `sql/views/`, and what to try."""

from __future__ import annotations

import re

from kbeval.engine.relations import read_sql, relations

# What there is in addition to the files of sql/views/: name, what it answers, and its columns.
ABOUT = {
    "aggregates": (
        "the stored numbers of every run, one row per number",
        "run_id, slice (null: the whole run), metric, k, value (null: scored on no query), scored, not_applicable",
    ),
    "configurations": (
        "every key of every run's configuration; what looks secret is hidden",
        "run_id, field, value, value_no (the same for equal values of a field), part (chunker, embedding, … or null)",
    ),
    "run_details": (
        "what a run's configuration and stored numbers say about themselves",
        "run_id, place (1: the oldest run), is_dated (false: put first), k (hits asked), definitions, labels, matching",
    ),
    "step_pairs": (
        "every run with the run before it in its suite, one row per query of either",
        "as in pairs: run_a is the run before, run_b the run",
    ),
}
# Those of them that people ask about.
SHOWN = ("aggregates", "configurations")
_EXAMPLE = re.compile(r"^-- example: (.+)$", re.MULTILINE)


def examples() -> dict[str, list[str]]:
    """What to try on each view and on `compare`, as their files say."""
    texts = {name: relation.sql for name, relation in relations().items()}
    texts["compare"] = read_sql("compare/compare_macro.sql")
    return {name: found for name, text in sorted(texts.items()) if (found := _EXAMPLE.findall(text))}
