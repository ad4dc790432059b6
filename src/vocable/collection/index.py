"""The verb `index`: documents of any source, encoded and searchable, in memory, in a folder or on a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from os import PathLike, fspath
from os.path import abspath
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from vocable.collection.collection import Collection
from vocable.collection.copies import content_of
from vocable.collection.making import Making
from vocable.collection.settings import CollectionSettings, of_one_text
from vocable.collection.writer import DocumentParts
from vocable.core.fingerprint import fingerprint
from vocable.core.folders import files_of
from vocable.core.hints import goes_with
from vocable.core.progress import track
from vocable.data import BadLines, Document, read_corpus
from vocable.data.texts import Documents, as_documents
from vocable.encoding.dense_models import dense_beside, dense_fingerprint, load_dense
from vocable.encoding.hub import check_length
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, is_model, model_name
from vocable.encoding.protocol import EncodedTexts, EncodingModel
from vocable.encoding.pruning import prune
from vocable.encoding.stream import in_parts
from vocable.encoding.text_encoder import TextEncoder, describe
from vocable.encoding.vectors import (
    Sources,
    StoredRows,
    StoredVectors,
    VectorsMeta,
    holds_vectors,
    places_of,
    read_shards,
)
from vocable.engines.base import Store
from vocable.engines.hashed_words import mean_length
from vocable.engines.memory import IN_MEMORY, MemoryStore
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError, VectorsError
from vocable.language.languages import CODE, ENGLISH, language_of
from vocable.options import (
    CountOrZero,
    DocumentEncoding,
    IndexOptions,
    LongDocuments,
    Pruning,
    changed,
    checked,
    select,
)

MOST_HELD = 100_000  # sections of a folder in memory (some 300 MB), so that they are counted and read in one pass
VECTORS_PART = 8_192  # documents with stored vectors in one commit of a folder
CODE_WORDS = f"{ENGLISH}+{CODE}"  # identifiers are also counted by their parts
WORDS_PART = 4_096  # documents whose words are counted in one commit of a folder


@checked
def index(
    model: Model | Sources,
    corpus: str | PathLike[str] | Documents,
    output: str | PathLike[str] | None = None,
    *,
    dense: str | None = None,
    no_dense: bool = False,
    engine_options: str | dict[str, object] | None = None,
    base_url: str | None = None,
    all_pages: bool = False,
    code: bool | None = None,
    replace: bool = False,
    keep_old: bool = False,
    skip_bad: CountOrZero = 0,
    **options: Unpack[IndexOptions],
) -> Collection:
    """Encode documents and make them searchable.

    In a folder, documents are found by their words after seconds, and by their vectors as these are computed. An
    interrupted run resumes when repeated.

    Args:
        model: vocable-mini, a folder, a Hub id, or the document vectors of `vocable encode`; in Python also a model
            from `vocable.load`, or several shards.
        corpus: a file, a folder, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or - (stdin); in Python also texts,
            `Document`s or dicts with the fields id, text and title.
        output: a folder, or an engine and its address, such as qdrant+http://host:6333/name (docs/search.md). In
            Python, an index without an output is in memory.
        dense: also encode with this model: vocable-mini-dense, a dense graph of `vocable
            export-model`, or a model of sentence-transformers. By default the dense vectors that `model` itself gives
            in the same pass, or vocable-mini-dense for a model with its tokens, such as a tuned vocable-mini
            (vocable-mini-doc looks up dense queries, too).
        no_dense: leave out dense vectors.
        engine_options: options of the engine, such as weight_bits=8 of a folder (docs/engines.md).
        base_url: web address of a corpus that is a folder: documents get the field url, also in `vocable add`.
        all_pages: also read pages of a folder that generators made of other pages, such as indexes; `vocable add` does
            the same.
        code: also read source code in a folder, and generated code with `all_pages`; by default where there is at
            least as much code as pages.
        replace: on a server: build a new index while searches use the old, then swap them.
        keep_old: with `replace`, keep the old index: `vocable alias` moves searches back to it.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: encoding of the documents, their words for BM25, and the weight of their titles
            (`vocable.options.IndexOptions`), also for `add`.

    Raises:
        ArgumentError: an argument is out of range, there are no documents, or `output` is something else.
        DataError: the corpus cannot be read.
        ModelError: the model does not exist.
        UnavailableError: a server stays busy or out of reach; the same call resumes.
        VectorsError: stored vectors are damaged, or belong to another corpus.
    """
    # Whether the arguments go together, before a document is read.
    engine, address = (MemoryStore, "") if output is None else engine_of(output)
    if engine is MemoryStore and output is not None:
        raise ArgumentError(f"{fspath(output)}: an index in memory takes no output")
    encoding = select(DocumentEncoding, options)
    bm25 = "bm25" in engine.about.spaces if options["bm25"] is None else options["bm25"]
    if keep_old and not (replace and getattr(engine, "pins", False)):
        has_none = f": the {engine.about.engine} engine has none, index to another place" if replace else ""
        raise ArgumentError(f"keep_old is for `replace` on a server with aliases{has_none}")
    _check(engine, address, options, encoding, bm25=bm25, dense=dense, no_dense=no_dense, replace=replace)

    # The documents, and their vectors: stored, or to be encoded.
    given = _Given.of(corpus, base_url, all_pages, code, BadLines(skip_bad), count_later=engine.about.words_first)
    device, runtime = options["device"], options["runtime"]
    if not is_model(model) and holds_vectors(model):
        size = VECTORS_PART if engine.about.words_first else engine.about.part
        corpus_parts = _stored_corpus(model, given.documents, encoding, given.source, size)
    elif is_model(model) or isinstance(model, str | PathLike):
        size = WORDS_PART if engine.about.words_first else engine.about.part
        corpus_parts = _corpus_to_encode(model, given.documents, encoding, size, device, runtime)
    else:
        raise VectorsError(f"{', '.join(map(str, model))}: not all of these are stored vectors")
    encoding["long_documents"] = corpus_parts.long_documents  # chosen for the model: added documents are read so, too

    # Dense vectors: of the model named, of the built-in one, or of the sparse model's own pass.
    holds_dense = "dense" in engine.about.spaces and not no_dense
    if dense is None and corpus_parts.loaded is not None and holds_dense:
        dense = dense_beside(corpus_parts.loaded)
    dense_model = None if dense is None else load_dense(dense, device, sparse=corpus_parts.model)
    dimensions = corpus_parts.dimensions if dense is None and holds_dense else None  # of the model's own

    # The settings, by which a repeated call resumes or refuses.
    settings = CollectionSettings(
        engine=engine.about.engine,
        engine_options=engine.parse_options(engine_options),
        model=corpus_parts.model,
        meta=corpus_parts.meta,
        vectors=corpus_parts.vectors,
        source=given.source,
        base_url=base_url,
        all_pages=all_pages,
        code=given.has_code,
        inputs=given.inputs,
        bm25=bm25,
        title_weight=options["title_weight"],
        language=language_of(options["language"] or (CODE_WORDS if given.has_code else ENGLISH)).name,
        dense=corpus_parts.model if dimensions else dense,
        dense_fingerprint=None if dense_model is None else dense_fingerprint(dense_model),
        limits=encoding,
        fields=[],
    )
    making = Making(
        engine=engine,
        output=IN_MEMORY if output is None else output,
        settings=settings,
        model=corpus_parts.loaded,
        dense_model=dense_model,
        dimensions=dimensions,
        device=device,
        total=given.total,
        keep_old=keep_old,
        reread=given.reread,
    )
    # A server needs the mean length before the first vector, so a second reading counts it. A folder counts its words
    # by itself; words of passages overlap, so their mean length is not the documents'.
    in_passages = encoding["long_documents"] == "passages"
    if bm25 and not engine.about.words_first and not in_passages and given.reread is not None:
        making.mean_length = partial(mean_length, given.reread, settings.title_weight, settings.language)
    collection = making.replace(address, corpus_parts.parts) if replace else making.make(address, corpus_parts.parts)
    collection.built = collection.making_counts()._replace(
        bad_lines=given.bad.count,
        first_bad=given.bad.first or "",
        repeated=given.bad.repeated,
        copies=given.copies.total() - len(given.copies),
    )
    return collection


@dataclass
class _Given:
    """Documents to index, with the name of their `source` and the fingerprint of their content.

    `total` is the number of documents, if it is known; `copies` counts contents by their hashes. `reread` reads the
    documents once more; None for a stream. `has_code` says that a folder's source code is read.
    """

    documents: Iterable[Document]
    source: str
    inputs: str
    bad: BadLines
    total: int | None = None
    reread: Callable[[], Iterable[Document]] | None = None
    copies: Counter[int] = field(default_factory=Counter)
    has_code: bool = False

    @classmethod
    def of(
        cls,
        corpus: object,
        base_url: str | None,
        all_pages: bool,
        code: bool | None,
        bad: BadLines,
        *,
        count_later: bool,
    ) -> _Given:
        """Return a corpus as it is given; with `count_later`, a large folder is not read twice for its number."""
        source = fspath(corpus) if isinstance(corpus, str | PathLike) else None
        if source is not None and Path(source).is_dir():
            return cls._of_folder(source, base_url, all_pages, code, bad, count_later=count_later)
        for option, value in (("all_pages", all_pages or None), ("code", code), ("base_url", base_url)):
            if value is not None:
                raise ArgumentError(f"{option} is for the pages of a folder, which {source or 'a list'} is not")
        if source is None:
            documents = as_documents(corpus, "corpus", texts=True)
            return cls(documents, "", _digest(documents), bad, len(documents), lambda: documents)
        reread = None if _is_stream(source) else lambda: read_corpus(source, bad=BadLines(bad.limit))
        return cls(read_corpus(source, bad=bad), source, fingerprint(source), bad, reread=reread)

    @classmethod
    def _of_folder(
        cls, folder: str, base_url: str | None, all_pages: bool, code: bool | None, bad: BadLines, *, count_later: bool
    ) -> _Given:
        """Return the pages of a folder, and its source code."""
        has_code = files_of(Path(folder), code=code).has_code
        read = partial(read_corpus, folder, folder=folder, all_pages=all_pages, code=has_code)
        documents = read(bad=bad)
        if base_url is not None:
            from vocable.data.folder import with_urls  # imports parsers, which a search does not need

            documents = with_urls(documents, folder, base_url)
        # A folder of fewer documents is counted in memory; a larger one is read once more, or counted by the engine.
        held, total = list(track(islice(documents, MOST_HELD), "read")), None
        if len(held) < MOST_HELD:
            total = len(held)
        elif not count_later:
            total = sum(1 for _ in read(bad=BadLines(bad.limit)))
        given = cls(documents, abspath(folder), fingerprint(folder), bad, total, has_code=has_code)
        given.reread = lambda: read(bad=BadLines(bad.limit))
        given.documents = given._counted(chain(held, documents))
        return given

    def _counted(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield documents, and count the documents of each content."""
        for document in documents:
            self.copies[hash(content_of(document))] += 1
            yield document


