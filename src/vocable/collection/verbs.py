"""The verbs that make, open and change a collection at any place."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, Unpack

from vocable.collection.collection import Collection
from vocable.collection.copies import content_of
from vocable.collection.making import Making, Parts
from vocable.collection.records import Changed
from vocable.collection.settings import CollectionSettings, Limits
from vocable.core.fingerprint import fingerprint
from vocable.core.folders import ENDINGS
from vocable.core.progress import track
from vocable.core.storage import path_name
from vocable.core.tables import counted
from vocable.data import BadLines, Document, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.data.texts import as_ids
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
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.language.languages import ENGLISH, language_of
from vocable.options import CountOrZero, Encoding, IndexOptions, Runtime, checked, select

logger = logging.getLogger(__name__)

MOST_HELD = 100_000  # sections of a folder in memory (some 300 MB), so that they are counted and read in one pass


@checked
def index(
    model: Model | Sources,
    corpus: str | PathLike[str],
    output: str | PathLike[str],
    *,
    dense: str | None = None,
    no_dense: bool = False,
    engine_options: str | dict[str, object] | None = None,
    base_url: str | None = None,
    all_pages: bool = False,
    replace: bool = False,
    skip_bad: CountOrZero = 0,
    **options: Unpack[IndexOptions],
) -> Collection:
    """Encode a corpus and make it searchable.

    An interrupted run resumes when repeated.

    Args:
        model: vocable-mini, a folder, a Hub id, or the document vectors of `vocable encode`; in Python also a model
            from `vocable.load`, or several shards.
        corpus: a file, a folder, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or - (stdin).
        output: a folder, for an index that can change; exact:FOLDER for a read-only index, the fastest; or an engine
            and its address, such as qdrant+http://host:6333/name (docs/search.md).
        dense: also encode with this model, for hybrid search: vocable-mini-dense, a dense graph of `vocable
            export-model`, or a model of sentence-transformers. By default vocable-mini-dense with vocable-mini, and
            the dense vectors that `model` itself gives in the same pass.
        no_dense: leave out dense vectors.
        engine_options: options of the engine, such as weight_bits=8 of exact:FOLDER (docs/engines.md).
        base_url: web address of a corpus that is a folder: documents get the field url, also in `vocable add`.
        all_pages: also read pages of a folder that generators made of other pages, such as indexes; `vocable add` does
            the same.
        replace: on a server: build a new index while searches use the old, then swap them.
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
    bad, source = BadLines(skip_bad), path_name(corpus, "corpus")
    folder = source if Path(source).is_dir() else None
    if all_pages and folder is None:
        raise ArgumentError(f"all_pages is for the pages of a folder, which {source} is not")
    read = partial(read_corpus, source, folder=folder, all_pages=all_pages)
    documents, total, copies = read(bad=bad), None, Counter[int]()  # by hashes of contents
    if base_url is not None:
        documents = _with_urls(documents, source, base_url)
    if folder is not None:
        held = list(track(islice(documents, MOST_HELD), "read"))
        total = len(held) if len(held) < MOST_HELD else sum(1 for _ in read(bad=BadLines(skip_bad)))
        documents = _counting(chain(held, documents), copies)
    parts = {
        "dense": dense,
        "no_dense": no_dense,
        "engine_options": engine_options,
        "base_url": base_url,
        "all_pages": all_pages,
        "replace": replace,
        "total": total,
    }
    collection = build(model, documents, output, source=source, **parts, **options)  # type: ignore[arg-type]
    collection.built = collection.making_counts()._replace(
        bad_lines=bad.count,
        first_bad=bad.first or "",
        repeated=bad.repeated,
        copies=copies.total() - len(copies),
    )
    return collection


def _counting(documents: Iterable[Document], copies: Counter[int]) -> Iterator[Document]:
    """Yield documents, and count the documents of each content."""
    for document in documents:
        copies[hash(content_of(document))] += 1
        yield document


