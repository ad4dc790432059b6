"""Pages of published collections in Chromium."""

from __future__ import annotations

import pytest

from tests.publishing.conftest import byte_level_site, encodable, encoding_site, indexed, model, rows, runtime, site

__all__ = ["byte_level_site", "encodable", "encoding_site", "indexed", "model", "rows", "runtime", "site"]


@pytest.fixture
def first_page() -> str:
    return "where/site/"
