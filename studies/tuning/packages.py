"""Files and texts inside downloaded packages: Debian packages, wheels and source archives."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, NamedTuple

from vocable.errors import DataError

AR_MAGIC, AR_HEADER = b"!<arch>\n", 60
SKIPPED = {"script", "style", "nav", "footer", "head"}
BLOCKS = {"p", "div", "li", "dd", "dt", "tr", "pre", "br", "table", "ul", "ol", "dl", "section", "blockquote", "td"}
HEADINGS = {f"h{level}": level for level in range(1, 7)}
NAVIGATION = re.compile(
    r"(?:Next|Previous|Up): |\[ ?(?:<|Up|Top|Contents|Index|\?).*\]$|\[.* ?>+ ?\]$"
)  # of Texinfo's pages


class Section(NamedTuple):
    """A heading of level 1 to 6, and the text up to the next heading, with a line for each paragraph."""

    level: int
    heading: str
    text: str


def members(package: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file of a package whose path matches, in order of path.

    Files that end with ".gz" are decompressed; bytes that are not UTF-8 are replaced.
    """
    for name, content in sorted(raw_members(package, pattern)):
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        yield name, plain.decode("utf-8", errors="replace")


def only_member(package: Path, pattern: str) -> bytes:
    """Return the only file of a package whose path matches; raise `DataError` unless exactly one file matches."""
    matches = list(raw_members(package, pattern))
    if len(matches) != 1:
        raise DataError(f"{len(matches)} files {pattern}, not one: is it another version?", source=str(package))
    return matches[0][1]


def raw_members(package: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the bytes of each regular file of a package whose path matches the pattern of `fnmatch`.

    Raises:
        DataError: a damaged package.
    """
    try:
        yield from _files(package, pattern)
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise DataError(f"damaged, fetch it again: {error}", source=str(package)) from error


def _files(package: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    if package.suffix in {".whl", ".zip"}:
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                if fnmatch(name, pattern):
                    yield name, archive.read(name)
        return
    with package.open("rb") as file:
        tar = io.BytesIO(_data_of_deb(file)) if package.suffix == ".deb" else file
        with tarfile.open(fileobj=tar) as contents:
            for member in contents:
                name = member.name.removeprefix("./")
                if member.isfile() and fnmatch(name, pattern) and (opened := contents.extractfile(member)):
                    yield name, opened.read()


def _data_of_deb(file: IO[bytes]) -> bytes:
    """The archive data.tar.* in a Debian package, which is an `ar` archive."""
    if file.read(len(AR_MAGIC)) != AR_MAGIC:
        raise tarfile.ReadError("not a Debian package")
    while header := file.read(AR_HEADER):
        size = int(header[48:58])
        if header.startswith(b"data.tar"):
            return file.read(size)
        file.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.ReadError("a Debian package without data")


class _Sections(HTMLParser):
    """The sections of a page; `skipped` counts the open elements whose text is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, list[str], list[str]]] = [(0, [], [])]
        self.in_heading = False
        self.skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a section, or a paragraph."""
        self.skipped += tag in SKIPPED
        if tag in HEADINGS:
            self.found.append((HEADINGS[tag], [], []))
            self.in_heading = True
        elif tag in BLOCKS:
            self.handle_data(" " if self.in_heading else "\n")

    def handle_endtag(self, tag: str) -> None:
        """End a heading, or text that is left out."""
        self.skipped -= tag in SKIPPED and self.skipped > 0
        if tag in HEADINGS:
            self.in_heading = False

    def handle_data(self, data: str) -> None:
        """Add text to the heading or to the section."""
        if not self.skipped:
            text = data if data == "\n" else re.sub(r"\s+", " ", data)
            _, heading, body = self.found[-1]
            (heading if self.in_heading else body).append(text)


def sections(page: str) -> list[Section]:
    """Return the sections of an HTML page in order; one without a heading, level 0, comes first."""
    parser = _Sections()
    parser.feed(page)
    parser.close()
    return [Section(level, one_line("".join(heading)), _lines("".join(text))) for level, heading, text in parser.found]


def _lines(text: str) -> str:
    lines = map(one_line, text.split("\n"))
    return "\n".join(line for line in lines if line and not NAVIGATION.match(line))


def html_text(page: str) -> str:
    """Return the text of HTML as one line, headings included."""
    return one_line(" ".join(f"{section.heading} {section.text}" for section in sections(page)))


def pod_sections(pod: str) -> list[Section]:
    """Return the sections of Perl documentation: =head1 to =head4, and =item with a text as level 5."""
    parts = [(0, "", list[str]())]
    skipping = False
    for paragraph in re.split(r"\n\s*\n", pod):
        command = re.match(r"=(\w+)\s*(.*)", paragraph.strip(), re.DOTALL)
        if command is None:
            parts[-1][2].extend([] if skipping else [pod_text(paragraph)])
        elif command[1] in {"begin", "end", "cut", "pod"}:
            skipping = command[1] in {"begin", "cut"}
        elif command[1].startswith("head"):
            parts.append((int(command[1][4:] or 1), pod_text(command[2]), []))
        elif command[1] == "item" and len(command[2]) > 1:
            parts.append((5, pod_text(command[2]), []))
    return [Section(level, heading, "\n".join(filter(None, text))) for level, heading, text in parts]


def pod_text(text: str) -> str:
    """Return the text without the formatting codes of Perl documentation: C<code>, L<label|target>."""
    text = re.sub(r"E<(\w+)>", lambda code: {"lt": "<", "gt": ">", "sol": "/", "verbar": "|"}.get(code[1], ""), text)
    text = re.sub(r"[XZ]<[^<>]*>", "", text)
    for _ in range(4):  # codes are nested
        text = re.sub(r"\b([A-Z])<<+ (.*?) >>+|\b([A-Z])<([^<>]*)>", _code, text, flags=re.DOTALL)
    return one_line(text)


def _code(match: re.Match[str]) -> str:
    code, inner = (match[1], match[2]) if match[1] else (match[3], match[4])
    return inner.partition("|")[0] if code == "L" else inner


def one_line(text: str) -> str:
    """Return the text with single spaces between its words."""
    return " ".join(text.split())
