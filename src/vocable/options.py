"""Arguments and their allowed values, defined only in the type hints.

`Annotated[int, Ge(1)]` is a whole number of at least 1, `Literal["a", "b"]` the word a or b. `@checked` applies the
hints of a function to its arguments; the command line reads the same hints.

Options that several verbs share are fields of a record, taken as `**options: Unpack[Encoding]`. Callers write plain
keywords, and the function reads `options["mass"]`: `@checked` and `check` add the defaults, which stand in the hints,
too. A function in `RECORD_RULES` refuses combinations; it gets the options that differ from their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le
from typing_extensions import Doc, TypedDict

from vocable.core.hints import Values, goes_with
from vocable.errors import ArgumentError, naming_extra

P = ParamSpec("P")
T = TypeVar("T")


class Default(NamedTuple):
    """Metadata of a field: its default. Without it, None is the default where the hint allows None, False of a flag."""

    value: Any


Count: TypeAlias = Annotated[int, Ge(1)]
CountOrZero: TypeAlias = Annotated[int, Ge(0)]
Share: TypeAlias = Annotated[float, Gt(0), Le(1)]
WACKY_SHARE = 0.1  # our choice: the score orders terms, but has no threshold above which a term is wacky
WackyShare: TypeAlias = Annotated[
    float, Gt(0), Le(1), Default(WACKY_SHARE), Doc("Share of the scored terms that is wacky.")
]
IdfPower: TypeAlias = Annotated[float | None, Ge(0), Le(10)]  # IDFs are below 20: weights stay finite
FeedbackHits: TypeAlias = Annotated[
    int, Ge(0), Le(100), Default(0), Doc("Search again with the terms of this many first hits in each query; 0: once.")
]
Device: TypeAlias = Annotated[
    str | None, Doc("Device of the models, such as cpu, cuda or cuda:1; by default the best available.")
]
Runtime: TypeAlias = Literal["torch", "onnx", "openvino"]
ModelRuntime: TypeAlias = Annotated[
    Runtime | None, Doc("Library that computes the model; by default its graph on a CPU, PyTorch on a GPU.")
]
DType: TypeAlias = Literal["auto", "float32", "bfloat16"]
Activation: TypeAlias = Literal["relu", "log1p_relu"]
LongDocuments: TypeAlias = Literal["truncate", "maxpool", "passages"]
Fusion: TypeAlias = Literal["weighted", "reciprocal-rank"]
Difficulty: TypeAlias = Literal["hard", "plain"]


class Pruning(TypedDict, total=False):
    """The terms of a vector to keep."""

    max_terms: Annotated[int | None, Ge(1), Doc("Keep only the terms with the largest weights, at most this many.")]
    min_weight: Annotated[float, Ge(0), Default(0.0), Doc("Drop terms with a smaller weight.")]
    mass: Annotated[float | None, Gt(0), Le(1), Doc("Keep the fewest terms that have this share of the total weight.")]


class ModelInput(TypedDict, total=False):
    """The number type of a model, and the length of its input."""

    dtype: Annotated[
        DType, Default("auto"), Doc("Number type of the model; auto is bfloat16 where the device has it natively.")
    ]
    max_length: Annotated[int | None, Ge(1), Doc("Tokens per text; by default the model's own maximum.")]


class Backend(TypedDict, total=False):
    """The device and the library that compute a model."""

    device: Device
    runtime: ModelRuntime


class Inference(ModelInput, Backend, total=False):
    """The device, library and number type of a model, and the length of its input."""


class DocumentEncoding(ModelInput, Pruning, total=False):
    """The encoding of documents that an index keeps for later documents."""

    long_documents: Annotated[
        LongDocuments | None,
        Doc(
            "Documents beyond `max_length`: read them in windows and keep each term's largest weight (maxpool, the "
            "default of `index`), index each window (passages), or truncate them (the default of `encode`)."
        ),
    ]


class Encoding(DocumentEncoding, Backend, total=False):
    """Encoding of documents."""


class IndexOptions(Encoding, total=False):
    """Encoding of the documents of an index, their words for BM25, and the weight of their titles."""

    bm25: Annotated[bool | None, Doc("Also index the words of the documents; by default if the engine has words.")]
    title_weight: Annotated[int, Ge(1), Le(100), Default(1), Doc("With `bm25`: how often the words of a title count.")]
    language: Annotated[str | None, Doc("Language of BM25's words, as german; default english, of code english+code.")]


class QueryEncoding(Pruning, total=False):
    """Encoding of queries."""

    query_idf: Annotated[
        IdfPower, Doc("Multiply query weights by the collection's IDF to this power; default: the model's.")
    ]


class Matching(TypedDict, total=False):
    """Conditions on hits by their terms; an engine declares the conditions that it applies itself."""

    minimum_match: Annotated[float, Ge(0), Le(1), Default(0.0), Doc("Share of a query's terms that a hit must have.")]


class RerankOptions(TypedDict, total=False):
    """Reranking of the first hits by a cross encoder."""

    rerank: Annotated[str | None, Doc("Rerank the first hits by this cross encoder: a folder, or a Hub id.")]
    rerank_depth: Annotated[
        int | None, Ge(1), Doc("Hits that are reranked; default: as many of 100 as take a second, in evaluations 100.")
    ]
    rerank_batch_size: Annotated[int, Ge(1), Default(32), Doc("Hits that the cross encoder scores together.")]
    rerank_ms: Annotated[float | None, Gt(0), Doc("Milliseconds of a query's reranking; other hits follow in order.")]


class SortOptions(TypedDict, total=False):
    """The order of the best hits."""

    sort: Annotated[str | None, Doc("Sort the best hits by this field, downwards by -FIELD; hits without it are last.")]
    sort_hits: Annotated[int, Ge(1), Default(100), Doc("Best hits that are sorted, of all pages together.")]


class RankingOptions(Matching, RerankOptions, total=False):
    """Ranking of documents for encoded queries."""

    weights: Annotated[
        str | Mapping[str, float] | None,
        Doc(
            "Weights of the fused scores, such as sparse=0.5,bm25=0.3,dense=0.2, or sparse for the model alone; by "
            "default all that the index has, with equal weights or its own."
        ),
    ]
    plain: Annotated[
        bool, Doc('Search queries as they are: without, "a phrase" must occur in a hit, and -word must not.')
    ]
    fusion: Annotated[
        Fusion,
        Default("weighted"),
        Doc("Fuse scores scaled to 0 to 1 (weighted), or reciprocal ranks (reciprocal-rank)."),
    ]
    feedback: FeedbackHits
    filter: Annotated[str | None, Doc("Filter on document fields, such as 'lang=de and year>=2020' or 'file^=guide/'.")]
    idf_filter: Annotated[
        str | None,
        Doc(
            "Weigh words by their IDF among the documents that pass this filter, or among all; by default among "
            "documents that pass `filter`, if they are few."
        ),
    ]


class ListOptions(RankingOptions, SortOptions, total=False):
    """A document instead of a query, the part of a ranking to return, and its order."""

    like: Annotated[str | None, Doc("In place of queries: the id of a document, to find others like it.")]
    offset: Annotated[
        int, Ge(0), Default(0), Doc("Leave out this many of the best hits, such as the hits of earlier pages.")
    ]
    min_score: Annotated[float | None, Doc("Leave out hits with a lower score.")]


class SearchOptions(ListOptions, QueryEncoding, total=False):
    """Settings of a search."""


class AnswerOptions(SearchOptions, total=False):
    """Settings of a search and of its answers."""

    facets: Annotated[
        str | list[str] | None,
        Doc("Count the values of these fields among the best hits: lang,year; file/ for folders."),
    ]
    sections: Annotated[
        bool, Doc("List every section of a page; by default the hits of one page of a folder are one entry.")
    ]


class StandingOptions(RankingOptions, QueryEncoding, total=False):
    """Settings of a search that give a document its score and rank."""


class SelectionOptions(Inference, RerankOptions, total=False):
    """Inference of models, and a reranking and fusions that are also measured."""

    hybrid: Annotated[bool, Doc("Also measure whole vectors fused with BM25 and with dense vectors.")]


class EvaluationOptions(Inference, RerankOptions, total=False):
    """Data and conventions of an evaluation, fusions of systems, encoding, and reranking."""

    judgments: Annotated[
        str | PathLike[str] | None,
        Doc("In place of a dataset: source of the judgments, such as a qrels file of TREC or BEIR; enough for runs."),
    ]
    queries: Annotated[
        str | PathLike[str] | None,
        Doc("With `judgments`: source of the queries, such as TREC topics; enough for an index."),
    ]
    corpus: Annotated[str | PathLike[str] | None, Doc("With `judgments` and `queries`: source of the documents.")]
    language: Annotated[str, Default("english"), Doc("Language of BM25's words, such as german or de, or none.")]
    hybrid: Annotated[bool, Doc("Also evaluate systems fused with BM25, and the spaces of an index with each other.")]
    weights: Annotated[str | Mapping[str, float] | None, Doc("Weights of an index's kinds: sparse=0.5,bm25=0.5.")]
    feedback: FeedbackHits
    folds: Annotated[
        int | None, Ge(2), Doc("With `hybrid`: also tune the fusion weights of an index, in a cross-validation.")
    ]
    keep_weights: Annotated[bool, Doc("With `folds`: make tuned weights that gain over equal ones the index's own.")]
    long_documents: Annotated[
        Literal["truncate", "maxpool"],
        Default("truncate"),
        Doc("Documents beyond `max_length`: truncate, or read in windows and keep each term's largest weight."),
    ]
    query_idf: Annotated[
        IdfPower, Doc("Multiply query weights by the dataset's IDF to this power; default: the model's.")
    ]
    convention: Annotated[
        Literal["trec_eval", "beir"] | None,
        Doc("trec_eval counts every hit, beir drops the query's own id; by default beir for BEIR's collections."),
    ]
    ties: Annotated[
        Literal["search", "trec_eval"] | None,
        Doc("Order of equal scores: by id as in a search (the default), or as in trec_eval by descending id."),
    ]


class TestsetOptions(TypedDict, total=False):
    """Content of a test set made from a log; the defaults are the paper's if it states any."""

    queries: Annotated[int, Ge(1), Default(900), Doc("Number of queries, at most.")]
    clusters: Annotated[
        int, Ge(2), Default(100), Doc("Clusters of similar queries, from which queries are drawn evenly.")
    ]
    difficulty: Annotated[
        Difficulty, Default("hard"), Doc("hard: three levels of overlap and hard negatives; plain: neither.")
    ]
    positives: Annotated[int | None, Ge(1), Default(3), Doc("Positives of a hard test set per query, at most.")]
    negatives: Annotated[int, Ge(1), Default(10), Doc("Hard negatives per query, at most.")]
    min_overlap: Annotated[float, Gt(0), Le(1), Default(0.5), Doc("Least share of a query's words in a hard negative.")]
    distractors: Annotated[int, Ge(0), Default(0), Doc("Further queries of each cluster whose documents are added.")]


