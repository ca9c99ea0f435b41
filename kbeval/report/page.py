"""Writes a page: one file with its style, its script and its data inside, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from kbeval import __version__
from kbeval.report import charts
from kbeval.report.evidence import View
from kbeval.report.texts import Texts, segments
from kbeval.util.text import shown

# What is there without JavaScript: so many queries in the list, and so many characters for those shown in full, which
# get what the list leaves of them.
MOST_LISTED = 500
MOST_STATIC = 150_000
FEWEST_STATIC = 40_000
# What the hits of one chunk have in common, and is held once.
_CHUNK = ("chunk", "doc", "headings", "where", "source", "text")

_TEMPLATES = files("kbeval.report").joinpath("templates")


@functools.cache
def _environment() -> jinja2.Environment:
    def load(name: str) -> str:
        return _TEMPLATES.joinpath(name).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": shown, "number": number, "minus": minus}
    environment.globals |= {"charts": charts, "segments": segments}
    return environment


def number(value: object) -> str:
    """A number as tables show it; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return minus(f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}")
    return minus(f"{value:,}") if isinstance(value, int) else shown(str(value))


def minus(text: str) -> str:
    """Numbers with the sign that belongs to them, which is as wide as a plus."""
    return text.replace("-", "−")


def write_page(
    template: str, content: Mapping[str, Any], queries: Sequence[View] = (), texts: Texts | None = None
) -> str:
    """The page as text. `queries`: the most telling first; `texts`: what they refer to."""
    environment = _environment()
    style, script = (_TEMPLATES.joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    texts = texts or Texts()
    detail = environment.get_template("query.html.j2").module
    shown_in_full = _that_fit(queries, lambda view: str(_call(detail, view, texts)))
    return environment.get_template(
        template
    ).render(
        **content,
        version=__version__,
        # Both are part of this program, and the policy names their hashes.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy=_policy(style, script),
        data=_packed(queries, texts) if queries else None,
        queries=queries[:MOST_LISTED],
        in_full=shown_in_full,
        total=len(queries),
    )


def _call(module: Any, view: View, texts: Texts) -> Any:  # noqa: ANN401  (jinja2's module has no types)
    return module.detail(view, texts.texts)


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, sent or run but this style and this script, and the script cannot write markup."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _that_fit(queries: Sequence[View], written: Callable[[View], str]) -> list[str]:
    """The details of the first queries, as many as fit."""
    listed = queries[:MOST_LISTED]
    left = max(FEWEST_STATIC, MOST_STATIC - sum(200 + len(view["query"]) + len(view["note"]) for view in listed))
    found: list[str] = []
    for view in listed:
        # Its own markup, escaped by the template that wrote it.
        text = Markup(written(view))  # noqa: S704
        left -= len(text)
        if left < 0 and found:
            break
        found.append(text)
    return found


def _packed(queries: Sequence[View], texts: Texts) -> str:
    """The data for the script: JSON, compressed, as letters and digits, which no text can break out of.

    The hits of a ranking are columns: which chunk, at which rank (none: 1, 2, 3, …), with which score; and only for
    those that a label is about, how they count. `report.js` unpacks them.
    """
    chunks: dict[tuple[Any, ...], int] = {}
    labels: dict[str, int] = {}

    def packed(side: View) -> View:
        hits = side["hits"]
        ranks = [hit["rank"] for hit in hits]
        columns = {
            "chunks": [chunks.setdefault(tuple(hit[name] for name in _CHUNK), len(chunks)) for hit in hits],
            "scores": [hit["score"] for hit in hits],
            "ranks": None if ranks == list(range(1, len(hits) + 1)) else ranks,
            "labelled": [
                [place, hit["counts"], hit["marks"], [labels.setdefault(one, len(labels)) for one in hit["labels"]]]
                for place, hit in enumerate(hits)
                if hit["counts"] or hit["labels"] or hit["marks"]
            ],
        }
        return {**side, "hits": columns}

    views = [{**view, "sides": [packed(side) for side in view["sides"]]} for view in queries]
    data = {"chunks": list(chunks), "labels": list(labels), "texts": texts.texts, "queries": views}
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
