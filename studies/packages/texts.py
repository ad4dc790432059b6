"""Files of packages as pages: manual pages, HTML, Markdown, reStructuredText, docstrings and plain text."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from inspect import cleandoc
from typing import NamedTuple

from studies.packages.man import man_page
from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.encodings import page_text
from vocable.data.pages.markdown import markdown_page
from vocable.data.pages.rest import rest_page
from vocable.data.pages.webpage import web_page
from vocable.data.pydocs import divide
from vocable.errors import VocableError

GENERATED = re.compile(rb"Doxygen|javadoc|epydoc")  # in the head of HTML that consists of lists of signatures
HEADING_WORDS = 8  # at most, of a line of plain text
UNREAD = re.compile(
    r"/(_sources|locale|tests?|examples?)/|/(copyright|changelog|news|genindex|search|authors|todo|thanks|copying)[^/]*$"
    r"|/man/[a-z]{2}(_[A-Z]{2})?(\.[\w-]+)?/|(-members|_source|_8h|_8hpp|index-all)\.x?html$|/LICEN[CS]E",
    re.IGNORECASE,
)


def text_page(text: str) -> Page:
    """Return the paragraphs of a plain text; a short line alone is a heading if it ends with a letter or "?"."""
    blocks, line = list[Block](), 1
    for paragraph in re.split(r"\n[ \t]*\n", text):
        if words := paragraph.split():
            is_line = "\n" not in paragraph.strip("\n") and len(words) <= HEADING_WORDS
            is_heading = is_line and (words[-1][-1].isalnum() or words[-1].endswith("?"))
            blocks.append(Block(" ".join(words), line, 2 if is_heading else 0))
        line += paragraph.count("\n") + 2
    return Page(blocks)


def docstring_page(text: str) -> Page:
    """Return the docstrings of a Python file: first sentences are headings, without a doctest in what follows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Page([])
    blocks = list[Block]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        sentence, rest = divide(cleandoc(ast.get_docstring(node, clean=False) or ""))
        if rest:
            line = getattr(node, "lineno", 1)
            blocks.append(Block(sentence, line, 2))
            paragraphs = re.split(r"\n\s*\n", rest)
            blocks += [Block(" ".join(part.split()), line) for part in paragraphs if ">>>" not in part]
    return Page(blocks)


class Format(NamedTuple):
    """A format of files: the names of its files, and its reader."""

    name: str
    path: re.Pattern[str]
    read: Callable[[str], Page]


FORMATS = (
    Format("manual pages", re.compile(r"/man/man\d\w*/[^/]+$"), man_page),
    Format("HTML", re.compile(r"/share/.*\.x?html?$"), web_page),
    Format("Markdown", re.compile(r"/share/.*\.(md|markdown)$"), markdown_page),
    Format("reStructuredText", re.compile(r"/share/.*\.rst$"), rest_page),
    Format("docstrings", re.compile(r"/dist-packages/.*\.py$"), docstring_page),
    Format("plain text", re.compile(r"/share/(doc|dictd|games/fortunes)/.*(\.txt|\.dict|/README[^/]*)$"), text_page),
    Format("plain text", re.compile(r"/share/games/fortunes/[^.]+$"), text_page),
)


def read_file(path: str, content: bytes) -> tuple[str, Page]:
    """Return the format and the page of a file in a package; the page of an unreadable file has no blocks."""
    file_format = format_of(path)
    if not file_format or (file_format.read is web_page and GENERATED.search(content[:2000])):
        return "", Page([])
    try:
        return file_format.name, file_format.read(page_text(content)[0])
    except (VocableError, ValueError, RecursionError):
        return "", Page([])


def format_of(path: str) -> Format | None:
    """Return the format of a file in a package; None if it is not read.

    >>> format_of("./usr/share/man/man1/ls.1").name, format_of("./usr/share/man/de/man1/ls.1")
    ('manual pages', None)
    """
    return next((kind for kind in FORMATS if kind.path.search(path)), None) if not UNREAD.search(path) else None
