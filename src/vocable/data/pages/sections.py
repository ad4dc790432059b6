"""Sections of a page: small neighbours merged, large ones cut.

A word is a run of at most 30 characters without a space, or one Chinese, Japanese or Korean character. Tokens are
estimated, so that all models have the same sections: a token is a punctuation mark, or a run of at most 8 other
characters that ends before a capital letter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from vocable.data.pages.blocks import Anchors, Block, Page, Part
from vocable.data.records import BETWEEN

FEW_WORDS = 60  # sections with fewer words are merged with neighbours until the group has that many
MOST_WORDS = 250  # most words of a document
MOST_TOKENS = 400  # most estimated tokens of a document; a model reads up to 490 in nine of ten technical texts
MOST_HEADING = 1000  # most characters of a title, which each part of a large section repeats
TEXT_FRAGMENT = ":~:text="
MOST_FRAGMENT = 8  # words of a text fragment
LEAST_WORDS = 10  # of the last section of a page
MOST_ABOVE = 200  # most characters of a heading above it in its path
RUN = 30  # most characters of a word
IDEOGRAPHS = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]{{1,{RUN}}}")
PUNCTUATION = re.escape(string.punctuation) + r"\u2000-\u206f\u3000-\u303f"
SPACELESS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese and Khmer
TOKEN = re.compile(
    rf"[{PUNCTUATION}{IDEOGRAPHS}]|[{SPACELESS}]{{1,3}}|[A-Z]?[^\sA-Z{PUNCTUATION}{IDEOGRAPHS}{SPACELESS}]{{1,8}}|[A-Z]{{1,4}}"
)
UNITS = (  # units of lines, sentences and words
    re.compile(r"[^\n]+"),
    re.compile(r"(?:[^.!?]|[.!?](?!\s))+[.!?]*"),
    re.compile(rf"(?:{WORD.pattern})\s*"),
)
GENERAL = re.compile(  # headings by Javadoc, Doxygen and rustdoc, which say nothing about the sections below them
    r"(method|constructor|field|element|property|enum constant|nested class)s? (details?|summary)"
    r"|((member|data|function|constructor|destructor|typedef|enumeration|type|&) )+documentation|detailed description"
    r"|((auto )?trait )?implementations|((required|provided) )?methods",
    re.IGNORECASE,
)


@dataclass
class _Section:
    """A heading with the blocks up to the next heading, and the headings above it."""

    level: int
    heading: str
    anchor: str | None
    line: int
    above: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)

    @property
    def words(self) -> int:
        return sum(map(count_words, (block.text for block in self.blocks)))


def count_words(text: str) -> int:
    """Return the number of words of a text.

    >>> count_words("two words"), count_words("日本語"), count_words("x" * 61)
    (2, 3, 3)
    """
    runs = text.split()
    if text.isascii() and max(map(len, runs), default=0) <= RUN:
        return len(runs)
    return sum(1 for _ in WORD.finditer(text))


def size_of(text: str) -> float:
    """Return the size of a text, at most `MOST_WORDS` for a document: its words, or its tokens where they are more.

    >>> size_of("two words"), size_of("f(x)[0] + g(y)[1] == 0"), size_of("ภาษาไทย")
    (2, 11.25, 1.875)
    """
    return max(count_words(text), len(TOKEN.findall(text)) * MOST_WORDS / MOST_TOKENS)


def parts(page: Page, name: str) -> Iterator[Part]:
    """Yield the documents of a page, in order; `name` is the title of a page without a title."""
    for group in _merged(_sections(page, name)):
        first = group[0]
        blocks = [*first.blocks]
        for other in group[1:]:
            blocks += [Block(other.heading, other.line), *other.blocks]
        # The path has the headings above, without general headings such as Methods.
        above = [name for name in first.above if name != first.heading and not GENERAL.fullmatch(name)]
        path = BETWEEN.join([*(name[:MOST_ABOVE] for name in above), first.heading])
        for number, part_blocks in enumerate(cut(blocks), start=1):
            line = first.line if number == 1 else part_blocks[0].line
            text = "\n\n".join(block.text for block in part_blocks)
            yield Part(anchor=first.anchor, number=number, title=first.heading, path=path, text=text, line=line)


def text_fragment(heading: str) -> str:
    """Return the text fragment that leads to a heading in a page, after "#" (WICG, URL Fragment Text Directives).

    >>> text_fragment("Set-up & first steps")
    ':~:text=Set%2Dup%20%26%20first%20steps'
    """
    words = quote(" ".join(heading.split()[:MOST_FRAGMENT]), safe="")
    return TEXT_FRAGMENT + words.replace("-", "%2D").replace("~", "%7E")


def _sections(page: Page, name: str) -> list[_Section]:
    """Return the sections of a page; text before its main heading, such as a logo, belongs to the main section.

    A section of level 0 stands above the others if the page begins with text and has no main heading, or if it has a
    title and several headings at the top level, but no heading of level 1.
    """
    sections, anchors, above = list[_Section](), Anchors(), list[_Section]()
    # If the first heading is the main heading, it goes before the text above it.
    first = next((at for at, block in enumerate(page.blocks) if block.level), 0)
    blocks = page.blocks
    if blocks and blocks[first].level == 1:
        blocks = [blocks[first], *blocks[:first], *blocks[first + 1 :]]
    # The section of level 0 has the title of the page.
    levels = [block.level for block in blocks if block.level]
    untitled = bool(page.title and levels) and min(levels) > 1 and levels.count(min(levels)) > 1
    if blocks and (not blocks[0].level or untitled):
        sections.append(_Section(0, (page.title or name)[:MOST_HEADING], None, 1, ()))
        above += sections
    for block in blocks:
        if not block.level:
            sections[-1].blocks.append(block)
            continue
        # Headings above have a lower level.
        while above and above[-1].level >= block.level:
            above.pop()
        way = tuple(section.heading for section in above)
        # The rest of a very long heading is text.
        heading, rest = block.text[:MOST_HEADING], block.text[MOST_HEADING:]
        anchor: str | None = None
        # A section without an anchor in the page gets a text fragment; the first section needs none.
        if page.makes_anchors or (block.anchor and anchors.is_free(block.anchor)):
            anchor = anchors.of(heading, block.anchor[:MOST_HEADING])
        elif sections:
            anchor = anchors.of(heading, text_fragment(heading))
        sections.append(_Section(block.level, heading, anchor, block.line, way))
        sections[-1].blocks += [Block(rest, block.line)] * bool(rest)
        above.append(sections[-1])
    return sections


def _merged(sections: list[_Section]) -> list[list[_Section]]:
    """Return groups of sections: small neighbours below the same heading.

    A heading without text becomes the first text of the section below it, else the last text of the section before it.
    A last section of very few words, which many pages may share, belongs to the section before it.
    """
    # The groups, and the words of the last group.
    groups, size = list[list[_Section]](), 0
    for section in sections:
        group, words = groups[-1] if groups else [], section.words
        # A heading without text: the section below takes its place.
        if len(group) == 1 and not size and section.level > group[0].level:
            heading = Block(group[0].heading, group[0].line)
            section.blocks[:0] = [*group[0].blocks, heading]
            groups[-1] = [section]
            size = words
        # Small neighbours; no section stands above the first.
        elif group and section.level >= group[0].level and size < FEW_WORDS and words < FEW_WORDS:
            group.append(section)
            size += words
        else:
            # The last group is complete. Without words it joins the previous group.
            _join_last(groups, size)
            groups.append([section])
            size = words
    # The last group of a page needs more than a few words to stay.
    if groups and groups[-1][0].level >= groups[-2:][0][0].level:
        _join_last(groups, size, LEAST_WORDS)
    _join_last(groups, size)
    return groups


def _join_last(groups: list[list[_Section]], size: int, least: int = 1) -> None:
    """Join the last group, of `size` words, to the group before it if it has less than `least` words."""
    if len(groups) > 1 and size < least:
        last = groups.pop()
        groups[-1] += last


def cut(blocks: list[Block]) -> Iterator[list[Block]]:
    """Yield all blocks, or parts of about equal size, of at most `MOST_WORDS` each."""
    pieces = [piece for block in blocks for piece in _pieces(block)]
    sizes = [size_of(piece.text) for piece in pieces]
    share = sum(sizes) / max(1, -(-sum(sizes) // MOST_WORDS))
    group, size, done, target = list[Block](), 0.0, 0.0, share
    for piece, added in zip(pieces, sizes, strict=True):
        if group and (size + added > MOST_WORDS or done + added / 2 > target):  # the end is nearer before the piece
            yield group
            group, size, target = [], 0, max(target, done) + share
        group, size, done = [*group, piece], size + added, done + added
    yield group


def _pieces(block: Block) -> Iterator[Block]:
    """Yield a block, or pieces of a large block, cut between lines, else between sentences, else between words."""
    text, line, first, end, size = block.text, block.line, 0, 0, 0.0
    for start, stop, added in _spans(text, UNITS) if size_of(text) > MOST_WORDS else ():
        if size and size + added > MOST_WORDS:
            yield block._replace(text=text[first:end], line=line)
            line, first, size = line + text.count("\n", first, start), start, 0
        end, size = stop, size + added
    yield block._replace(text=text[first:].strip("\n"), line=line)


def _spans(text: str, splits: Sequence[re.Pattern[str]], offset: int = 0) -> Iterator[tuple[int, int, float]]:
    """Yield the start, end and size of units of at most `MOST_WORDS`; later `splits` are finer."""
    for unit in splits[0].finditer(text):
        start, end, size = unit.start(), unit.end(), size_of(unit[0])
        if size > MOST_WORDS:
            yield from _spans(unit[0], splits[1:], offset + start)
        elif size:
            yield offset + start, offset + end, size