def _check_evaluation(options: Mapping[str, object]) -> None:
    goes_with("hybrid", "folds")(options)
    goes_with("folds", "keep_weights")(options)
    if "judgments" not in options and options.keys() & {"queries", "corpus"}:
        raise ArgumentError("`queries` and `corpus` need `judgments`: a dataset has its own")


RECORD_RULES: dict[Any, Callable[[Mapping[str, object]], None]] = {
    EvaluationOptions: _check_evaluation,
    RerankOptions: goes_with("rerank", "rerank_depth", "rerank_batch_size", "rerank_ms"),
    SortOptions: goes_with("sort", "sort_hits"),
}


@cache
def values_of(target: object) -> dict[str, Values]:
    """Return the allowed values of a function's arguments, or of a class's fields, whose hints are checked.

    They include the options of a function's `**options: Unpack[RECORD]`.

    >>> values_of(Pruning)["mass"].short
    '> 0, ≤ 1'
    """
    checked_values: dict[str, Values] = {}
    for name, hint in _hints(target).items():
        if record := record_of(hint):
            checked_values |= values_of(record)
        elif values := Values.of(hint):
            checked_values[name] = values
    return checked_values


@cache
def _hints(target: object) -> dict[str, object]:
    unknown: dict[str, object] = {}
    while True:
        try:
            return get_type_hints(target, localns=unknown, include_extras=True)
        except NameError as error:  # a name that is imported for type checkers only
            unknown[str(error.name)] = Any


