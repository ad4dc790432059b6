"""Explanations: the terms that make the score of a query and a document, and the terms of a text's vector.

A score is the sum, over the terms that query and document share, of query weight times document weight. A term that
occurs in a text is a token of the text; any other term is the model's expansion, which is wacky if the caller lists the
term. Terms are shown as the vocabulary spells them, including pieces of words (`##ing`).

Shapes: v output terms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.core.cancelling import stop_if_cancelled
from vocable.core.tables import Table, Tabular, counted
from vocable.data.texts import Text, as_text
from vocable.encoding.encode import encode
from vocable.encoding.models import Model, encoding_model
from vocable.encoding.protocol import Role
from vocable.encoding.terms import Word, input_terms
from vocable.encoding.vectors import as_vectors
from vocable.errors import VectorsError
from vocable.explanation.highlights import Mark, Origin
from vocable.explanation.notebook import bars
from vocable.indexes.fusion import ScoreParts
from vocable.options import Count, checked

MARKED = 8  # matching terms that are marked in a text, the heaviest


@dataclass(frozen=True)
class MatchedTerm:
    """A term that query and document share, its `contribution` to the score, and its `share` of the score (0 to 1).

    `wacky` is true for a wacky expansion of either text, and None if the wacky terms are not known.
    """

    term: str
    query_weight: float
    document_weight: float
    contribution: float
    share: float
    in_query: bool
    in_document: bool
    wacky: bool | None = None

    @property
    def kind(self) -> Origin:
        """The origin of the term in the query."""
        return _origin(self.in_query, self.wacky)


@dataclass(frozen=True)
class Explanation(Tabular):
    """A score and the terms that made it, largest contribution first; a fused score also has `parts`."""

    score: float
    matches: tuple[MatchedTerm, ...]
    parts: ScoreParts | None = None

    def to_json(self) -> dict[str, object]:
        """Return the explanation as JSON values."""
        return json_values(self)

    def reasons(self, limit: int = 8) -> list[str]:
        """Return the heaviest terms with their shares: a line of terms in both texts, of expansions, of wacky terms."""
        parts: dict[str, list[str]] = {"text": [], "expansion": [], "wacky": []}
        for match in self.matches[:limit]:
            origin = _origin(match.in_query and match.in_document, match.wacky)
            parts[origin].append(f"{match.term} {match.share:.0%}")
        return [f"{origin}: {', '.join(terms)}" for origin, terms in parts.items() if terms] or ["no shared term"]

    def _repr_html_(self) -> str:
        matches = [(match.term, match.kind, f"{match.share:.0%}", match.share) for match in self.matches]
        return bars(self._title(), matches)

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the terms that are marked in a text."""
        return {match.term: match.share for match in self.matches[:MARKED]}

    def marks(self, places: Iterable[Word]) -> list[Mark]:
        """Return the marks of these terms at their `places` in a text.

        >>> match = MatchedTerm("fox", 1.0, 1.0, 1.0, 1.0, in_query=True, in_document=True)
        >>> Explanation(1.0, (match,)).marks([("a", 0, 1), ("fox", 2, 5)])
        [Mark(start=2, end=5, term='fox', kind='text')]
        """
        kinds = {match.term: match.kind for match in self.matches[:MARKED]}
        return [Mark(start, end, term, kinds[term]) for term, start, end in places if term in kinds]

    def __str__(self) -> str:
        return super().__str__() if self.matches else f"score {self.score:g}: no shared term"

    def table(self, limit: int | None = None) -> Table:
        """Return a table of the `limit` heaviest terms, by default of all terms."""
        headers = ["term", "query", "document", "score", "share", "in query", "in document"]
        rows = []
        for match in self.matches[:limit]:
            weights = [f"{weight:.2f}" for weight in (match.query_weight, match.document_weight, match.contribution)]
            origins = [match.kind, _origin(match.in_document, match.wacky)]
            rows.append([match.term, *weights, f"{match.share:.1%}", *origins])
        return Table(self._title() + ("" if limit is None else f", the {limit} weightiest"), headers, rows)

    def _title(self) -> str:
        return f"score {self.score:.2f}, {counted(len(self.matches), 'shared term')}"


