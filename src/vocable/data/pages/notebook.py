"""Jupyter notebooks as blocks of text: cells of Markdown, and code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from vocable.data.pages.blocks import Block, Page, PageError
from vocable.data.pages.markdown import markdown_page


def notebook_page(text: str) -> Page:
    """Return the page of a notebook of format 3 or 4, without outputs; raise `PageError` for other texts."""
    try:
        notebook = json.loads(text)
        sheets = notebook.get("worksheets") or [notebook]  # of format 3
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PageError(f"not a notebook ({type(error).__name__})", 1) from error
    return Page([block for cell in cells if isinstance(cell, dict) for block in _blocks(cell)])


def _blocks(cell: dict[str, Any]) -> Iterator[Block]:
    """Yield the blocks of a cell; a cell of another type, or whose source is not text, has no blocks."""
    source = cell.get("source", cell.get("input"))  # `input` of code in format 3
    pieces = source if isinstance(source, list) else [source]
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    kind = cell.get("cell_type")
    level = 1
    if kind == "markdown":
        yield from (block._replace(line=1) for block in markdown_page(text).blocks)
    elif kind == "heading":
        with suppress(TypeError, ValueError):
            level = min(6, max(1, int(cell.get("level", 1))))
        yield Block(" ".join(text.split()), 1, level)
    elif kind == "code" and text.strip():
        yield Block(text.strip("\n"), 1)
