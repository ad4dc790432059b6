"""The mark of tests that take long, which every test of this folder has; pages in Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def first_page() -> str:
    """The path of the page that `open_page` opens by default."""
    return ""


@pytest.fixture
def open_page(browser: Any, address: str, first_page: str) -> Iterator[Open]:
    """Open a page; a complaint of the browser is an error in the end, unless a file or a request was refused."""
    contexts, complaints = list[Any](), list[str]()

    def open_page(path: str = first_page, at: str = address, **options: Any) -> Any:
        options = {"service_workers": "block", "viewport": {"width": 1280, "height": 900}, **options}
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{at}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [complaint for complaint in complaints if "Failed to load resource" not in complaint] == []


def violations(page: Any) -> list[str]:
    """The faults that axe finds in a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not here")
    return [f"{fault['id']}: {fault['nodes'][0]['html']}" for fault in axe.Axe().run(page).response["violations"]]
