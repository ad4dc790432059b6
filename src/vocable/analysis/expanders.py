"""Expanders around BM25, measured as learned sparse models are: RM3, Query2Doc and docT5query ("Understanding Wacky
Weights: A Dissection of SPLADE's Learned Term Importance", section 4.2).

Terms are BM25's stemmed words. The ranking is BM25's with the expanded inputs; what stands in a document is counted in
the document as it was before anything expanded it.

Letters: m inputs, n documents of the collection, v stemmed words, k retrieved documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from vocable.analysis.doct5query import DocT5Query
from vocable.analysis.generation import load_generator
from vocable.analysis.measured import Measured, word_surfaces
from vocable.analysis.query2doc import Query2Doc
from vocable.encoder.routes import Role
from vocable.errors import ArgumentError, check_texts
from vocable.evaluation.wackiness import check_depth, without_itself
from vocable.search.bm25 import BM25Index, count_words
from vocable.search.rm3 import RM3

RM3_NAME, QUERY2DOC, DOCT5QUERY = "bm25+rm3", "query2doc:", "doct5query:"
Advance = Callable[[int], object]


class Expander(Protocol):
    """What adds words to texts before BM25 sees them."""

    @property
    def index(self) -> BM25Index:
        """The n documents."""

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The column of each of the v words: those of the index first, in its order."""

    def expand(self, texts: Sequence[str], advance: Advance = ...) -> csr_array:
        """The weights of the words of m expanded texts, csr_array [m, v]; `vocabulary` may grow by what is written.

        `advance` is called with the number of texts done.
        """


def is_expander(name: str) -> bool:
    """Whether a name is one that `open_expander` knows, and not a model's.

    >>> is_expander("bm25+rm3"), is_expander("query2doc:gpt2"), is_expander("vocable-mini")
    (True, True, False)
    """
    return name == RM3_NAME or name.startswith((QUERY2DOC, DOCT5QUERY))


def check_expands(name: str, role: Role) -> None:
    """Refuse an expander that does not expand texts of this role, before any work.

    Raises:
        ArgumentError: it expands documents and not queries.
    """
    if name.startswith(DOCT5QUERY) and role == "query":
        raise ArgumentError(f"{name} expands documents, not queries: measure it with --role document")


def open_expander(
    name: str, documents: Sequence[str], role: Role = "query", *, advance: Advance = lambda done: None
) -> Expander:
    """The expander of a name, with its index of the documents.

    Args:
        name: "bm25+rm3", "query2doc:MODEL" or "doct5query:MODEL"; MODEL is a folder or a Hub id of a causal language
            model, or of one from sequence to sequence.
        documents: n texts.
        role: what is to be expanded: queries, or documents of the n.
        advance: called with the number of documents done, where a model expands them.

    Raises:
        ArgumentError: no such expander, or one that does not expand queries.
        ModelError: the model cannot be loaded.
    """
    check_texts(documents, "documents")
    check_expands(name, role)
    if name == RM3_NAME:
        return RM3(BM25Index(documents), documents)
    if name.startswith(QUERY2DOC):
        generator = load_generator(name.removeprefix(QUERY2DOC), "causal")
        return Query2Doc(BM25Index(documents), generator)
    if name.startswith(DOCT5QUERY):
        return DocT5Query(documents, load_generator(name.removeprefix(DOCT5QUERY), "seq2seq"), advance=advance)
    raise ArgumentError(f"{name!r} is not an expander: choose {RM3_NAME}, {QUERY2DOC}MODEL or {DOCT5QUERY}MODEL")


def measured_expander(
    name: str,
    expander: Expander,
    texts: Sequence[str],
    documents: Sequence[str],
    k: int = 100,
    *,
    itself: np.ndarray | None = None,
    advance: Advance = lambda done: None,
) -> Measured:
    """Expand m texts and search with them.

    Args:
        name: as it is to be called.
        expander: from `open_expander`.
        texts: the inputs.
        documents: the n texts that the expander was made with.
        k: documents that an input retrieves.
        itself: [m], for inputs that are documents of the collection, the row of each, as in `measured_vectors`.
        advance: called with the number of texts done.

    Raises:
        ArgumentError: k below 1, or texts that the expander cannot expand.
    """
    check_texts(texts)
    check_texts(documents, "documents")
    check_depth(k)
    index, vectors = expander.index, expander.expand(texts, advance)
    vocabulary = expander.vocabulary
    own, counts = (count_words(index.words(part), vocabulary) for part in (texts, documents))
    searched = vectors[:, : len(index.vocabulary)]  # no document has the words that follow
    rows = index.search(searched, k if itself is None else k + 1).rows
    if itself is not None:
        rows = without_itself(rows, itself)
    names = list(vocabulary)
    return Measured(name, vectors, own, rows, counts, word_surfaces(names), names)
