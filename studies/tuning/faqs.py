"""Collections of questions that communities asked often, and of the headings of manuals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from studies.tuning.gathered import Gathered
from studies.tuning.packages import Section, html_text, members, one_line, pod_sections, sections

NUMBER = re.compile(r"^(?:[A-Z]?(?:\d+|[A-Z])(?:\.\d+)*[.:)]?\s+)")  # "11.1. ", "J.6.4 ", "G12. "
PASSAGE = 200  # words, about
SHORTEST_PAGE = 60  # words, with the markup
DELTA = re.compile(r"perl[0-9]+delta|perltoc|perl(?:cn|jp|ko|tw)\.")  # copies, and other languages


class Manual(NamedTuple):
    """Pages of a package, and the part of them whose headings are questions."""

    package: str
    pages: str
    faq: str = "-"  # a regular expression of paths


SOFTWARE = (
    Manual("debian-faq", "*/FAQ/*.en.html", faq="."),
    Manual("r-doc-html", "usr/share/R/doc/manual/*.html", faq="R-FAQ"),
    Manual("privoxy", "usr/share/doc/privoxy/*/*.html", faq="/faq/"),
    Manual("fetchmail", "usr/share/doc/fetchmail/*.html", faq="FAQ"),
    Manual("zsh-doc", "*/html/*.html", faq="FAQ"),
    Manual("python-django-doc", "*/html/*.html", faq="/faq/"),
    Manual("python-sqlalchemy-doc", "*/html/*.html", faq="/faq/"),
    Manual("harden-doc", "*/html/en-US/*.html", faq="faq"),
    Manual("debian-handbook", "*/html/en-US/*.html"),
)


def perl(packages: Mapping[str, Path]) -> Gathered:
    """Questions of the Perl FAQ, its answers, and the sections of Perl's other documentation."""
    collection = Gathered()
    for path, pod in members(packages["perl-doc"], "*/pod/*.pod"):
        if DELTA.search(path):
            continue
        name = Path(path).stem
        is_faq = re.fullmatch(r"perlfaq\d|perlunifaq", name) is not None
        _add_sections(collection, name, pod_sections(pod), is_faq)
    return collection


def software(packages: Mapping[str, Path]) -> Gathered:
    """Questions of the FAQs of some programs, the answers, and the sections of their manuals."""
    collection = Gathered()
    for manual in SOFTWARE:
        for path, page in members(packages[manual.package], manual.pages):
            name = f"{manual.package}/{Path(path).stem}"
            _add_sections(collection, name, sections(page), re.search(manual.faq, path) is not None)
    return collection


def _add_sections(collection: Gathered, name: str, parts: Iterable[Section], is_faq: bool) -> None:
    """Add sections under their headings; a section of a FAQ whose heading is a question loses the heading."""
    for position, part in enumerate(parts):
        number = f"{name}#{position}"
        heading = NUMBER.sub("", part.heading).strip("¶ ")
        if is_faq and _is_question(heading):
            collection.add(number, part.text)
            collection.ask(heading, [number])
        else:
            collection.add(number, part.text, heading)


def _is_question(heading: str) -> bool:
    """Whether a heading asks something that makes sense alone, unlike "What is it?"."""
    return heading.endswith("?") and len(re.findall(r"\w{4,}", heading)) > 1


def anarchism(packages: Mapping[str, Path]) -> Gathered:
    """Questions of the Anarchist FAQ, and the passages of its long answers, which are all relevant."""
    collection = Gathered()
    for path, page in members(packages["anarchism"], "*/html/*.html"):
        for place, part in enumerate(sections(page)):
            passages = list(_passages(part.text))
            numbers = [f"{Path(path).stem}#{place}.{number}" for number in range(len(passages))]
            for number, passage in zip(numbers, passages, strict=True):
                collection.add(number, passage)
            heading = NUMBER.sub("", part.heading)
            if _is_question(heading) and Path(path).name.startswith("sec"):
                collection.ask(heading, numbers)
    return collection


def _passages(text: str) -> Iterator[str]:
    """The text in passages of whole lines, each ended once it has `PASSAGE` words."""
    passage = list[str]()
    for line in text.split("\n"):
        passage += line.split()
        if len(passage) >= PASSAGE:
            yield " ".join(passage)
            passage = []
    if passage:
        yield " ".join(passage)


def office(packages: Mapping[str, Path]) -> Gathered:
    """Entries of the index of LibreOffice's help, "calculating annuities", and its pages."""
    collection = Gathered()
    for path, page in members(packages["libreoffice-help-en-us"], "*/en-US/text/*.html"):
        parts = [part for part in sections(page) if part.level]
        if parts:
            text = " ".join(f"{part.heading} {part.text}" for part in parts[1:])
            collection.add(_page(path), one_line(f"{parts[0].text} {text}"), parts[0].heading)
    for _, script in members(packages["libreoffice-help-en-us"], "*/en-US/bookmarks.js"):
        for url, entry in re.findall(r'\{url:"([^"?]*)[^"]*", app:"\w*", text:("(?:[^"\\]|\\.)*")\}', script):
            head, _, rest = json.loads(entry).partition(" -- ")
            collection.ask(one_line(f"{head} {rest}"), [_page(url)])
    return collection


def _page(path: str) -> str:
    return path.rpartition("en-US/")[2].removesuffix(".html")


def music(packages: Mapping[str, Path]) -> Gathered:
    """Titles of LilyPond snippets, "Adding bar lines to ChordNames context", the snippets, and sections of manuals."""
    collection = Gathered()
    for folder in ("snippets", "notation", "learning", "usage", "extending"):
        for path, page in members(packages["lilypond-doc-html"], f"*/Documentation/{folder}/*.html"):
            if Path(path).stem.count(".") or Path(path).stem in {"index", "index_toc"}:  # other languages, contents
                continue
            for place, part in enumerate(sections(page)):
                number = f"{folder}/{Path(path).stem}#{place}"
                if folder == "snippets" and part.level > 1:
                    collection.add(number, part.text)
                    collection.ask(part.heading, [number])
                else:  # the manuals repeat snippets
                    text = re.split(r"^Selected Snippets$", part.text, flags=re.MULTILINE)[0]
                    collection.add(number, text, NUMBER.sub("", part.heading))
    return collection


def desktop(packages: Mapping[str, Path]) -> Gathered:
    """Titles of GNOME's help, "Why won't my computer turn back on?", and pages of GNOME, LibreOffice and GIMP."""
    collection = Gathered()
    for path, page in members(packages["gnome-user-docs"], "*/C/*/*.page"):
        body = re.sub(r"<info>.*?</info>|<comment>.*?</comment>", "", page, flags=re.DOTALL)
        title = re.search(r"<title>(.*?)</title>", body, re.DOTALL)
        if title and len(body.split()) >= SHORTEST_PAGE:  # not a list of others
            collection.add(Path(path).stem, html_text(body.replace(title[0], "", 1)))
            collection.ask(html_text(title[1]), [Path(path).stem])
    collection.documents |= office(packages).documents
    for path, page in members(packages["gimp-help-en"], "*/help/en/*.html"):
        for place, part in enumerate(sections(page)):
            collection.add(f"gimp/{Path(path).stem}#{place}", part.text, NUMBER.sub("", part.heading))
    return collection
