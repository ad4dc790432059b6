"""The verbs that make, open and change a searchable collection, wherever its place says that it lies."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from annotated_types import Ge
from scipy.sparse import csr_array
from sentence_transformers import SentenceTransformer, SparseEncoder

from vocable.arrays import read_whole
from vocable.data import BadLines, Document, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.data.texts import as_ids
from vocable.encoder.checks import check_length
from vocable.encoder.load import load
from vocable.encoder.provenance import checksum, describe, model_name
from vocable.encoder.stream import StreamProgress, in_parts
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, VectorsError
from vocable.fingerprint import fingerprint
from vocable.options import Count, CountOrZero, DType, LongDocuments, Share, checked
from vocable.pruning import prune
from vocable.retrieval.collection import Collection
from vocable.retrieval.engines.edge import SETTINGS as STORE
from vocable.retrieval.engines.edge import EdgeStore
from vocable.retrieval.exact_index import ExactIndex, check_weight_bits
from vocable.retrieval.folder import build_collection, index_stored, open_folder, settings_of_parts, stored_weights
from vocable.retrieval.living import PART, LivingCollection, load_dense
from vocable.retrieval.passages import PassageCollection
from vocable.retrieval.protocols import Space, Store, engine_of
from vocable.retrieval.records import Changed
from vocable.storage import ANOTHER, finish, finished, path_name, resumable
from vocable.vectors import Sources, VectorsMeta, holds_vectors, places_of, read_vectors

Parts: TypeAlias = Iterator[tuple[list[Document], csr_array | None]]  # of a corpus, with vectors that there are


@checked
def index(
    model: SparseEncoder | Sources,
    corpus: str | PathLike[str],
    output: str | PathLike[str],
    *,
    bm25: bool = False,
    dense: str | None = None,
    max_terms: Count | None = None,
    min_weight: Annotated[float, Ge(0)] = 0.0,
    mass: Share | None = None,
    dtype: DType = "auto",
    max_length: Count | None = None,
    long_documents: LongDocuments = "truncate",
    weight_bits: int | None = None,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Collection:
    """Encode a corpus and make it searchable; a killed call goes on when it is repeated.

    Args:
        model: from `vocable.load`, or its name; or the document vectors that `vocable encode` wrote: a file, a folder
            or several, as the shards of a corpus are.
        corpus: source of the documents; `vocable.data` lists the kinds.
        output: a folder, for a collection that can change; exact:FOLDER for one that cannot, the fastest; or an engine
            and its address, as qdrant+http://host:6333/name (docs/search.md lists them). What the same call has made is
            opened.
        bm25: also index the words of the documents, for hybrid search.
        dense: also encode with this model of sentence-transformers, for hybrid search.
        max_terms: keep only so many terms of a text, the heaviest. As in `vocable.prune`.
        min_weight: drop terms lighter than this.
        mass: keep the fewest terms that have this share of a text's weight.
        dtype: "auto" computes in bfloat16 where the device has it natively; queries are encoded in the same type.
        max_length: tokens per text, in place of the model's own length.
        long_documents: what becomes of longer documents: "truncate" loses their ends, "maxpool" reads them in windows
            and keeps the highest weight of each term, "passages" keeps vectors of each window, so that a document is
            found by its best one. Kept for `add`.
        weight_bits: of exact:FOLDER, 16 or 8 to round the weights of documents, so that a posting takes 4 or 3 bytes
            in place of 6. A weight is off by less than 2/65,535 or 2/255 of the heaviest.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        skip_bad: bad lines of the corpus that are tolerated, and left out.

    Raises:
        ArgumentError: an argument out of its range, no documents, or something else at `output`.
        DataError: the corpus cannot be read.
        ModelError: no such model.
        VectorsError: stored vectors are not those of the corpus, or damaged.
    """
    engine, address = engine_of(output)
    engine = engine or EdgeStore
    bad, source = BadLines(skip_bad), path_name(corpus, "corpus")
    documents = read_corpus(source, bad=bad)
    limits: dict[str, Any] = {"max_terms": max_terms, "min_weight": min_weight, "mass": mass}
    spaces = {"sparse": True, "bm25": bm25, "dense": dense is not None}
    kind = engine.about.engine
    if long_documents not in get_args(LongDocuments):
        raise ArgumentError(
            f"long_documents must be one of {', '.join(get_args(LongDocuments))}, not {long_documents!r}"
        )
    if long_documents == "passages" and engine is not EdgeStore:
        raise ArgumentError(
            f"long_documents: passages are kept in a plain folder, not by the {kind} engine: name one, or take maxpool"
        )
    check_weight_bits(weight_bits)
    if weight_bits is not None and kind != ExactIndex.about.engine:
        raise ArgumentError(f"weight_bits is for {ExactIndex.about.engine}:FOLDER, not for the {kind} engine")
    missing = [space for space, wanted in spaces.items() if wanted and space not in engine.about.spaces]
    immutable = hasattr(engine, "load")
    if bm25 and not immutable and not engine.about.in_folder:
        raise ArgumentError("bm25: words are counted in a collection's folder, which a server has not: leave it out")
    if missing and not (immutable and missing == ["bm25"]):  # a folder has a lexical index of its own
        raise ArgumentError(f"{missing[0]}: the {kind} engine does not hold such vectors")
    if not isinstance(model, SparseEncoder) and holds_vectors(model):
        if max_length is not None or long_documents != "truncate":
            name = "long_documents" if max_length is None else "max_length"
            raise ArgumentError(f"{name} is for encoding: these vectors are encoded already")
        if immutable:
            parts_of = settings_of_parts(bm25, kind, weight_bits)
            index_stored(model, documents, Path(address), limits, {"source": source} | parts_of)
            return open_index(output, bad)
        stored = read_vectors(model)
        if stored.meta.role != "document":
            raise ArgumentError("vectors of queries cannot be indexed: encode the corpus with role document")
        places = places_of(model)
        settings: dict[str, Any] = {"model": stored.meta.model, "meta": asdict(stored.meta)}
        settings |= {"weights": stored_weights(places), "vectors": fingerprint(*places)}
        parts, loaded = _with_vectors(documents, stored.ids, prune(stored.matrix, **limits), source), None
    elif isinstance(model, SparseEncoder | str | PathLike):
        check_length(model, max_length)
        loaded = model if isinstance(model, SparseEncoder) else load(fspath(model), device=device)
        reading: LongDocuments = "maxpool" if long_documents == "maxpool" else "truncate"
        encoder = TextEncoder(loaded, "document", dtype=dtype, max_length=max_length, long_documents=reading, **limits)
        name, parts = model_name(model), ((some, None) for some in in_parts(documents, PART, long_documents))
        if immutable:
            kinds: dict[str, Any] = {"bm25": bm25, "engine": kind, "weight_bits": weight_bits}
            build_collection(encoder, documents, address, model=name, source=source, **kinds)
            collection = open_index(output, bad)
            collection.__dict__["loaded_model"] = loaded
            return collection
        settings = {"model": name, "weights": checksum(loaded), "meta": asdict(describe(encoder, name))}
    else:
        raise VectorsError(f"{', '.join(map(str, model))}: not all of these are stored vectors")
    dense_model = None if dense is None else load_dense(dense, device)
    settings |= {
        "source": source,
        "inputs": fingerprint(source),
        "bm25": bm25,
        "dense": dense,
        "dense_weights": None if dense_model is None else checksum(dense_model),
        "limits": {**limits, "dtype": dtype, "max_length": max_length, "long_documents": long_documents},
    }
    made = _make(engine, address, output, settings, parts, loaded, dense_model, device)
    made.built = made.counts(bad.count, bad.first or "")._replace(repeated=bad.repeated)
    return made


def open_index(
    source: str | PathLike[str],
    bad: BadLines | None = None,
    *,
    allow_changed_model: bool = False,
    device: str | None = None,
) -> Collection:
    """Open what `index` made; `bad` counts the lines that were left out when it was made.

    `allow_changed_model` lets a model search whose weights have changed since; `device` is the model's, as in `load`.

    Raises:
        ArgumentError: there is no such engine.
        VectorsError: there is no collection, or it is unfinished, damaged, or in use.
    """
    engine, address = engine_of(source)
    how: dict[str, Any] = {"allow_changed_model": allow_changed_model, "device": device}
    if engine is None and Path(address, STORE).is_file():
        engine = EdgeStore
    if engine not in (None, EdgeStore) and Path(address, STORE).is_file():
        raise VectorsError(f"{source}: {address} is a store that can change: open it by its folder alone")
    if engine is None or hasattr(engine, "load"):
        return read_whole(lambda: open_folder(Path(address), bad, **how), address)
    store = engine.open(address)
    if not store.settings.get("whole"):
        store.close()
        raise VectorsError(f"{source}: there is no index here (it is unfinished: repeat the command that began it)")
    return _collection(fspath(source), store, **how)


def holds_index(place: str | PathLike[str]) -> bool:
    """Whether a place is that of an index: an engine's address, or a folder that `index` made."""
    engine, address = engine_of(place)
    return engine is not None or Path(address, STORE).is_file() or Path(address, "postings").is_dir()


