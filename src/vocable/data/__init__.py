"""Corpora, queries, judgments and training examples, read as streams.

A source is one string that says where they are: a path, `-` for standard input, `beir:DIR`, `ir_datasets:NAME`,
`hf:NAME` or `pydocs:`. docs/data.md describes sources, formats, names of fields, and what happens to data that is not
as it should be. `read_mined_negatives` and `read_scores` read hard negatives and a teacher's scores, as ids.
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