@dataclass(frozen=True)
class ExpansionTerm:
    """A term of a text's vector; `wacky` as in `MatchedTerm`."""

    term: str
    weight: float
    in_text: bool
    wacky: bool | None = None

    @property
    def kind(self) -> Origin:
        """The origin of the term."""
        return _origin(self.in_text, self.wacky)


@dataclass(frozen=True)
class Expansion(Tabular):
    """The number of `active` terms of a text's vector, and its heaviest terms."""

    active: int
    terms: tuple[ExpansionTerm, ...]

    def to_json(self) -> dict[str, object]:
        """Return the expansion as JSON values."""
        return json_values(self)

    def _repr_html_(self) -> str:
        terms = [(term.term, term.kind, f"{term.weight:.2f}", term.weight) for term in self.terms]
        return bars(counted(self.active, "active term"), terms)

    def table(self) -> Table:
        """Return a table of the terms."""
        rows = [[term.term, f"{term.weight:.2f}", term.kind] for term in self.terms]
        shown = f", the {len(self.terms)} weightiest" if len(self.terms) < self.active else ""
        return Table(counted(self.active, "active term") + shown, ["term", "weight", "from"], rows)


def explain_texts(
    model: Model, query: Text, document: Text | None = None, wacky: Collection[str] | None = None
) -> Explanation | Expansion:
    """Encode a query and a document (title and text), and explain their score; without a document, expand the query.

    Args:
        model: from `vocable.load`.
        query: a text or a record.
        document: a text or a record.
        wacky: terms whose expansions are marked, as `vocable.encoding.term_scores.read_wacky_terms` reads them.
    """
    query = as_text(query, "query")
    if document is None:
        return expand_text(model, query, role="query", wacky=wacky)
    document = as_text(document, "document")
    vectors = encode(model, [query], role="query"), encode(model, [document], role="document")
    query_terms, document_terms = text_terms(model, [query, document])
    names = encoding_model(model).described_terms(lambda: [query, document])
    return explain_vectors(*vectors, names, query_terms, document_terms, wacky)


def expand_text(
    model: Model, text: Text, role: Role = "document", k: int = 20, wacky: Collection[str] | None = None
) -> Expansion:
    """Encode a text with a model from `vocable.load`, and return its k heaviest terms.

    `wacky` is as in `explain_texts`.
    """
    [tokens] = text_terms(model, texts := [as_text(text)])
    names = encoding_model(model).described_terms(lambda: texts)
    return expand_vector(encode(model, texts, role=role), names, tokens, k, wacky)


def text_terms(model: Model, texts: Sequence[str]) -> list[set[str]]:
    """Return the output terms that occur in each text, even beyond the model's maximum length."""
    encoder = encoding_model(model)
    names, counts = encoder.terms, input_terms(encoder, texts)
    return [{names[column] for column in columns.tolist()} for columns in np.split(counts.indices, counts.indptr[1:-1])]


def explain_vectors(
    query_vector: csr_array,
    document_vector: csr_array,
    names: Sequence[str],
    query_tokens: Collection[str],
    document_tokens: Collection[str],
    wacky: Collection[str] | None = None,
) -> Explanation:
    """Explain the score of two vectors [1, v].

    `names` are the v terms by column, `query_tokens` and `document_tokens` the terms that occur in each text, `wacky`
    as in `explain_texts`. Raises `VectorsError` if a vector is not a single row of v columns.

    >>> query, document = csr_array(np.array([[1.0, 2.0, 0.0]])), csr_array(np.array([[3.0, 0.5, 9.0]]))
    >>> explained = explain_vectors(query, document, ["list", "array", "set"], ["list"], ["list", "set"])
    >>> explained.score, [(match.term, match.contribution, match.in_query) for match in explained.matches]
    (4.0, [('list', 3.0, True), ('array', 1.0, False)])
    """
    [explained] = explain_hits(query_vector, document_vector, names, query_tokens, [document_tokens], wacky)
    return explained


