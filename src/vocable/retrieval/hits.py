"""The hits of a query, as they are printed, written as JSON and shown in notebooks; nothing here runs a model."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from vocable.data import Document, Query
from vocable.retrieval.explain import Explanation, marked_html
from vocable.tables import line_width, shortened, visible

if TYPE_CHECKING:
    from vocable.encoder.terms import Word

INDENT = 14  # columns of rank and score
NARROW = 20  # columns of the other lines, at least
SNIPPET = 300  # characters of a text in a notebook


class Passage(NamedTuple):
    """Characters `start` to `end` of a document's text."""

    start: int
    end: int
    text: str


class Hit(NamedTuple):
    """A document of an answer; of a hybrid search `score` is fused, while `explanation` is of the model's own score."""

    rank: int
    score: float
    document: Document
    explanation: Explanation | None = None
    passage: Passage | None = None  # the best one, which is explained, where documents are searched by passages
    places: tuple[Word, ...] = ()  # of terms in the beginning of the text, where it is explained

    def to_json(self) -> dict[str, Any]:
        """The hit as JSON values."""
        values = {"rank": self.rank, "score": self.score, **self.document._asdict()}
        if not self.document.fields:
            del values["fields"]
        if self.passage is not None:
            values["passage"] = self.passage._asdict()
        return values if self.explanation is None else values | {"explanation": self.explanation.to_json()}

    def _repr_html_(self) -> str:
        text, fields = (self.passage or self.document).text, self.document.fields
        found, why = escape(text[:SNIPPET]), ""
        if self.explanation is not None:
            found = marked_html(self.explanation.marked(text[:SNIPPET], self.places))
            why = f"<details><summary>why</summary>{self.explanation._repr_html_()}</details>"
        known = escape(", ".join([self.document.id, *(f"{name}: {value}" for name, value in fields.items())]))
        head = f"{self.rank}. {self.score:.4g} <b>{escape(self.document.title)}</b> <small>{known}</small>"
        more = "…" if len(text) > SNIPPET else ""
        return f'<div style="margin:0 0 1em"><div>{head}</div><div>{found}{more}</div>{why}</div>'

    def __repr__(self) -> str:
        return f"Hit({self.rank}, {self.score:.4g}, {self.document.id!r})"

    def __str__(self) -> str:
        width, indent = max(NARROW, line_width() - INDENT), " " * INDENT
        head, title = visible(self.document.id), self.document.title
        room = width - len(head) - 1
        if title and title != self.document.id and room > 0:
            head += f" {shortened(title, room)}"
        lines = [f"{self.rank:>3} {self.score:8.4g}  {head}"]
        lines.append(indent + shortened((self.passage or self.document).text, width))
        if self.document.fields:
            lines.append(indent + shortened(", ".join(f"{n}: {v}" for n, v in self.document.fields.items()), width))
        if self.explanation is not None:
            if abs(self.explanation.score - self.score) > 1e-3 * self.score:  # of a hybrid search
                lines.append(f"{indent}the model's own score, {self.explanation.score:.4g}:")
            lines += [indent + shortened(line, width) for line in self.explanation.reasons()]
        return "\n".join(lines)


class Answer(NamedTuple):
    """A query and its hits, best first."""

    query: Query
    hits: tuple[Hit, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {"id": self.query.id, "query": self.query.text, "hits": [hit.to_json() for hit in self.hits]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits)) or "no hits"

    def _repr_html_(self) -> str:
        hits = "".join(hit._repr_html_() for hit in self.hits) or "no hits"
        return f'<div><div style="margin:0 0 1em"><b>{escape(self.query.text)}</b></div>{hits}</div>'
