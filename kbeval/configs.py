"""Two runs' configuration snapshots: what differs, and whether the runs may be compared at all."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.config import LARGEST_K
from kbeval.runs import Run

# Which labels a run was made for, and under which names runners keep it. A comparison computes both runs afresh with
# the labels that it is given, so that a difference is worth a word, and forbids nothing.
LABELS = {
    "golden hash": ("golden_hash", "golden_file_hash", "golden.hash"),
    "eval-set hash": ("eval_set_commit_hash", "eval_set_hash", "eval_set.hash", "eval_set.commit_hash"),
}
# What must not differ between runs that are compared: a judge's scores cannot be computed afresh.
INVARIANTS = {
    "judge model": ("judge_model", "judge.model", "judge.model_id"),
    "judge prompt version": ("judge_prompt_version", "judge.prompt_version"),
    "judge temperature": ("judge_temperature", "judge.temperature"),
}
# What is said of a query that changed, when one of these keys did.
CAUSES = {
    "chunker": ("chunker_version", "chunker"),
    "embedding": ("embedding", "embedding_model"),
    "model": ("llm", "llm_model", "model"),
    "prompt": ("prompt_template_version", "prompt", "prompt_version"),
}
# Compared with a key in small letters, without what separates its words; `tokens` are counted, a `token` is a secret.
_SECRET = re.compile(
    r"(api|access|secret|private|signing)keys?$|token$|secret|passw|passphrase|credential|authorization"
)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")
HIDDEN = "(hidden)"
# Deeper than any real configuration, and shallow enough for every program that may read it.
DEEPEST = 50


@dataclass(frozen=True)
class Difference:
    """A key of the two snapshots with different values; None where a run does not have it."""

    key: str
    a: Any
    b: Any


def config_of(run: Run) -> dict[str, Any]:
    """A run's snapshot; empty where it is no JSON object, or nested beyond reason."""
    return _read(run.config_json) or {}


def chunker_version(config: Mapping[str, Any]) -> str | None:
    """The chunker that a snapshot names; None where it names none."""
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
        found = json.loads(text)
    except (ValueError, RecursionError):
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


def config_diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Every key that differs, nested ones by path, by name. Values of keys that look secret are not shown."""
    flat_a, flat_b = _fields(a), _fields(b)
    found = []
    for key in sorted(flat_a.keys() | flat_b.keys()):
        before, after = flat_a.get(key), flat_b.get(key)
        if _same(before, after):
            continue
        found.append(Difference(key, _shown(key, before), _shown(key, after)))
    return found


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a snapshot says, by path; what kbeval itself wrote there is no setting."""
    return {key: value for key, value in _flat(config) if not key.startswith("kbeval.")}


@dataclass(frozen=True)
class Setting:
    """One key of a run's snapshot. Values are the same where their numbers are, secret ones too."""

    run_id: str
    field: str
    value: str
    # Which of the values that the field has among the runs; None: it is like no other (NaN).
    value_no: int | None
    # Which of the parts that can move a query it belongs to.
    part: str | None


def settings_of(runs: Sequence[Run]) -> Iterator[Setting]:
    """Every key of every run's snapshot that has a value; two runs differ here where `config_diff` says so."""
    parts = {key: part for part, keys in CAUSES.items() for key in keys}
    numbers: dict[str, _Values] = {}
    for run in runs:
        for key, value in sorted(_fields(config_of(run)).items()):
            if value is None:
                continue
            number = numbers.setdefault(key, _Values()).number(value)
            shown = _brief(_shown(key, value))
            yield Setting(run.run_id, key, shown, number, parts.get(key.partition(".")[0]))


class _Values:
    """Numbers the different values of a field."""

    def __init__(self) -> None:
        self._plain: dict[Any, int] = {}
        self._lists: list[tuple[Any, int]] = []
        self._count = 0

    def number(self, value: Any) -> int | None:  # noqa: ANN401  (whatever JSON holds)
        if value != value:  # noqa: PLR0124  (NaN)
            return None
        if isinstance(value, list | dict):
            found = next((number for other, number in self._lists if _same(value, other)), None)
            if found is None:
                found = self._next()
                self._lists.append((value, found))
            return found
        # True would be found under 1.
        name = (isinstance(value, bool), value)
        if name not in self._plain:
            self._plain[name] = self._next()
        return self._plain[name]

    def _next(self) -> int:
        self._count += 1
        return self._count


def config_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of a snapshot by its path, as it may be shown: HIDDEN where the key looks secret."""
    return {path: _shown(path, value) for path, value in _flat(config)}


def _shown(key: str, value: Any) -> Any:  # noqa: ANN401  (whatever JSON holds)
    """A value as it may be shown: without what its key, or a key inside it, says is secret."""
    if value is None:
        return None
    if any(_SECRET.search(re.sub(r"[^a-z0-9]", "", part.lower())) for part in key.split(".")):
        return HIDDEN
    if isinstance(value, dict):
        return {name: _shown(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shown("", inner) for inner in value]
    return _IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """A snapshot as it may be shown: values of keys that look secret are hidden."""
    return {key: _shown(key, value) for key, value in config.items()}


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
    """A key with a dot in it is quoted, so that no two paths look the same."""
    return json.dumps(key, ensure_ascii=False) if "." in key or '"' in key else key


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401  (whatever JSON holds)
    """As JSON sees it: 1 is 1.0, but true is not 1."""
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)


def changed_parts(differences: list[Difference]) -> list[str]:
    """Which of the parts that can move a query have changed: chunker, embedding, model, prompt."""
    roots = {difference.key.partition(".")[0] for difference in differences}
    return [part for part, keys in CAUSES.items() if roots & set(keys)]


def broken_invariants(a: Run, b: Run) -> list[str]:
    """What forbids a comparison, one phrase each; unknown values forbid nothing."""
    return _differing(a, b, INVARIANTS)


def different_labels(a: Run, b: Run) -> list[str]:
    """In what the labels differ that the runs were made for, one phrase each."""
    return _differing(a, b, LABELS)


def _differing(a: Run, b: Run, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    flat_a, flat_b = dict(_flat(config_of(a))), dict(_flat(config_of(b)))
    found = []
    for what, keys in names.items():
        value_a, value_b = (_first(flat, keys) for flat in (flat_a, flat_b))
        if value_a is not None and value_b is not None and not _same(value_a, value_b):
            found.append(f"{what}: {_brief(value_a)} and {_brief(value_b)}")
    return found


def _first(flat: Mapping[str, Any], keys: tuple[str, ...]) -> Any:  # noqa: ANN401
    return next((flat[key] for key in keys if flat.get(key) not in (None, "")), None)


def _brief(value: Any) -> str:  # noqa: ANN401
    return value if isinstance(value, str) else json.dumps(value)


def eval_k(config: Mapping[str, Any], default: int = 10) -> int:
    """How many hits the run asked for."""
    k = config.get("eval_k", config.get("k"))
    return k if isinstance(k, int) and not isinstance(k, bool) and 1 <= k < 2**31 else default


def imported_from(config: Mapping[str, Any]) -> str | None:
    """Whose files a run was imported from: `anchors` or `grounded`; None for a knowledge base's own."""
    about = config.get("kbeval")
    system = about.get("system") if isinstance(about, dict) else None
    return system if isinstance(system, str) else None


def own_k(config: Mapping[str, Any]) -> int | None:
    """The k that an imported run was made with, at which its metrics are computed too."""
    k = config.get("k")
    is_k = isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= LARGEST_K
    return k if is_k and imported_from(config) == "anchors" else None
