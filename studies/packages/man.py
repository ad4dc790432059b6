"""Manual pages in roff (the macros man and mdoc) as blocks of text, without code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from vocable.data.pages.blocks import Block, Page

HEADINGS = {"TH": 1, "Dt": 1, "SH": 2, "Sh": 2, "SS": 3, "Ss": 3}
BREAKS = frozenset(
    ["PP", "P", "LP", "IP", "TP", "HP", "TQ", "Pp", "sp", "br", "RS", "RE", "It", "Bl", "El", "Bd", "Ed"]
)
CODE = {"nf": "fi", "EX": "EE", "Vb": "Ve", "TS": "TE", "de": ".", "ig": ".", "de1": "."}  # first and last line
FONTS = frozenset(["B", "I", "SM", "SB"])  # macros whose arguments are words
ALTERNATING = frozenset(["BR", "BI", "IR", "IB", "RB", "RI"])  # macros whose arguments are parts of a word
MDOC = frozenset(re.findall("..", "AdAnApAqArBqCdCmDlDoDqDvEmErEvFaFlFnFtIcInLiLkNdNsOpPaPfPqQlQqSoSqStSyTnVaVtXr"))
CHARACTERS = {
    "aq": "'", "oq": "'", "cq": "'", "lq": '"', "rq": '"', "dq": '"', "em": " - ", "en": "-", "hy": "-", "mi": "-",
    "bu": "", "co": "", "rg": "", "tm": "", "L\"": '"', "R\"": '"', "ga": "`", "ti": "~", "ha": "^", "rs": "\\",
}  # fmt: skip
SINGLE = {"e": "\\", "~": " ", "0": " "} | {character: character for character in "\\- '`."}
ESCAPE = re.compile(
    r"""\\(?:f(?:\(..|\[[^]]*\]|.) | s[-+]?\d+ | [*]?(?:\((?P<two>..)|\[(?P<name>[^]]*)\]) | [*].
    | [hvwmN](?:'[^']*'|\[[^]]*\]) | (?P<single>.) | $)""",
    re.VERBOSE,
)
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')
NAME = re.compile(r"name", re.IGNORECASE)


def man_page(text: str) -> Page:
    """Return the page of a manual page; its title is the line below NAME, such as "ls - list directory contents"."""
    blocks = list(_blocks(text.split("\n")))
    below = (after.text for block, after in pairwise(blocks) if NAME.fullmatch(block.text))
    title = next(below, next((block.text for block in blocks if block.level == 1), ""))
    return Page([block for block in blocks if block.level != 1 and block.text != title], title)


def _blocks(lines: list[str]) -> Iterator[Block]:
    pieces, start, until = list[str](), 1, ""
    for number, line in enumerate(lines, start=1):
        macro, _, rest = line[1:].lstrip().partition(" ") if line[:1] in (".", "'") else ("", "", line)
        if until:
            until = "" if macro == until else until
            continue
        until = CODE.get(macro, "")
        level = HEADINGS.get(macro, 0)
        if (until or level or macro in BREAKS or not line.strip()) and pieces:
            yield Block(" ".join(" ".join(pieces).split()), start)
            pieces = []
        if level and (words := _arguments(rest)):
            yield Block(words[0] if level == 1 else " ".join(words), number, level)
        elif text := _text(macro, rest):
            start = start if pieces else number
            pieces.append(text)
    if pieces:
        yield Block(" ".join(" ".join(pieces).split()), start)


def _text(macro: str, rest: str) -> str:
    """Return the words of a line; the first macro of mdoc is followed by others."""
    if not macro:
        return plain(rest)
    if macro in ALTERNATING:
        return "".join(_arguments(rest))
    if macro in FONTS:
        return " ".join(_arguments(rest))
    if macro == "Nd":
        return "- " + plain(rest)
    return " ".join(word for word in _arguments(rest) if word not in MDOC) if macro in MDOC or macro == "Nm" else ""


def _arguments(rest: str) -> list[str]:
    return [plain(quoted.replace('""', '"') or word) for quoted, word in ARGUMENT.findall(rest)]


def plain(text: str) -> str:
    r"""Return a text without the escapes of roff.

    >>> plain(r'\fBls\fR [\-l] \(lqname\(rq \*(L"a\*(R"\&.')
    'ls [-l] "name" "a".'
    """
    return ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    if single := escape["single"]:
        return SINGLE.get(single, "")
    return CHARACTERS.get(escape["two"] or escape["name"] or "", "")
