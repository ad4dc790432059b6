"""A folder of Markdown, HTML, text and other files as documents: the sections of its pages.

docs/data.md describes the sections, ids and fields.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from vocable.core.code_files import code_language, module_name
from vocable.core.folders import ENDINGS, PACKAGE_OF, FolderFiles, files_of
from vocable.core.lfs import POINTER, is_pointer
from vocable.core.tables import counted
from vocable.data.bad_lines import warn_once
from vocable.data.kinds import RowValues
from vocable.data.pages.blocks import Page, PageError, Part
from vocable.data.pages.budget import budget_of
from vocable.data.pages.furniture import repeated_lines, sample, without_furniture
from vocable.data.pages.reader import FILE_READERS, PageReader, file_text
from vocable.data.pages.sections import TEXT_FRAGMENT, parts
from vocable.data.pages.wiki_links import links_between
from vocable.data.records import BETWEEN, Document, MalformedError
from vocable.errors import ArgumentError, DataError

SHOWN = 5  # endings or names of unread files in a message
EXTRA = "pip install 'vocable[documents]'"
MOST_NAMED = 20  # unreadable files in a message
EXPECTED = "a readable page; --skip-bad N leaves out N such files"
FOLLOWING = "next"  # field of a section: the id of the section that follows in its page
PART = "~"  # before the number of a part of a large section, in its id


_Remarks: TypeAlias = defaultdict[tuple[str, str], list[str]]  # messages by what they say and what was done


class FolderItem(NamedTuple):
    """A document of a folder as a row, or the fault of a file, with its file and line."""

    file: str
    line: int
    row: RowValues | None = None
    fault: str = ""


def check_folder(folder: Path, *, all_pages: bool = False, code: bool | None = None) -> tuple[FolderFiles, str]:
    """Return the files of a folder of documents, and a line about files left out ("" without such files).

    With `all_pages`, they include pages that generators made of other pages; `code` is as in `files_of`.

    Raises:
        DataError: a folder cannot be read, or has no readable file.
    """
    source = str(folder)
    try:
        files = files_of(folder, all_pages=all_pages, code=code)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", source=_shown(error.filename or source)) from error
    left_out, hint = _left_out(files), ""
    if missing := [*filter(files.others.get, PACKAGE_OF)]:
        hint = f" ({EXTRA} reads {', '.join(missing)})"
    if not files.files:
        present = f"it has only {left_out}{hint}" if left_out else "it has none"
        raise DataError(f"a folder of documents has files in {', '.join(ENDINGS)}: {present}", source=source)
    return files, f"{left_out} left out{hint}" if left_out else ""


def _left_out(files: FolderFiles) -> str:
    """Return the numbers of unread files and folders, with their most frequent endings or names."""
    others, hidden = files.others, files.hidden
    counts = [f"{counted(others.total(), 'file')} of other kinds ({_names(others)})"] * bool(others)
    if files.parts:
        counts.append(f"{counted(files.parts.total(), 'folder')} of parts, drafts or packages ({_names(files.parts)})")
    if hidden:
        number = counted(hidden.total(), "hidden file or folder", "hidden files or folders")
        counts.append(f"{number} ({_names(hidden)})")
    if files.copies:
        counts.append(f"{counted(files.copies.total(), 'copy', 'copies')} of pages ({_names(files.copies)})")
    if files.code:
        counts.append(
            f"{counted(files.code.total(), 'file')} of code ({_names(files.code)}; `index --code` reads them)"
        )
    if files.vendored:
        counts.append(f"{counted(files.vendored.total(), 'file')} of other people's code ({_names(files.vendored)})")
    if files.lists:
        number = counted(files.lists.total(), "page")
        counts.append(f"{number} of lists and sources (by {_names(files.lists)}; `index --all-pages` reads them)")
    return " and ".join(counts)


def _names(counts: Counter[str]) -> str:
    names = [f"{number:,} {_shown(name) or 'without ending'}" for name, number in counts.most_common(SHOWN)]
    return ", ".join([*names, *["…"] * (len(counts) > SHOWN)])


def folder_items(
    folder: Path, files: Sequence[str], among: Sequence[str] = (), *, has_code: bool = False, all_pages: bool = False
) -> Iterator[FolderItem]:
    """Yield the documents of the files of a folder, and the faults of files that cannot be read as text.

    `among` are all files of the folder, by default the same, whose pages of HTML show which lines they repeat, and
    whose notes link to each other. Log a warning about files with remarks, such as front matter that is read as text.
    If the folder `has_code`, a field of each document says whether it is code or a page; with `all_pages`, code that a
    program wrote is read, too.

    Raises:
        DataError: a file cannot be read, or no file has a text.
    """
    empty, remarks, is_first = True, _Remarks(list), True
    links = links_between(folder, among or files)
    with PageReader() as reader:
        repeated = _repeated(reader, folder, [file for file in among or files if _is_html(file)])
        for number, file in enumerate(files, start=1):
            if code_language(file):
                items = _code_items(reader, folder, file, remarks, all_pages)
            else:
                repeats = repeated if _is_html(file) else frozenset()
                items = _file_items(reader, folder, file, remarks, repeats, links.get(file, {}))
            for item in items:
                empty = False
                if has_code and item.row is not None:
                    kind = "code" if code_language(file) else "page"
                    item = item._replace(row={**item.row, "fields": {**item.row["fields"], "kind": kind}})
                if item.fault and is_first:
                    item, is_first = item._replace(fault=item.fault + _also(folder, files[number:])), False
                yield item
    for (_, outcome), (first, *others) in remarks.items():
        also = f" (also in {counted(len(others), 'other file')})" if others else ""
        warn_once(f"{first}: {outcome}{also}")
    if empty:
        raise DataError(f"no text in {counted(len(files), 'file')} ({', '.join(ENDINGS)})", source=str(folder))


def _is_html(file: str) -> bool:
    return file.lower().endswith((".html", ".htm"))


def _repeated(reader: PageReader, folder: Path, files: Sequence[str]) -> frozenset[str]:
    """Return the lines that most of a folder's pages of HTML have."""
    pages = list[Page]()
    for file in sample(files):
        with suppress(PageError, OSError):  # are reported when the file is reached
            pages.append(reader.page(folder / file))
    return repeated_lines(pages)