def _is_stream(source: str) -> bool:
    """Return whether a corpus can be read only once: standard input, or a pipe."""
    path = Path(source)
    return source == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def _digest(documents: Iterable[Document]) -> str:
    """Return 16 hexadecimal digits that change with the content of documents."""
    digest = blake2b(digest_size=8)
    for document in documents:
        digest.update(repr(tuple(document)).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _check(
    engine: type[Store],
    address: str,
    options: IndexOptions,
    encoding: DocumentEncoding,
    *,
    bm25: bool,
    dense: str | None,
    no_dense: bool,
    replace: bool,
) -> None:
    """Raise `ArgumentError` for options that do not go together, and for vectors that the engine does not hold."""
    about = engine.about
    if encoding["long_documents"] == "passages" and not about.changes:
        message = f"passages need a plain folder or a server, not the {about.engine} engine: name one, or use maxpool"
        raise ArgumentError(f"long_documents: {message}")
    for space, needed in (("bm25", bm25), ("dense", dense is not None)):
        if needed and space not in about.spaces:
            raise ArgumentError(f"{space}: the {about.engine} engine does not hold such vectors")
    goes_with("bm25", "title_weight", "language")({**changed(IndexOptions, options), "bm25": bm25})
    if replace:
        engine.numbered(address, 1)  # refuses an address whose store cannot be replaced
    if dense is not None and no_dense:
        raise ArgumentError("dense and no_dense exclude each other")


class _CorpusParts(NamedTuple):
    """Documents with their vectors, or to be encoded by a loaded model."""

    model: str
    meta: VectorsMeta
    parts: DocumentParts
    dimensions: int | None  # size of the dense vectors of the same pass
    loaded: EncodingModel | None = None
    vectors: str = ""  # fingerprint of stored vectors
    long_documents: LongDocuments = "truncate"


def _stored_corpus(
    vectors: Sources, documents: Iterable[Document], encoding: DocumentEncoding, source: str, size: int
) -> _CorpusParts:
    """Return the corpus of stored vectors, in parts of at most `size` documents."""
    for option in changed(DocumentEncoding, encoding):
        if option in ("max_length", "long_documents"):
            raise ArgumentError(f"{option} is for encoding: these vectors are encoded already")
    shards, places = read_shards(vectors), places_of(vectors)
    stored = next(shards)
    if stored.meta.role != "document":
        raise ArgumentError(f"{places[0]}: vectors of queries cannot be indexed: encode the corpus as documents")
    parts = _with_vectors(documents, chain([stored], shards), encoding, source, size)
    return _CorpusParts(stored.meta.model, stored.meta, parts, stored.dimensions, vectors=fingerprint(*places))


def _corpus_to_encode(
    model: Model | str | PathLike[str],
    documents: Iterable[Document],
    encoding: DocumentEncoding,
    size: int,
    device: str | None,
    runtime: Any,
) -> _CorpusParts:
    """Return the corpus that a model encodes, in parts of at most `size` documents."""
    check_length(model, encoding["max_length"])
    if is_model(model):  # `device` is for the dense model alone
        loaded = load_encoder(model, runtime=runtime)
    else:
        loaded = load_encoder(fspath(model), device, runtime, encoding["dtype"])
    encoder = TextEncoder(loaded, "document", **of_one_text(encoding))
    # Read all of a document, unless the tokenizer does not tell where a window ends.
    reads_on = encoder.tokenization is not None and encoder.tokenization.has_places
    long_documents = encoding["long_documents"] or ("maxpool" if reads_on else "truncate")
    parts = ((part, None) for part in in_parts(documents, size, long_documents))
    meta = describe(encoder, model_name(model))
    return _CorpusParts(model_name(model), meta, parts, loaded.dimensions, loaded, long_documents=long_documents)


def _with_vectors(
    documents: Iterable[Document], shards: Iterator[StoredVectors], encoding: DocumentEncoding, source: str, size: int
) -> DocumentParts:
    """Iterate over documents in parts, with their stored vectors, which may be in another order."""
    rows = StoredRows(shards)
    for part in in_parts(documents, size, "truncate"):
        names = [document.id for document in part]
        if (vectors := rows.take(names)) is None:
            raise VectorsError(f"{source}: the document {rows.missing(names)!r} has no vector")
        pruned = prune(vectors.matrix, **select(Pruning, encoding))
        yield part, EncodedTexts(pruned, vectors.dense)
    if rows.rest():
        raise VectorsError(f"{source} has {rows.taken} documents, but there are vectors of {rows.read}")
