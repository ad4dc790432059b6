"""The verbs that open and change an index at any place."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from filecmp import cmp
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from vocable.collection.collection import Collection, open_index
from vocable.collection.records import Changed
from vocable.core.code_files import code_language
from vocable.core.folders import ENDINGS, files_of
from vocable.core.tables import counted
from vocable.data import Document, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.data.sources import is_inside
from vocable.data.texts import Documents, as_documents, as_ids
from vocable.engines.folder import FolderStore
from vocable.errors import ArgumentError, DataError
from vocable.options import CountOrZero, checked

logger = logging.getLogger(__name__)

COMPARED_PAGES = 20  # pages of a folder that may be a copy


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
        corpus: a file, a folder, a part of the indexed folder, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or -
            (stdin); in Python also `Document`s, or dicts with the fields id, text and title.
        replace: delete all documents that the corpus does not have; of a part of the folder, only documents there.
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
        # The indexed folder, or a part of it, is read with the settings of the index.
        if (part := part_of(opened, source)) is None:
            documents = read_corpus(source)
            return _replaced(opened, documents, source) if replace else opened.writer.add_stream(documents)
        kept = opened.settings
        documents = read_corpus(
            source, folder=part.folder, inside=part.inside, all_pages=kept.all_pages, code=kept.code
        )
        if opened.settings.base_url is not None:
            documents = _with_urls(documents, part.folder, opened.settings.base_url)
        return (
            _replaced(opened, documents, source, part) if replace else _with_sections(opened, documents, source, part)
        )


class FolderPart(NamedTuple):
    """A part of a folder of pages: all ("") of it, a file, or a folder with a slash at its end.

    `indexed` is true for the folder that the collection was made of.
    """

    folder: str
    inside: str
    indexed: bool


def part_of(opened: Collection, source: str) -> FolderPart | None:
    """Return the part of a folder of pages that a source is; None for another source.

    Ids are relative to the folder that the collection was made of. If the source lies in a copy of that folder, the
    copy is used; if the folder has moved, a folder of its name is.
    """
    # Folders that ids may be relative to: the indexed folder and its copies, or, if it has moved, a folder of its name.
    path, indexed = Path(source).resolve(), Path(opened.settings.source)
    is_folder, has_name = Path(source).is_dir(), bool(indexed.name) and opened.searcher.has_pages
    if indexed.is_dir() and has_name:
        roots = [indexed.resolve(), *(_copies(indexed, path) if is_folder else [])]
    else:
        roots = [parent for parent in (path, *path.parents) if has_name and parent.name == indexed.name]
    is_code = opened.settings.code and bool(code_language(path.name))
    if not is_folder and path.suffix.lower() not in ENDINGS and not is_code:
        return None
    # The source lies in such a folder.
    if root := next((root for root in roots if path.is_relative_to(root)), None):
        inside = "" if path == root else path.relative_to(root).as_posix() + "/" * is_folder
        return FolderPart(source if path == root else str(root), inside, indexed=True)
    # The source is outside: its ids may be the ids of other pages.
    if is_folder and has_name and indexed.is_dir() and indexed.resolve().is_relative_to(path):
        raise ArgumentError(f"{source}: holds {indexed}, whose pages have ids of their own: name it, or index it anew")
    if is_folder:
        return FolderPart(source, "", indexed=False)
    if has_name and path.suffix.lower() != ".txt" and path.is_file():  # a text file is a list of documents, too
        raise ArgumentError(f"{source}: not in {indexed}, the folder that {opened.place} was made of: name its folder")
    return None


def _copies(folder: Path, part: Path) -> list[Path]:
    """Return the folders above a part that are copies of a folder: half of the part's first pages are equal in both.

    Raises `ArgumentError` if a folder of the same name has such a part with other pages, whose ids would be wrong.
    """
    copies = list[Path]()
    for above in part.parents:
        original = folder / part.relative_to(above)
        if part.is_relative_to(folder.resolve()) or not original.is_dir():
            continue
        files = files_of(part).files[:COMPARED_PAGES]
        equal = sum((original / file).is_file() and cmp(original / file, part / file, shallow=False) for file in files)
        if files and 2 * equal >= len(files):
            copies.append(above)
        elif above.name == folder.name:
            raise ArgumentError(f"{part}: not a part of {folder}, the folder of the index: name that part, or {above}")
    return copies


def _replaced(
    opened: Collection, documents: Iterable[Document], source: str, part: FolderPart | None = None
) -> Changed:
    """Add documents, and delete all other documents; of a part of the collection's folder, all others of the part."""
    seen = dict[str, object]()
    changed = opened.writer.add_stream(_noted(documents, seen))
    if not seen:
        raise DataError("the corpus has no documents: nothing is replaced", source=source)
    others = opened.writer.others(seen)
    names = inside_part(opened, others, part.inside) if part is not None and part.inside else [*others]
    gone = opened.delete(names)
    return dataclasses.replace(changed, deleted=gone.deleted, documents=gone.documents)


def _with_sections(opened: Collection, documents: Iterable[Document], source: str, part: FolderPart) -> Changed:
    """Add the documents of a part of a folder, and warn of documents that it no longer has.

    Of another folder than the collection's, the documents of the files that it has count.
    """
    seen = dict[str, object]()
    changed = opened.writer.add_stream(_noted(documents, seen))
    files = {*seen.values()}
    if opened.store.about.cheap_reads:
        others = opened.writer.others(seen)
        if not part.indexed:
            others = (name for name in others if any(name[:end] in files for end in _file_ends(name)))
        stale = inside_part(opened, others, part.inside, None if part.indexed else files)
        if stale:
            gone = f"{counted(len(stale), 'document')}, such as {stale[0]!r}, no longer in {source}"
            logger.warning("%s: %s: add --replace deletes all that the corpus does not have", opened.place, gone)
    return changed


def inside_part(opened: Collection, names: Iterable[str], part: str, files: Set[object] | None = None) -> list[str]:
    """Return the ids of documents of files in a part of a folder, by default of any file there."""
    near = [name for name in names if name.startswith(part)]
    stored = ((document.id, document.fields.get("file")) for document in opened.documents(near) if document is not None)
    return [
        name
        for name, file in stored
        if isinstance(file, str) and is_inside(file, part) and (files is None or file in files)
    ]


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


class Whole(NamedTuple):
    """An index in a folder whose files have their checksums."""

    place: str
    documents: int
    segments: int

    def __str__(self) -> str:
        return f"{self.place}: {counted(self.documents, 'document')} in {counted(self.segments, 'segment')}, all whole"

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return self._asdict()


def check(index: str | PathLike[str] | Collection) -> Whole:
    """Compare all files of an index in a folder with their checksums.

    Args:
        index: place of the index; in Python also the result of `vocable.open_index`.

    Raises:
        ArgumentError: the index is not in a folder.
        VectorsError: there is no index, or it is damaged; the message names the file.
    """
    with _opened(index) as opened:
        if not isinstance(opened.store, FolderStore):
            raise ArgumentError(f"{opened.place}: the {opened.store.about.engine} engine has no files to compare")
        return Whole(opened.place, len(opened), opened.store.check())


@contextmanager
def _opened(index: str | PathLike[str] | Collection, device: str | None = None) -> Iterator[Collection]:
    """Return a collection; a collection opened here is closed after the block."""
    if isinstance(index, Collection):
        yield index
        return
    with open_index(index, device=device) as opened:
        yield opened
