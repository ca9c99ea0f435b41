"""The names of rubrics in what a database or an archive holds of judgings."""

from __future__ import annotations

from collections.abc import Iterable

from kbeval.util.strict_json import parse


def rubric_names(texts: Iterable[str]) -> list[str]:
    """The names in these lists of rubrics, sorted; what is not such a list has none."""
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
