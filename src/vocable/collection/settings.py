"""The settings of a collection."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vocable.core.records import WrongRecordError, as_record
from vocable.core.storage import ANOTHER_VERSION
from vocable.encoding.stream import StreamProgress
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import FingerprintParts, VectorsMeta
from vocable.engines.protocols import Space
from vocable.errors import VectorsError
from vocable.language.languages import ENGLISH
from vocable.options import DocumentEncoding, check

SPAN_FIELD = "\tplace in the text"  # field of each stored passage: start, end, number of passages


# Settings that follow the documents; a build begins with all other settings.
STATE = frozenset({"progress", "stored", "whole", "mean_length", "fields", "weights", "source"})


@dataclass(frozen=True)
class CollectionSettings:
    """The settings of a collection, which its store keeps."""

    engine: str
    model: str
    source: str
    meta: VectorsMeta  # record of the vectors, with the fingerprint of their model; of several indexes, size 0 for none
    limits: DocumentEncoding
    bm25: bool
    language: str = field(default=ENGLISH, kw_only=True)  # language of the words
    dense: str | None  # model of the dense vectors
    dense_fingerprint: FingerprintParts | None  # None if the sparse model gives both vectors in one pass
    inputs: str  # fingerprint of the corpus
    vectors: str = ""  # fingerprint of the stored vectors that it was made of
    engine_options: dict[str, object] = field(default_factory=dict)
    title_weight: int = 1  # how often a title's words count for BM25
    base_url: str | None = None  # web address of a corpus that is a folder
    all_pages: bool = False  # a folder's pages include lists that generators made
    code: bool = False  # the documents of a folder include source code
    progress: StreamProgress = field(default_factory=StreamProgress)  # progress of the build
    stored: bool = False  # all documents are there, with their words; vectors may be missing
    whole: bool = False  # the build is complete
    mean_length: float | None = None  # length in words that BM25's weights on a server use
    fields: list[str] | None = None  # names of the documents' fields; None if there are too many
    weights: dict[Space, float] | None = None  # weights of searches, chosen by queries; None for equal weights

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The spaces of the documents' vectors."""
        return (*["sparse"] * bool(self.meta.size), *["bm25"] * self.bm25, *["dense"] * (self.dense is not None))


def check_settings(settings: dict[str, object], place: str) -> CollectionSettings:
    """Return the settings of a store as a record; `VectorsError` if they are not the settings of a collection."""
    try:
        checked = as_record(settings, CollectionSettings)
    except WrongRecordError as error:
        if error.keys:
            raise VectorsError(f"{place}: {ANOTHER_VERSION} (settings: {error})") from error
        raise VectorsError(f"{place}: the index is damaged: its settings: {error}") from error
    checked = replace(checked, limits=check(DocumentEncoding, checked.limits))
    in_passages = checked.limits["long_documents"] == "passages"
    if checked.whole and checked.fields is not None and (SPAN_FIELD in checked.fields) != in_passages:
        raise VectorsError(f"{place}: the index is damaged: its settings: limits.long_documents: not of its documents")
    return checked


def of_one_text(limits: DocumentEncoding) -> DocumentEncoding:
    """Return the encoding of each text of a collection: a passage is never cut into windows."""
    return {**limits, "long_documents": "truncate"} if limits["long_documents"] == "passages" else limits


def of_vocabulary(encoder: TextEncoder, meta: VectorsMeta, model: str) -> TextEncoder:
    """Return the encoder of a collection; `VectorsError` if its vocabulary differs from the collection's."""
    if meta.vocabulary != encoder.model.vocabulary:
        raise VectorsError(f"the vocabulary of {model} is not the one that the index was made with")
    return encoder
