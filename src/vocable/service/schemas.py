"""Requests, and answers that have no record in `collection`: the source of the service's OpenAPI description."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model, model_validator
from typing_extensions import Doc

from vocable.collection.facets import Facet
from vocable.collection.groups import FurtherSection
from vocable.collection.records import Answer, Hit, Passage
from vocable.core.faults import described
from vocable.data import Document, Query
from vocable.explanation.explain import Explanation
from vocable.explanation.highlights import Snippet
from vocable.indexes.fusion import ScoreParts
from vocable.options import AnswerOptions, Pruning, check, select

MAX_TERM_WEIGHT = 1e6
MAX_ID = 1024  # characters
R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)
Id: TypeAlias = Annotated[str, Field(max_length=MAX_ID)]
Ids: TypeAlias = Annotated[list[Id], Field(min_length=1)]


class JSONBody(BaseModel):
    """A body of JSON; an unknown key is refused, and so is a value of another type, as true for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_json(cls, body: Any) -> Any:
        """Refuse values that Python reads although they are not JSON: lone surrogates, NaN, Infinity."""
        try:
            json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        return body

    def options(self, record: type[R], **others: object) -> R:
        """Return the options of a record as the request has them, checked and complete; `others` replace some."""
        given: Any = select(record, {name: value for name, value in self if value is not None})
        return check(record, {**given, **others})


def with_options(record: Any) -> Callable[[type[T]], type[T]]:
    """Decorate a request to have the options of a record as further keys, which may be null; its own keys stay."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        description = next(part.documentation for part in get_args(hint) if isinstance(part, Doc))
        fields[name] = hint | None, Field(default=None, description=description)

    def extended(request: type[T]) -> type[T]:
        further = {name: field for name, field in fields.items() if name not in request.model_fields}
        return create_model(
            request.__name__, __base__=request, __module__=request.__module__, __doc__=request.__doc__, **further
        )

    return extended


def fault(error: Mapping[str, Any], outer: int = 0) -> str:
    """Return a fault that pydantic found in one line; the first `outer` parts of its place are left out."""
    where = ".".join(map(str, error["loc"][outer:] or error["loc"][:1]))
    return described(where, error)[:500]


class ErrorAnswer(BaseModel):
    """An error in one line."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation"]


class SparseValue(BaseModel):
    """A term of a vector by its column, and its weight."""

    model_config = ConfigDict(strict=True)

    index: int = Field(ge=0, lt=2**31)
    value: float = Field(gt=0, le=MAX_TERM_WEIGHT, allow_inf_nan=False)


class EmbedSparseRequest(JSONBody):
    """The request of text-embeddings-inference; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    inputs: str | list[str] = Field(description="A text, or several.")
    truncate: bool | None = Field(default=False, description="Truncate long texts; else they are refused.")
    prompt_name: str | None = Field(
        default=None, description="query or document, to encode as such, or another prompt of the model."
    )
    truncation_direction: Literal["Right", "Left", "right", "left"] = Field(
        default="right", description="The end that is cut off."
    )


@with_options(AnswerOptions)
class SearchRequest(JSONBody):
    """A text, its vector, or both: then the vector is searched, and the text is used where a text is needed."""

    query: str | None = Field(default=None, description="A question or keywords.")
    vector: list[SparseValue] | None = Field(default=None, description="The vector, if the text is not to be encoded.")
    k: int = Field(default=10, ge=1, description="Number of hits to return, best first.")
    explain: bool = Field(default=False, description="Return the terms that made the score of each hit.")
    sections: bool = Field(
        default=True, description="false: the answer also has `pages`, the hits by page of a folder."
    )
    rerank: bool | None = Field(
        default=None, description="Rerank with the cross encoder of the service; by default if it has one."
    )


class ExplainRequest(JSONBody):
    """A query and a text, or a query and a document of the index; with neither, the query's own terms are returned."""

    query: str = Field(description="A question or keywords, as in a search.")
    document: str | None = Field(
        default=None, description="A text of your own, its title first, to score in place of `id`."
    )
    id: Id | None = Field(
        default=None,
        description="Id of a document in the index, as a search returns it; its parts are those of a search.",
    )
    k: int = Field(default=20, ge=1, lt=2**31, description="Number of terms to return of a query that is alone.")