def explain_hits(
    query_vector: csr_array,
    document_vectors: csr_array,
    names: Sequence[str],
    query_tokens: Collection[str],
    document_tokens: Sequence[Collection[str]],
    wacky: Collection[str] | None = None,
) -> list[Explanation]:
    """Explain the score of a query [1, v] and of each of m documents [m, v]; other arguments: `explain_vectors`."""
    query, documents = _rows(query_vector, names, 1), _rows(document_vectors, names, len(document_tokens))
    in_query, explanations = set(query_tokens), []
    for row, tokens in enumerate(document_tokens):
        stop_if_cancelled()
        part = slice(documents.indptr[row], documents.indptr[row + 1])
        # Columns of the shared terms [t], and their places in the two vectors.
        columns, *places = np.intersect1d(
            query.indices, documents.indices[part], assume_unique=True, return_indices=True
        )
        query_weights = query.data[places[0]].astype(float)
        document_weights = documents.data[part][places[1]].astype(float)
        # In float64, so that the shares of the score add up to 1.
        contributions = query_weights * document_weights
        score, in_document = float(contributions.sum()), set(tokens)
        matches = []
        for place in _descending(contributions):
            term, contribution = names[columns[place]], float(contributions[place])
            expanded = term not in in_query or term not in in_document
            matched = MatchedTerm(
                term=term,
                query_weight=float(query_weights[place]),
                document_weight=float(document_weights[place]),
                contribution=contribution,
                share=contribution / score,
                in_query=term in in_query,
                in_document=term in in_document,
                wacky=None if wacky is None else term in wacky and expanded,
            )
            matches.append(matched)
        explanations.append(Explanation(score, tuple(matches)))
    return explanations


@checked
def expand_vector(
    vector: csr_array,
    names: Sequence[str],
    tokens: Collection[str],
    k: Count = 20,
    wacky: Collection[str] | None = None,
) -> Expansion:
    """Return the k heaviest terms of a vector [1, v]; `tokens` occur in the text; other arguments: `explain_vectors`.

    >>> expanded = expand_vector(csr_array(np.array([[1.0, 2.0, 0.0]])), ["list", "array", "set"], ["list"])
    >>> [(term.term, term.weight, term.in_text) for term in expanded.terms]
    [('array', 2.0, False), ('list', 1.0, True)]
    """
    row, in_text = _rows(vector, names, 1), set(tokens)
    heaviest = []
    for place in _descending(row.data)[:k]:
        term = names[row.indices[place]]
        marked = None if wacky is None else term in wacky and term not in in_text
        heaviest.append(ExpansionTerm(term, float(row.data[place]), term in in_text, marked))
    return Expansion(row.nnz, tuple(heaviest))


def json_values(record: object) -> Any:
    """Return dataclasses, also within lists, tuples and dictionaries, as JSON values, without fields that are None.

    >>> json_values(ExpansionTerm("fox", 1.5, in_text=True))
    {'term': 'fox', 'weight': 1.5, 'in_text': True}
    """
    if is_dataclass(record):
        values = {field.name: getattr(record, field.name) for field in fields(record)}
        return {name: json_values(value) for name, value in values.items() if value is not None}
    if isinstance(record, dict):
        return {name: json_values(value) for name, value in record.items()}
    return [json_values(item) for item in record] if isinstance(record, list | tuple) else record


def _rows(vectors: csr_array, names: Sequence[str], m: int) -> csr_array:
    """Return m rows of weights with ascending columns, [m, v]."""
    if vectors.shape != (m, len(names)):
        count = "one vector" if m == 1 else f"{m} vectors"
        raise VectorsError(f"expected {count} of {len(names)} terms, not the shape {vectors.shape}")
    return as_vectors(vectors)


def _descending(weights: np.ndarray) -> list[int]:
    """Return the places of the weights, largest weight first."""
    return np.argsort(-weights, kind="stable").tolist()


def _origin(in_text: bool, wacky: bool | None) -> Origin:
    return "text" if in_text else "wacky" if wacky else "expansion"
