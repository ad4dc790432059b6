"""Topics of a topical Bible, and the passages that its editor lists under each; both in the format of SWORD."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from studies.tuning.gathered import Gathered
from studies.tuning.packages import one_line, raw_members

VERSES = 5  # of a passage
MOST_PASSAGES = 8  # of a topic; with more it is too broad
REFERENCE = re.compile(r'<ref osisRef="([^"]+)">')
GENERAL = ("General scriptures", "Unclassified scriptures")  # say nothing beyond the topic
VERSE = re.compile(r"(\w+)\.(\d+)\.(\d+)")


def topics(packages: Mapping[str, Path]) -> Gathered:
    """Topics such as "Ambition: parable of the thistle", and passages of five verses."""
    collection = Gathered()
    asked = list(_topics(packages["sword-dict-naves"]))
    books = {book for _, verses in asked for book, _, _ in verses}
    passages: dict[str, list[str]] = {}
    for (book, chapter, verse), text in _verses(packages["sword-text-web"]):
        if book in books:  # not the Apocrypha
            passages.setdefault(_passage(book, chapter, verse), []).append(text)
    for number, texts in passages.items():
        collection.add(number, " ".join(texts))
    for topic, verses in asked:
        relevant = {_passage(*verse) for verse in verses}
        if len(relevant) <= MOST_PASSAGES:
            collection.ask(topic, relevant)
    return collection


def _passage(book: str, chapter: int, verse: int) -> str:
    return f"{book}.{chapter}.{(verse - 1) // VERSES * VERSES + 1}"


def _topics(package: Path) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """The topics that have verses alone, no whole chapters: "TOPIC" and the line under it, and the verses."""
    for title, entry in _entries(package):
        for line in re.split(r"<lb/>|<item>|</item>|<list>", entry):
            references = REFERENCE.findall(line)
            text = one_line(re.sub(r"<[^>]*>|^\W*\d+\.|→", " ", line.partition("<ref ")[0])).strip(" ;:,.")
            if (
                references
                and " " in text
                and not text.startswith(GENERAL)
                and all(VERSE.match(reference) for reference in references)
            ):
                yield f"{title.title()}: {text}", [verse for one in references for verse in _range(one)]


def _range(reference: str) -> Iterator[tuple[str, int, int]]:
    """The verses of "Exod.6.16" or "Exod.6.16-Exod.6.20"; of a range over chapters the first and the last."""
    ends = [(book, int(chapter), int(verse)) for book, chapter, verse in VERSE.findall(reference)]
    if ends[0][:2] == ends[-1][:2]:
        yield from ((*ends[0][:2], verse) for verse in range(ends[0][2], ends[-1][2] + 1))
    else:
        yield from ends


def _entries(package: Path) -> Iterator[tuple[str, str]]:
    """The entries of a SWORD dictionary: an index of keys, each with a place in a block of compressed entries."""
    files = {Path(name).suffix: content for name, content in raw_members(package, "*/zld/*/*.[iz]d[xt]")}
    files |= {Path(name).suffix: content for name, content in raw_members(package, "*/zld/*/*.dat")}
    for start, size in struct.iter_unpack("<II", files[".idx"]):
        title, _, place = files[".dat"][start : start + size].partition(b"\r\n")
        number, entry = struct.unpack("<II", place[:8])
        offset, length = struct.unpack_from("<II", files[".zdx"], 8 * number)
        block = zlib.decompress(files[".zdt"][offset : offset + length])
        begin, count = struct.unpack_from("<II", block, 4 + 8 * entry)
        yield title.decode(), block[begin : begin + count].decode("utf-8", errors="replace").rstrip("\0")


def _verses(package: Path) -> Iterator[tuple[tuple[str, int, int], str]]:
    """The verses of a SWORD text: each chapter begins with an entry that names it, and its verses follow in order."""
    files = {Path(name).name: content for name, content in raw_members(package, "*/ztext/*/?t.bz?")}
    for testament in ("ot", "nt"):
        compressed = files[f"{testament}.bzz"]
        blocks = [
            zlib.decompress(compressed[start : start + size])
            for start, size, _ in struct.iter_unpack("<III", files[f"{testament}.bzs"])
        ]
        book, chapter, verse = "", 0, 0
        for number, start, size in struct.iter_unpack("<IIH", files[f"{testament}.bzv"]):
            entry = blocks[number][start : start + size].decode("utf-8", errors="replace")
            if named := re.search(r'<chapter [^>]*osisID="(\w+)\.(\d+)"', entry):
                book, chapter, verse = named[1], int(named[2]), 0
            else:
                verse += 1
                yield (book, chapter, verse), _plain(entry)


def _plain(entry: str) -> str:
    without = re.sub(r"<note\b.*?</note>|<title\b.*?</title>", " ", entry, flags=re.DOTALL)
    return one_line(re.sub(r"<[^>]*>", "", without))
