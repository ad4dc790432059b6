"""Pages of published collections in Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.publishing.conftest import byte_level_site, encodable, encoding_site, indexed, model, rows, runtime, site

__all__ = ["byte_level_site", "encodable", "encoding_site", "indexed", "model", "rows", "runtime", "site"]
Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Open]:
    """Open a page; whatever the browser complains of is an error in the end, but for files that are refused."""
    contexts, complaints = [], []

    def open_page(path: str = "where/site/", **options: Any) -> Any:
        options = {"service_workers": "block", "viewport": {"width": 1000, "height": 900}, **options}
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{address}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [one for one in complaints if "Failed to load resource" not in one] == []