def record_of(hint: object) -> Any:
    """Return the record of a hint `Unpack[RECORD]`; None for any other hint."""
    return get_args(hint)[0] if get_origin(hint) is Unpack else None


@cache
def _parameters(function: Callable[..., object]) -> tuple[list[str], set[str], Any]:
    """Return the names of the positional parameters, of all parameters, and the record of the other options."""
    parameters = signature(function).parameters.values()
    kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    positional = [parameter.name for parameter in parameters if parameter.kind in kinds]
    named = {parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD}
    record = next(filter(None, map(record_of, _hints(function).values())), None)
    return positional, named, record


def check_arguments(function: Callable[..., object], values: Mapping[str, object]) -> dict[str, object]:
    """Check arguments of a function by its type hints, and return them by name, with Python's numbers for NumPy's.

    The options of a record are completed as by `check`, which raises the errors. Other arguments may be missing.
    """
    _, named, record = _parameters(function)
    if record is not None:
        values = {**values, **check(record, {name: value for name, value in values.items() if name not in named})}
    return _checked_values(function, values)


def _checked_values(target: object, values: Mapping[str, object]) -> dict[str, object]:
    allowed = values_of(target)
    return {name: allowed[name].check(name, value) if name in allowed else value for name, value in values.items()}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to check its arguments by its type hints when it is called.

    >>> @checked
    ... def draw(seed: CountOrZero = 0, k: Count | None = None) -> None: ...
    >>> draw(seed=-1)
    Traceback (most recent call last):
    vocable.errors.ArgumentError: seed must be at least 0, not -1
    """

    plain: Callable[..., T] = function

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        first = _checked_values(function, dict(zip(_parameters(function)[0], given, strict=False)))
        with naming_extra():
            return plain(*first.values(), *given[len(first) :], **check_arguments(function, named))

    return call


def check_fields(settings: object) -> None:
    """Raise `ArgumentError` for a field of a dataclass whose type hint does not allow its value."""
    for name, allowed in values_of(cast(Any, type(settings))).items():
        allowed.check(name, getattr(settings, name))


@cache
def defaults(record: object) -> Mapping[str, Any]:
    """Return the defaults of a record's fields, as far as the fields have one.

    >>> dict(defaults(Pruning))
    {'max_terms': None, 'min_weight': 0.0, 'mass': None}
    """
    values = {name: default_of(hint) for name, hint in _hints(record).items()}
    return MappingProxyType({name: value for name, value in values.items() if value is not Parameter.empty})


def default_of(hint: object) -> Any:
    """Return the default that a type hint declares or implies; `Parameter.empty` without one."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    declared = (part.value for part in getattr(hint, "__metadata__", ()) if isinstance(part, Default))
    return next(declared, None if NoneType in get_args(kind) else False if kind is bool else Parameter.empty)


