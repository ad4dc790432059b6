"""Furniture of the pages of a site: lines at the top and the end of a page that most pages have, such as a menu."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vocable.data.pages.blocks import Block, Page

FEWEST_FILES = 10  # a folder of more pages than that has furniture
COMPARED = 40  # pages that are compared
SHARE = 1 / 2  # more of these pages than that have a line of furniture
OWN_LINES = 2  # lines of a page's own that end its top; before its end as many


def sample(files: Sequence[str]) -> Sequence[str]:
    """Return the files to compare: every n-th file of many; none of a few."""
    return files[:: -(-len(files) // COMPARED)] if len(files) > FEWEST_FILES else []


def repeated_lines(pages: Iterable[Page]) -> frozenset[str]:
    """Return the lines and headings that most pages have."""
    lines = [{line.strip() for block in page.blocks for line in block.text.split("\n")} for page in pages]
    counts = Counter(line for page in lines for line in page)
    return frozenset(line for line, count in counts.items() if count > SHARE * len(lines))


def without_furniture(page: Page, repeated: frozenset[str]) -> Page:
    """Return a page without the repeated lines and headings above its own text, and without those below it.

    Of a menu, the item of the page itself leaves, too.

    >>> page = Page([Block("Home\\nDocs", 1), Block("Lamps", 2, 1), Block("They burn.\\nHome", 3), Block("Home", 5)])
    >>> [block.text for block in without_furniture(page, frozenset(["Home", "Docs"])).blocks]
    ['Lamps', 'They burn.']
    """
    if not repeated:
        return page
    blocks = _trimmed(page.blocks, repeated, 1)
    return page._replace(blocks=_trimmed(blocks[::-1], repeated, -1)[::-1])


def _trimmed(blocks: Sequence[Block], repeated: frozenset[str], step: int) -> list[Block]:
    """Return blocks without the repeated lines before the second line of the page's own; `step` -1 reads backwards."""
    kept, lines_kept = list[Block](), 0
    for number, block in enumerate(blocks):
        if lines_kept >= OWN_LINES:
            return [*kept, *blocks[number:]]
        # A heading stays, except for a repeated heading right above another heading.
        if block.level:
            is_title = step > 0 and block.text in repeated and blocks[number + 1 : number + 2]
            if not (is_title and is_title[0].level):
                kept.append(block)
            continue
        # Repeated lines leave until two lines have stayed; with `step` -1 the lines are read from the end.
        lines = list[str]()
        for line in _without_menu(block.text.split("\n"), repeated)[::step]:
            if lines_kept >= OWN_LINES or line.strip() not in repeated:
                lines.append(line)
                lines_kept += bool(line.strip())
        if lines:
            kept.append(block._replace(text="\n".join(lines[::step])))
    return kept


def _without_menu(lines: list[str], repeated: frozenset[str]) -> list[str]:
    """Return the lines of a block, without repeated lines and single items between them if most lines are repeated."""
    known = [line.strip() in repeated for line in lines]
    if sum(known) <= len(lines) / 2:
        return lines
    single = [line.startswith("- ") and all(known[max(0, at - 1) : at + 2 : 2]) for at, line in enumerate(lines)]
    return [line for line, *leaves in zip(lines, known, single, strict=True) if not any(leaves)]
