"""Patterns of `.gitignore` files, matched as git does: on bytes, the last match of the deepest file decides.

Patterns of `.git/info/exclude` and of the user's settings are not read. The library pathspec compares characters and
backtracks: a pattern of eight stars takes it more than 20 seconds for a name of 100 letters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vocable.errors import DataError

GITIGNORE = ".gitignore"
WILDCARD = re.compile(rb"[*?\[\\]")
STAR = b"[^/]*"
ANY_FOLDERS = b"(?:.*?/)??"  # `**/`
SOME_FOLDERS = b".*?/"  # `**\\/`
MOST_BYTES, MOST_LINES = 1_000_000, 10_000  # of a file; git has no bound
CHARACTER_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb"\t\n\x0b\x0c\r ",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class Pattern(NamedTuple):
    """A line of a `.gitignore` file.

    Args:
        regex: matches the name of a file, or if `anchored`, its path relative to the folder of the `.gitignore` file.
        anchored: the pattern has a slash before its end.
        folders: only folders match.
        ignores: False for a pattern that begins with `!`.
    """

    regex: re.Pattern[bytes]
    anchored: bool
    folders: bool
    ignores: bool


class Rules(NamedTuple):
    """The patterns of one `.gitignore` file, and its `folder`: b"" at the top, otherwise a path with a final slash."""

    folder: bytes
    patterns: tuple[Pattern, ...]

    def decision(self, path: bytes, is_folder: bool) -> bool | None:
        """Return whether the last pattern that matches a path ignores it; None if none matches."""
        inner, name = path[len(self.folder) :], path.rpartition(b"/")[2]
        for pattern in reversed(self.patterns):
            if (is_folder or not pattern.folders) and pattern.regex.fullmatch(inner if pattern.anchored else name):
                return pattern.ignores
        return None


def rules_in(folder: Path, below: bytes) -> tuple[Rules, ...]:
    """Return the rules of the `.gitignore` file of a folder, whose path is `below`; () without a regular file."""
    file = folder / GITIGNORE
    if file.is_symlink() or not file.is_file():
        return ()
    with file.open("rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES or content.count(b"\n") > MOST_LINES:
        raise DataError(f"has more than {MOST_LINES:,} lines or {MOST_BYTES:,} bytes: shorten it", source=str(file))
    return (Rules(below, tuple(patterns(content))),)


def is_ignored(path: str, is_folder: bool, rules: tuple[Rules, ...]) -> bool:
    """Return whether a path is ignored; `rules` has the rules of each of its folders, the deepest last."""
    name = os.fsencode(path)
    for file_rules in reversed(rules):
        if (decided := file_rules.decision(name, is_folder)) is not None:
            return decided
    return False


def patterns(content: bytes) -> Iterator[Pattern]:
    """Yield the patterns of a file.

    >>> [(p.anchored, p.folders, p.ignores) for p in patterns(b"# all\\n*.log\\n!/keep/\\n")]
    [(False, False, True), (True, True, False)]
    """
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = re.sub(rb"(?<!\\) +$", b"", line.removesuffix(b"\r"))
        if line and not line.startswith(b"#"):
            bare = line.removeprefix(b"!")
            text = bare.removesuffix(b"/")
            with suppress(ValueError):  # git matches nothing with such a pattern either
                yield Pattern(_compiled(text), b"/" in text, text != bare, bare == line)


@lru_cache(maxsize=10_000)
def _compiled(text: bytes) -> re.Pattern[bytes]:
    """Return the regular expression of a pattern; raise `ValueError` if it matches nothing."""
    text = text.removeprefix(b"/")
    special = WILDCARD.search(text)
    plain = len(text) if special is None else special.start()  # git compares this part first, then begins anew
    return re.compile(re.escape(text[:plain]) + _joined(_tokens(text[plain:])), re.DOTALL)


def _tokens(text: bytes) -> Iterator[bytes]:
    """Yield the parts of a pattern as in wildmatch(3) of git: regular expressions of one byte, `STAR` and folders."""
    at = 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"*":
            end = at + len(text[at:]) - len(text[at:].lstrip(b"*"))
            whole = end - at > 1 and (at == 0 or text[at - 1 : at] == b"/")
            rest = text[end : end + 2]
            if whole and rest[:1] == b"/":
                yield ANY_FOLDERS
                at = end + 1
            elif whole and rest == b"\\/":
                yield SOME_FOLDERS
                at = end + 2
            else:
                yield b".*" if whole and not rest else STAR
                at = end
        elif byte == b"?":
            yield b"[^/]"
            at += 1
        elif byte == b"[":
            group, at = _group(text, at + 1)
            yield b"(?!/)" + group
        else:
            at += byte == b"\\"
            if at == len(text):
                raise ValueError("ends in a backslash")
            yield re.escape(text[at : at + 1])
            at += 1


def _joined(tokens: Iterable[bytes]) -> bytes:
    """Return the regular expression of a pattern; a match takes at most time O(length of path * length of pattern).

    The first place where the part after a wildcard matches leaves the most text for the later parts, so an atomic group
    keeps it. Only the last part may move: after a star to the next slash, after `**/` to the end.
    """
    places: list[bytes] = [b""]  # each `**/` with the text after it
    segment: list[bytes] = [b""]  # the parts between stars
    for token in tokens:
        if token == STAR:
            segment.append(b"")
        elif token in (b"/", ANY_FOLDERS, SOME_FOLDERS):
            places[-1] += _segment(segment)
            segment = [b""]
            if token == b"/":
                places[-1] += token
            else:
                places.append(token)
        else:
            segment[-1] += token
    places[-1] += _segment(segment)
    *kept, last = places
    return b"".join(b"(?>" + place + b")" for place in kept) + last


def _segment(parts: list[bytes]) -> bytes:
    """Return the regular expression of the parts between the stars of one segment of a path."""
    if len(parts) == 1:
        return parts[0]
    first, *kept, last = parts
    return first + b"".join(b"(?>[^/]*?" + part + b")" for part in kept) + STAR + last


def _group(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the regular expression of the bracket group whose content begins `at`, and the position after it."""
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    members, first, start = b"", True, b""
    while first or text[at : at + 1] != b"]":
        first = False
        if text[at : at + 2] == b"[:" and (end := text.find(b":]", at + 2)) > 0 and b"]" not in text[at + 2 : end]:
            if (name := text[at + 2 : end]) not in CHARACTER_CLASSES:
                raise ValueError("an unknown class of characters")
            members, start, at = members + CHARACTER_CLASSES[name], b"", end + 2
            continue
        is_range = text[at : at + 1] == b"-" and start and text[at + 1 : at + 2] not in (b"", b"]")
        at += bool(is_range)
        at += text[at : at + 1] == b"\\"
        byte = text[at : at + 1]
        if not byte:
            raise ValueError("a group that does not end")
        at += 1
        if is_range:
            members += re.escape(start) + b"-" + re.escape(byte) if start <= byte else b""
            start = b""
        else:
            members, start = members + re.escape(byte), byte
    content = b"^" if negated else b""
    if not members:
        return (b"." if negated else b"(?!)"), at + 1
    return b"[" + content + members + b"]", at + 1
