"""Settings from `kbeval.toml`, or `[tool.kbeval]` in `pyproject.toml`: the nearest one in this folder or above it.

An option overrides an environment variable, which overrides the file. Paths in the file are relative to the folder that
the file is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.errors import UsageError

LARGEST_K = 1_000_000_000
MOST_KS = 50
MOST_THREADS = 1024
# How hits are matched to expected chunks: by id, by text overlap, or by whichever the labels allow; which side the
# overlap is relative to; and how golden queries without a row in the run are treated.
MATCHES = ("auto", "exact", "span")
OVERLAPS_OF = ("auto", "smaller", "expected", "hit", "union")
MISSING = ("skip", "zero")
# Cache parsed rows next to the database: only if it is large, always, or never.
CACHES = ("auto", "on", "off")

# The keys of the file and their types.
KEYS: dict[str, type] = {
    "db": str,
    "golden": str,
    "threads": int,
    "memory_limit": str,
    "cache": str,
    "match": str,
    "min_overlap": float,
    "overlap_of": str,
    "missing": str,
    "k": list,
    "metrics_dir": str,
    "runs_dir": str,
    "metrics": dict,
    "gates": dict,
    "check": dict,
    "target": dict,
    "targets": dict,
    "judge": dict,
    "prices": dict,
}
_PATHS = ("db", "golden", "metrics_dir", "runs_dir")
_NAMES = {str: "a string", int: "an integer", float: "a number", list: "a list", dict: "a table"}
# The allowed values of these keys.
_CHOICES = {"cache": CACHES, "match": MATCHES, "overlap_of": OVERLAPS_OF, "missing": MISSING}


@dataclass(frozen=True)
class Config:
    """The settings of a config file; empty if there is none."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:  # noqa: ANN401  (typed by KEYS)
        return self.values.get(key)


def load_config(start: Path) -> Config:
    """The nearest config file at or above `start`."""
    for folder in (start, *start.parents):
        own = folder / "kbeval.toml"
        if own.is_file():
            return _checked(own, _read(own))
        project = folder / "pyproject.toml"
        tools = _read(project).get("tool") if project.is_file() else None
        if isinstance(tools, dict) and "kbeval" in tools:
            if not isinstance(tools["kbeval"], dict):
                msg = f"{project}: tool.kbeval must be a table"
                raise UsageError(msg)
            return _checked(project, tools["kbeval"])
    return Config()


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not valid TOML: {error}"
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UsageError(msg) from error


def _check_findings(path: Path, table: Mapping[str, Any]) -> None:
    """`[check] ignore`: codes of findings of `kbeval check`."""
    from kbeval.util.text import did_you_mean

    for key, value in table.items():
        if key != "ignore":
            msg = f"{path}: unknown key 'check.{key}'{did_you_mean(key, ['ignore']) or '; use check.ignore'}"
            raise UsageError(msg)
        if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
            msg = f"{path}: check.ignore must be a list of strings, the codes of findings"
            raise UsageError(msg)


# The keys of [judge] and their types.
JUDGE_KEYS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "base_url": (str,),
    "rubrics": (list,),
    "second_model": (str,),
    "temperature": (int, float, str),
    "max_tokens": (int,),
    "ca_file": (str,),
}
_JUDGE_WORDS = {
    "rubrics": "a list of strings",
    "temperature": 'a number from 0 to 2, or "none"',
    "max_tokens": "a whole number above 0",
}


def _check_judge(path: Path, table: Mapping[str, Any]) -> None:
    """`[judge]`: the judge and the rubrics that `kbeval judge` uses."""
    from kbeval.util.text import did_you_mean

    for key, value in table.items():
        if key not in JUDGE_KEYS:
            hint = did_you_mean(key, JUDGE_KEYS) or f"; known keys: {', '.join(JUDGE_KEYS)}"
            msg = f"{path}: unknown key 'judge.{key}'{hint}"
            raise UsageError(msg)
        is_right = isinstance(value, JUDGE_KEYS[key]) and not isinstance(value, bool)
        if isinstance(value, list):
            is_right = is_right and all(isinstance(item, str) for item in value)
        elif key == "temperature" and is_right:
            is_right = value == "none" if isinstance(value, str) else 0 <= value <= 2
        elif key == "max_tokens" and is_right:
            is_right = value > 0
        if not is_right:
            msg = f"{path}: judge.{key} must be {_JUDGE_WORDS.get(key, 'a string')}"
            raise UsageError(msg)


def _checked(path: Path, table: Mapping[str, Any]) -> Config:
    from kbeval.util.text import did_you_mean

    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f"; known keys: {', '.join(KEYS)}"
            msg = f"{path}: unknown key {key!r}{hint}"
            raise UsageError(msg)
        kind: Any = (int, float) if KEYS[key] is float else KEYS[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            msg = f"{path}: {key} must be {_NAMES[KEYS[key]]}"
            raise UsageError(msg)
        values[key] = str(path.parent / str(value)) if key in _PATHS else value
    _check_values(path, values)
    for name, metric in values.get("metrics", {}).items():
        is_table = isinstance(metric, dict) and isinstance(metric.get("expression"), str)
        if not isinstance(metric, str) and not is_table:
            msg = (
                f"{path}: metric {name} must be a string with an SQL aggregate expression, or a table"
                ' like { expression = "MAX(rank)", better = "lower" }'
            )
            raise UsageError(msg)
    return Config(path, values)


def _check_values(path: Path, values: Mapping[str, Any]) -> None:
    ks = values.get("k", [])
    if not all(isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= LARGEST_K for k in ks) or len(ks) > MOST_KS:
        msg = f"{path}: k must be a list of at most {MOST_KS} integers from 1 to {LARGEST_K:,}"
        raise UsageError(msg)
    if not 1 <= values.get("threads", 1) <= MOST_THREADS:
        msg = f"{path}: threads must be between 1 and {MOST_THREADS}"
        raise UsageError(msg)
    for key, known in _CHOICES.items():
        if key in values and values[key] not in known:
            msg = f"{path}: {key} must be one of {', '.join(known)}"
            raise UsageError(msg)
    if not 0 < values.get("min_overlap", 1) <= 1:
        msg = f"{path}: min_overlap must be above 0 and at most 1"
        raise UsageError(msg)
    if any("\0" in str(values.get(key, "")) for key in _PATHS):
        msg = f"{path}: a path must not contain a NUL character"
        raise UsageError(msg)
    _check_findings(path, values.get("check", {}))
    _check_judge(path, values.get("judge", {}))
