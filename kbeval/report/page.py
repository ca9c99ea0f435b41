"""Writes a page: one file with its style, script and data, and a policy that forbids to load anything else."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from kbeval import __version__
from kbeval.report import charts
from kbeval.report.answers import View
from kbeval.report.packing import Packer
from kbeval.report.texts import Texts, segments
from kbeval.util.text import shown

# Limits without JavaScript: the number of queries in the list, and the number of characters for the list and the
# queries shown in full, which get what the list leaves, but at least the last number.
MOST_LISTED = 500
MOST_STATIC = 150_000
FEWEST_STATIC = 40_000

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
    """A number as tables show it; a dash if there is none."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return minus(f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}")
    return minus(f"{value:,}") if isinstance(value, int) else shown(str(value))


def minus(text: str) -> str:
    """Numbers with a proper minus sign, which is as wide as a plus."""
    return text.replace("-", "−")


def write_page(
    template: str,
    content: Mapping[str, Any],
    batches: Iterable[Sequence[View]] = (),
    texts: Texts | None = None,
) -> str:
    """The page as text. `batches`: the queries, the most telling first; `texts`: what they refer to."""
    environment = _environment()
    style, script = (_TEMPLATES.joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    detail: Any = environment.get_template("query.html.j2").module
    packer = Packer()
    listed: list[View] = []
    in_full: list[str] = []
    total = 0
    for batch in batches:
        new_texts = texts.take() if texts else []
        if not total:
            # The first batch contains all texts that it refers to.
            listed = list(batch[:MOST_LISTED])
            in_full = _that_fit(listed, functools.partial(_detail, detail, new_texts))
        total += len(batch)
        packer.add(batch, new_texts)
    return environment.get_template(template).render(
        **content,
        version=__version__,
        # Both are part of this program, and the policy contains their hashes.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy=_policy(style, script),
        data=packer.done(),
        queries=listed,
        in_full=in_full,
        total=total,
    )


def _detail(templates: Any, texts: Sequence[str], view: View) -> str:  # noqa: ANN401  (jinja2's module has no types)
    return str(templates.detail(view, texts))


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, sent or run except this style and this script, and the script cannot write markup."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _that_fit(listed: Sequence[View], written: Callable[[View], str]) -> list[str]:
    """The details of the first queries, as many as fit."""
    left = max(FEWEST_STATIC, MOST_STATIC - sum(200 + len(view["query"]) + len(view["note"]) for view in listed))
    found: list[str] = []
    for view in listed:
        # Markup of the template, which escaped the data in it.
        text = Markup(written(view))  # noqa: S704
        left -= len(text)
        if left < 0 and found:
            break
        found.append(text)
    return found
