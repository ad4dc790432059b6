"""The exact index as an engine."""

from __future__ import annotations

from vocable.retrieval.exact_index import ExactIndex

ENGINE = ExactIndex
