"""A collection: documents that can be searched and, in most engines, changed.

It is composed: `models` encode, `units` are what the store holds of a document, `writer` changes the
documents, and `searcher` finds them.

Letters: m documents, q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Self, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.models import CollectionModels
from vocable.collection.passages import Passages, Units, WholeDocuments
from vocable.collection.plan import EncodedQueries, SearchPlan
from vocable.collection.records import Changed
from vocable.collection.search import CollectionSearch
from vocable.collection.settings import check_settings
from vocable.collection.several import kinds_apart, together, unique_names
from vocable.collection.writer import CollectionWriter
from vocable.core.tables import masked
from vocable.data import Document
from vocable.data.texts import Documents, Texts, as_texts
from vocable.encoding.encode import EncodedCorpus
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.stream import StreamProgress
from vocable.engines.base import Store
from vocable.engines.memory import MemoryStore
from vocable.engines.protocols import Space, engine_of
from vocable.engines.several import SeveralStore
from vocable.errors import ArgumentError, UnavailableError, VectorsError
from vocable.indexes.fusion import name_weights, parse_weights
from vocable.indexes.ranking import Ranking
from vocable.options import Count, Pruning, SearchOptions, checked

logger = logging.getLogger(__name__)


class Collection:
    """Documents in a store with their sparse vectors and, if the collection has them, words and dense vectors."""

    built: EncodedCorpus | None = None  # counts of the build, just after it
    was_there = False  # the build found it complete

    def __init__(
        self, place: str, store: Store, *, allow_changed_model: bool = False, device: str | None = None
    ) -> None:
        """Open the collection that a store holds; `VectorsError` if the store has other settings."""
        self.place, self.store = masked(place), store
        self.opened_at: str | list[str] = place
        self.settings = check_settings(store.settings, self.place)  # the settings at the opening
        self.spaces = self.settings.spaces
        self._compose(None, device, allow_changed_model)

    def _compose(self, model: str | None, device: str | None, allow_changed: bool) -> None:
        """Make the parts that depend on a model."""
        place, store, settings = self.place, self.store, self.settings
        self.models = CollectionModels(
            place, settings, store.idf, name=model, device=device, allow_changed=allow_changed
        )
        in_passages = settings.limits["long_documents"] == "passages"
        self.units: Units = Passages(store, self.models) if in_passages else WholeDocuments(store)
        self.writer = CollectionWriter(place, store, settings, self.models, self.units)
        self.searcher = CollectionSearch(place, store, self.spaces, self.models, self.units)

    def with_model(
        self, name: str | None = None, *, device: str | None = None, allow_changed_model: bool = False
    ) -> Self:
        """Return the same collection with its model loaded again: another model by `name`, or on another device.

        A model of another name, such as vocable-mini-doc for vocable-mini, must encode documents as the first.
        """
        other, models = copy(self), self.models
        other._compose(name or models.name, device or models.device, allow_changed_model or models.allow_changed)
        return other

    def __len__(self) -> int:
        return len(self.units)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r}, {len(self):,} documents, model={self.models.name!r})"

    def __str__(self) -> str:
        weights = "" if self.kept_weights is None else f", weights {name_weights(self.kept_weights)}"
        return f"{self.place}: {self.built or f'{len(self):,} documents'}{weights}"

    def to_json(self) -> dict[str, object]:
        """Return the counts of the making as JSON values."""
        kept = {} if self.kept_weights is None else {"weights": self.kept_weights}
        return {"output": self.place, **kept, **({"texts": len(self)} if self.built is None else self.built.to_json())}

    @property
    def name(self) -> str:
        """The last part of the place."""
        return PurePath(self.place.partition("?")[0]).name

    def rank(self, queries: EncodedQueries, plan: SearchPlan) -> Ranking:
        """Return the candidates [q, kept] of a plan, best first."""
        return self.current().searcher.rank(queries, plan)

    def close(self) -> None:
        """Close the store; answers that were given before stay readable."""
        self.store.close()

    def current(self) -> Self:
        """Return the collection as it is now, without later changes, where the engine can: a search takes one."""
        store = self.store.pinned()
        if store is self.store:
            return self
        view = copy(self)
        view.store, view.units = store, self.units.of(store)
        view.searcher = CollectionSearch(self.place, store, self.spaces, self.models, view.units)
        return view

    def save(self, folder: str | PathLike[str]) -> None:
        """Write an index that is in memory to a new folder, whole or not at all.

        Raises `ArgumentError` if the folder exists, or the index has a place already.
        """
        if not isinstance(self.store, MemoryStore):
            raise ArgumentError(f"save is for an index in memory: this one is at {self.place}")
        self.store.save(folder)

    def __copy__(self) -> Self:
        view = object.__new__(type(self))
        vars(view).update(vars(self))
        return view

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the place of an index; an index in memory cannot be pickled."""
        if isinstance(self.store, MemoryStore):
            raise ArgumentError("an index in memory cannot be pickled: save it, and open the folder")
        return _reopened, (self.opened_at, self.models.name, self.models.device, self.models.allow_changed)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        return self.units.documents(ids)

    def all_documents(self) -> Iterator[Document]:
        """Iterate over all documents, in the order of their ids."""
        ids = iter(sorted(self.units.ids()))
        while part := list(islice(ids, self.store.about.part)):
            yield from (document for document in self.documents(part) if document is not None)

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Return the texts of documents, with their titles; `ArgumentError` for an unknown id."""
        documents = [*zip(ids, self.documents(ids), strict=True)]
        if (missing := next((name for name, document in documents if document is None), None)) is not None:
            raise ArgumentError(f"{self.place}: there is no document {missing!r}")
        return [document.full for _, document in documents if document is not None]

    def vectors(self, ids: Sequence[str]) -> csr_array:
        """Return the stored sparse vectors [m, v] of units, by default documents; `ArgumentError` for an unknown id."""
        return csr_array(self.store.vectors(ids))

    def stored(self) -> Iterator[csr_array]:
        """Iterate over all stored sparse vectors, in parts [m, v]."""
        ids = self.store.ids()
        while part := list(islice(ids, self.store.about.part)):
            yield self.vectors(part)

    def count(self) -> int | None:
        """Return the number of documents; None while a server that may answer from a part cannot count them."""
        try:
            return len(self)
        except UnavailableError:
            if self.store.partial:
                return None
            raise

    def check_whole(self, verb: str) -> None:
        """Raise `ArgumentError` if a search may leave out a part, which would pass for a result of the whole."""
        if not self.store.settings_now().get("whole"):
            raise ArgumentError(f"{verb}: {self.place} is unfinished: repeat the command that began it")
        if self.store.partial:
            raise ArgumentError(f"{verb}: opened with partial=true, which may leave out documents: open it without")

    @property
    def kept_weights(self) -> dict[Space, float] | None:
        """The weights of searches that were chosen by queries; None for equal weights."""
        weights: dict[Space, float] | None = self.store.settings.get("weights")
        return weights

    def keep_weights(self, weights: Mapping[Space, float] | None) -> None:
        """Store weights of searches, by default equal weights; who opens the collection then uses them."""
        chosen = None if weights is None else parse_weights(weights, self.spaces)
        self.store.configure({**self.store.settings_now(), "weights": chosen})

    def making_counts(self) -> EncodedCorpus:
        """Return the counts of the making of the collection."""
        done, run = StreamProgress(**self.store.settings["progress"]), self.writer.run
        return EncodedCorpus(
            texts=done.texts,
            seconds=run.seconds,
            truncated=done.truncated,
            empty=done.empty,
            max_length=self.settings.meta.max_length or None,
            bad_lines=0,
            first_bad="",
            windows=done.windows,
            unknown=done.unknown,
            dense_truncated=done.dense_truncated,
            dense_length=self.models.dense.get_max_seq_length() if done.dense_truncated else None,
            of_run=run.texts,
        )

    def add(self, documents: Documents) -> Changed:
        """Add documents, or dicts of their fields; a known id replaces the old document, an unchanged one is skipped.

        Raises `ArgumentError`, before anything is written, for a document that no reader returns and for a repeated id.
        """
        return self.writer.add(documents)

    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an unknown id is ignored."""
        return self.writer.delete(ids)

    @checked
    def search(
        self,
        queries: Texts,
        k: Count = 10,
        *,
        vectors: csr_array | None = None,
        dense: np.ndarray | None = None,
        **options: Unpack[SearchOptions],
    ) -> Ranking:
        """Return the ranking of the verb `vocable.search`.

        `vectors` are the sparse vectors [q, v] of the queries, and `dense` their dense vectors [q, d] of the same pass;
        by default the collection's model encodes the queries. The spaces with `weights` are fused, by default all
        spaces of queries with the weights that the collection keeps, or equal weights. With `like`, the stored vectors
        of that document are the query, the document is no hit, and BM25 takes no part.
        """
        texts, searcher = as_texts(queries, "queries"), self.current().searcher
        plan = searcher.plan(k, options)
        encoded = None if vectors is None else EncodedTexts(vectors, dense)
        return plan.page(searcher.rank(searcher.queries(plan, texts, encoded), plan))

    def like(self, ids: Sequence[str], **options: Unpack[Pruning]) -> csr_array:
        """Return the stored vectors [q, v] of documents as queries, pruned to their largest weights, or by `options`.

        Raises `ArgumentError` for an unknown id.
        """
        return self.searcher.like(ids, **options)


