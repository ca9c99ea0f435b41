"""The names of the rubrics of the judgings in a database or an archive."""

from __future__ import annotations

from collections.abc import Iterable

from kbeval.util.strict_json import parse


def rubric_names(texts: Iterable[str]) -> list[str]:
    """The names in these lists of rubrics, sorted; invalid lists are ignored."""
    found: set[str] = set()
    for text in texts:
        try:
            rubrics = parse(text)
        except ValueError:
            continue
        for rubric in rubrics if isinstance(rubrics, list) else ():
            name = rubric.get("name") if isinstance(rubric, dict) else None
            if isinstance(name, str):
                found.add(name)
    return sorted(found)
