"""The verbs that open and change an index at any place."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path

from vocable.collection.collection import Collection, open_index
from vocable.collection.records import Changed
from vocable.core.folders import ENDINGS
from vocable.core.tables import counted
from vocable.data import Document, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.data.texts import Documents, as_documents, as_ids
from vocable.errors import ArgumentError, DataError
from vocable.options import CountOrZero, checked

logger = logging.getLogger(__name__)


@checked
@tolerant
def add(
    index: str | PathLike[str] | Collection,
    corpus: str | PathLike[str] | Documents,
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
            (stdin); in Python also `Document`s, or dicts with the fields id, text and title.
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
    with _opened(index, device) as opened:
        if not isinstance(corpus, str | PathLike):
            given = as_documents(corpus, "corpus")
            return _replaced(opened, given, "the corpus") if replace else opened.writer.add_stream(given)
        source = fspath(corpus)
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
    if opened.store.about.cheap_reads:
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
