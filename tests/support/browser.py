"""A real browser for tests: the system's Chromium, driven by Playwright.

A test module imports the fixture `browser` from here. `python -m tests.support.browser` succeeds where there is one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


def chromium() -> str | None:
    """Where the system's Chromium is."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


# Not for the whole session: Playwright keeps an event loop running in this thread, so that tests which start one of
# their own would fail after it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. Where there is none, tests are skipped, and fail in CI."""
    path = chromium()
    if path is None:
        reason = "there is no Chromium; install it with: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


def accessibility_faults(page: Page) -> list[str]:
    """What axe-core finds wrong with a page as it is now: the rule, and the elements that break it."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", list(_RULES)
    )
    return [f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes'][:5]]}" for one in found["violations"]]


if __name__ == "__main__":
    sys.exit(chromium() is None)
