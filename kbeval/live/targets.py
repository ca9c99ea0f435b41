"""The configured system under test: `[target]` or `[targets.NAME]` in kbeval.toml, or by options.

The kinds of targets are in modules of their own: `http_target`, `program_targets` and `bm25`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.errors import UsageError
from kbeval.live.asking import Asking, Target
from kbeval.live.environment import Environment
from kbeval.live.sending import Policy
from kbeval.live.trust import checked_ca_file
from kbeval.settings import Config
from kbeval.util.hiding import Hider
from kbeval.util.text import did_you_mean

HTTP, ANCHORS, PYTHON, COMMAND, BM25 = TYPES = ("http", "anchors", "python", "command", "bm25")
DEFAULT_K = 10

# The keys of each type of target, and what each must be.
_TEXT, _NUMBER, _TABLE, _ANY = "a string", "a number above 0", "a table", "a value"
_COMMON = {
    "type": _TEXT,
    "mode": _TEXT,
    "k": _NUMBER,
    "timeout": _NUMBER,
    "concurrency": _NUMBER,
    "rate": _NUMBER,
    "versions": _TABLE,
    "config": _TABLE,
}
_SENDING = {
    "headers": _TABLE,
    "attempts": _NUMBER,
    "deadline": _NUMBER,
    "max_response_mb": _NUMBER,
    "health": _ANY,
    "ca_file": _TEXT,
}
KEYS: dict[str, dict[str, str]] = {
    HTTP: {**_COMMON, **_SENDING, "url": _TEXT, "method": _TEXT, "body": _ANY, "response": _TABLE},
    ANCHORS: {**_COMMON, **_SENDING, "url": _TEXT, "folder_mode": _TEXT},
    PYTHON: {**_COMMON, "function": _TEXT},
    COMMAND: {**_COMMON, "command": _ANY},
    BM25: {**_COMMON, "chunker_version": _TEXT},
}
_REQUIRED = {HTTP: ("url", "response"), ANCHORS: ("url",), PYTHON: ("function",), COMMAND: ("command",), BM25: ()}
_WORDS = re.compile(r"[\s:]+")
VERSIONS = ("index", "retriever", "answerer")
# The default number of requests at once; a command is started once per request in flight.
_CEILINGS = {HTTP: 16, ANCHORS: 16, PYTHON: 8, COMMAND: 1, BM25: 1}


@dataclass(frozen=True)
class TargetConfig:
    """A target as configured: environment variables are not filled in yet."""

    type: str
    table: Mapping[str, Any]
    # For messages: `kbeval.toml: target`.
    where: str
    # What was given by options, to be stored with the run.
    chosen: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def shown(self) -> dict[str, Any]:
        """As it may be stored and shown: without secrets."""
        found: dict[str, Any] = Hider().hide(dict(self.table))
        return found

    @property
    def hash(self) -> str:
        """Changes with anything in the configuration except secrets."""
        text = json.dumps(self.shown(), sort_keys=True, ensure_ascii=False, default=str)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]

    def environment(self) -> Environment:
        """Provides the values of variables; secrets written in the configuration itself are hidden, too."""
        found = Environment()
        hider = Hider()
        hider.hide(dict(self.table))
        for secret in hider.met:
            value = json.loads(secret) if secret.startswith('"') else secret
            found.secrets.add(value)
            # `Bearer abc`, `user:password`: the token and the password alone are as secret.
            for word in _WORDS.split(str(value)):
                if word.lower() not in ("bearer", "basic", "token", "apikey"):
                    found.secrets.add(word)
        return found

    def policy(self) -> Policy:
        """Timeouts and retries."""
        own = Policy()
        return Policy(
            timeout=float(self.table.get("timeout", own.timeout)),
            attempts=int(self.table.get("attempts", own.attempts)),
            deadline=float(self.table.get("deadline", own.deadline)),
            most_bytes=int(self.table.get("max_response_mb", own.most_bytes / 1e6) * 1e6),
            ca_file=self._ca_file(),
        )

    def _ca_file(self) -> str | None:
        named = self.table.get("ca_file")
        path = None if named is None else str((self.folder or Path()) / named)
        return checked_ca_file(path, f"{self.where}.ca_file")

    @property
    def ceiling(self) -> int:
        """How many requests may be in flight, unless an option overrides it."""
        return int(self.table.get("concurrency", _CEILINGS[self.type]))


def choose_target(config: Config, name: str | None, overrides: Mapping[str, Any]) -> TargetConfig:
    """The target to ask. `name`: a type, or the name of a `[targets.NAME]`; `overrides`: values of options."""
    named: Mapping[str, Any] = config.get("targets") or {}
    own = config.get("target")
    given = {key: value for key, value in overrides.items() if value is not None}
    file = str(config.path) if config.path else "kbeval.toml"
    if name is not None and name in named:
        table, where = named[name], f"{file}: targets.{name}"
    elif name in TYPES:
        same = isinstance(own, dict) and own.get("type") == name
        table, where = (own, f"{file}: target") if same else ({"type": name}, "the options")
    elif name is not None:
        known = [*named, *TYPES]
        msg = f"there is no target {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"
        raise UsageError(msg)
    elif own is not None:
        table, where = own, f"{file}: target"
    elif len(named) == 1:
        ((only, table),) = named.items()
        where = f"{file}: targets.{only}"
    elif named:
        msg = f"several targets are configured; choose one with --target: {', '.join(named)}"
        raise UsageError(msg)
    else:
        msg = "no target given: put [target] in kbeval.toml, or use --target, e.g. --target bm25"
        raise UsageError(msg)
    if not isinstance(table, dict):
        msg = f"{where} must be a table"
        raise UsageError(msg)
    merged = {**table, **given}
    kind = merged.get("type")
    if kind not in TYPES:
        msg = f"{where}: type must be one of {', '.join(TYPES)}" + (f", not {kind!r}" if kind is not None else "")
        raise UsageError(msg)
    _check(kind, merged, where)
    chosen = {"target": name, **given}
    folder = config.path.parent if config.path else None
    return TargetConfig(kind, merged, where, chosen, folder)


def _check(kind: str, table: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        wanted = KEYS[kind].get(key)
        if wanted is None:
            msg = f"{where}: a target of type {kind} has no key {key!r}{did_you_mean(key, KEYS[kind])}"
            raise UsageError(msg)
        if not _fits(wanted, value):
            msg = f"{where}.{key} must be {wanted}"
            raise UsageError(msg)
    for key in _REQUIRED[kind]:
        if not table.get(key):
            option = " (or --url)" if key == "url" else "; put it under [target] in kbeval.toml"
            msg = f"{where}: a target of type {kind} needs {key}{option}"
            raise UsageError(msg)
    if unknown := set(table.get("versions", {})) - set(VERSIONS):
        msg = f"{where}.versions: unknown key {min(unknown)!r}; known: {', '.join(VERSIONS)}"
        raise UsageError(msg)
    if kind == HTTP and not {"hits", "answer"} & table["response"].keys():
        msg = f"{where}.response needs hits, answer, or both: expressions that find them in the response"
        raise UsageError(msg)


def _fits(wanted: str, value: Any) -> bool:  # noqa: ANN401  (what TOML holds)
    if wanted == _NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return wanted == _ANY or isinstance(value, str if wanted == _TEXT else dict)


def open_target(config: TargetConfig, asking: Asking, database: Path | None) -> Target:
    """The target itself. `database`: for `bm25`."""
    if config.type in (HTTP, ANCHORS):
        from kbeval.live.http_target import HttpTarget, anchors_table

        table = anchors_table(config.table) if config.type == ANCHORS else config.table
        return HttpTarget(table, config.where, config.policy(), asking)
    timeout = float(config.table.get("timeout", Policy().timeout))
    if config.type == PYTHON:
        from kbeval.live.program_targets import PythonTarget

        return PythonTarget(str(config.table["function"]), config.where, config.folder, timeout, asking)
    if config.type == COMMAND:
        from kbeval.live.program_targets import CommandTarget

        return CommandTarget(config.table["command"], config.where, config.folder, timeout, asking)
    from kbeval.live.bm25 import Bm25Target

    if database is None:
        msg = "a bm25 target needs a database with a table chunks"
        raise UsageError(msg)
    return Bm25Target(database, config.table.get("chunker_version"), asking)
