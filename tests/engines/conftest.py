"""Fixtures of the tests of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.reference import LiveDocuments


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def live() -> LiveDocuments:
    return LiveDocuments()
