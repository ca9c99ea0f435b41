"""The configuration of a run as it is stored: what was asked, of which system, in which versions; without secrets."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval import __version__
from kbeval.golden import Golden
from kbeval.live import targets
from kbeval.live.passages import RETRIEVER
from kbeval.live.targets import TargetConfig
from kbeval.util.hiding import Hider

_GIT_SECONDS = 5.0
# What decides the answers: two runs with the same hash are repetitions of one experiment.
_HASHED = ("target", "k", "mode", "retrieval_only", "versions", "golden_hash", "queries")


@dataclass(frozen=True)
class Asked:
    """What a run asks for."""

    k: int
    mode: str | None
    retrieval_only: bool
    store_full_text: bool
    description: str | None
    # Which queries were chosen, if not all: {"limit": 5}.
    selection: Mapping[str, Any]


def make_snapshot(
    target: TargetConfig, golden: Golden, asked: Asked, chunker_version: str | None = None
) -> dict[str, Any]:
    """The snapshot of a run. `chunker_version`: what the target itself knows about its chunks."""
    table = target.shown()
    # `[target.config]`: the runner's own fields, such as chunker_version, embedding and llm.
    own: dict[str, Any] = table.pop("config", {})
    versions = table.pop("versions", {})
    if chunker_version is not None:
        own.setdefault("chunker_version", chunker_version)
    if target.type == targets.BM25:
        versions = {"retriever": RETRIEVER, **versions}
    index = versions.get("index") or {
        "chunker": own.get("chunker_version"),
        "embedding": own.get("embedding"),
        "parameters": own.get("index_parameters"),
    }
    snapshot: dict[str, Any] = {
        **own,
        "eval_k": asked.k,
        "k": asked.k,
        "mode": asked.mode,
        "retrieval_only": asked.retrieval_only,
        "target": table,
        "golden_hash": golden.hash,
        "versions": {
            "dataset": dataset_version(golden),
            "index": index,
            "retriever": versions.get("retriever"),
            "answerer": versions.get("answerer") or own.get("llm"),
        },
        "description": None if asked.description is None else Hider().hide_text(asked.description),
        "queries": dict(asked.selection) or "all",
        "store_full_text": asked.store_full_text,
        "kbeval": {"version": __version__, "made_by": "kbeval run"},
    }
    if target.type == targets.ANCHORS:
        snapshot["kbeval"]["system"] = "anchors"
        snapshot["folder_mode"] = target.table.get("folder_mode")
    return {**snapshot, "config_hash": config_hash(snapshot)}


def config_hash(snapshot: Mapping[str, Any]) -> str:
    """A hash of everything that decides the answers; not of descriptions, times or repetitions."""
    text = json.dumps({name: snapshot.get(name) for name in _HASHED}, sort_keys=True, ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def dataset_version(golden: Golden) -> dict[str, Any]:
    """The golden entries by their hash and, in a git repository, the commit and whether the file was modified."""
    path = Path(golden.path)
    found: dict[str, Any] = {"hash": golden.hash, "file": path.name}
    commit = git(path.parent, "rev-parse", "HEAD")
    if commit is not None:
        changed = git(path.parent, "status", "--porcelain", "--", path.name)
        found |= {"commit": commit, "modified": None if changed is None else bool(changed)}
    return found


def git(folder: Path, *words: str) -> str | None:
    """The output of git; None if there is no git, or no repository."""
    # Reading must not take locks that others wait for, nor prompt for anything.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603  (fixed words)
            ["git", "-C", str(folder), *words],  # noqa: S607  (the user's git)
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
