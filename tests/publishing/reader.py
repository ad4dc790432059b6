"""The reference of the page: a reader of a published collection, with the same searches from the same bytes.

page/collection.js computes the same numbers, in float64 and in the same order, so that all scores are equal.

Letters: n documents, q queries, k results.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from tokenizers import Tokenizer

from tests.publishing.reading import (
    Postings,
    file_for,
    read_block,
    read_directory,
    read_documents,
    read_file,
    read_model,
    read_postings,
    read_stems,
    rows_of_value,
    tokenizer_of,
)
from vocable.data.texts import Texts, as_texts
from vocable.engines.filters import Value
from vocable.errors import ArgumentError
from vocable.indexes.fusion import fused, fusion_depth
from vocable.indexes.ranking import Ranking, best
from vocable.language.words import counted_words
from vocable.options import Count, checked
from vocable.publishing.documents import Shown
from vocable.publishing.files import FileTable
from vocable.publishing.manifest import read_manifest
from vocable.publishing.postings import PostingsBlock

LIGHT = 1 / 32  # share of the score of the TENTH document: lighter blocks are left out
TENTH = 10


class PublishedSite:
    """A published collection in a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a published collection; `VectorsError` if it is missing or damaged."""
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self.directory = read_directory(read_file(self.folder, self.manifest.directory))
        self._content = lru_cache(1_000)(lambda name: read_file(self.folder, name))

    def __len__(self) -> int:
        return self.manifest.documents

    def __repr__(self) -> str:
        return f"PublishedSite({str(self.folder)!r}, {len(self):,} documents)"

    @cached_property
    def documents(self) -> list[Shown]:
        """The shown parts of the n documents."""
        return [one for name in self.directory.documents.names for one in read_documents(self._content(name))]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the n documents."""
        return [one.id for one in self.documents]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of queries, made of the published pieces."""
        described = self.directory.tokenizer
        model = read_model(described["model"], self.directory.pieces, self._content)
        return tokenizer_of(described, model, self._content)

    @cached_property
    def _token_names(self) -> dict[int, str]:
        return {i: token for token, i in self.tokenizer.get_vocab().items()}

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a query."""
        found = self.tokenizer.encode(self.manifest.query.prompt + text).ids
        return [self._token_names[one] for one in found[: self.manifest.query.longest]]

    @checked
    def search(
        self,
        queries: Texts,
        k: Count = 10,
        *,
        hybrid: bool | None = None,
        filter: Mapping[str, Sequence[Value]] | None = None,
        vectors: csr_array | None = None,
    ) -> Ranking:
        """Return the k best documents for each of q queries.

        Args:
            queries: texts.
            k: results per query.
            hybrid: fuse the model's scores with BM25's, as the manifest says; by default if the collection has them.
            filter: values by field: a document passes if, for each field, it has one of the values.

        Raises:
            ArgumentError: no such field or value, or no BM25.
            VectorsError: a file is missing or damaged.
        """
        hybrid = self.manifest.words if hybrid is None else hybrid
        if hybrid and not self.manifest.words:
            raise ArgumentError("hybrid: the collection was published without BM25")
        allowed = np.ones(len(self), dtype=bool) if filter is None else self.passing(filter)
        texts, weights = as_texts(queries, "queries"), self.manifest.weights if hybrid else {"sparse": 1.0}
        found = {"sparse": [self.terms(text) for text in texts] if vectors is None else self.encoded_terms(vectors)}
        found["bm25"] = [self.words(text) for text in texts]
        depth = fusion_depth(k) if len(weights) > 1 else k
        rankings = {
            kind: self._ranking([self._scores(some, allowed) for some in found[kind]], depth) for kind in weights
        }
        return fused(rankings, weights, "weighted", k) if len(weights) > 1 else next(iter(rankings.values()))

    def passing(self, filter: Mapping[str, Sequence[Value]]) -> np.ndarray:
        """Return whether each document passes a filter, bool [n]."""
        fields = {field.name: field for field in self.manifest.fields}
        passing = np.ones(len(self), dtype=bool)
        for name, values in filter.items():
            if name not in fields:
                raise ArgumentError(f"filter: there is no field {name!r} to filter by: {', '.join(fields) or 'none'}")
            some = np.zeros(len(self), dtype=bool)
            content = self._content(fields[name].file)
            for value in values:
                same = [type(one) is type(value) and one == value for one in fields[name].values]
                if not any(same):
                    raise ArgumentError(f"filter: no document has {name}={value!r}")
                some[rows_of_value(content, same.index(True))] = True
            passing &= some
        return passing

    def terms(self, text: str) -> list[tuple[Postings, float]]:
        """Return the postings of the tokens of a query, in their order, with the weight of each in the query."""
        return self._weighed(dict.fromkeys(self.tokens(text)))

    def encoded_terms(self, vectors: csr_array) -> list[list[tuple[Postings, float]]]:
        """Return the same of the terms of encoded queries [q, v]."""
        if self.manifest.encoder is None:
            raise ArgumentError("vectors: the collection was published without an encoder")
        names = json.loads(self._content(self.manifest.encoder.files[-1]))
        rows = [vectors[[row]] for row in range(vectors.shape[0])]
        return [self._weighed({names[i]: float(w) for i, w in zip(row.indices, row.data, strict=True)}) for row in rows]

    def _weighed(self, weights: Mapping[str, float | None]) -> list[tuple[Postings, float]]:
        """Return the postings of terms with their weights, times their IDF; None stands for the looked-up weight."""
        power, found = self.manifest.query.idf_power, list[tuple[Postings, float]]()
        for term, given in sorted(weights.items()):
            if one := self._postings(self.directory.terms, term):
                weight = one.factor if given is None else given
                found.append((one, _float32(weight * _float32(self._idf(one.documents) ** power))))
        return found

    def words(self, text: str) -> list[tuple[Postings, float]]:
        """Return the postings of the stems of a query, in their order, with the weight of each in the query."""
        [words] = counted_words([text], self.manifest.language)
        counts = sorted(Counter(map(self.stem, words)).items())
        found = [(one, count) for word, count in counts if (one := self._postings(self.directory.words, word))]
        return [(one, _float32(count * _float32(self._idf(one.documents)))) for one, count in found]

    def stem(self, word: str) -> str:
        """Return the stem of a word; a word that no document has is its own."""
        file = file_for(self.directory.words, word)
        return word if file is None else read_stems(self._content(file)).get(word, word)

    def _idf(self, documents: int) -> float:
        return math.log1p((len(self) - documents + 0.5) / (documents + 0.5))

    def _postings(self, table: FileTable, key: str) -> Postings | None:
        name = file_for(table, key)
        return None if name is None else read_postings(self._content(name), key)

    def _scores(self, terms: Sequence[tuple[Postings, float]], allowed: np.ndarray) -> np.ndarray:
        """Return the score of each document, float64 [n], 0 for documents that are not allowed."""
        scores = np.zeros(len(self))

        def add(unit: float, block: PostingsBlock) -> None:
            scores[block.rows] += np.where(allowed[block.rows], unit * block.weights, 0)

        for postings, weight in terms:
            add(weight * postings.scale, postings.first)
        light = LIGHT * (np.sort(scores)[-TENTH] if len(scores) >= TENTH else 0.0)
        for postings, weight in terms:
            for block in postings.later:
                if weight * postings.scale * block.top >= light:
                    add(weight * postings.scale, read_block(self._content(block.name), block.postings))
        return scores

    def _ranking(self, scored: Sequence[np.ndarray], depth: int) -> Ranking:
        hits = [np.flatnonzero(scores > 0) for scores in scored]
        width = max(map(len, hits), default=0)
        rows = np.full((len(scored), width), -1, dtype=np.int32)
        values = np.zeros(rows.shape)
        for place, (some, scores) in enumerate(zip(hits, scored, strict=True)):
            rows[place, : len(some)], values[place, : len(some)] = some, scores[some]
        found = best(rows, values, depth, None)
        return Ranking(found.rows, found.scores, self.ids)


def _float32(value: float) -> float:
    return float(np.float32(value))
