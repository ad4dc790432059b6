"""What requests and answers look like: the source of the OpenAPI description."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

LARGEST_WEIGHT = 1e6
MOST_FILTER = 4096  # characters
LONGEST_ID = 1024  # characters

# Said again of `vocable.search`, as are its records below: a client needs no more than pydantic and httpx.
Fusion: TypeAlias = Literal["weighted", "reciprocal-rank"]


class Request(BaseModel):
    """A body of JSON; a key that is not known is refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _can_be_written(cls, given: Any) -> Any:
        """Refuse what Python reads as JSON, but is none: half of a character, NaN, Infinity."""
        try:
            json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        return given


class Error(BaseModel):
    """What is wrong, in one line."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation"]


class OpenAIError(BaseModel):
    """What is wrong, as clients of OpenAI's interface expect it."""

    error: dict[str, str | None]


class SparseValue(BaseModel):
    """One term of a vector by its column, and its weight."""

    index: int = Field(ge=0, lt=2**31)
    value: float = Field(gt=0, le=LARGEST_WEIGHT, allow_inf_nan=False)


class EmbedSparseRequest(Request):
    """As text-embeddings-inference takes it: keys that are not known are passed over."""

    model_config = ConfigDict(extra="ignore")

    inputs: str | list[str] = Field(description="A text, or several.")
    truncate: bool | None = Field(default=False, description="Cut texts that are too long; else they are refused.")
    truncation_direction: Literal["Right", "Left", "right", "left"] = Field(
        default="right", description="Which end is cut off."
    )
    prompt_name: str | None = Field(
        default=None, description="query or document, to encode as such, or another prompt that the model has."
    )


class SearchRequest(Request):
    """A text, its vector, or both: then the vector is searched with, and the text for what else needs one."""

    query: str | None = Field(default=None, description="The text.")
    vector: list[SparseValue] | None = Field(default=None, description="In place of what the model makes of the text.")
    k: int = Field(default=10, ge=1, description="Results.")
    filter: str | None = Field(default=None, max_length=MOST_FILTER, description="Such as lang=de and year>=2020.")
    hybrid: bool = Field(default=False, description="Fuse with BM25 and dense vectors, as far as there are any.")
    weights: dict[str, float] | None = Field(default=None, description="Fuse these, as sparse, bm25 and dense, so.")
    fusion: Fusion = Field(default="weighted", description="Add up scores scaled to 0 to 1, or reciprocals of ranks.")
    explain: bool = Field(default=False, description="Say of each hit which terms made its score.")
    max_terms: int | None = Field(default=None, ge=1, lt=2**31, description="Keep only so many terms of the query.")
    min_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Drop terms lighter than this.")


class MatchedTerm(BaseModel):
    """A term that query and document share."""

    term: str
    query_weight: float
    document_weight: float
    contribution: float
    share: float
    in_query: bool
    in_document: bool
    wacky: bool | None = None


class Explanation(BaseModel):
    """A score and the terms that made it, the weightiest first."""

    score: float
    matches: list[MatchedTerm]


class Document(Request):
    """A text to be found, with what else is known of it."""

    id: str = Field(max_length=LONGEST_ID, description="With a visible character, without tab and line end.")
    text: str = Field(description="Where it has no visible character, the title has one.")
    title: str = ""
    fields: dict[str, JsonValue] = {}


class Passage(BaseModel):
    """Characters `start` to `end` of a document's text."""

    start: int
    end: int
    text: str


class Hit(Document):
    """A document that was found; of a hybrid search the score is fused, and the explanation of the model's own."""

    rank: int
    score: float
    explanation: Explanation | None = None
    passage: Passage | None = Field(default=None, description="The best one, of an index of passages.")


class SearchAnswer(BaseModel):
    """The hits, best first."""

    hits: list[Hit]


