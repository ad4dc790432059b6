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
# A member of a bracket group: a class, else a byte or a range of bytes, each after a backslash or not.
MEMBER = re.compile(rb"\[:([^]]*?):\]|\\?+(.)(?:-(?!\])\\?+(.))?", re.DOTALL)
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
            stars = len(text) - at - len(text[at:].lstrip(b"*"))
            begins_name = at == 0 or text[at - 1 : at] == b"/"
            at += stars
            # Several stars cross folders only if they are a whole name of the path.
            if stars == 1 or not begins_name:
                yield STAR
            elif at == len(text):
                yield b".*"
            elif text.startswith(b"/", at):
                yield ANY_FOLDERS
                at += 1
            elif text.startswith(b"\\/", at):
                yield SOME_FOLDERS
                at += 2
            else:
                yield STAR
        elif byte == b"?":
            yield b"[^/]"
            at += 1
        elif byte == b"[":
            group, at = _group(text, at + 1)
            yield b"(?!/)" + group
        else:
            # A byte that stands for itself.
            at += byte == b"\\"
            if at == len(text):
                raise ValueError("ends in a backslash")
            yield re.escape(text[at : at + 1])
            at += 1


def _joined(tokens: Iterable[bytes]) -> bytes:
    """Return the regular expression of a pattern; a match takes at most time O(length of path * length of pattern).

    After a wildcard, the first place where the next part matches leaves the most text for all later parts. If the rest
    does not match from there, it matches from no later place, so an atomic group `(?>...)` forbids to look for one. The
    last part must also reach the end, so it alone is looked for at later places.
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
    first, members = at, b""
    # `]` ends the group, unless it is the first member.
    while at == first or text[at : at + 1] != b"]":
        if (member := MEMBER.match(text, at)) is None:
            raise ValueError("a group that does not end")
        at = member.end()
        name, start, end = member.groups()
        if name is None:
            members += re.escape(start)
        elif name in CHARACTER_CLASSES:
            members += CHARACTER_CLASSES[name]
        else:
            raise ValueError("an unknown class of characters")
        # The start of a range is a member, even if the range is empty, such as `z-a`.
        if end is not None and start <= end:
            members += re.escape(start) + b"-" + re.escape(end)
    return b"[" + b"^" * negated + members + b"]", at + 1
