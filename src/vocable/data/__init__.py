"""Corpora, queries, judgments and training examples, read as streams.

A source is a string: a path, `-` for standard input, `beir:DIR`, `ir_datasets:NAME`, `hf:NAME` or `pydocs:`.
docs/data.md describes sources, formats, names of fields, and the treatment of malformed data.
"""

from vocable.data.bad_lines import BadLines, tolerating
from vocable.data.read import (
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_run,
    read_scores,
    read_texts,
)
from vocable.data.records import Document, Example, MinedNegatives, Qrel, Query, ScoredDoc

__all__ = [
    "BadLines",
    "Document",
    "Example",
    "MinedNegatives",
    "Qrel",
    "Query",
    "ScoredDoc",
    "read_corpus",
    "read_examples",
    "read_judgments",
    "read_mined_negatives",
    "read_queries",
    "read_run",
    "read_scores",
    "read_texts",
    "tolerating",
]
