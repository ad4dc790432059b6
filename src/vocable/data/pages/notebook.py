"""Jupyter notebooks as blocks of text: cells of Markdown, and code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vocable.data.pages.blocks import Block, Page, PageError
from vocable.data.pages.markdown import markdown_page


def notebook_page(text: str) -> Page:
    """Return the page of a notebook of format 3 or 4, without outputs; raise `PageError` if it is none."""
    try:
        notebook = json.loads(text)
        sheets = notebook.get("worksheets") or [notebook]  # of format 3
        return Page([block for sheet in sheets for cell in sheet["cells"] for block in _blocks(cell)])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PageError(f"not a notebook ({type(error).__name__})", 1) from error


def _blocks(cell: dict[str, Any]) -> Iterator[Block]:
    source = cell.get("source", cell.get("input", ""))  # `input` of code in format 3
    text = "".join(source)
    if cell["cell_type"] == "markdown":
        yield from (block._replace(line=1) for block in markdown_page(text).blocks)
    elif cell["cell_type"] == "heading":
        yield Block(" ".join(text.split()), 1, int(cell["level"]))
    elif cell["cell_type"] == "code" and text.strip():
        yield Block(text.strip("\n"), 1)
