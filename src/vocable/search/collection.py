"""A searchable corpus on disk: postings, texts, and the name of the model that made them.

FOLDER/settings.json     what made it
FOLDER/progress.json     how many texts there are, and how many were cut or stayed empty
FOLDER/postings/         the exact index
FOLDER/texts.arrow       id, title and text by row, memory-mapped
FOLDER/bm25/             the lexical index, where it was asked for

Shapes: q queries, v output vocabulary, k results.

Questions put to a collection, answered with documents and with the terms that found them.

Shapes: q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document, Query
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load
from vocable.encoder.stream import (
    PROGRESS,
    TEXT_SCHEMA,
    StreamProgress,
    describe,
    encode_stream,
    read_progress,
    stream_settings,
)
from vocable.encoder.terms import terms
from vocable.errors import ArgumentError, VectorsError, check_texts
from vocable.search.bm25 import BM25Index
from vocable.search.exact import ExactIndex
from vocable.search.explain import Explanation, explain, text_terms
from vocable.search.fusion import weighted
from vocable.search.ranking import Ranking
from vocable.storage import SETTINGS, finish, finished, partial_of, read_record, replacing, resumable
from vocable.vectors import read_vectors

FUSED_DEPTH = 100  # hits that each side of a hybrid search gives at least


@dataclass(frozen=True)
class Collection:
    """An opened collection. `texts` is an Arrow table with columns id, title, text; `bm25` is None if not built."""

    model: str
    source: str
    postings: ExactIndex
    texts: pa.Table
    bm25: BM25Index | None

    def document(self, row: int) -> Document:
        """The document in a row of the index."""
        values = {name: self.texts.column(name)[row].as_py() for name in ("id", "text", "title")}
        return Document(**values)

    def query_encoder(
        self,
        model: SparseEncoder,
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        mass: float | None = None,
    ) -> TextEncoder:
        """`model` made ready for queries, which are cut as in `vocable.prune`.

        Raises:
            VectorsError: it has another vocabulary than the index.
            ArgumentError: a limit out of its range.
        """
        encoder = TextEncoder(model, "query", top_k=top_k, min_weight=min_weight, mass=mass)
        meta = self.postings.meta
        if meta is not None and meta.vocabulary != describe(encoder, self.model).vocabulary:
            raise VectorsError(f"the vocabulary of {self.model} is not the one that the index was made with")
        return encoder

    def search(
        self, texts: Sequence[str], vectors: csr_array, k: int = 10, *, hybrid: bool = False, minimum_match: float = 0.0
    ) -> Ranking:
        """The k best documents for each of q queries, given as `texts` and as `vectors` [q, v].

        `hybrid` adds the scores of BM25, both scaled to 0 to 1; `minimum_match` is as in `ExactIndex.search`.

        Raises:
            ArgumentError: an argument out of its range, or a hybrid search without a lexical index.
        """
        check_texts(texts)
        if not hybrid:
            return self.postings.search(vectors, k, minimum_match=minimum_match)
        if self.bm25 is None:
            raise ArgumentError("a hybrid search needs the lexical index: build this index with --bm25")
        depth = max(k, FUSED_DEPTH)
        learned = self.postings.search(vectors, depth, minimum_match=minimum_match)
        return weighted([learned, self.bm25.search(texts, depth)], [1, 1], depth=k)


def build_collection(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | Path,
    *,
    model: str,
    source: str = "",
    bm25: bool = False,
    advance: Callable[[int], object] = lambda done: None,
) -> StreamProgress:
    """Encode `documents` and make them searchable in `folder`; a killed call goes on when it is repeated.

    Arguments and errors are those of `encode_stream`; `bm25` also builds the lexical index, for hybrid search.

    Raises:
        ArgumentError: there is no document.
    """
    folder = Path(folder)
    settings = stream_settings(encoder, describe(encoder, model), source, keep_texts=True) | {"bm25": bm25}
    if finished(folder, settings):
        return read_progress(folder)
    with resumable(folder, settings) as work:
        encoded, whole = work / "encoded", work / "whole"
        progress = encode_stream(
            encoder, documents, encoded, model=model, source=source, keep_texts=True, advance=advance
        )
        if not progress.texts:
            shutil.rmtree(work)
            raise ArgumentError(f"{source or 'the corpus'} has no documents")
        whole.mkdir(exist_ok=True)
        vectors = read_vectors(encoded)
        ExactIndex(vectors.matrix, vectors.ids, vectors.meta).save(whole / "postings")
        _join_texts(encoded, whole / "texts.arrow")
        if bm25:
            _build_bm25(_read_texts(whole / "texts.arrow"), whole / "bm25")
        shutil.copy(encoded / PROGRESS, whole / PROGRESS)
        finish(work, folder, whole)
    return progress


def open_collection(folder: str | Path) -> Collection:
    """Open what `build_collection` made, memory-mapped.

    Raises:
        VectorsError: there is no collection, or it is damaged.
    """
    folder = Path(folder)
    if not (folder / SETTINGS).is_file() or not (folder / "postings").is_dir():
        unfinished = folder.name and partial_of(folder).exists()
        hint = "it is unfinished: repeat the command that began it" if unfinished else "make one with vocable index"
        raise VectorsError(f"{folder}: there is no index here ({hint})")
    settings = read_record(folder / SETTINGS, dict[str, Any])
    try:
        model, source, lexical = str(settings["model"]), str(settings["source"]), bool(settings["bm25"])
        texts = _read_texts(folder / "texts.arrow")
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise VectorsError(f"{folder}: the index is damaged: {error}") from error
    postings = ExactIndex.load(folder / "postings")
    bm25 = BM25Index.load(folder / "bm25") if lexical else None
    if len(postings) != len(texts):
        raise VectorsError(f"{folder}: the index is damaged: {len(postings)} vectors for {len(texts)} texts")
    return Collection(model, source, postings, texts, bm25)


def _join_texts(parts: Path, path: Path) -> None:
    with replacing(path) as file, ipc.new_file(file, TEXT_SCHEMA) as writer:
        for part in sorted(parts.glob("part-*.arrow")):
            writer.write_table(_read_texts(part))


def _read_texts(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return ipc.open_file(source).read_all()


def _build_bm25(texts: pa.Table, folder: Path) -> None:
    full = [
        Document(id, text, title).full
        for id, text, title in zip(*(texts.column(name).to_pylist() for name in ("id", "text", "title")), strict=True)
    ]
    BM25Index(full, texts.column("id").to_pylist()).save(folder)


class Hit(NamedTuple):
    """A document that was found; `explanation` is there where it was asked for.

    A hit of a hybrid search has a fused score, while its explanation is of the model's own score.
    """

    rank: int
    score: float
    document: Document
    explanation: Explanation | None = None

    def to_json(self) -> dict[str, Any]:
        """The hit as JSON values."""
        values = {"rank": self.rank, "score": self.score, **self.document._asdict()}
        return values if self.explanation is None else values | {"explanation": self.explanation.to_json()}


class Answer(NamedTuple):
    """A query and its hits, best first."""

    query: Query
    hits: tuple[Hit, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {"id": self.query.id, "query": self.query.text, "hits": [hit.to_json() for hit in self.hits]}


@dataclass(frozen=True)
class Searcher:
    """A collection, the model that made it, and how to search: one for any number of queries.

    `k`, `hybrid` and `minimum_match` are as in `Collection.search`; `explained` says why each hit was found, and marks
    the expansions of `wacky` terms where they are known.
    """

    collection: Collection
    model: SparseEncoder
    encoder: TextEncoder
    names: Sequence[str]
    k: int = 10
    hybrid: bool = False
    minimum_match: float = 0.0
    explained: bool = False
    wacky: frozenset[str] | None = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        mass: float | None = None,
        **settings: Any,
    ) -> Searcher:
        """Open a collection and load the model that it names.

        Args:
            folder: of the collection.
            top_k: keep only so many terms of a query, as `min_weight` and `mass` in `vocable.prune`.
            min_weight: lightest weight of a query's term.
            mass: share of a query's weight to keep.
            settings: the fields from `k` on.

        Raises:
            ArgumentError: a limit out of its range.
            VectorsError: there is no collection, it is damaged, or its model now has another vocabulary.
            ModelError: its model cannot be loaded.
        """
        collection = open_collection(folder)
        model = load(collection.model)
        encoder = collection.query_encoder(model, top_k=top_k, min_weight=min_weight, mass=mass)
        return cls(collection, model, encoder, terms(model), **settings)

    def ranking(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> Ranking:
        """The k best documents for each of q query texts; errors are those of `Collection.search`."""
        return self._search(texts, self.encoder.encode(texts, advance))

    def answers(self, queries: Sequence[Query]) -> list[Answer]:
        """The answer to each of `queries`; errors are those of `Collection.search`."""
        texts = [query.text for query in queries]
        vectors = self.encoder.encode(texts)
        ranking = self._search(texts, vectors)
        return [Answer(query, self._hits(query, vectors[[i]], ranking, i)) for i, query in enumerate(queries)]

    def _search(self, texts: Sequence[str], vectors: csr_array) -> Ranking:
        return self.collection.search(texts, vectors, self.k, hybrid=self.hybrid, minimum_match=self.minimum_match)

    def _hits(self, query: Query, vector: csr_array, ranking: Ranking, i: int) -> tuple[Hit, ...]:
        tokens = text_terms(self.model, query.text) if self.explained else set()
        found = []
        for rank, row in enumerate(ranking.rows[i][ranking.rows[i] >= 0].tolist(), start=1):
            document = self.collection.document(row)
            why = self._explain(vector, tokens, row, document) if self.explained else None
            found.append(Hit(rank, float(ranking.scores[i, rank - 1]), document, why))
        return tuple(found)

    def _explain(self, query: csr_array, tokens: set[str], row: int, document: Document) -> Explanation:
        """Why the document in `row` matches the vector [1, v] of a query with these tokens, by the stored weights."""
        return explain(
            query,
            self.collection.postings.get([row]),
            self.names,
            tokens,
            text_terms(self.model, document.full),
            self.wacky,
        )
