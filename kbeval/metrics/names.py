"""Names of numbers: one class parses and prints them, and one table maps names to metrics, for every command.

A number is a metric, usually at one k (`hit_at_k.5`) or in one part (`latency_ms.p95`). Each has one long name, which
is used in JSON, and may have a short one for tables (`hit@5`). Every printed name is accepted as input everywhere and
means the same number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbeval.errors import UsageError
from kbeval.util.text import cut, did_you_mean

if TYPE_CHECKING:
    from kbeval.metrics.catalogue import Metric

# What tables print for a metric, and users may type. A metric must not have one of these names.
SHORT_NAMES = {
    "hit": "hit_at_k",
    "recall": "recall_at_k_doc",
    "prec": "precision_at_k_chunk",
    "chunk_recall": "recall_at_k_chunk",
    "hit_within": "hit_within_tokens",
    "cited": "citation_coverage",
    "grounded": "groundedness",
    "refused_ok": "refusal_correctness",
    "queries": "total_queries",
    "failed": "failed_queries",
    "precision": "answer_precision",
    "chr": "citation_hit_rate",
    "under": "under_refusal_rate",
    "over": "over_refusal_rate",
    "citation_recall": "citation_recall_at_k",
    "support_any": "support_recall_any_at_k",
    "support_all": "support_recall_all_at_k",
    "support_prec": "support_precision_at_k",
    "attributed": "attribution_hit_rate",
}
# Also the names in `kbeval grounded`; accepted everywhere, but not printed elsewhere.
ALIASES = {**SHORT_NAMES, "under_refusal": "under_refusal_rate", "over_refusal": "over_refusal_rate"}
_SHORT_OF = {long: short for short, long in SHORT_NAMES.items()}
# Metrics as papers and other tools write them: `nDCG@10`, `RBP(p=0.8)`. They are accepted unless a metric has that name
# itself. `@k` follows if the metric has a k; without it, in `evaluate`, the whole ranking counts.
CLASSICS = {
    "ndcg_at_k": "nDCG",
    "map_at_k": "AP",
    "rr_at_k": "RR",
    "precision_at_k_chunk": "P",
    "recall_at_k_chunk": "R",
    "hit_at_k": "Success",
    "judged_at_k": "Judged",
    "unjudged_at_k": "Unjudged",
    "r_precision": "Rprec",
    "bpref": "Bpref",
    "rbp": "RBP(p=0.8)",
}
# Names that are easily taken for each other: what to say about the one where the other is explained.
LOOK_ALIKES = {
    "recall_at_k_doc": "R@k and chunk_recall@k, which count chunks (recall_at_k_chunk)",
    "recall_at_k_chunk": "recall@k, which counts documents (recall_at_k_doc)",
}
_CLASSIC_HEADS = {
    **{written.partition("(")[0].lower(): metric for metric, written in CLASSICS.items()},
    **{metric.removesuffix("_at_k"): metric for metric in CLASSICS},
    "precision": "precision_at_k_chunk",
    "recall": "recall_at_k_chunk",
    "hit": "hit_at_k",
}
# The section of an aggregate that is not a metric, and its numbers that can have thresholds: lower is better for both.
ABSTENTION = "abstention"
ABSTENTION_RATES = ("abstention.unsupported_rate", "abstention.over_cautious_rate")
# `x@5` is short for `x_at_k.5`.
_AT_K = "_at_k"
# Names that used to be the short name of another metric.
_ONCE = {"refused": "refusal_correctness"}


@dataclass(frozen=True)
class Name:
    """The name of one number: a metric, and its k or its part if it has several numbers."""

    metric: str
    k: int | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str) -> Name:
        """Parse a long name, as used in JSON: `mrr`, `hit_at_k.5`, `latency_ms.p95`."""
        metric, dot, last = text.partition(".")
        if not dot:
            return cls(metric)
        # `05` is not a k: it would be printed as `5`.
        return cls(metric, k=int(last)) if is_k(last) and str(int(last)) == last else cls(metric, part=last)

    @classmethod
    def parse_classic(cls, text: str) -> Name | None:
        """Parse a name as papers write it: `nDCG@10`, `AP`, `RBP(p=0.8)`; None if it is not one of CLASSICS.

        Without `@k` a metric that has a k is meant for the whole ranking, and k is None. Case does not matter.
        """
        found = re.fullmatch(r"\s*([A-Za-z_]+)(?:\(([^()]*)\))?(?:@([0-9]{1,9}))?\s*", text)
        if found is None:
            return None
        head, parameters, last = found.groups()
        metric, k = _CLASSIC_HEADS.get(head.lower()), int(last) if last else None
        if metric is None or k == 0 or (k is not None and not metric.endswith(_AT_K) and _AT_K not in metric):
            return None
        written = CLASSICS[metric].partition("(")[2].rstrip(")")
        if parameters is not None and parameters.replace(" ", "") != written:
            only = f"it is computed as {CLASSICS[metric]}" if written else "it takes no parameters"
            msg = f"{cut(text.strip(), 60)!r} is not computed: {only}"
            raise UsageError(msg)
        return cls(metric, k)

    @property
    def classic(self) -> str:
        """The name as papers write it; the long name if there is none."""
        if self.metric not in CLASSICS or self.part is not None:
            return self.long
        return CLASSICS[self.metric] if self.k is None else f"{CLASSICS[self.metric]}@{self.k}"

    @property
    def long(self) -> str:
        """The name used in JSON; `parse` reads it back."""
        last = self.part if self.k is None else str(self.k)
        return self.metric if last is None else f"{self.metric}.{last}"

    # The name of columns in tables.
    name = long

    @property
    def short(self) -> str:
        """The name printed in tables: `hit@5`, `cited`; the long name if there is no shorter one."""
        stem = _SHORT_OF.get(self.metric)
        if self.k is None:
            return self.long if stem is None or self.part is not None else stem
        if stem is None and self.metric.endswith(_AT_K):
            stem = self.metric.removesuffix(_AT_K)
            # `recall` is not short for a user-defined metric `recall_at_k`.
            stem = None if stem in ALIASES else stem
        return f"{stem}@{self.k}" if stem else self.long

    @property
    def without_k(self) -> str:
        """The value of the column `metric` in frames and views, which have a separate column for k."""
        return self.metric if self.part is None else self.long

    def __str__(self) -> str:
        return self.long


def is_k(text: str) -> bool:
    """Is it a valid k in a name?"""
    return text.isascii() and text.isdigit() and len(text) < 12


def short_name(name: str) -> str:
    """A long name as tables print it."""
    return Name.parse(name).short


def ks_named(texts: Iterable[str]) -> list[int]:
    """The values of k in names as users write them, so that they can be computed."""
    parts = (re.split(r"[.@]", text.strip(), maxsplit=1)[1:] for text in texts)
    return sorted({int(k) for (k,) in filter(None, parts) if is_k(k) and 0 < int(k) < 10**9})


def once_meant(metric: str) -> str:
    """A hint for a metric without a value whose name used to mean another one; usually empty."""
    if metric not in _ONCE:
        return ""
    return f"; did you mean {_SHORT_OF[_ONCE[metric]]} ({_ONCE[metric]})?"


class Names:
    """Resolves names of numbers, with the catalogue and the stored numbers."""

    def __init__(self, metrics: Sequence[Metric], stored: Collection[str] | None = None) -> None:
        """`stored`: long names of the numbers that runs have, if those are needed and nothing is computed; they may
        include metrics that are not in the catalogue.
        """
        self._metrics = {metric.name: metric for metric in metrics}
        self._computes = stored is None
        self._stored: dict[str, list[Name]] = {}
        for name in map(Name.parse, stored or ()):
            self._stored.setdefault(name.metric, []).append(name)

    def metric(self, text: str) -> Metric:
        """The metric of a name; a k in the name is ignored."""
        found = self._metrics.get(text.strip()) or self._metrics.get(self._head(text)[0])
        if found is None:
            raise self._unknown(text)
        return found

    def number(self, text: str) -> Name:
        """The single number that a name means; raises UsageError if the name is ambiguous."""
        found = self.numbers(text)
        if len(found) == 1:
            return found[0]
        example = next((name for name in found if name.k == 5), found[0])
        what = "specify k" if example.k is not None else "specify which"
        msg = f"{cut(text, 60)!r} is ambiguous: {what}, for example {cut(example.short, 60)}"
        raise UsageError(msg)

    def numbers(self, text: str) -> list[Name]:
        """Every number that a name means: one, or all numbers of a metric that is named without its k."""
        head, last = self._head(text)
        stored, metric = self._stored.get(head, []), self._metrics.get(head)
        named = Name.parse(head if last is None else f"{head}.{last}")
        if last is not None and named.long in self._metrics:
            # A score that came with the rows has a dot in its name.
            return [named]
        if named in stored or named.long in ABSTENTION_RATES:
            return [named]
        if metric is None:
            if stored and last is None:
                return sorted(stored, key=lambda name: name.long)
            raise self._unknown(text)
        if last is None:
            return list(metric.numbers)
        if named in metric.numbers:
            return [named]
        raise self._not_at(metric, named)

    def _head(self, text: str) -> tuple[str, str | None]:
        """The full name of the metric that a name begins with, and the rest of the name, if any."""
        written = text.strip()
        if (classic := self._classic(written)) is not None:
            return classic.metric, None if classic.k is None else str(classic.k)
        head, sign, last = re.fullmatch(r"([^.@]*)([.@]?)(.*)", written, re.DOTALL).groups()  # type: ignore[union-attr]
        if not self._is_metric(head):
            head = head.lower()
        at_k = f"{head}{_AT_K}"
        candidates = (ALIASES.get(head, head), head, at_k) if sign != "@" else (ALIASES.get(head, at_k), head)
        found = next(filter(self._is_metric, candidates), head)
        return found, last if sign else None

    def _classic(self, written: str) -> Name | None:
        """The number that is meant if the name is that of a classic, and of nothing else."""
        head = re.split(r"[.@(]", written, maxsplit=1)[0]
        found = Name.parse_classic(written)
        if found is None or not self._is_metric(found.metric):
            return None
        others = {head, head.lower()} & {*self._metrics, *self._stored, *ALIASES}
        return None if others - {found.metric} else found

    def _not_at(self, metric: Metric, named: Name) -> UsageError:
        """The error for a metric that exists, but not at this k or without this part."""
        if metric.ks and named.k and not self._computes:
            msg = f"no run has {metric.name} at {named.k}; 'kbeval score --all --k {named.k}' stores it"
            return UsageError(msg)
        known = ", ".join(name.long for name in metric.numbers)
        at = cut(str(named.k) if named.part is None else named.part, 20)
        return UsageError(
            f"{metric.name} is not computed at {at!r}; available: {known}{' (more with --k)' if metric.ks else ''}"
        )

    def _is_metric(self, name: str) -> bool:
        return name in self._metrics or name in self._stored or name == ABSTENTION

    def _unknown(self, text: str) -> UsageError:
        written = cut(text.strip(), 60)
        names = [*self._metrics, *ALIASES, *(name.long for found in self._stored.values() for name in found)]
        head = re.split(r"[.@]", written, maxsplit=1)[0]
        hint = did_you_mean(head, names) or did_you_mean(written, names)
        hint = hint or "; see 'kbeval metrics', and --metrics DIR for your own"
        return UsageError(f"there is no metric {written!r}{hint}")
