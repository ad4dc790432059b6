from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vocable.errors import ArgumentError
from vocable.evaluation.expanders import LONGEST, NEW_TOKENS, TOP_K, DocT5Query, generate, load_generator
from vocable.retrieval.bm25 import BM25Index

DOCUMENTS = ["The old fox reads books .", "", "A librarian indexes posting lists", "The old fox reads books ."]


def test_the_document_and_its_queries(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    expander = DocT5Query(DOCUMENTS, generator, samples=3, seed=7)
    asked = [DOCUMENTS[0], DOCUMENTS[2]]
    guessed = generate(generator, asked, samples=3, new_tokens=NEW_TOKENS, top_k=TOP_K, max_length=LONGEST, seed=7)
    expanded = [" ".join([DOCUMENTS[0], *guessed[0]]), "", " ".join([DOCUMENTS[2], *guessed[1]])]
    assert len(set(guessed[0])) == 3
    # The index has the documents with their queries, and so has what is expanded.
    plain = BM25Index([*expanded, expanded[0]])
    assert expander.vocabulary == plain.vocabulary
    queries = ["fox", "librarian lists", guessed[1][0]]
    one, other = expander.index.search(queries, 4), plain.search(queries, 4)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.scores, other.scores)
    vectors = expander.expand([DOCUMENTS[2], ""])
    found = {word: vectors[0, column] for word, column in expander.vocabulary.items() if vectors[0, column]}
    assert found == Counter(plain.words([expanded[2]])[0])
    assert vectors[[1]].nnz == 0


def test_what_is_not_of_the_collection_is_refused(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    expander = DocT5Query(DOCUMENTS[2:3], generator, samples=1)
    with pytest.raises(ArgumentError, match="docT5query expands the documents of its collection, not queries: 'fox'"):
        expander.expand(["fox"])
    with pytest.raises(ArgumentError, match="samples must be at least 1"):
        DocT5Query(DOCUMENTS, generator, samples=0)
    assert DocT5Query([], generator).vocabulary == {}
