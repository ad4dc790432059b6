"""Which terms made a score, and which a text became: of vectors, for those who run no model.

A score is the sum, over the terms that query and document share, of query weight times document weight. A term that
stands in a text is one of the text's tokens; any other is the model's expansion, and wacky if the caller says so of the
term. Terms are shown as the vocabulary has them, pieces of words (`##ing`) included.

Shapes: v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import VectorsError
from vocable.options import Count, checked
from vocable.tables import Table, Tabular, counted

if TYPE_CHECKING:
    from vocable.encoder.terms import Word

SIGNS = {"text": "", "expansion": "+", "wacky": "~"}  # in front of a term; colours alone would not be seen by all
COLOURS = {"text": "#3572b8", "expansion": "#b3621c"}  # on light ground and on dark
COLOURS["wacky"] = "repeating-linear-gradient(115deg, #b3621c 0 2px, transparent 2px 5px)"
SHOWN = 20  # terms in a notebook
MARKED = 8  # of a document's matching terms: the weightiest


@dataclass(frozen=True)
class MatchedTerm:
    """A term that query and document share: `contribution` to the score, and `share` of it (0 to 1).

    `wacky` is whether it is a wacky expansion of either; None where nobody said which terms are.
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
    def kind(self) -> str:
        """Where the query has it from: text, expansion or wacky."""
        return _origin(self.in_query, self.wacky)


@dataclass(frozen=True)
class Explanation(Tabular):
    """A score and the terms that made it, the weightiest first."""

    score: float
    matches: tuple[MatchedTerm, ...]

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return {"score": self.score, "matches": [_known(match) for match in self.matches]}

    def reasons(self, limit: int = 8) -> list[str]:
        """The weightiest terms with their share of the score: those in both texts, then expansions, then wacky ones."""
        parts: dict[str, list[str]] = {"text": [], "expansion": [], "wacky": []}
        for match in self.matches[:limit]:
            origin = "text" if match.in_query and match.in_document else "wacky" if match.wacky else "expansion"
            parts[origin].append(f"{match.term} {match.share:.0%}")
        return [f"{origin}: {', '.join(those)}" for origin, those in parts.items() if those] or ["no shared term"]

    def _repr_html_(self) -> str:
        bars = [(one.term, one.kind, f"{one.share:.0%}", one.share) for one in self.matches]
        return _bars(f"score {self.score:.2f}, {counted(len(self.matches), 'shared term')}", bars)

    def marked(self, text: str, places: Sequence[Word]) -> list[dict[str, str]]:
        """The text in parts, a matching term with its name and kind; of overlapping ones the first counts.

        >>> match = MatchedTerm("fox", 1.0, 1.0, 1.0, 1.0, in_query=True, in_document=True)
        >>> Explanation(1.0, (match,)).marked("a fox ran", [("a", 0, 1), ("fox", 2, 5)])
        [{'text': 'a '}, {'text': 'fox', 'term': 'fox', 'kind': 'text'}, {'text': ' ran'}]
        """
        kinds = {match.term: match.kind for match in self.matches[:MARKED]}
        parts: list[dict[str, str]] = []
        done = 0
        for term, start, end in places:
            if term in kinds and start >= done:
                parts += [{"text": text[done:start]}, {"text": text[start:end], "term": term, "kind": kinds[term]}]
                done = end
        return [part for part in [*parts, {"text": text[done:]}] if part["text"]]

    def __str__(self) -> str:
        return super().__str__() if self.matches else f"score {self.score:g}: no shared term"

    def table(self, limit: int | None = None) -> Table:
        """The `limit` weightiest terms, all of them by default."""
        headers = ["term", "query", "document", "score", "share", "in query", "in document"]
        rows = []
        for match in self.matches[:limit]:
            weights = [f"{one:.2f}" for one in (match.query_weight, match.document_weight, match.contribution)]
            origins = [match.kind, _origin(match.in_document, match.wacky)]
            rows.append([match.term, *weights, f"{match.share:.1%}", *origins])
        title = f"score {self.score:.2f}, {counted(len(self.matches), 'shared term')}"
        return Table(title + ("" if limit is None else f", the {limit} weightiest"), headers, rows)


@dataclass(frozen=True)
class ExpansionTerm:
    """A term of a text's vector, whether it stands in the text, and `wacky` as of `MatchedTerm`."""

    term: str
    weight: float
    in_text: bool
    wacky: bool | None = None


@dataclass(frozen=True)
class Expansion(Tabular):
    """The heaviest terms of a text's vector, and how many `active` ones it has."""

    active: int
    terms: tuple[ExpansionTerm, ...]

    def to_json(self) -> dict[str, Any]:
        """The expansion as JSON values."""
        return {"active": self.active, "terms": [_known(term) for term in self.terms]}

    def _repr_html_(self) -> str:
        bars = [(one.term, _origin(one.in_text, one.wacky), f"{one.weight:.2f}", one.weight) for one in self.terms]
        return _bars(counted(self.active, "active term"), bars)

    def table(self) -> Table:
        """The terms."""
        rows = [[term.term, f"{term.weight:.2f}", _origin(term.in_text, term.wacky)] for term in self.terms]
        shown = f", the {len(self.terms)} weightiest" if len(self.terms) < self.active else ""
        return Table(counted(self.active, "active term") + shown, ["term", "weight", "from"], rows)