@with_options(Pruning)
class ViewRequest(JSONBody):
    """A query, or a document in its place, and the rankings to show for it."""

    query: str = ""
    like: Id | None = Field(default=None, description="Id of a document, as in a search: words have no part.")
    k: int = Field(default=10, ge=1, le=50, description="Documents of each ranking.")
    show: list[str] = Field(
        default=["sparse"],
        max_length=8,
        description="Rankings: sparse, bm25, dense, hybrid, if the index has them; reranked, if the service reranks.",
    )
    filter: str | None = Field(default=None, description="As in a search.")
    plain: bool = Field(default=False, description="As in a search.")


class WrittenDocument(JSONBody):
    """A document as it is written and read."""

    id: Id = Field(description="Needs a visible character; no tab or line end.")
    text: str = Field(description="Text or title need a visible character.")
    title: str = ""
    fields: dict[str, JsonValue] = {}

    def document(self) -> Document:
        """Return the document as a record."""
        return Document(self.id, self.text, self.title, self.fields)


class FoundDocument(WrittenDocument):
    """A hit; of several kinds of vectors its score is fused, and the explanation explains the model's own score."""

    model_config = ConfigDict(strict=False)  # the records of an answer have tuples

    rank: int
    score: float
    first_score: float | None = Field(default=None, description="The score before a reranking.")
    parts: ScoreParts | None = Field(default=None, description="The parts of the score, by kind of vectors.")
    explanation: Explanation | None = None
    passage: Passage | None = Field(default=None, description="The best passage, in an index of passages.")
    snippet: Snippet = Field(description="The part of the text with most of the query's words, and their places.")
    copies: list[Id] = Field(default=[], description="Ids of lower hits with the same title and text.")
    group: str | None = Field(default=None, description="The file of the page that the document is a section of.")
    sections: list[FurtherSection] = Field(default=[], description="Of an entry of `pages`: further hits of its page.")

    def hit(self) -> Hit:
        """Return the hit as a record."""
        return Hit(
            rank=self.rank,
            score=self.score,
            document=self.document(),
            explanation=self.explanation,
            passage=self.passage,
            snippet=self.snippet,
            first_score=self.first_score,
            parts=self.parts,
            copies=tuple(self.copies),
            sections=tuple(self.sections),
        )


class SearchAnswer(BaseModel):
    """The hits, best first."""

    hits: list[FoundDocument]
    suggestion: str | None = Field(default=None, description="The query with words that no document has replaced.")
    missing: str | None = Field(default=None, description="The part of the index that was not searched, in words.")
    note: str | None = Field(default=None, description="The words of the query that no document has, in a sentence.")
    facets: list[Facet] = Field(default=[], description="Counts of fields' values among the best hits.")
    weights: dict[str, float] | None = Field(default=None, description="Weights of the kinds of vectors searched.")
    pages: list[FoundDocument] = Field(
        default=[], description="With `sections` false: the best hit of each page of a folder, with further sections."
    )
    reranked: int | None = Field(default=None, description="Hits that a cross encoder scored.")
    rerank_ms: float | None = Field(default=None, description="Milliseconds of the reranking.")

    def answer(self, query: Query) -> Answer:
        """Return the answer to a query as a record."""
        hits, pages = (tuple(document.hit() for document in listed) for listed in (self.hits, self.pages))
        return Answer(
            query=query,
            hits=hits,
            suggestion=self.suggestion,
            missing=self.missing,
            note=self.note,
            facets=tuple(self.facets),
            weights=self.weights,
            pages=pages,
            reranked=self.reranked,
            rerank_ms=self.rerank_ms,
        )


class DocumentsRequest(JSONBody):
    """Documents to write."""

    documents: list[WrittenDocument] = Field(min_length=1)


class Info(BaseModel):
    """The index and the limits of the service, with the keys of text-embeddings-inference."""

    title: str = Field(description="Heading of the page: by default the name of the index.")
    model_id: str
    model_sha: str | None = None
    model_dtype: str
    model_type: dict[str, dict[str, str]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool = False
    tokenization_workers: int = 1
    version: str
    documents: int | None = Field(description="Null while the server of the index cannot count them.")
    spaces: list[str]
    weights: dict[str, float] = Field(description="Weights of a search.")
    can_change: bool
    wacky: bool = Field(description="The wacky terms are known.")
    rerank: str | None = Field(description="The cross encoder that reranks.")
    compare_with: str | None = Field(description="The model of a second index, which answers under /compare-with.")


class Ready(BaseModel):
    """The state of the service."""

    status: Literal["ok"]
    missing: str | None = Field(default=None, description="What searches leave out, opened with partial=true.")
