"""Rubrics: what a judge is asked. A Markdown file with a name, a scale and placeholders; two are shipped with kbeval.

The text that a judge reads is the file's, with the placeholders filled in, and one paragraph after it that says how to
reply. Filled-in texts are enclosed in tags whose name depends on them all, so that no text can close its own tag and go
on as if it were the rubric.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.errors import UsageError
from kbeval.metrics.catalogue import SHIPPED_RUBRICS, rubric_fault
from kbeval.util.text import did_you_mean

PLACEHOLDERS = ("question", "answer", "context", "expected_key_facts")
NOT_GIVEN = "(none given)"
_HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_SCALE = re.compile(r"(-?\d{1,4})\s*(?:-|–|to|\.\.)\s*(-?\d{1,4})")
_KEYS = ("name", "scale", "claims")
_MOST_CHARACTERS = 100_000
_LONGEST_SCALE = 100


@dataclass(frozen=True)
class Rubric:
    """A parsed rubric."""

    name: str
    low: int
    high: int
    # Does it ask for the supported and the unsupported claims?
    claims: bool
    # The whole file.
    text: str
    template: str

    @property
    def hash(self) -> str:
        """A hash of its text."""
        return "sha256:" + hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def reads(self, placeholder: str) -> bool:
        """Is a placeholder used?"""
        return placeholder in _PLACEHOLDER.findall(self.template)

    def as_json(self) -> dict[str, Any]:
        """As it is stored with a judging."""
        return {"name": self.name, "hash": self.hash, "low": self.low, "high": self.high, "text": self.text}

    def schema(self) -> dict[str, Any]:
        """The JSON schema of a reply: the reasoning comes before the score."""
        claims = {"type": "array", "items": {"type": "string"}}
        properties: dict[str, Any] = {"reasoning": {"type": "string"}}
        if self.claims:
            properties |= {"supported_claims": claims, "unsupported_claims": claims}
        # Not every server knows minimum and maximum; all know a list of values.
        properties["score"] = {"type": "integer", "enum": list(range(self.low, self.high + 1))}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def how_to_reply(self) -> str:
        """The paragraph after the rubric."""
        claims = ' "supported_claims": [text, …], "unsupported_claims": [text, …],' if self.claims else ""
        return (
            f'Reply with one JSON object and nothing else: {{"reasoning": text,{claims} "score": a whole number from'
            f" {self.low} to {self.high}}}. Write the reasoning first, in at most five sentences."
        )

    def prompt(self, values: Mapping[str, str | Sequence[str]]) -> str:
        """The text that the judge reads. Values are filled in once: placeholders in them stay as they are."""
        mark = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]

        def filled(match: re.Match[str]) -> str:
            name = match[1]
            found = values[name]
            texts = [found] if isinstance(found, str) else found
            tag = "passage" if name == "context" else name
            return "\n".join(f"<{tag}_{mark}>\n{text}\n</{tag}_{mark}>" for text in texts) or NOT_GIVEN

        return f"{_PLACEHOLDER.sub(filled, self.template).strip()}\n\n{self.how_to_reply()}\n"


def parse_rubric(text: str, origin: str) -> Rubric:
    """Parse a rubric; `origin` is named in errors."""
    try:
        fields, template = _parts(text)
        low, high, claims = _checked(fields)
        _check_placeholders(template)
    except ValueError as error:
        msg = f"{origin}: {error}"
        raise UsageError(msg) from error
    return Rubric(fields["name"], low, high, claims, text, template)


def _parts(text: str) -> tuple[dict[str, str], str]:
    """The fields at the top of a rubric, and the rest."""
    if len(text) > _MOST_CHARACTERS:
        msg = f"a rubric may have at most {_MOST_CHARACTERS:,} characters"
        raise ValueError(msg)
    head = _HEAD.match(text)
    if head is None:
        msg = "a rubric begins with '---', then 'name: …' and 'scale: 0-5', then '---'"
        raise ValueError(msg)
    fields: dict[str, str] = {}
    for line in filter(str.strip, head[1].splitlines()):
        key, sign, value = line.partition(":")
        key = key.strip()
        if not sign or key not in _KEYS:
            msg = f"unknown key {key!r}{did_you_mean(key, _KEYS) or '; known: ' + ', '.join(_KEYS)}"
            raise ValueError(msg)
        if key in fields:
            msg = f"{key} is given more than once"
            raise ValueError(msg)
        fields[key] = value.strip()
    return fields, text[head.end() :]


def _checked(fields: Mapping[str, str]) -> tuple[int, int, bool]:
    """The ends of the scale, and whether claims are asked for."""
    missing = next((key for key in ("name", "scale") if not fields.get(key)), None)
    wrong = f"{missing} is missing" if missing else rubric_fault(fields["name"])
    if wrong:
        raise ValueError(wrong)
    scale = _SCALE.fullmatch(fields["scale"])
    if scale is None or not 1 <= int(scale[2]) - int(scale[1]) <= _LONGEST_SCALE:
        msg = f"scale is {fields['scale']!r}; it must be two whole numbers such as 0-5, at most {_LONGEST_SCALE} apart"
        raise ValueError(msg)
    claims = fields.get("claims", "no").lower()
    if claims not in ("yes", "no", "true", "false"):
        msg = f"claims is {claims!r}; it must be yes or no"
        raise ValueError(msg)
    return int(scale[1]), int(scale[2]), claims in ("yes", "true")


def _check_placeholders(template: str) -> None:
    named = _PLACEHOLDER.findall(template)
    for name in named:
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{{ {each} }}}}" for each in PLACEHOLDERS)
            hint = did_you_mean(name, PLACEHOLDERS) or f"; known: {known}"
            msg = f"unknown placeholder {{{{ {name} }}}}{hint}"
            raise ValueError(msg)
    if "answer" not in named:
        msg = "the placeholder {{ answer }} is missing, so there is nothing to judge"
        raise ValueError(msg)


def shipped(name: str) -> Rubric:
    """A rubric that is shipped with kbeval."""
    path = Path(__file__).parent / "rubrics" / f"{name}.md"
    return parse_rubric(path.read_text(encoding="utf-8"), f"the rubric {name}")


def load_rubrics(names: Sequence[str]) -> list[Rubric]:
    """Rubrics by name (shipped ones) or by path (your own); both shipped ones if none is named."""
    found: list[Rubric] = []
    for name in names or SHIPPED_RUBRICS:
        rubric = shipped(name) if name in SHIPPED_RUBRICS else _own(name)
        if any(rubric.name == other.name for other in found):
            msg = f"two rubrics have the name {rubric.name!r}; a judging has one score per name"
            raise UsageError(msg)
        found.append(rubric)
    return found


def _own(name: str) -> Rubric:
    path = Path(name)
    try:
        if not path.is_file():
            known = ", ".join(SHIPPED_RUBRICS)
            hint = did_you_mean(name, SHIPPED_RUBRICS) or f"; give a Markdown file, or one of {known}"
            msg = f"there is no rubric {name!r}{hint}"
            raise UsageError(msg)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        msg = f"the rubric {name!r} cannot be read: {error}"
        raise UsageError(msg) from error
    return parse_rubric(text, name)
