"""Records of searches and changes: hits, answers, passages and counts. Nothing here loads a model or torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from vocable.data import Document, Query
from vocable.retrieval import notebook
from vocable.retrieval.explain import Explanation
from vocable.tables import counted, line_width, shortened, visible

if TYPE_CHECKING:
    from vocable.encoder.terms import Word

INDENT = 14  # columns of rank and score
NARROW = 20  # columns of the other lines, at least


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a document's text."""

    start: int
    end: int
    text: str


class Hit(NamedTuple):
    """A document of an answer.

    In a hybrid search `score` is the fused score; `explanation` is always of the model's own score. In a collection
    that is searched by passages, `passage` is the best one, which is also the one explained. `places` are the terms in
    the first `SNIPPET` characters, if the hit is explained. After a reranking `first_score` is the score before it.
    """

    rank: int
    score: float
    document: Document
    explanation: Explanation | None = None
    passage: Passage | None = None
    places: tuple[Word, ...] = ()
    first_score: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the hit as JSON values, without `places`."""
        values = {"rank": self.rank, "score": self.score, **self.document._asdict()}
        if not self.document.fields:
            del values["fields"]
        if self.first_score is not None:
            values["first_score"] = self.first_score
        if self.passage is not None:
            values["passage"] = asdict(self.passage)
        return values if self.explanation is None else values | {"explanation": self.explanation.to_json()}

    def _repr_html_(self) -> str:
        text, fields = (self.passage or self.document).text, self.document.fields
        snippet, more = text[: notebook.SNIPPET], "…" if len(text) > notebook.SNIPPET else ""
        shown, why = escape(snippet), ""
        if self.explanation is not None:
            parts = self.explanation.marked(snippet, self.places)
            shown = notebook.marked((part.text, part.term, part.kind) for part in parts)
            why = self.explanation._repr_html_()
        about = ", ".join([self.document.id, *(f"{name}: {value}" for name, value in fields.items())])
        return notebook.hit(f"{self.rank}. {self.score:.4g}", self.document.title, about, shown + more, why)

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
        score = self.score
        if self.first_score is not None:
            lines.append(f"{indent}score before reranking: {self.first_score:.4g}")
            score = self.first_score
        if self.explanation is not None:
            if abs(self.explanation.score - score) > 1e-3 * score:  # in a hybrid search
                lines.append(f"{indent}the model's own score, {self.explanation.score:.4g}:")
            lines += [indent + shortened(line, width) for line in self.explanation.reasons()]
        return "\n".join(lines)


class Answer(NamedTuple):
    """A query and its hits, best first."""

    query: Query
    hits: tuple[Hit, ...]

    def to_json(self) -> dict[str, object]:
        """Return the answer as JSON values."""
        return {"id": self.query.id, "query": self.query.text, "hits": [hit.to_json() for hit in self.hits]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits)) or "no hits"

    def _repr_html_(self) -> str:
        return notebook.answer(self.query.text, (hit._repr_html_() for hit in self.hits))


@dataclass(frozen=True)
class Changed:
    """Counts of what `vocable.add` or `vocable.delete` did, and the number of `documents` after it."""

    added: int
    replaced: int
    unchanged: int
    deleted: int
    documents: int

    def to_json(self) -> dict[str, int]:
        """Return the counts as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        counts = [f"{count:,} {name}" for name, count in asdict(self).items() if count and name != "documents"]
        return f"{', '.join(counts) or 'nothing changed'}; now {counted(self.documents, 'document')}"
