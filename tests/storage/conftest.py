"""For tests of what is stored: each command takes one thread, which costs less where there are few rows."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBEVAL_THREADS", "1")