def build(
    model: Model | Sources,
    documents: Iterable[Document],
    output: str | PathLike[str],
    *,
    name: str | None = None,
    source: str = "",
    dense: str | None = None,
    no_dense: bool = False,
    engine_options: str | dict[str, object] | None = None,
    base_url: str | None = None,
    all_pages: bool = False,
    replace: bool = False,
    total: int | None = None,
    **options: Unpack[IndexOptions],
) -> Collection:
    """Make a collection of documents, as `index` does; `name`, `source`, `base_url` and `all_pages` are stored.

    `total` is the number of documents, if it is known.
    An interrupted call resumes when it is repeated with the same documents.
    """
    engine, address = engine_of(output)
    device, runtime = options.get("device"), options.get("runtime")
    bm25, title_weight = options.get("bm25", "bm25" in engine.about.spaces), options.get("title_weight", 1)
    language = options.get("language")
    encoding = select(Encoding, options)
    limits = Limits(**{n: v for n, v in encoding.items() if n not in ("device", "runtime")})  # type: ignore[arg-type]
    _check_engine(engine, limits, bm25=bm25, dense=dense is not None)
    if not bm25 and (title_weight != 1 or language is not None):
        raise ArgumentError(f"`{'title_weight' if title_weight != 1 else 'language'}` goes with `bm25`")
    if replace and engine.about.in_folder:
        instead = f"index to another folder and rename it, or `vocable add {address} CORPUS --replace`"
        raise ArgumentError(f"replace is for servers: {instead}")
    if dense is not None and no_dense:
        raise ArgumentError("dense and no_dense exclude each other")
    if not is_model(model) and holds_vectors(model):
        corpus = _stored_corpus(model, documents, limits, source, engine.about.part)
    elif is_model(model) or isinstance(model, str | PathLike):
        corpus = _corpus_to_encode(model, documents, limits, name, engine.about.part, device, runtime)
    else:
        raise VectorsError(f"{', '.join(map(str, model))}: not all of these are stored vectors")
    if dense is None and corpus.loaded is not None and "dense" in engine.about.spaces and not no_dense:
        dense = dense_beside(corpus.model)
    dimensions = corpus.dimensions
    if dense is not None or no_dense or "dense" not in engine.about.spaces:
        dimensions = None
    dense_model = None if dense is None else load_dense(dense, device)
    settings = CollectionSettings(
        engine=engine.about.engine,
        engine_options=engine.parse_options(engine_options),
        model=corpus.model,
        meta=corpus.meta,
        vectors=corpus.vectors,
        source=source,
        base_url=base_url,
        all_pages=all_pages,
        inputs=fingerprint(source),
        bm25=bm25,
        title_weight=title_weight,
        language=ENGLISH if language is None else language_of(language).name,
        dense=corpus.model if dimensions else dense,
        dense_fingerprint=None if dense_model is None else dense_fingerprint(dense_model),
        limits=limits,
        fields=[],
    )
    making = Making(engine, output, settings, corpus.loaded, dense_model, dimensions, device, total)
    return making.replace(address, corpus.parts) if replace else making.make(address, corpus.parts)


class _Corpus(NamedTuple):
    """Documents with their vectors, or to be encoded by a loaded model."""

    model: str
    meta: VectorsMeta
    parts: Parts
    dimensions: int | None  # size of the dense vectors of the same pass
    loaded: EncodingModel | None = None
    vectors: str = ""  # fingerprint of stored vectors


def _stored_corpus(vectors: Sources, documents: Iterable[Document], limits: Limits, source: str, size: int) -> _Corpus:
    """Return the corpus of stored vectors, in parts of at most `size` documents."""
    for option in ("max_length", "long_documents"):
        if getattr(limits, option) != getattr(Limits(), option):
            raise ArgumentError(f"{option} is for encoding: these vectors are encoded already")
    shards, places = read_shards(vectors), places_of(vectors)
    stored = next(shards)
    if stored.meta.role != "document":
        raise ArgumentError(f"{places[0]}: vectors of queries cannot be indexed: encode the corpus as documents")
    parts = _with_vectors(documents, chain([stored], shards), limits, source, size)
    return _Corpus(stored.meta.model, stored.meta, parts, stored.dimensions, vectors=fingerprint(*places))


