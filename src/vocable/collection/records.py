"""Records of searches and changes: hits, answers, passages and counts. Nothing here loads a model or torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import NamedTuple

from vocable.collection.copies import also_in
from vocable.collection.facets import Facet
from vocable.collection.groups import FurtherSection, page_of, place_in_code
from vocable.core.tables import UNLIMITED, WIDTH, counted, line_width, shortened, visible, wrapped
from vocable.data import Document, Query
from vocable.explanation import notebook
from vocable.explanation.explain import Explanation, json_values
from vocable.explanation.highlights import Snippet, excerpt, parts
from vocable.indexes.fusion import ScoreParts, name_weights

KINDS_IN_WORDS = {"sparse": "the model's terms", "bm25": "words (BM25)", "dense": "dense vectors"}
INDENT = 14  # columns of rank and score
NARROW = 20  # columns of the other lines, at least
LINES = 2  # lines of the text
IN_PLACE = ("file", "line", "last_line", "next")  # fields of code that the place in a file says


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a document's text."""

    start: int
    end: int
    text: str


class Hit(NamedTuple):
    """A document of an answer.

    In a search of several kinds of vectors `score` is fused, and `parts` are its parts; `explanation` always explains
    the model's own score. In a collection
    that is searched by passages, `passage` is the best passage, and the explanation is about it. `snippet` is the part
    of the text, or of the passage, with most of the query's words; if the hit is explained, with the terms that make
    its score. `first_score` is the score before a reranking. `copies` are the ids of lower hits with the same title and
    text. `sections` are further hits of the same page, in an entry of `Answer.pages`.
    """

    rank: int
    score: float
    document: Document
    explanation: Explanation | None = None
    passage: Passage | None = None
    snippet: Snippet | None = None
    first_score: float | None = None
    parts: ScoreParts | None = None
    copies: tuple[str, ...] = ()
    sections: tuple[FurtherSection, ...] = ()

    @property
    def group(self) -> str | None:
        """Return the file of the page that the document is a section of, if it is one."""
        return page_of(self.document)

    def to_json(self) -> dict[str, object]:
        """Return the hit as JSON values."""
        values = {"rank": self.rank, "score": self.score, **self.document._asdict()}
        if not self.document.fields:
            del values["fields"]
        if self.group is not None:
            values["group"] = self.group
        if self.sections:
            values["sections"] = json_values(self.sections)
        if self.copies:
            values["copies"] = list(self.copies)
        if self.first_score is not None:
            values["first_score"] = self.first_score
        if self.parts is not None:
            values["parts"] = json_values(self.parts)
        if self.passage is not None:
            values["passage"] = asdict(self.passage)
        if self.snippet is not None:
            values["snippet"] = json_values(self.snippet)
        return values if self.explanation is None else values | {"explanation": self.explanation.to_json()}

    def _repr_html_(self) -> str:
        text, fields = escape((self.passage or self.document).text), self.document.fields
        if (snippet := self.snippet) is not None:
            marked = notebook.marked((part.text, part.term, part.kind) for part in parts(snippet.text, snippet.marks))
            text = "… " * self._cut[0] + marked + " …" * self._cut[1]
        why = "" if self.explanation is None else self.explanation._repr_html_()
        more = [also_in(self.copies, UNLIMITED)] if self.copies else []
        more += [f"parts: {self.parts}"] if self.parts is not None and self.parts.several else []
        more += [f"+ {section.id}" for section in self.sections]
        about = ", ".join([self.document.id, *(f"{name}: {value}" for name, value in fields.items()), *more])
        return notebook.hit(f"{self.rank}. {self.score:.4g}", self.document.title, about, text, why)

    @property
    def _cut(self) -> tuple[bool, bool]:
        """True where the document's text goes on: before the snippet, and after it."""
        assert self.snippet is not None
        return self.snippet.start > 0, self.snippet.end < len(self.document.text)

    def _text(self, width: int, full: bool) -> list[str]:
        """Return the lines of the text: its best part, or if `full` all of it, outside a terminal in one line."""
        whole, is_terminal = (self.passage or self.document).text, line_width() < UNLIMITED
        if full:
            return wrapped([(whole, False)], width, len(whole)) if is_terminal else [shortened(whole, width)]
        width = width if is_terminal else WIDTH - INDENT
        if self.snippet is None:
            return [shortened(whole, width)]
        text, marks = self.snippet.text, self.snippet.marks
        shares = None if self.explanation is None else self.explanation.shares
        start, end = excerpt(text, marks, shares, length=LINES * width - 8)
        shown = [(one.text, one.term is not None) for one in parts(text, marks, (start, end)) if not one.hidden]
        cut_before, cut_after = self._cut[0] or start > 0, self._cut[1] or end < len(text)
        return wrapped([("… " * cut_before, False), *shown, (" …" * cut_after, False)], width, LINES)

    def __repr__(self) -> str:
        return f"Hit({self.rank}, {self.score:.4g}, {self.document.id!r})"

    def __str__(self) -> str:
        return self.printed()

    def printed(self, full: bool = False) -> str:
        """Return the hit as printed text, with the best part of its text, or all of it."""
        # The first line: rank, score, id or place in a file of code, and as much of the title as fits.
        width, indent = max(NARROW, line_width() - INDENT), " " * INDENT
        place, title = place_in_code(self.document), self.document.title
        head = visible(place or self.document.id)
        room = width - len(head) - 1
        if title and title not in (self.document.id, self.document.fields.get("file")) and room > 0:
            marked = parts(title, () if self.snippet is None else self.snippet.title_marks)
            head += f" {wrapped([(part.text, part.term is not None) for part in marked], room, 1)[0]}"
        lines = [f"{self.rank:>3} {self.score:8.4g}  {head}"]
        lines += [indent + line for line in self._text(width, full)]
        # The fields, and the documents with the same text.
        fields = dict(self.document.fields)
        if place:
            shown = {name: value for name, value in fields.items() if name not in IN_PLACE}
            fields = {"id": visible(self.document.id), **shown}
        if url := fields.pop("url", None):
            lines.append(indent + visible(str(url)))  # whole, however long: it is there to be opened
        if fields:
            lines.append(indent + shortened(", ".join(f"{name}: {value}" for name, value in fields.items()), width))
        if self.copies:
            lines.append(indent + also_in(self.copies, width))
        # The explanation is for the score before reranking.
        score = self.score
        if self.first_score is not None:
            lines.append(f"{indent}score before reranking: {self.first_score:.4g}")
            score = self.first_score
        if self.explanation is not None:
            if self.parts is not None and self.parts.several:
                lines.append(indent + shortened(f"parts: {self.parts}", width))
            if abs(self.explanation.score - score) > 1e-3 * score:  # a search of several kinds fuses scores
                lines.append(f"{indent}the model's own score, {self.explanation.score:.4g}:")
            lines += [indent + shortened(line, width) for line in self.explanation.reasons()]
        lines += [f"{indent}{shortened(f'+ {one.place or one.id} {one.title}', width)}" for one in self.sections]
        return "\n".join(lines)


