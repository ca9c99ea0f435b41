"""Configuration snapshots of two runs: what differs, and whether the runs may be compared at all."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbeval.settings import LARGEST_K
from kbeval.storage.runs import Run
from kbeval.util.hiding import Hider, hidden_text
from kbeval.util.strict_json import parse

# Which labels a run was made for, under the keys that runners store it. A comparison scores both runs again with the
# labels that it is given, so a difference is only reported; it does not prevent the comparison.
LABELS = {
    "golden hash": ("golden_hash", "golden_file_hash", "golden.hash"),
    "eval-set hash": ("eval_set_commit_hash", "eval_set_hash", "eval_set.hash", "eval_set.commit_hash"),
}
# What must not differ between compared runs: a judge's scores cannot be recomputed.
INVARIANTS = {
    "judge model": ("judge_model", "judge.model", "judge.model_id"),
    "judge prompt version": ("judge_prompt_version", "judge.prompt_version"),
    "judge temperature": ("judge_temperature", "judge.temperature"),
}
# The cause reported for a changed query when one of these keys changed.
CAUSES = {
    "chunker": ("chunker_version", "chunker"),
    "embedding": ("embedding", "embedding_model"),
    "model": ("llm", "llm_model", "model"),
    "prompt": ("prompt_template_version", "prompt", "prompt_version"),
}
# Deeper than any real configuration, and shallow enough for every program that might read it.
DEEPEST = 50


@dataclass(frozen=True)
class Difference:
    """A key with different values in the two snapshots; None where a run does not have it."""

    key: str
    a: Any
    b: Any


def config_of(run: Run) -> dict[str, Any]:
    """A run's snapshot; empty if it is not a JSON object, or is nested too deeply."""
    return _read(run.config_json) or {}


def chunker_version(config: Mapping[str, Any]) -> str | None:
    """The chunker that a snapshot names; None if it names none."""
    found = config.get("chunker_version")
    if found is None or found == "":
        return None
    return found if isinstance(found, str) else json.dumps(found)


def is_readable(run: Run) -> bool:
    """Is its snapshot an object that can be compared?"""
    return _read(run.config_json) is not None


@functools.lru_cache(maxsize=1024)
def _read(text: str) -> dict[str, Any] | None:
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and _depth_is_fine(found) else None


def _depth_is_fine(config: dict[str, Any]) -> bool:
    level: list[Any] = [config]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
        if not level:
            return True
    return False


def config_diff(a: Mapping[str, Any], b: Mapping[str, Any], hider: Hider | None = None) -> list[Difference]:
    """Every key that differs, sorted; nested keys are given as paths. Secrets are numbered by the output's hider."""
    hider = hider or Hider()
    flat_a, flat_b = _fields(a, hider), _fields(b, hider)
    nothing = _Field("", None, None)
    found = []
    for key in sorted(flat_a.keys() | flat_b.keys()):
        before, after = flat_a.get(key, nothing), flat_b.get(key, nothing)
        if not _same(before.value, after.value):
            found.append(Difference((before.path or after.path), before.shown, after.shown))
    return found


class _Field(NamedTuple):
    """A value of a snapshot: its path, the value as it may be shown, and the value itself."""

    path: str
    shown: Any
    value: Any


def _fields(config: Mapping[str, Any], hider: Hider) -> dict[str, _Field]:
    """The settings of a snapshot by path, without what kbeval itself wrote there."""
    shown = _flat(hider.hide_config(config))
    return {
        path: _Field(*field, value)
        for (path, value), field in zip(_flat(config), shown, strict=True)
        if not path.startswith("kbeval.")
    }


@dataclass(frozen=True)
class Setting:
    """One key of a run's snapshot. Values are equal if their numbers are; this holds for secrets too."""

    run_id: str
    field: str
    value: str
    # Which of the field's distinct values among the runs it is; None: equal to no other (NaN).
    value_no: int | None
    # The key of CAUSES that it belongs to.
    part: str | None


def settings_of(runs: Sequence[Run]) -> Iterator[Setting]:
    """Every key with a value of every run's snapshot; two runs differ here exactly where `config_diff` says so."""
    parts = {key: part for part, keys in CAUSES.items() for key in keys}
    numbers: dict[str, _Values] = {}
    hider = Hider()
    for run in runs:
        for key, one in sorted(_fields(config_of(run), hider).items()):
            if one.value is None:
                continue
            number = numbers.setdefault(key, _Values()).number(one.value)
            yield Setting(run.run_id, one.path, _brief(one.shown), number, parts.get(key.partition(".")[0]))


