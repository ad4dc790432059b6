"""The BM25 index as an engine."""

from __future__ import annotations

from vocable.retrieval.bm25 import BM25Index

ENGINE = BM25Index