class Answer(NamedTuple):
    """A query and its hits, best first.

    `suggestion` is the query, with each word that occurs in no document replaced by the nearest known word. `missing`
    describes the part of the index that was not searched. `note` names words that no document has. `facets` count
    values of fields among the best hits. `weights` are the weights of the kinds of vectors that were searched.
    `reranked` counts the hits that a cross encoder has scored, in `rerank_ms` milliseconds.

    Of a folder of pages, `pages` are the k best pages, each its best hit with further `sections`. Printed answers list
    the pages, all else is by document.
    """

    query: Query
    hits: tuple[Hit, ...]
    suggestion: str | None = None
    missing: str | None = None
    note: str | None = None
    facets: tuple[Facet, ...] = ()
    weights: Mapping[str, float] | None = None
    pages: tuple[Hit, ...] = ()
    reranked: int | None = None
    rerank_ms: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the answer as JSON values."""
        more: dict[str, object] = {"note": self.note, "suggestion": self.suggestion, "missing": self.missing}
        more |= {"facets": [json_values(facet) for facet in self.facets] or None, "weights": self.weights}
        more |= {"reranked": self.reranked, "rerank_ms": self.rerank_ms}
        more = {name: value for name, value in more.items() if value is not None}
        return {"id": self.query.id, "query": self.query.text, "hits": [hit.to_json() for hit in self.hits], **more}

    def __str__(self) -> str:
        return self.printed()

    def printed(self, full: bool = False) -> str:
        """Return the answer as printed text, with the best parts of its texts, or with whole texts."""
        lines = [visible(line) for line in (self.missing, self.note) if line]
        lines += [hit.printed(full) for hit in self.pages or self.hits] or ["no hits"]
        lines += [facet.line(line_width()) for facet in self.facets]
        lines += [f"reranked {self.reranked} hits in {self.rerank_ms:.0f} ms"] if self.reranked else []
        return "\n".join(lines + ([f"did you mean: {visible(self.suggestion)}"] if self.suggestion else []))

    def _repr_html_(self) -> str:
        instead = "".join(f" ({line})" for line in (self.missing, self.note) if line)
        instead += f" (did you mean: {self.suggestion})" if self.suggestion else ""
        return notebook.answer(self.query.text + instead, (hit._repr_html_() for hit in self.pages or self.hits))


def ranked_by(weights: Mapping[str, float]) -> str:
    """Return the line that says which kinds of vectors ranked the hits.

    >>> ranked_by({"sparse": 1.0, "bm25": 1.0})
    "ranked by the model's terms and words (BM25)"
    >>> ranked_by({"sparse": 0.6, "bm25": 0.4})
    "ranked by the model's terms and words (BM25), with the weights sparse=0.6,bm25=0.4"
    """
    *kinds, last = (KINDS_IN_WORDS[space] for space in weights)
    weighed = f", with the weights {name_weights(weights)}" if len({*weights.values()}) > 1 else ""
    return f"ranked by {', '.join(kinds)}{' and ' * bool(kinds)}{last}{weighed}"


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
