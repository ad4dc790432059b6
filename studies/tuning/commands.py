"""Tasks of cheat sheets that people wrote for themselves, and the manual pages of the commands that do them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from studies.tuning.gathered import Gathered
from studies.tuning.packages import members, one_line

LEFT_OUT = re.compile(r"SYNOPSIS|EXAMPLE|AUTHOR|COPYRIGHT|REPORTING|SEE ALSO|LICENSE|AVAILABILITY|HISTORY|BUGS")
FONTS = {*"BIR", "BR", "RB", "IR", "RI", "BI", "IB", "SM", "SB", "IP", "SS"}  # of man, whose arguments are text
MDOC = {
    "Nm",
    "Nd",
    "It",
    "Fl",
    "Ar",
    "Cm",
    "Ic",
    "Li",
    "Pa",
    "Em",
    "Sy",
    "Xr",
    "Ql",
    "Dq",
    "Sq",
    "Ev",
    "Dv",
    "Va",
    "Ss",
}
FEWEST, MOST = 3, 25  # words of a task


def commands(packages: Mapping[str, Path]) -> Gathered:
    """Comments such as "# To extract a .gz archive:" above a command, and the manual page of that command."""
    collection = Gathered()
    for name in sorted(packages.keys() - {"cheat"}):
        for path, source in members(packages[name], "usr/share/man/man[1578]/*.gz"):
            page, text = manual_page(source)
            collection.add(Path(path).name.removesuffix(".gz"), text, page)
    for _, sheet in members(packages["cheat"], "cheat-*/cheat/cheatsheets/*"):
        for task, command in tasks(sheet):
            numbers = (f"{name}.{section}" for name in _names(command) for section in (1, 8))
            if number := next((number for number in numbers if number in collection.documents), None):
                collection.ask(task, [number])
    return collection


def tasks(sheet: str) -> Iterator[tuple[str, str]]:
    """Yield each comment of a cheat sheet that stands right above a command, and the command."""
    for comment, command in re.findall(r"((?:^#.*\n)+)^(?!#)[ $]*(\S.*)$", sheet, re.MULTILINE):
        task = one_line(re.sub(r"^#+", "", comment, flags=re.MULTILINE)).rstrip(":")
        if FEWEST <= len(task.split()) <= MOST:
            yield task, command


def _names(command: str) -> Iterator[str]:
    """Yield the names that a command's page may have, the most particular first: git-commit, git."""
    first, *rest = re.sub(r"^(?:sudo|time|\w+=\S*)\s+", "", command).split() or [""]
    yield from (f"{first}-{word}" for word in rest[:1] if word.isalpha())
    if first != "git":  # what has no page of its own is an alias
        yield first


def manual_page(source: str) -> tuple[str, str]:
    """Return the line of a manual page's section NAME, and its text without synopsis, examples and the like."""
    kept: dict[str, list[str]] = {}
    heading, name = "", ""
    source = re.sub(r"^\.de.*?^\.\.$", "", source, flags=re.MULTILINE | re.DOTALL)  # definitions of macros
    for line in source.split("\n"):
        macro, _, arguments = line[1:].strip().partition(" ") if line[:1] in {".", "'"} else ("", "", line)
        if macro in {"SH", "Sh"}:
            heading = _plain(arguments).upper()
        elif macro in {"", *FONTS}:
            kept.setdefault(heading, []).append(_plain(arguments))
        elif macro in MDOC:
            name = name or (arguments if macro == "Nm" else "")
            text = arguments if arguments or macro != "Nm" else name
            kept.setdefault(heading, []).append(_plain(_without_macros(f"{macro} {text}")))
    title = one_line(" ".join(kept.pop("NAME", [])))
    texts = [" ".join(lines) for heading, lines in kept.items() if heading and not LEFT_OUT.search(heading)]
    return title, one_line(" ".join(texts))


def _without_macros(arguments: str) -> str:
    """The arguments of an mdoc macro, without the names of the macros in them."""
    words = re.sub(r"\bFl ", "-", re.sub(r"^Nd ", "- ", arguments)).split()
    return " ".join(word for word in words if word not in MDOC | {"Ns", "Op", "Oo", "Oc", "No", "Ap"})


def _plain(text: str) -> str:
    """The text of a line of troff: without fonts, sizes and quotes of arguments."""
    text = re.sub(r"\\f(?:\[[^\]]*\]|\(..|.)|\\s[-+]?\d+|\\m\[[^\]]*\]|\\[&,/|^%:]|\\\".*", "", text)
    text = re.sub(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]", "'", text)
    text = re.sub(r"\\(?:\(..|\[[^\]]*\]|\*\(..|\*\[[^\]]*\]|\*.)", " ", text)
    return one_line(
        re.sub(r"\\([- ~e.])", lambda escape: {"-": "-", "e": "\\", ".": "."}.get(escape[1], " "), text).replace(
            '"', ""
        )
    )
