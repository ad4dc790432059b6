"""DOCX files of word processors as blocks of text."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

from vocable.data.pages.blocks import Page, PageError
from vocable.data.pages.webpage import web_page
from vocable.errors import require_extra


def docx_page(path: Path) -> Page:
    """Return a DOCX file as a page; raise `PageError` if it is damaged."""
    mammoth = require_extra("mammoth", "documents")
    try:
        with path.open("rb") as file:
            return web_page(mammoth.convert_to_html(file).value)
    except (BadZipFile, KeyError, ValueError) as error:
        raise PageError(f"not a readable DOCX file ({error})", 1) from error
