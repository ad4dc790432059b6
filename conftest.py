"""Files that pytest leaves out."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).with_name("src")

# Scripts: their tests run them as processes; imports for processes of their own.
SCRIPTS = Path(__file__).parent / "tests" / "slow"
collect_ignore = ["tests/preload.py", *(path for path in SCRIPTS.glob("*.py") if not path.name.startswith("test_"))]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave modules without a doctest alone: some import frameworks that take seconds, or that are not installed."""
    if collection_path.suffix == ".py" and SOURCES in collection_path.parents:
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None
    return None
