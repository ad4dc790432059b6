"""Corpora, queries, judgments and training examples, read as streams.

The idea: whatever is read is a stream of records with the file and the line where each stands, so that a bad one is
named. A source is a string: a file, a folder of documents, `-` for standard input, `beir:DIR`, `ir_datasets:NAME`,
`hf:NAME` or `pydocs:`.
docs/data.md describes sources, formats, names of fields, and the treatment of malformed data.
Judgments and hits, `Qrel` and `ScoredDoc`, have the fields of the records of ir_measures.
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