def open_index(
    source: str | PathLike[str] | Sequence[str | PathLike[str] | Collection],
    *,
    engine_options: str | Mapping[str, object] | None = None,
    allow_changed_model: bool = False,
    device: str | None = None,
) -> Collection:
    """Open a collection that `index` made, or several as one that cannot change.

    Several collections are searched by the kinds of vectors that all share, with counts over all. Their documents have
    the field `index`, and "INDEX:ID" replaces an id that several have.

    `engine_options` are options of a search, as partial=true of a server that answers from a part of its shards
    (docs/engines.md). `allow_changed_model` permits a model that has changed since; `device` is the model's,
    as in `load`.

    Raises:
        ArgumentError: unknown engine, or several collections that share no kind of vectors.
        VectorsError: there is no collection, or it is unfinished, damaged, or in use.
    """
    if not isinstance(source, str | PathLike):
        return _open_several(source, engine_options, allow_changed_model=allow_changed_model, device=device)
    engine, address = engine_of(source)
    if engine is MemoryStore:
        raise ArgumentError(f"{fspath(source)}: an index in memory has no place: name a folder")
    # A search may take more of the engine's options than the settings of the index.
    options = engine.parse_options(engine_options, of_search=True)
    store = engine.open(address)
    store.search_options = engine.about.search_options(**options)
    if not store.searchable:
        store.close()
        raise VectorsError(f"{source}: there is no index here (it is unfinished: repeat the command that began it)")
    return Collection(fspath(source), store, allow_changed_model=allow_changed_model, device=device)