def _corpus_to_encode(
    model: Model | str | PathLike[str],
    documents: Iterable[Document],
    limits: Limits,
    name: str | None,
    size: int,
    device: str | None,
    runtime: Runtime | None,
) -> _Corpus:
    """Return the corpus that a model encodes, in parts of at most `size` documents."""
    check_length(model, limits.max_length)
    if is_model(model):  # `device` is for the dense model alone
        loaded = load_encoder(model, runtime=runtime)
    else:
        loaded = load_encoder(fspath(model), device, runtime, limits.dtype)
    window = {"long_documents": "maxpool" if limits.long_documents == "maxpool" else "truncate"}
    called = model_name(model) if name is None else name
    meta = describe(TextEncoder(loaded, "document", **asdict(limits) | window), called)
    parts = ((part, None) for part in in_parts(documents, size, limits.long_documents))
    return _Corpus(called, meta, parts, loaded.dimensions, loaded)


def open_index(
    source: str | PathLike[str],
    *,
    engine_options: str | Mapping[str, object] | None = None,
    allow_changed_model: bool = False,
    device: str | None = None,
) -> Collection:
    """Open a collection that `index` made.

    `engine_options` are options of a search, as partial=true of a server that answers from a part of its shards
    (docs/engines.md). `allow_changed_model` permits a model that has changed since; `device` is the model's,
    as in `load`.

    Raises:
        ArgumentError: unknown engine.
        VectorsError: there is no collection, or it is unfinished, damaged, or in use.
    """
    engine, address = engine_of(source)
    options = engine.parse_options(engine_options, opening=True)
    store = engine.open(address)
    store.opening = engine.about.opening(**options)
    if not store.settings.get("whole"):
        store.close()
        raise VectorsError(f"{source}: there is no index here (it is unfinished: repeat the command that began it)")
    return Collection(fspath(source), store, allow_changed_model=allow_changed_model, device=device)


