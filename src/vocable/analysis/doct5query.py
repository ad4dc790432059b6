"""docT5query: a document is expanded with the queries that a model guesses for it ("From doc2query to docTTTTTquery",
Nogueira and Lin 2019).

The queries are appended to the document before it is indexed, so that the documents are what is expanded: a query is
searched as it is.

Letters: m documents of the n of the collection, v stemmed words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.sparse import csr_array

from vocable.analysis.generation import Generator, generate
from vocable.errors import ArgumentError, check_texts
from vocable.search.bm25 import BM25Index

TOP_K, LONGEST, NEW_TOKENS = 10, 512, 64  # of the paper: tokens to sample from, of a document, of a query


class DocT5Query:
    """BM25 whose documents are expanded by a sequence-to-sequence model; `index` has them, expanded.

    `vocabulary` is that of the index, {word: column}.
    """

    def __init__(
        self,
        documents: Sequence[str],
        generator: Generator,
        *,
        samples: int = 40,
        seed: int = 0,
        advance: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Guess queries for n documents, and index both.

        Args:
            documents: the texts of the collection.
            generator: from `load_generator`, seq2seq.
            samples: queries of a document; the authors index 40.
            seed: of the sampling.
            advance: called with the number of documents done after every batch.

        Raises:
            ArgumentError: `samples` is below 1.
        """
        check_texts(documents, "documents")
        distinct = [text for text in dict.fromkeys(documents) if text.strip()]
        options = {"new_tokens": NEW_TOKENS, "top_k": TOP_K, "max_length": LONGEST, "seed": seed}
        guessed = generate(generator, distinct, samples=samples, advance=advance, **options)
        self._expanded = {text: " ".join([text, *queries]) for text, queries in zip(distinct, guessed, strict=True)}
        self.index = BM25Index([self._expanded.get(text, text) for text in documents])
        self.vocabulary = self.index.vocabulary

    def expand(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """How often each word stands in each of m expanded documents, csr_array [m, v].

        `advance` is called with the number of documents done.

        Raises:
            ArgumentError: a text is not one of the documents.
        """
        check_texts(texts)
        unknown = [text for text in texts if text.strip() and text not in self._expanded]
        if unknown:
            raise ArgumentError(f"docT5query expands the documents of its collection, not queries: {unknown[0][:40]!r}")
        vectors = self.index.query_vectors([self._expanded.get(text, text) for text in texts])
        advance(len(texts))
        return vectors
