"""Links between notes, `[[Page]]` or `[[folder/page#Heading|text]]`: their texts, and the pages that they connect."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vocable.data.lines import line_limit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

MARKDOWN = (".md", ".markdown")
MOST_LINKED = 1_000  # pages in a field
# Not [[text]](url) or [[text]][reference], and no numbers alone, which are places in an array.
WIKI_LINK = re.compile(
    r"(?P<embedded>!?)\[\[(?=[^\[\]\n]*[^\W\d])(?P<target>[^\[\]|\n\\]*)(?:\\?\|(?P<text>[^\[\]\n]*))?\]\](?![(\[])"
)


def wiki_links(parser: MarkdownIt) -> None:
    """Add the rule to a parser: a link is its text, and an embedded page, which is a document itself, has none."""
    parser.inline.ruler.before("link", "wiki link", _wiki_link)


def _wiki_link(state: StateInline, silent: bool) -> bool:
    match = WIKI_LINK.match(state.src, state.pos)
    if match is None:
        return False
    if not silent and not match["embedded"]:
        target = " > ".join(filter(None, map(str.strip, match["target"].split("#"))))
        state.push("text", "", 0).content = (match["text"] or "").strip() or target
    state.pos = match.end()
    return True


def links_between(folder: Path, files: Iterable[str]) -> dict[str, dict[str, object]]:
    """Return the fields of pages with wiki links: `links`, the files that a page leads to, and `linked_from`.

    A link leads to the page of that path from the top of the folder, else from the folder of the page with the link,
    else to the page of that name in the fewest folders. Case and endings do not matter, and spaces are hyphens or
    underscores.
    """
    paths = [*files]
    matches = ((file, WIKI_LINK.findall(text_with_links(folder / file))) for file in paths)
    if not (linking := {file: given for file, given in matches if given}):
        return {}
    places = defaultdict[str, list[str]](list)
    for file in sorted(paths, key=lambda file: (file.count("/"), file)):
        for name in {_normal(file), _normal(str(PurePosixPath(file).with_suffix("")))}:
            for end in _ends(name):
                places[end].append(file)
    # Links in both directions; a page does not link to itself.
    links, linked_from = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for file, given in linking.items():
        for _, target, text in given:
            page = _page(target, file, places) or _page(text, file, places)
            if page is not None and page != file:
                links[file].add(page)
                linked_from[page].add(file)
    fields = defaultdict[str, dict[str, object]](dict)
    for name, of_page in (("links", links), ("linked_from", linked_from)):
        for file, others in of_page.items():
            fields[file][name] = sorted(others)[:MOST_LINKED]
    return dict(fields)


def _page(target: str, file: str, places: dict[str, list[str]]) -> str | None:
    """Return the file that a link leads to; None for a link that leads nowhere."""
    name = _normal(target.partition("#")[0].strip().removeprefix("/"))
    named = places.get(name, ())
    folder = str(PurePosixPath(file).parent)
    wanted = (name, _normal(f"{folder}/{name}"))
    exact = (one for path in wanted for one in named if path in (_normal(one), _normal(one).rpartition(".")[0]))
    return next(exact, None) or next(iter(named), None)


def _normal(path: str) -> str:
    return re.sub(r"[ _]", "-", path.casefold())


def _ends(path: str) -> list[str]:
    """Return a path, and what is left of it without its first folders."""
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def text_with_links(path: Path) -> str:
    """Return the text of a file that may have links; "" of another, or of one that cannot be read."""
    if path.name.lower().endswith(MARKDOWN):
        with suppress(OSError):  # is reported when the file is reached
            if path.stat().st_size <= line_limit().bytes and b"[[" in (raw := path.read_bytes()):
                return raw.decode(errors="replace")
    return ""