class _Values:
    """Numbers the distinct values of a field."""

    def __init__(self) -> None:
        self._plain: dict[Any, int] = {}
        self._lists: list[tuple[Any, int]] = []
        self._count = 0

    def number(self, value: Any) -> int | None:  # noqa: ANN401  (any JSON value)
        if value != value:  # noqa: PLR0124  (NaN)
            return None
        if isinstance(value, list | dict):
            found = next((number for other, number in self._lists if _same(value, other)), None)
            if found is None:
                found = self._next()
                self._lists.append((value, found))
            return found
        # As a dictionary key, True equals 1.
        name = (isinstance(value, bool), value)
        if name not in self._plain:
            self._plain[name] = self._next()
        return self._plain[name]

    def _next(self) -> int:
        self._count += 1
        return self._count


def config_fields(config: Mapping[str, Any], hider: Hider) -> dict[str, Any]:
    """Every value of a snapshot by its path, as it may be shown."""
    return dict(_flat(hider.hide_config(config)))


def shown_configs(runs: Sequence[Run]) -> list[str]:
    """The snapshots of all runs as JSON without secrets; '' for one that cannot be read."""
    hider = Hider()
    return [_shown_config(run, hider) for run in runs]


def _shown_config(run: Run, hider: Hider) -> str:
    config = config_of(run)
    if not config:
        return "{}" if run.config_json.strip() == "{}" else ""
    shown = hider.hide_config(config)
    text = json.dumps(shown, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(shown)


def kept_config(config_json: str, hider: Hider | None = None) -> str:
    """A snapshot as it may be kept where others can read it: unchanged except for its secrets."""
    return hidden_text(config_json, _read(config_json), hider)


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`embedding.model` and its value, for every value that is not an object itself."""
    waiting: list[tuple[str, Any]] = [(_step(key), value) for key, value in config.items()]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting.extend((f"{path}.{_step(key)}", inner) for key, inner in value.items())
        else:
            yield path, value


def _step(key: str) -> str:
    """Quote a key that contains a dot, so that no two paths look the same."""
    return json.dumps(key, ensure_ascii=False) if "." in key or '"' in key else key


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401  (any JSON value)
    """Equality as in JSON: 1 equals 1.0, but true does not equal 1."""
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)


def changed_parts(differences: list[Difference]) -> list[str]:
    """Which possible causes of a changed query have changed: chunker, embedding, model, prompt."""
    roots = {difference.key.partition(".")[0] for difference in differences}
    return [part for part, keys in CAUSES.items() if roots & set(keys)]


def broken_invariants(a: Run, b: Run) -> list[str]:
    """What prevents a comparison, one phrase each; unknown values do not prevent it."""
    return _differing(a, b, INVARIANTS)


def judge_model(config: Mapping[str, Any]) -> str | None:
    """The judge whose scores came with an imported run, as it may be shown."""
    found = _first(dict(_flat(config)), INVARIANTS["judge model"])
    return None if found is None else _brief(Hider().hide(found, "judge model"))


def different_labels(a: Run, b: Run) -> list[str]:
    """How the labels that the runs were made for differ, one phrase each."""
    return _differing(a, b, LABELS)


def _differing(a: Run, b: Run, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    flat_a, flat_b = dict(_flat(config_of(a))), dict(_flat(config_of(b)))
    found = []
    for what, keys in names.items():
        value_a, value_b = (_first(flat, keys) for flat in (flat_a, flat_b))
        if value_a is not None and value_b is not None and not _same(value_a, value_b):
            hider = Hider()
            found.append(f"{what}: {_brief(hider.hide(value_a, what))} and {_brief(hider.hide(value_b, what))}")
    return found


def _first(flat: Mapping[str, Any], keys: tuple[str, ...]) -> Any:  # noqa: ANN401
    return next((flat[key] for key in keys if flat.get(key) not in (None, "")), None)


def _brief(value: Any) -> str:  # noqa: ANN401
    return value if isinstance(value, str) else json.dumps(value)


def eval_k(config: Mapping[str, Any], default: int = 10) -> int:
    """How many hits the run requested."""
    k = config.get("eval_k", config.get("k"))
    return k if isinstance(k, int) and not isinstance(k, bool) and 1 <= k < 2**31 else default


def imported_from(config: Mapping[str, Any]) -> str | None:
    """Which system's files a run was imported from: `anchors` or `grounded`; None if it was not imported."""
    about = config.get("kbeval")
    system = about.get("system") if isinstance(about, dict) else None
    return system if isinstance(system, str) else None


def stored_warnings(config: Mapping[str, Any]) -> list[str]:
    """What `kbeval run` found suspicious when it made the run."""
    about = config.get("kbeval")
    found = about.get("warnings") if isinstance(about, dict) else None
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def is_outage(config: Mapping[str, Any]) -> bool:
    """Did `kbeval run` find that the system only refused, with nothing retrieved, where answers were expected?"""
    about = config.get("kbeval")
    return isinstance(about, dict) and about.get("outage") is True


def own_k(config: Mapping[str, Any]) -> int | None:
    """The k that an imported run was made with; its metrics are also computed at this k."""
    k = config.get("k")
    is_k = isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= LARGEST_K
    return k if is_k and imported_from(config) == "anchors" else None