@checked
@tolerant
def add(
    index: str | PathLike[str] | Collection,
    corpus: str | PathLike[str],
    *,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Changed:
    """Add the documents of a corpus to a collection; one whose id is there already is replaced.

    They are encoded as the others were. One that is there unchanged is left as it is, so that a killed call can be
    repeated, and a corpus that has grown can be added whole.

    Args:
        index: its place, or what `vocable.open_index` gave.
        corpus: source of the documents; `vocable.data` lists the kinds.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        skip_bad: bad lines of the corpus that are tolerated, and left out.

    Raises:
        ArgumentError: the collection cannot change.
        DataError: the corpus cannot be read.
        VectorsError: there is no collection, it is damaged or in use, or its model has changed.
    """
    documents = read_corpus(corpus)
    return changeable(index, device).add_stream(documents)


def delete(index: str | PathLike[str] | Collection, ids: Sequence[str]) -> Changed:
    """Delete documents of a collection by their ids; one that is not there is passed over.

    Args:
        index: its place, or what `vocable.open_index` gave.
        ids: of the documents.

    Raises:
        ArgumentError: the collection cannot change.
        VectorsError: there is no collection, or it is damaged or in use.
    """
    named = as_ids(ids)
    return changeable(index).delete(named)


def changeable(index: str | PathLike[str] | Collection, device: str | None = None) -> LivingCollection:
    """The collection at a place, or itself; `ArgumentError` if it cannot change."""
    collection = index if isinstance(index, Collection) else open_index(index, device=device)
    if not isinstance(collection, LivingCollection):
        raise ArgumentError(f"{collection.place} cannot change: index again to a plain folder, or to a server")
    return collection


def _collection(place: str, store: Store, **how: Any) -> LivingCollection:
    in_passages = (store.settings.get("limits") or {}).get("long_documents") == "passages"
    return (PassageCollection if in_passages else LivingCollection)(place, store, **how)


def _make(
    engine: type[Store],
    address: str,
    output: str | PathLike[str],
    settings: dict[str, Any],
    parts: Parts,
    model: SparseEncoder | None,
    dense_model: SentenceTransformer | None,
    device: str | None,
) -> LivingCollection:
    """Fill a store with a corpus, in a folder that is whole or absent where the engine's is one."""
    spaces: dict[Space, int] = {"sparse": VectorsMeta.from_dict(settings["meta"], fspath(output)).size or 0}
    if settings["bm25"]:
        spaces["bm25"] = 0  # as many as there are words
    if dense_model is not None:
        spaces["dense"] = int(dense_model.get_embedding_dimension() or 0)

    def fill(address: str, begun: bool) -> LivingCollection:
        fresh = settings | {"progress": asdict(StreamProgress()), "whole": False}
        fresh |= {"fields": []} if engine.about.in_folder else {}  # their names, which one process at a time can know
        store = engine.open(address) if begun else engine.create(address, spaces, fresh)
        collection = _collection(fspath(output), store, device=device)
        loaded = {"loaded_model": model, "dense_model": dense_model}
        vars(collection).update({name: one for name, one in loaded.items() if one is not None})
        if not store.settings["whole"]:
            collection.fill(parts)
        return collection

    if not engine.about.in_folder:
        return fill(address, _begun(engine, address, settings))
    folder = Path(address)
    if not finished(folder, settings):
        with resumable(folder, settings) as work:
            inner = work / "store"
            if not (inner / STORE).is_file():
                shutil.rmtree(inner, ignore_errors=True)
            fill(str(inner), inner.exists()).close()
            finish(work, folder, inner)
    return fill(address, True)


def _begun(engine: type[Store], address: str, settings: dict[str, Any]) -> bool:
    """Whether the same call has begun or made the store; `ArgumentError` if another one has."""
    try:
        store = engine.open(address)
    except VectorsError:
        return False
    other = [name for name, value in settings.items() if store.settings.get(name) != value]
    store.close()
    if other:
        raise ArgumentError(f"{store!r} was made with other settings ({', '.join(other)}): {ANOTHER}")
    return True


def _with_vectors(documents: Iterable[Document], ids: Sequence[str], matrix: csr_array, source: str) -> Parts:
    """Documents by `PART` with their stored vectors, which are in an order of their own."""
    rows, taken = {identifier: row for row, identifier in enumerate(ids)}, 0
    for some in in_parts(documents, PART, "truncate"):
        missing = next((document.id for document in some if document.id not in rows), None)
        if missing is not None:
            raise VectorsError(f"{source}: the document {missing!r} has no vector")
        taken += len(some)
        yield some, matrix[[rows[document.id] for document in some]]
    if taken != len(rows):
        raise VectorsError(f"{source} has {taken} documents, but there are vectors of {len(rows)}")