class ExplainRequest(Request):
    """A query, and what it is compared with: a text, or a document of the index. With neither, the query's terms."""

    query: str
    document: str | None = Field(default=None, description="A text, title and all.")
    id: str | None = Field(default=None, max_length=LONGEST_ID, description="Of a document in the index.")
    k: int = Field(default=20, ge=1, lt=2**31, description="Terms of a query alone.")


class ExpansionTerm(BaseModel):
    """A term of a query's vector."""

    term: str
    weight: float
    in_text: bool
    wacky: bool | None = None


class Expansion(BaseModel):
    """The heaviest terms of a query's vector, and how many it has."""

    active: int
    terms: list[ExpansionTerm]


class ViewRequest(Request):
    """A query, and what of it is to be seen."""

    query: str
    k: int = Field(default=10, ge=1, le=50, description="Documents of each ranking.")
    show: list[str] = Field(
        default=["sparse"],
        max_length=8,
        description="Rankings: sparse, bm25, dense, hybrid, as there are.",
    )
    filter: str | None = Field(default=None, max_length=MOST_FILTER, description="As of a search.")
    max_terms: int | None = Field(default=None, ge=1, lt=2**31, description="Keep only so many terms of the query.")
    min_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Drop terms lighter than this.")


class QueryTerm(ExpansionTerm):
    """A term of a query's vector, and whether it is searched with."""

    kept: bool


class Piece(BaseModel):
    """A part of a text; one that is a matching term has its name, and where the query has it from."""

    text: str
    term: str | None = None
    kind: Literal["text", "expansion", "wacky"] | None = None


class ViewedMatch(BaseModel):
    """A term that query and document share."""

    term: str
    kind: Literal["text", "expansion", "wacky"]
    share: float
    in_document: bool
    query_weight: float
    document_weight: float


class ViewedDocument(BaseModel):
    """A document, its ranks and scores by ranking, its sparse score, and the weightiest of its `shared` terms.

    The text is `cut` if there is more of it, as around the best passage.
    """

    id: str
    title: list[Piece]
    text: list[Piece]
    cut: bool
    fields: dict[str, JsonValue]
    matches: list[ViewedMatch]
    sparse: float
    shared: int
    ranks: dict[str, int]
    scores: dict[str, float]


class Cost(BaseModel):
    """What a search with the query's vector took; `postings` only where the index can count them."""

    terms: int
    postings: int | None
    milliseconds: float


class View(BaseModel):
    """A query's heaviest terms, what its searches cost, and the documents of all rankings that are shown."""

    active: int
    kept: int
    terms: list[QueryTerm]
    rankings: list[str]
    costs: dict[str, Cost]
    documents: list[ViewedDocument]


class TermDocument(BaseModel):
    """A document, and how much a term weighs in it."""

    id: str
    title: str
    weight: float


class Postings(BaseModel):
    """How many `documents` (or `more`) of how many have a term; `counts` of the heaviest `weighed` up to `largest`."""

    term: str
    documents: int
    of: int
    more: bool
    weighed: int
    largest: float
    counts: list[int]
    heaviest: list[TermDocument]


class DocumentsRequest(Request):
    """Documents to write."""

    documents: list[Document] = Field(min_length=1)


class Changed(BaseModel):
    """How many documents were added, replaced, left as they were or deleted, and how many there are now."""

    added: int
    replaced: int
    unchanged: int
    deleted: int
    documents: int


class Info(BaseModel):
    """What is served: the keys of text-embeddings-inference, and those of the index."""

    model_id: str
    model_sha: str | None = None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool = False
    tokenization_workers: int = 1
    version: str
    documents: int
    spaces: list[str]
    can_change: bool
    wacky: bool = Field(description="Whether it is known which terms are wacky.")
    beside: str | None = Field(description="The model of a second index, which answers under /beside.")


class Ready(BaseModel):
    """The state of the service."""

    status: Literal["ok", "stopping"]


Ids = Annotated[list[Annotated[str, Field(max_length=LONGEST_ID)]], Field(min_length=1)]
