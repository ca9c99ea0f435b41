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

# Without JavaScript, as many queries are shown in full as fit into this many characters, and as many are listed.
MOST_STATIC = 120_000
MOST_LISTED = 1_000
# Names that occur in many hits, and are held once.
_NAMES = ("chunk", "doc", "headings", "where", "source")
_HIT = ("rank", "counts", *_NAMES, "score", "text", "marks", "labels")

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
    found: list[str] = []
    left = MOST_STATIC
    for view in queries[:MOST_LISTED]:
        # Its own markup, escaped by the template that wrote it.
        text = Markup(written(view))  # noqa: S704
        left -= len(text)
        if left < 0 and found:
            break
        found.append(text)
    return found


def _packed(queries: Sequence[View], texts: Texts) -> str:
    """The data for the script: JSON, compressed, as letters and digits, which no text can break out of."""
    names: dict[str, int] = {}

    def named(value: str | None) -> int:
        return -1 if value is None else names.setdefault(value, len(names))

    def packed_hit(hit: View) -> list[Any]:
        own = {**hit, **{name: named(hit[name]) for name in _NAMES}, "labels": [named(one) for one in hit["labels"]]}
        return [own[name] for name in _HIT]

    views = [
        {**view, "sides": [{**side, "hits": [packed_hit(hit) for hit in side["hits"]]} for side in view["sides"]]}
        for view in queries
    ]
    data = {"hit": _HIT, "names": list(names), "texts": texts.texts, "queries": views}
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