@checked
@tolerant
def add(
    index: str | PathLike[str] | Collection,
    corpus: str | PathLike[str],
    *,
    replace: bool = False,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Changed:
    """Add documents; a known id replaces the old document.

    The index's settings encode them. An unchanged document is skipped, so that an interrupted run can be repeated, and
    a corpus that has grown can be added whole. A warning counts documents that a folder no longer has.

    Args:
        index: place of the index; in Python also the result of `vocable.open_index`.
        corpus: a file, a folder or a page of the indexed folder, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or -
            (stdin).
        replace: delete all documents that the corpus does not have.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        skip_bad: number of malformed lines to skip; one more is an error.

    Raises:
        ArgumentError: the collection cannot change, or `replace` would delete documents that `skip_bad` skips.
        DataError: the corpus cannot be read, or with `replace` has no documents.
        VectorsError: there is no collection, it is damaged or in use, or its model has changed.
    """
    if replace and skip_bad:
        raise ArgumentError("replace would delete the documents of bad lines: mend these, and leave out skip_bad")
    source = path_name(corpus, "corpus")
    with _opened(index, device) as opened:
        folder = _folder_of(opened, source)
        documents = read_corpus(source, folder=folder, all_pages=opened.settings.all_pages)
        if opened.settings.base_url is not None and folder is not None:
            documents = _with_urls(documents, folder, opened.settings.base_url)
        if replace:
            if folder != source and folder is not None:
                raise ArgumentError(f"replace deletes the documents of all other pages: name the folder, {folder}")
            return _replaced(opened, documents, source)
        return opened.writer.add_stream(documents) if folder is None else _with_sections(opened, documents, source)


def _folder_of(opened: Collection, source: str) -> str | None:
    """Return the folder of documents that a source is, or that the collection was made of and the source is in."""
    indexed = opened.settings.source
    if Path(source).is_dir():
        return source
    inside = Path(indexed).is_dir() and Path(source).resolve().is_relative_to(Path(indexed).resolve())
    return indexed if inside and Path(source).suffix.lower() in ENDINGS else None


def _replaced(opened: Collection, documents: Iterable[Document], source: str) -> Changed:
    """Add documents, and delete all other documents."""
    seen = dict[str, object]()
    changed = opened.writer.add_stream(_noted(documents, seen))
    if not seen:
        raise DataError("the corpus has no documents: nothing is replaced", source=source)
    gone = opened.delete([*opened.writer.others(seen)])
    return dataclasses.replace(changed, deleted=gone.deleted, documents=gone.documents)


def _with_sections(opened: Collection, documents: Iterable[Document], source: str) -> Changed:
    """Add the documents of a folder or a page, and warn of documents that it no longer has.

    They are sections of its files and, in the folder that the collection was made of, of other files.
    """
    seen = dict[str, object]()
    changed = opened.writer.add_stream(_noted(documents, seen))
    files, whole = {*seen.values()}, source == opened.settings.source
    if opened.store.about.in_folder:
        others = opened.writer.others(seen)
        names = [name for name in others if whole or any(name[:end] in files for end in _file_ends(name))]
        stored = filter(None, opened.documents(names))
        if stale := [
            document for document in stored if (file := document.fields.get("file")) and (whole or file in files)
        ]:
            gone = f"{counted(len(stale), 'document')}, such as {stale[0].id!r}, no longer in {source}"
            logger.warning("%s: %s: add --replace deletes all that the corpus does not have", opened.place, gone)
    return changed


def _noted(documents: Iterable[Document], seen: dict[str, object]) -> Iterator[Document]:
    """Yield documents, and put the file of each, if it has one, into `seen` under its id."""
    for document in documents:
        seen[document.id] = document.fields.get("file")
        yield document


def _file_ends(identifier: str) -> list[int]:
    """Return the positions where the file's name may end in the id of a section."""
    return [*(at for at, character in enumerate(identifier) if character in "#~"), len(identifier)]


def _with_urls(documents: Iterable[Document], source: str, base_url: str) -> Iterator[Document]:
    from vocable.data.folder import with_urls  # imports parsers, which a search does not need

    return with_urls(documents, source, base_url)


def delete(index: str | PathLike[str] | Collection, ids: Sequence[str]) -> Changed:
    """Delete documents by their ids; unknown ids are ignored.

    Args:
        index: place of the index; in Python also the result of `vocable.open_index`.
        ids: ids of documents; on the command line, - reads an id a line from stdin.

    Raises:
        ArgumentError: the collection cannot change.
        VectorsError: there is no collection, or it is damaged or in use.
    """
    names = as_ids(ids)
    with _opened(index) as opened:
        return opened.delete(names)


@contextmanager
def _opened(index: str | PathLike[str] | Collection, device: str | None = None) -> Iterator[Collection]:
    """Return a collection; a collection opened here is closed after the block."""
    if isinstance(index, Collection):
        yield index
        return
    with open_index(index, device=device) as opened:
        yield opened


def _check_engine(engine: type[Store], limits: Limits, *, bm25: bool, dense: bool) -> None:
    """Raise `ArgumentError` for vectors that the engine does not hold."""
    about = engine.about
    if limits.long_documents == "passages" and not about.changes:
        message = f"passages need a plain folder or a server, not the {about.engine} engine: name one, or use maxpool"
        raise ArgumentError(f"long_documents: {message}")
    for space, needed in (("bm25", bm25), ("dense", dense)):
        if needed and space not in about.spaces:
            raise ArgumentError(f"{space}: the {about.engine} engine does not hold such vectors")


def _with_vectors(
    documents: Iterable[Document], shards: Iterator[StoredVectors], limits: Limits, source: str, size: int
) -> Parts:
    """Iterate over documents in parts, with their stored vectors, which may be in another order."""
    rows = StoredRows(shards)
    for part in in_parts(documents, size, "truncate"):
        names = [document.id for document in part]
        if (vectors := rows.take(names)) is None:
            raise VectorsError(f"{source}: the document {rows.missing(names)!r} has no vector")
        pruned = prune(vectors.matrix, limits.max_terms, min_weight=limits.min_weight, mass=limits.mass)
        yield part, EncodedTexts(pruned, vectors.dense)
    if rows.rest():
        raise VectorsError(f"{source} has {rows.taken} documents, but there are vectors of {rows.read}")