def explain(
    query_vector: csr_array,
    document_vector: csr_array,
    names: Sequence[str],
    query_tokens: Collection[str],
    document_tokens: Collection[str],
    wacky: Collection[str] | None = None,
) -> Explanation:
    """Take the score of a query and a document apart.

    The vectors are [1, v]; `names` are the v terms by column, `query_tokens` and `document_tokens` those that stand in
    each text, `wacky` those whose expansions are marked, such as `vocable.wackiness.ablate` reads.

    >>> query, document = csr_array(np.array([[1.0, 2.0, 0.0]])), csr_array(np.array([[3.0, 0.5, 9.0]]))
    >>> explained = explain(query, document, ["list", "array", "set"], ["list"], ["list", "set"])
    >>> explained.score, [(match.term, match.contribution, match.in_query) for match in explained.matches]
    (4.0, [('list', 3.0, True), ('array', 1.0, False)])

    Raises:
        VectorsError: the vectors are not one row each of as many terms as there are names.
    """
    query, document = _weights(query_vector, names), _weights(document_vector, names)
    contributions = query * document
    shared = np.flatnonzero(contributions)
    score = float(contributions.sum())
    in_query, in_document = set(query_tokens), set(document_tokens)
    matches = []
    for column in shared[np.argsort(-contributions[shared], kind="stable")].tolist():
        term, contribution = names[column], float(contributions[column])
        origin = term in in_query, term in in_document
        marked = None if wacky is None else term in wacky and not all(origin)
        weights = float(query[column]), float(document[column])
        matches.append(MatchedTerm(term, *weights, contribution, float(contributions[column] / score), *origin, marked))
    return Explanation(score, tuple(matches))


@checked
def expansion(
    vector: csr_array,
    names: Sequence[str],
    tokens: Collection[str],
    k: Count = 20,
    wacky: Collection[str] | None = None,
) -> Expansion:
    """The k heaviest terms of a vector [1, v], of which `tokens` stand in the text; `names`, `wacky` as in `explain`.

    >>> expanded = expansion(csr_array(np.array([[1.0, 2.0, 0.0]])), ["list", "array", "set"], ["list"])
    >>> [(term.term, term.weight, term.in_text) for term in expanded.terms]
    [('array', 2.0, False), ('list', 1.0, True)]
    """
    weights, in_text = _weights(vector, names), set(tokens)
    active = np.flatnonzero(weights)
    heaviest = []
    for column in active[np.argsort(-weights[active], kind="stable")][:k].tolist():
        stands = names[column] in in_text
        marked = None if wacky is None else names[column] in wacky and not stands
        heaviest.append(ExpansionTerm(names[column], float(weights[column]), stands, marked))
    return Expansion(len(active), tuple(heaviest))


def _weights(vector: csr_array, names: Sequence[str]) -> np.ndarray:
    """One row of weights as dense float64 [v]."""
    if vector.shape != (1, len(names)):
        raise VectorsError(f"expected one vector of {len(names)} terms, not the shape {vector.shape}")
    weights: np.ndarray = vector.toarray()[0].astype(np.float64)
    return weights


def _origin(in_text: bool, wacky: bool | None) -> str:
    return "text" if in_text else "wacky" if wacky else "expansion"


def _bars(title: str, terms: Sequence[tuple[str, str, str, float]]) -> str:
    """Terms (name, origin, number, length) as HTML without scripts, with bars as on the page of the service."""
    longest, left = max((one[3] for one in terms), default=1.0), len(terms) - SHOWN
    cells = "".join(
        f'<span style="display:inline-block;width:9em;margin:0 1em .4em 0">{SIGNS[origin]}{escape(term)}'
        f'<span style="float:right">{number}</span><span style="display:block;clear:both;height:4px;'
        f'width:{length / longest:.0%};background:{COLOURS[origin]}" title="{origin}"></span></span>'
        for term, origin, number, length in terms[:SHOWN]
    )
    key = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items() if sign and any(name == one[1] for one in terms))
    more = f"and {left} more" if left > 0 else ""
    return f"<div><div><b>{title}</b> <small>{key}</small></div>{cells}<div>{more}</div></div>"


def marked_html(parts: Sequence[Mapping[str, str]]) -> str:
    """Parts of a text, as `Explanation.marked` gives them, as HTML."""
    line = {"text": "solid", "expansion": "dashed", "wacky": "double"}
    style = 'style="color:inherit;background:none;border-bottom:2px {} #3572b8" title="{}"'
    return "".join(
        f"<mark {style.format(line[part['kind']], escape(part['term']))}>{escape(part['text'])}</mark>"
        if "kind" in part
        else escape(part["text"])
        for part in parts
    )


def _known(term: MatchedTerm | ExpansionTerm) -> dict[str, Any]:
    """The term as JSON values; nothing of wackiness where nobody said which terms are wacky."""
    return {name: value for name, value in asdict(term).items() if value is not None}
