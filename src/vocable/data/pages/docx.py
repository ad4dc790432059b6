"""DOCX files of word processors as blocks of text."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from vocable.data.pages.blocks import Page, PageError
from vocable.data.pages.budget import MEGABYTE, budget_of
from vocable.data.pages.webpage import web_page
from vocable.errors import require_extra

PICTURES = "word/media/"


def docx_page(path: Path) -> Page:
    """Return a DOCX file as a page; raise `PageError` if it is damaged, or too large without its pictures."""
    mammoth = require_extra("mammoth", "documents")
    most = budget_of(path.stat().st_size).unpacked
    with path.open("rb") as file:
        try:
            with ZipFile(file) as archive:
                parts = [part.file_size for part in archive.infolist() if not part.filename.startswith(PICTURES)]
            if sum(parts) > most:
                raise PageError(f"a DOCX file that unpacks to more than {most // MEGABYTE} MB", 1)
            html = mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda image: {})).value
        except (PageError, TimeoutError):  # the budget of the caller ends the reading by a TimeoutError
            raise
        except Exception as error:  # mammoth passes on errors of its parsers
            raise PageError(f"not a readable DOCX file ({_said(error)})", 1) from error
    return web_page(html)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
