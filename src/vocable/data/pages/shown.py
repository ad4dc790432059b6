"""Tags and texts that a reader of a page sees: one rule for HTML, for HTML in Markdown, and for MDX.

Hidden are navigation, scripts and controls, what `hidden`, `aria-hidden` or `display: none` hides, readings of ruby,
the second copy of a formula, references to notes, numbers of lines, permanent links and links to edit the page.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from vocable.data.pages.tags import BLOCK_TAGS, VOID_TAGS, Tag

UNSEEN_TAGS = frozenset(
    {"nav", "template", "svg", "noscript", "select", "datalist", "button", "object", "rp", "rt", "rtc", "script"}
    | {"style", "textarea", "iframe", "noembed", "noframes", "annotation", "annotation-xml"}
    | {"audio", "video", "canvas"}  # text for browsers that lack them
)
CHROME = frozenset(["header", "footer", "aside"])  # hidden outside the main part
UNSEEN_ROLES = frozenset(
    ["navigation", "search", "banner", "contentinfo", "complementary", "doc-noteref", "doc-backlink", "doc-toc"]
)
BLANKET = "blanket-implementations"  # of traits for every type (rustdoc), the same on each page
UNSEEN_CLASSES = frozenset(  # and ids
    {"headerlink", "permalink"}
    | {"linenos", "lineno", "gutter", "rouge-gutter", "hljs-ln-numbers", "linenumber", "line-number"}
    | {"lnt", "ln"}  # numbers of lines, also by Hugo
    | {"footnote-ref", "footnote-reference", "footnoteref", "noteref", "footnote-backref", "reversefootnote"}
    | {"navheader", "navfooter", "nav-panel", "footer", "toctree-wrapper", "toc", "ingroups", "inherited-list"}
    | {
        "inherit",
        "inherit_header",
        "breadcrumb",
        "breadcrumbs",
        "rustdoc-breadcrumbs",
        "rightside",
        "sub-heading",
        "edit-this-page",
    }
    | {"sr-only", "visually-hidden", "hideme", "nav", "navbar", "navigation"}
    | {BLANKET, f"{BLANKET}-list"}
)
UNSEEN_LINKS = frozenset(["src", "srclink", "test-arrow"])  # classes of links to source code (rustdoc)
WHOLE_PAGE = frozenset(["html", "body", "main", "article"])  # hidden by no class
HIDDEN_STYLE = re.compile(r"\b(?:display\s*:\s*['\"]?none|visibility\s*:\s*['\"]?hidden)\b", re.IGNORECASE)
EDIT_LINK = re.compile(
    r"\W*(?:(?:edit|improve|suggest edits? (?:to|on)) (?:this|the) (?:page|section|doc\w*)|edit (?:page|section|source)"
    r"|(?:edit|view|show|open)(?: (?:this page|page|source))? (?:on|in) (?:git(?:hub|lab)|bitbucket)"
    r"|(?:view|show) (?:page )?source|read more|back to (?:the )?top|permalink|list of all members.*"
    r"|\[?(?:src|source)\]|copy)\W*",
    re.IGNORECASE,
)
APART = frozenset(["del", "ins", "s", "kbd", "img"])  # elements side by side are words of their own
UNSEEN_BLOCKS = BLOCK_TAGS | {"nav"}
OPEN_ENDED = frozenset(["p", "li", "td", "th", "tr", "dt", "dd"])  # whose end tag may be missing
BODY, ARTICLE, MAIN = range(3)  # parts of a page, the later the better
LOOKED_AHEAD = 8  # tags of a link
LONGEST_MARK = 30  # characters of a reference to a note


class _Open(NamedTuple):
    """An open element, whether it is hidden, and its part of the page."""

    name: str
    is_hidden: bool = False
    part: int = BODY


class _Ahead:
    """Tags that can be looked at before their turn."""

    def __init__(self, tags: Iterable[Tag]) -> None:
        self._tags, self._waiting = iter(tags), deque[Tag]()

    def __iter__(self) -> Iterator[Tag]:
        return self

    def __next__(self) -> Tag:
        return self._waiting.popleft() if self._waiting else next(self._tags)

    def peek(self, count: int) -> list[Tag]:
        self._waiting += islice(self._tags, max(0, count - len(self._waiting)))
        return [*islice(self._waiting, count)]

    def skip(self, count: int) -> None:
        for _ in range(count):
            next(self)


def shown(tags: Iterable[Tag], part: int = BODY) -> Iterator[Tag]:
    """Yield the tags and texts that a reader sees, with a text between elements whose words would grow together.

    `part` is the part of the page that the tags are in.

    >>> from vocable.data.pages.tags import tags
    >>> page = "a <button>Copy</button>word<sup><a href='#n'>1</a></sup> <kbd>Ctrl</kbd><kbd>C</kbd> x<sup>2</sup>"
    >>> "".join(tag.text for tag in shown(tags(page)))
    'a word Ctrl C x2'
    """
    # `counts` counts open elements by name. `last` is the last tag, or text with more than blanks, that was yielded.
    ahead = _Ahead(tags)
    open_elements = [_Open("", part=part)]
    counts = Counter[str]()
    last = Tag("", 0)
    numerators = set[int]()  # depths of fractions whose first part has begun
    for tag in ahead:
        top = open_elements[-1]
        if not tag.name:
            # A text. A word after an image begins with a blank.
            if not top.is_hidden:
                if last.name == "img" and tag.text[:1].isalnum():
                    yield Tag("", tag.at, text=" ")
                yield tag
                last = tag if tag.text.strip(" ") else last
        elif tag.is_end:
            # An end closes the elements inside it, too; an end without a begin is left out.
            if counts[tag.name]:
                while (top := open_elements.pop()).name != tag.name:
                    counts[top.name] -= 1
                counts[tag.name] -= 1
                numerators.discard(len(open_elements))
                if not top.is_hidden:
                    yield tag
                    last = tag
        elif tag.name in ("a", "sup") and (length := _unseen_link([tag, *ahead.peek(LOOKED_AHEAD)])):
            ahead.skip(length)
        else:
            # The begin of an element. It ends elements whose end tag is missing.
            for _ in range(_ended(tag.name, open_elements)):
                counts[open_elements.pop().name] -= 1
            top = open_elements[-1]
            element = _element(tag, top)
            if not element.is_hidden:
                if _grows_together(tag, last):
                    yield Tag("", tag.at, text=" ")
                # The second part of a fraction comes after a slash.
                if top.name == "mfrac" and len(open_elements) - 1 in numerators:
                    yield Tag("", tag.at, text="/")
                elif top.name == "mfrac":
                    numerators.add(len(open_elements) - 1)
                yield tag
                last = tag
            elif not top.is_hidden and tag.name in UNSEEN_BLOCKS:
                yield Tag("hr", tag.at)  # the texts around it are apart
            # A void element has no end.
            if tag.name not in VOID_TAGS:
                open_elements.append(element)
                counts[tag.name] += 1


def _ended(name: str, open_elements: list[_Open]) -> int:
    """Return the number of hidden elements that end where an item begins, as their end tags are missing."""
    if name in OPEN_ENDED and open_elements[-1].is_hidden:
        for depth, element in enumerate(reversed(open_elements), start=1):
            if element.name == name:
                return depth
            if element.name not in OPEN_ENDED or not element.is_hidden:
                break
    return 0


def _grows_together(tag: Tag, last: Tag) -> bool:
    """Return whether an element would be one word with the element or the text before it."""
    if tag.name not in APART:
        return False
    return last.name in APART if last.name else tag.name == "img" and last.text[-1:].isalnum()


def part_of(tag: Tag, above: int) -> int:
    """Return the part of the page that an element is in: the main part, an article, or another."""
    is_main = tag.name == "main" or tag.attributes.get("role", "").lower() == "main"
    return max(above, MAIN if is_main else ARTICLE * (tag.name == "article"))


def _element(tag: Tag, above: _Open) -> _Open:
    part = part_of(tag, above.part)
    return _Open(tag.name, above.is_hidden or is_hidden(tag) or (part == BODY and tag.name in CHROME), part)


def is_hidden(tag: Tag) -> bool:
    """Return whether a tag begins an element that a page does not show."""
    values, name = tag.attributes, tag.name
    if name in UNSEEN_TAGS:
        return True
    if not values:
        return name == "dialog"
    role, classes = values.get("role", "").lower(), {*values.get("class", "").split(), values.get("id", "")}
    is_hidden = values.get("hidden", "false") != "false" or HIDDEN_STYLE.search(values.get("style", ""))
    return bool(
        (is_hidden and role != "tabpanel")  # a tab is seen after a click
        or values.get("aria-hidden", "").lower() == "true"
        or (name == "dialog" and "open" not in values)
        or role in UNSEEN_ROLES
        or (name not in WHOLE_PAGE and not UNSEEN_CLASSES.isdisjoint(classes))
        or (name == "a" and not UNSEEN_LINKS.isdisjoint(classes))
    )


def _unseen_link(tags: list[Tag]) -> int:
    """Return the number of tags that end a link or a superscript that is a reference or chrome; 0 for others."""
    first, *others = tags
    end = next((at for at, tag in enumerate(others) if tag.is_end and tag.name == first.name), -1)
    inner = others[: max(end, 0)]
    begun = [tag for tag in inner if tag.name and not tag.is_end]
    text = "".join(tag.text for tag in inner if not tag.name).strip()
    links = [tag.attributes.get("href", "") for tag in (first, *begun) if tag.name == "a"]
    if end < 0 or not any(links):
        return 0
    if first.name == "sup" or [tag.name for tag in begun] == ["sup"] == [inner[0].name]:
        is_unseen = "#" in links[0] and len(text) <= LONGEST_MARK and inner[-1].name in ("a", "sup", "")
    else:
        is_mark = links[0].startswith("#") and bool(text) and not re.search(r"\w", text)
        is_unseen = not any(tag.name == "img" for tag in begun) and (is_mark or bool(EDIT_LINK.fullmatch(text)))
    return end + 1 if is_unseen else 0
