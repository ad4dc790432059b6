"""Read files as pages, each within its budget: a file that fails or costs more is a bad file, with a message.

Small files of text are read in this process: their readers take time in proportion to the text. Large files, PDF and
DOCX are read in another process, whose memory and processor time have limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from vocable.core.code_files import code_language
from vocable.data.code.source import code_page
from vocable.data.lines import BYTE_ORDER_MARK, line_limit
from vocable.data.pages.asciidoc import asciidoc_page
from vocable.data.pages.blocks import Block, Page, PageError
from vocable.data.pages.budget import MEGABYTE, Budget, budget_of
from vocable.data.pages.docx import docx_page
from vocable.data.pages.encodings import page_text
from vocable.data.pages.markdown import markdown_page, mdx_page
from vocable.data.pages.notebook import notebook_page
from vocable.data.pages.pdf import pdf_page
from vocable.data.pages.rest import rest_page
from vocable.data.pages.tags import visible
from vocable.data.pages.templates import html_source
from vocable.errors import VocableError

SMALL = 1 << 16  # bytes of a text that is read in this process
WALL_SECONDS = 10  # to wait for each second of a processor, which other processes may use
MARKUP_MEGABYTES = {".md": 4, ".markdown": 4, ".mdx": 4, ".rst": 4, ".adoc": 4, ".asciidoc": 4, ".html": 16, ".htm": 16}


class _Fault(NamedTuple):
    """The message and the line of a `PageError`, which cannot be sent from one process to another."""

    message: str
    line: int


class PageReader:
    """Reader of files as pages. As a context, it ends the process that reads large files."""

    def __init__(self) -> None:
        self._process = ExitStack()
        self._read: Callable[..., Page | _Fault] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, traceback)

    def page(self, path: Path) -> Page:
        """Return the page of a file.

        Raises:
            PageError: the file is damaged, or reading it costs more than its budget.
            OSError: the file cannot be opened.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
        is_text = path.suffix.lower() not in FILE_READERS
        result = _page_or_fault(path, size) if is_text and size <= SMALL else self._page_elsewhere(path, size)
        if isinstance(result, _Fault):
            raise PageError(*result)
        return result

    def _page_elsewhere(self, path: Path, size: int) -> Page | _Fault:
        """Read a file in the process for large files; a file that ends the process is a fault."""
        budget = budget_of(size)
        try:
            return self._call(path, size)
        except (BrokenExecutor, TimeoutError) as error:
            self._process.__exit__(type(error), error, error.__traceback__)
            self._read = None
            return _Fault(f"reading it ends its process: damaged, or beyond {_shown(budget)}", 1)

    def _call(self, path: Path, size: int) -> Page | _Fault:
        if self._read is None:
            from vocable.core.processes import worker_pool  # multiprocessing is slow to import

            pool = self._process.enter_context(worker_pool(1, _get_ready))
            seconds = WALL_SECONDS * (3 + budget_of(1 << 40).seconds)
            self._read = lambda *arguments: pool.submit(_page_within, *arguments).result(seconds)
        return self._read(path, size)


def _get_ready() -> None:
    """Do nothing: the process has imported the readers."""


def _page_within(path: Path, size: int) -> Page | _Fault:
    """Read a file within the limits of its budget."""
    from vocable.core.processes import limited

    budget = budget_of(size)
    try:
        with limited(budget.seconds, budget.memory):
            return _page_or_fault(path, size)
    except TimeoutError:
        return _Fault(f"reading it takes more than {_shown(budget)}", 1)


def _shown(budget: Budget) -> str:
    return f"{budget.seconds:.0f} s and {budget.memory // MEGABYTE} MB of memory"


def _page_or_fault(path: Path, size: int) -> Page | _Fault:
    """Return the page of a file, or its fault; whatever a reader raises is a fault."""
    try:
        page = _page(path)
    except PageError as error:
        return _Fault(str(error), error.line)
    except (OSError, VocableError):
        raise
    except Exception as error:
        return _Fault(f"not readable as {path.suffix.lower()} ({type(error).__name__})", 1)
    most = budget_of(size).characters
    if sum(len(block.text) for block in page.blocks) > most:
        return _Fault(f"a page of more than {most:,} characters", 1)
    return page


def _page(path: Path) -> Page:
    ending = path.suffix.lower()
    if code_language(path.name):
        return code_page(path)
    if ending in FILE_READERS:
        return FILE_READERS[ending](path)
    text, unreadable = file_text(path)
    return READERS[ending](text)._replace(unreadable=unreadable)


def file_text(path: Path) -> tuple[str, int]:
    """Return the text of a file, and the number of its unreadable characters; raise `PageError` if it has no text.

    Line ends are \\n; a byte-order mark, soft hyphens and other characters of no width are left out.
    """
    # Markup has a lower limit than text. One byte more than the limit shows that the file is too long.
    limit, ending = line_limit(), path.suffix.lower()
    megabytes = MARKUP_MEGABYTES.get(ending, limit.megabytes)
    most = min(megabytes << 20, limit.bytes)
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most < limit.bytes:
        raise PageError(f"a page of more than {megabytes} MB: divide it, or name it .txt", 1)
    if len(raw) > most:
        advice = "clear its outputs" if ending == ".ipynb" else "divide it"
        raise PageError(f"a file of more than {limit.megabytes} MB: {advice}, or set {limit.variable}", 1)
    # HTML names its own encoding; all other formats are UTF-8.
    failures = 0
    try:
        if ending in (".html", ".htm"):
            text, failures = page_text(raw)
        else:
            text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PageError(f"not UTF-8 (a byte is 0x{raw[error.start]:02x})", line) from error
    # A zero byte is valid UTF-8, but files of other kinds have it.
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
