"""A file that no link may lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

PRECIOUS = "precious"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file elsewhere."""
    (tmp_path / "notes.txt").write_text(PRECIOUS)
    return tmp_path / "notes.txt"
