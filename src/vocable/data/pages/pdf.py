"""PDF files as blocks of text: a heading for each page, from the outline, and the page's lines."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from vocable.data.pages.blocks import Block, Page, PageError, Remark
from vocable.errors import require_extra

PAGE_ANCHOR = "page={}"  # opens the page in browsers and PDF readers
BROKEN_WORD = re.compile("(?:\ufffe|\xad)\\s*")  # PDFium's mark of a hyphen at the end of a line
FEWEST_PAGES = 3  # pages with the same first or last line, which is then no text
RUNNING_LINES = 3  # above and below the text of a page


def pdf_page(path: Path) -> Page:
    """Return a PDF file as a page; `line` of a block is the number of its page.

    Raises:
        PageError: the file is damaged or needs a password.
    """
    pdfium = require_extra("pypdfium2", "documents")
    try:
        with pdfium.PdfDocument(path) as document:
            texts = [_lines(page.get_textpage().get_text_range()) for page in document]
            outline = [(entry, entry.get_dest()) for entry in document.get_toc()]
            places = [(target.get_index(), entry.level, entry.get_title()) for entry, target in outline if target]
            title = document.get_metadata_dict().get("Title", "")
    except TimeoutError:
        raise
    except Exception as error:  # of PDFium, or of a text or an outline that it cannot decode
        raise PageError(f"not a readable PDF ({error})", 1) from error
    # A page has its first heading in the outline; its last heading stands over the pages that follow.
    starts = {number: (level, name) for number, level, name in reversed(places) if number is not None}
    ends = {number: (level, name) for number, level, name in places if number is not None}
    # A page without a heading continues the section before it.
    blocks, current = list[Block](), (0, "")
    for number, lines in enumerate(_without_running_lines(texts)):
        level, name = starts.get(number, current)
        heading = " ".join(name.split()) or f"Page {number + 1}"
        if lines:
            blocks.append(Block(heading, number + 1, level + 2, PAGE_ANCHOR.format(number + 1)))
            blocks.append(Block("\n".join(lines), number + 1))
        current = ends.get(number, current)
    remark = None if blocks else Remark("a PDF without text, such as a scan", 1)
    return Page(blocks, " ".join(title.split()) or path.stem, remark=remark)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in BROKEN_WORD.sub("", text).splitlines() if line.strip()]


def _without_running_lines(pages: list[list[str]]) -> list[list[str]]:
    """Return the lines of pages without headers and footers: first and last lines that pages share but for numbers."""
    for at in (0, -1) * RUNNING_LINES:
        counts = Counter(_letters(lines[at]) for lines in pages if lines)
        for lines in pages:
            if lines and (letters := _letters(lines[at])) and counts[letters] >= FEWEST_PAGES:
                del lines[at]
    return pages


def _letters(line: str) -> str:
    return re.sub(r"[\W\d]+", "", line)
