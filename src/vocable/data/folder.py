"""A folder of Markdown, HTML, text and other files as documents: the sections of its pages.

docs/data.md describes the sections, ids and fields.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from vocable.core.folders import ENDINGS, PACKAGE_OF, FolderFiles, files_of
from vocable.core.tables import counted
from vocable.data.bad_lines import warn_once
from vocable.data.kinds import Row
from vocable.data.lines import BYTE_ORDER_MARK, line_limit
from vocable.data.pages.asciidoc import asciidoc_page
from vocable.data.pages.blocks import Block, Page, PageError
from vocable.data.pages.docx import docx_page
from vocable.data.pages.encodings import page_text
from vocable.data.pages.markdown import markdown_page, mdx_page
from vocable.data.pages.notebook import notebook_page
from vocable.data.pages.pdf import pdf_page
from vocable.data.pages.rest import rest_page
from vocable.data.pages.sections import TEXT_FRAGMENT, parts
from vocable.data.pages.tags import visible
from vocable.data.pages.templates import html_source
from vocable.data.records import BETWEEN, Document, MalformedError
from vocable.errors import ArgumentError, DataError

SHOWN = 5  # endings or names of unread files in a message
EXTRA = "pip install 'vocable[documents]'"
MOST_NAMED = 20  # unreadable files in a message
EXPECTED = "text in UTF-8; --skip-bad N leaves out N such files"
# Limits of a page: 100 kB of adversarial Markdown take a second, 16 MB of HTML a minute and 1.9 GB of memory.
MARKUP_MEGABYTES = {".md": 4, ".markdown": 4, ".mdx": 4, ".rst": 4, ".adoc": 4, ".html": 16, ".htm": 16, ".ipynb": 16}
PART = "~"  # before the number of a part of a large section, in its id


class FolderItem(NamedTuple):
    """A document of a folder as a row, or the fault of a file, with its file and line."""

    file: str
    line: int
    row: Row | None = None
    fault: str = ""


def check_folder(folder: Path, *, all_pages: bool = False) -> tuple[FolderFiles, str]:
    """Return the files of a folder of documents, and a line about files left out ("" without such files).

    With `all_pages`, they include pages that generators made of other pages.

    Raises:
        DataError: a folder cannot be read, or has no readable file.
    """
    source = str(folder)
    try:
        files = files_of(folder, all_pages=all_pages)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", source=_shown(error.filename or source)) from error
    left_out = _left_out(files)
    if not files.files:
        present = f"it has only {left_out}" if left_out else "it has none"
        raise DataError(f"a folder of documents has files in {', '.join(ENDINGS)}: {present}", source=source)
    hint = f" ({EXTRA} reads {', '.join(missing)})" if (missing := [*filter(files.others.get, PACKAGE_OF)]) else ""
    return files, f"{left_out} left out{hint}" if left_out else ""


def _left_out(files: FolderFiles) -> str:
    """Return the numbers of unread files and folders, with their most frequent endings or names."""
    others, hidden = files.others, files.hidden
    counts = [f"{counted(others.total(), 'file')} of other kinds ({_names(others)})"] * bool(others)
    if hidden:
        number = counted(hidden.total(), "hidden file or folder", "hidden files or folders")
        counts.append(f"{number} ({_names(hidden)})")
    if files.copies:
        counts.append(f"{counted(files.copies.total(), 'copy', 'copies')} of all pages ({_names(files.copies)})")
    if files.lists:
        number = counted(files.lists.total(), "page")
        counts.append(f"{number} of lists and sources (by {_names(files.lists)}; `index --all-pages` reads them)")
    return " and ".join(counts)


def _names(counts: Counter[str]) -> str:
    names = [f"{number:,} {_shown(name) or 'without ending'}" for name, number in counts.most_common(SHOWN)]
    return ", ".join([*names, *["…"] * (len(counts) > SHOWN)])


def folder_items(folder: Path, files: Sequence[str]) -> Iterator[FolderItem]:
    """Yield the documents of the files of a folder, and the faults of files that cannot be read as text.

    Log a warning about files with remarks, such as front matter that is read as text.

    Raises:
        DataError: a file cannot be read, or no file has a text.
    """
    empty, remarks, is_first = True, defaultdict[str, list[str]](list), True
    for number, file in enumerate(files, start=1):
        for item in _file_items(folder, file, remarks):
            empty = False
            if item.fault and is_first:
                item, is_first = item._replace(fault=item.fault + _also(folder, files[number:])), False
            yield item
    for outcome, (first, *others) in remarks.items():
        also = f" (also in {counted(len(others), 'other file')})" if others else ""
        warn_once(f"{first}: {outcome}{also}")
    if empty:
        raise DataError(f"no text in {counted(len(files), 'file')} ({', '.join(ENDINGS)})", source=str(folder))


def _also(folder: Path, files: Sequence[str]) -> str:
    """Return the names of the files that cannot be read as text, as the end of a message."""
    unreadable = [_shown(file) for file in files if _is_unreadable(folder / file)]
    names = ", ".join([*unreadable[:MOST_NAMED], *["…"] * (len(unreadable) > MOST_NAMED)])
    return f", like {counted(len(unreadable), 'other file')} ({names})" if unreadable else ""


def _is_unreadable(path: Path) -> bool:
    try:
        if path.suffix.lower() not in FILE_READERS:
            _text(path)
    except PageError:
        return True
    except OSError:  # is an error of its own when it is reached
        return False
    return False


def item_row(number: int, item: FolderItem) -> Row | None:
    """Return the row of an item; raise `MalformedError` for a fault."""
    if item.fault:
        raise MalformedError(item.fault)
    return item.row


def _file_items(folder: Path, file: str, remarks: Mapping[str, list[str]]) -> Iterator[FolderItem]:
    """Yield the documents of a file; append messages to `remarks`, by what was done, if a part is not read as meant."""
    path = folder / file
    shown = _shown(str(path))
    try:
        page = _page(path)
    except PageError as error:
        yield FolderItem(shown, error.line, fault=str(error))
        return
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", source=shown) from error
    if shown != str(path):
        yield FolderItem(shown, 1, fault="the name of the file is not UTF-8")
        return
    if page.remark is not None:
        message = str(DataError(page.remark.message, source=shown, line=page.remark.line))
        remarks["read as text" if page.blocks else "left out"].append(message)
    if page.unreadable:
        message = f"{shown}: {counted(page.unreadable, 'character')} not in the page's encoding"
        remarks["read as U+FFFD"].append(message)
    for part in parts(page, path.stem):
        name = file if part.anchor is None else f"{file}#{part.anchor}"
        fields: dict[str, object] = {"path": part.path, "file": file}
        fields |= {key: value for key, value in page.fields.items() if key not in fields}
        if f"{part.path}{BETWEEN}".startswith(f"{page.title}{BETWEEN}"):
            fields.pop("title", None)
        row = {"id": name + (f"{PART}{part.number}" if part.number > 1 else ""), "title": part.title}
        yield FolderItem(shown, part.line, {**row, "text": part.text, "fields": fields})


def _page(path: Path) -> Page:
    ending = path.suffix.lower()
    if ending in FILE_READERS:
        return FILE_READERS[ending](path)
    text, unreadable = _text(path)
    return READERS[ending](text)._replace(unreadable=unreadable)


def _text(path: Path) -> tuple[str, int]:
    """Return the text of a file, and the number of its unreadable characters; raise `PageError` if it has no text.

    Line ends are \\n; a byte-order mark, soft hyphens and other characters of no width are left out.
    """
    limit = line_limit()
    megabytes = MARKUP_MEGABYTES.get(path.suffix.lower(), limit.megabytes)
    most = min(megabytes << 20, limit.bytes)
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most < limit.bytes:
        raise PageError(f"a page of more than {megabytes} MB: divide it, or name it .txt", 1)
    if len(raw) > most:
        raise PageError(f"a file of more than {limit.megabytes} MB: divide it, or set {limit.variable}", 1)
    failures = 0
    try:
        if path.suffix.lower() in (".html", ".htm"):
            text, failures = page_text(raw)
        else:
            text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PageError(f"not UTF-8 (a byte is 0x{raw[error.start]:02x})", line) from error
    if (zero := text.find("\0")) >= 0:
        raise PageError("not text (a zero byte)", text.count("\n", 0, zero) + 1)
    return visible(text.replace("\r\n", "\n").replace("\r", "\n")), failures


def _text_page(text: str) -> Page:
    """Return the page of a plain text: its paragraphs, without headings."""
    blocks, lines = list[Block](), list[str]()
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            blocks.append(Block("\n".join(lines), number - len(lines)))
            lines = []
    return Page(blocks)


READERS: dict[str, Callable[[str], Page]] = {
    ".md": markdown_page,
    ".markdown": markdown_page,
    ".mdx": mdx_page,
    ".html": html_source,
    ".htm": html_source,
    ".txt": _text_page,
    ".rst": rest_page,
    ".adoc": asciidoc_page,
    ".asciidoc": asciidoc_page,
    ".ipynb": notebook_page,
}
FILE_READERS: dict[str, Callable[[Path], Page]] = {".docx": docx_page, ".pdf": pdf_page}


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
    file = str(document.fields["file"])
    url = f"{base}/{quote(published(file))}{fragment(document)}"
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