def check(record: type[T], options: Mapping[str, object]) -> T:
    """Check the options of a record, and return them with its defaults, and with Python's numbers for NumPy's.

    A record in which a field lacks a default is returned as it is.

    Raises `ArgumentError` for an unknown option, a value out of its limits or not among the words, or a combination
    that a rule of the record, or of a record that it extends, refuses.

    >>> check(Pruning, {"max_terms": 8})
    {'max_terms': 8, 'min_weight': 0.0, 'mass': None}
    >>> check(Pruning, {"max_terms": 0})
    Traceback (most recent call last):
    vocable.errors.ArgumentError: max_terms must be at least 1, not 0
    """
    hashable = cast(Any, record)
    known, usual = _hints(hashable), defaults(hashable)
    if unknown := next((name for name in options if name not in known), None):
        near = get_close_matches(unknown, known, 1)
        raise ArgumentError(f"{unknown}: no such option" + (f"; did you mean {near[0]}" if near else ""))
    values = _checked_values(record, options)
    for extended in _extended(record):
        if extended in RECORD_RULES:
            RECORD_RULES[extended](changed(record, values))
    return cast(T, {**usual, **values} if usual.keys() == known.keys() else values)


def changed(record: Any, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that differ from the defaults of a record.

    >>> changed(Pruning, {"max_terms": 8, "mass": None})
    {'max_terms': 8}
    """
    usual = defaults(record)
    return {name: value for name, value in options.items() if not _equal(value, usual.get(name))}


def _equal(value: object, default: object) -> bool:
    return value is default or (default is not None and value == default)  # a value may be an array, which has no truth


def _extended(record: object) -> list[object]:
    """Return a record and the records that it extends."""
    return [record, *(inner for base in getattr(record, "__orig_bases__", ()) for inner in _extended(base))]


def select(record: type[T], options: Mapping[str, object]) -> T:
    """Return the options that a record has.

    >>> select(Pruning, {"max_terms": 3, "hybrid": True})
    {'max_terms': 3}
    """
    return cast(T, {name: value for name, value in options.items() if name in _hints(cast(Any, record))})
