"""Texts of several tests of training."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def texts(toy_texts: list[str]) -> list[str]:
    """Twelve different texts."""
    return sorted(set(toy_texts))[:12]