def _open_several(
    sources: Sequence[str | PathLike[str] | Collection],
    engine_options: str | Mapping[str, object] | None,
    *,
    allow_changed_model: bool,
    device: str | None,
) -> Collection:
    """Return several indexes as one; its `close` closes the indexes that are opened here."""
    collections, opened = list[Collection](), list[Store]()
    try:
        for source in sources:
            # The caller's collections stay open when the joined collection is closed.
            if isinstance(source, Collection):
                collections.append(source)
            else:
                collections.append(open_index(source, engine_options=engine_options))
                opened.append(collections[-1].store)
        # Each index gets a name; no index may occur twice.
        names = unique_names([one.name for one in collections], [one.place for one in collections])
        if len(names) < 2 or len({*map(_identity, collections)}) < len(names):
            places = ", ".join(one.place for one in collections) or "none"
            raise ArgumentError(f"a list of indexes needs two different indexes, not {places}")
        stores = dict(zip(names, (one.store for one in collections), strict=True))
        # Kinds of vectors that the indexes do not share are left out.
        store = SeveralStore(stores, together, opened)
        for kind, reason in kinds_apart({name: of.settings for name, of in stores.items()}).items():
            logger.warning("%s: searched without %s vectors: %s", store.place, kind, reason)
        collection = Collection(store.place, store, allow_changed_model=allow_changed_model, device=device)
        collection.opened_at = [str(one.opened_at) for one in collections]
        return collection
    except BaseException:
        while opened:
            opened.pop().close()
        raise


def _identity(collection: Collection) -> object:
    """Return a value that differs between two indexes."""
    if not isinstance(collection.opened_at, str):
        raise ArgumentError(f"{collection.place} are several indexes already: name each in one list")
    if isinstance(collection.store, MemoryStore):
        return id(collection.store)
    return Path(collection.opened_at).resolve() if Path(collection.opened_at).exists() else collection.place


def _reopened(place: str | list[str], model: str, device: str | None, allow_changed_model: bool) -> Collection:
    """Return the collection that was pickled."""
    collection = open_index(place, allow_changed_model=allow_changed_model, device=device)
    return collection if collection.models.name == model else collection.with_model(model)