def _also(folder: Path, files: Sequence[str]) -> str:
    """Return the names of the files that cannot be read as text, as the end of a message."""
    unreadable = [_shown(file) for file in files if _is_unreadable(folder / file)]
    names = ", ".join([*unreadable[:MOST_NAMED], *["…"] * (len(unreadable) > MOST_NAMED)])
    return f", like {counted(len(unreadable), 'other file')} ({names})" if unreadable else ""


def _is_unreadable(path: Path) -> bool:
    try:
        if path.suffix.lower() not in FILE_READERS and not code_language(path.name):
            file_text(path)
    except PageError:
        return True
    except OSError:  # is an error of its own when it is reached
        return False
    return False


def item_row(number: int, item: FolderItem) -> RowValues | None:
    """Return the row of an item; raise `MalformedError` for a fault."""
    if item.fault:
        raise MalformedError(item.fault)
    return item.row


def _file_items(
    reader: PageReader,
    folder: Path,
    file: str,
    remarks: _Remarks,
    repeated: frozenset[str],
    links: Mapping[str, object],
) -> Iterator[FolderItem]:
    """Yield the documents of a file without `repeated` lines, and with its `links` as fields.

    Add messages about parts that are not read as meant to the `remarks`.
    """
    path = folder / file
    shown = _shown(str(path))
    # Faults of the whole file, which then has no document.
    if is_pointer(path):
        yield FolderItem(shown, 1, fault=POINTER)
        return
    try:
        page, size = without_furniture(reader.page(path), repeated), path.stat().st_size
    except PageError as error:
        yield FolderItem(shown, error.line, fault=str(error))
        return
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", source=shown) from error
    if shown != str(path):
        yield FolderItem(shown, 1, fault="the name of the file is not UTF-8")
        return
    # Remarks with the same words are collected, and told once for the folder.
    if page.remark is not None:
        message = str(DataError(page.remark.message, source=shown, line=page.remark.line))
        kind = ("", "read as text") if page.blocks else (page.remark.message, "left out")
        remarks[kind].append(message)
    if page.unreadable:
        message = f"{shown}: {counted(page.unreadable, 'character')} not in the page's encoding"
        remarks["", "read as U+FFFD"].append(message)
    if page.left_out:
        remarks[page.left_out, f"{page.left_out} left out"].append(shown)
    # A small file can grow large, since each section repeats the headings above it.
    left = most = budget_of(size).characters
    page = page._replace(fields={**links, **page.fields})
    for part, following in pairwise(chain(parts(page, path.stem), [None])):
        assert part is not None
        left -= len(part.title) + len(part.path) + len(part.text) + len(str(page.fields))
        if left < 0:
            yield FolderItem(shown, part.line, fault=f"a page whose documents have more than {most:,} characters")
            return
        yield FolderItem(shown, part.line, _row(part, page, file, following))


