"""Collections to serve."""

from __future__ import annotations

from tests.service.conftest import exact

__all__ = ["exact"]