def _code_items(
    reader: PageReader, folder: Path, file: str, remarks: _Remarks, all_pages: bool
) -> Iterator[FolderItem]:
    """Yield the documents of a file of source code; a file that cannot be read is left out, with a remark."""
    path = folder / file
    shown = _shown(str(path))
    try:
        if is_pointer(path) or shown != str(path):
            raise PageError("pointers of Git LFS" if shown == str(path) else "files whose name is not UTF-8", 1)
        page = reader.page(path)
    except (PageError, OSError) as error:
        what = str(error) if isinstance(error, PageError) else f"unreadable ({error.strerror})"
        remarks[what, f"{what} left out"].append(shown)
        return
    if page.is_generated and not all_pages:
        what = "generated code"
        remarks[what, f"{what} left out (`index --all-pages` reads it)"].append(shown)
        return
    if page.unreadable:
        remarks["code", "characters not in UTF-8 read as Windows-1252"].append(shown)
    if page.left_out:
        remarks[page.left_out, f"{page.left_out} left out"].append(shown)
    module = module_name(file)
    for part, following in pairwise(chain(page.code, [None])):
        assert part is not None
        heading = BETWEEN.join(filter(None, [module, part.path]))
        fields: dict[str, object] = {"path": heading, "file": file, **page.fields}
        fields |= {"line": part.line, "last_line": part.last_line}
        fields |= {FOLLOWING: _name(following, file)} if following is not None else {}
        row = {"id": _name(part, file), "title": part.title or module, "text": part.text, "fields": fields}
        yield FolderItem(shown, part.line, row)


def _row(part: Part, page: Page, file: str, following: Part | None) -> RowValues:
    """Return the row of a part of a page; it names the part that follows, since an index keeps no order."""
    fields: dict[str, object] = {"path": part.path, "file": file}
    fields |= {FOLLOWING: _name(following, file)} if following is not None else {}
    fields |= {key: value for key, value in page.fields.items() if key not in fields}
    if f"{part.path}{BETWEEN}".startswith(f"{page.title}{BETWEEN}"):
        fields.pop("title", None)
    return {"id": _name(part, file), "title": part.title, "text": part.text, "fields": fields}


def _name(part: Part, file: str) -> str:
    anchor = "" if part.anchor is None else f"#{part.anchor}"
    return f"{file}{anchor}{f'{PART}{part.number}' if part.number > 1 else ''}"


def _shown(path: str) -> str:
    """Return a path for a message, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def with_urls(documents: Iterable[Document], source: str, base_url: str) -> Iterator[Document]:
    """Return the documents of a folder with a field `url`: the address of their section below `base_url`.

    Raises:
        ArgumentError: the source is not a folder, or the address does not begin with http:// or https://.
    """
    if not base_url.startswith(("http://", "https://")):
        raise ArgumentError(f"base_url must begin with http:// or https://, not {base_url!r}")
    if not Path(source).is_dir():
        raise ArgumentError(f"base_url is for the files of a folder, which {source} is not")
    return (_with_url(document, base_url.removesuffix("/")) for document in documents)


def anchor_of(document: Document) -> str:
    """Return the anchor of a section in its page, "" for the top.

    >>> anchor_of(Document("a.html#lists~2", "Further lists", fields={"file": "a.html"}))
    'lists'
    """
    anchor = document.id.removeprefix(str(document.fields["file"])).removeprefix("#")
    head, mark, number = anchor.rpartition(PART)
    return head if mark and number.isdecimal() else anchor


def fragment(document: Document) -> str:
    """Return the fragment of a section's address: "#" and its anchor; "" for the top of a page."""
    anchor = anchor_of(document)
    return f"#{anchor if anchor.startswith(TEXT_FRAGMENT) else quote(anchor, safe='/=')}" if anchor else ""


def _with_url(document: Document, base: str) -> Document:
    file, kind = str(document.fields["file"]), document.fields.get("kind")
    if kind == "code":
        url = f"{base}/{quote(file)}#L{document.fields['line']}-L{document.fields['last_line']}"
    else:  # beside code, a page is a file of a repository, too
        url = f"{base}/{quote(file if kind else published(file))}{fragment(document)}"
    fields = {**document.fields, "path": document.fields["path"], "file": file, "url": url}
    return document._replace(fields=fields)


def published(file: str) -> str:
    """Return the address of a file's page on a site by MkDocs or Sphinx, relative to the top of the site.

    >>> [published(file) for file in ("a/b.md", "a/index.md", "README.md", "a/b.rst", "a/b.html")]
    ['a/b/', 'a/', '', 'a/b.html', 'a/b.html']
    """
    path = PurePosixPath(file)
    if path.suffix.lower() in (".md", ".markdown", ".mdx"):
        page = path.parent if path.stem.lower() in ("index", "readme") else path.with_suffix("")
        return "" if page == PurePosixPath() else f"{page}/"
    return str(path.with_suffix(".html")) if path.suffix.lower() in (".rst", ".adoc", ".asciidoc") else file
