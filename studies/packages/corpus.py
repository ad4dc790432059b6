"""The corpus: passages of groups of packages, in files that a repeated call keeps."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote

from studies.packages.debian import Apt, Package, files, is_documentation, licences
from studies.packages.passages import Passage, Unseen, passages, sentences
from studies.packages.texts import read_file
from vocable.core.processes import WorkerPool, worker_pool
from vocable.core.progress import progress
from vocable.core.storage import replacing
from vocable.core.tables import Table
from vocable.data.pages.blocks import Block, Page

GROUP = 60  # packages that are downloaded at once
MOST, READ = 4_000, 10 << 20  # passages and bytes of a package, so that no package is much of the corpus
KNOWN_ITEMS = 500  # one passage in so many loses a sentence, which becomes a query
NAMED = 3  # licences in the table
NICE = 5  # of the processes that read packages

Line = dict[str, Any]


class Texts(NamedTuple):
    """The passages of a package, each with its format, and the package's licences."""

    package: str
    version: str
    licences: list[str]
    passages: list[tuple[str, Passage]]


def make_corpus(output: Path, count: int, processes: int) -> None:
    """Write the passages of groups of packages until there are `count`; the first group are all descriptions."""
    output.mkdir(parents=True, exist_ok=True)
    apt, unseen = Apt(output / "lists"), Unseen()
    packages = apt.packages()
    chosen = iter([package.name for package in packages if is_documentation(package)])
    groups = iter(lambda: list(islice(chosen, GROUP)), [])
    with progress("passages", count) as advance, worker_pool(processes, os.nice, NICE) as pool:
        read_groups = chain([_descriptions(packages)], (_documents(group, apt, output, pool) for group in groups))
        done = 0
        for number, group in enumerate(read_groups):
            added = _make(output, number, group, unseen)
            advance(added)
            done += added
            if done >= count:
                return


def _descriptions(packages: Iterable[Package]) -> Iterator[Texts]:
    for package in packages:
        found = [("descriptions", passage) for passage in passages(description_page(package.description))]
        yield Texts(f"{package.name}/description", package.version, ["of the package"], found)


def description_page(description: str) -> Page:
    """Return the page of a package's description, whose summary is a heading."""
    summary, _, rest = description.partition("\n")
    paragraphs = rest.replace("\n .\n", "\n\n").split("\n\n")
    return Page([Block(summary, 1, 2), *(Block(" ".join(paragraph.split()), 2) for paragraph in paragraphs)])


def _documents(names: Sequence[str], apt: Apt, folder: Path, pool: WorkerPool) -> Iterator[Texts]:
    with TemporaryDirectory(dir=folder) as place:
        yield from pool.map(read_package, apt.download(names, Path(place)))


def read_package(deb: Path) -> Texts:
    """Read the texts of a package up to a number of bytes, and its licences."""
    name, version, _ = unquote(deb.name).split("_")
    names, found, read = set[str](), list[tuple[str, Passage]](), 0
    for path, content in files(deb):
        if path.endswith("/copyright"):
            names.update(licences(content.decode("utf-8", "replace")))
        elif len(found) < MOST and read < READ:
            kind, page = read_file(path, content)
            found += [(kind, passage) for passage in passages(page)]
            read += len(content)
    return Texts(name, version, sorted(names), found[:MOST])


def _make(output: Path, number: int, group: Iterator[Texts], unseen: Unseen) -> int:
    """Write the new passages of a group, first their sources; return the count of passages, also of files kept."""
    path = output / f"passages-{number:05d}.jsonl.gz"
    if path.exists():
        return sum(unseen.add(line["text"] + line.get("sentence", "")) or 1 for line in read(path))
    kept, sources = list[Line](), list[Line]()
    for texts in group:
        new = list(_lines(texts, unseen))
        if new:
            counts = Counter(line["format"] for line in new)
            sources.append(
                {"package": texts.package, "version": texts.version, "licences": texts.licences, "passages": counts}
            )
            kept += new
    with replacing(output / f"sources-{number:05d}.json") as file:
        file.write(json.dumps(sources, indent=1).encode())
    write(path, kept)
    return len(kept)


def _lines(texts: Texts, unseen: Unseen) -> Iterator[Line]:
    for number, (kind, passage) in enumerate(texts.passages, start=1):
        if unseen.add(passage.text):
            line: Line = {"_id": f"{texts.package}/{number}", "text": passage.text, "page": passage.page}
            line |= {"format": kind, "heading": passage.heading, "part": passage.number}
            yield line | _known_item(passage.text)


def _known_item(text: str) -> Line:
    """Return the text without its second sentence, and this sentence, for one text in `KNOWN_ITEMS`."""
    units = list(sentences(text))
    if zlib.crc32(text.encode()) % KNOWN_ITEMS or len(units) < 3 or not 8 <= len(units[1].split()) <= 30:
        return {}
    return {"text": " ".join([units[0], *units[2:]]), "sentence": units[1]}


def write(path: Path, lines: Iterable[Line]) -> None:
    """Write lines of JSON, compressed."""
    with replacing(path) as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, compresslevel=4) as packed:
        packed.writelines(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a file of `write`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def all_lines(output: Path) -> Iterator[Line]:
    """Yield the passages of a corpus."""
    return chain.from_iterable(map(read, sorted(output.glob("passages-*.jsonl.gz"))))


def sources(output: Path) -> Table:
    """Return the passages by format, each with its packages and their most frequent licences."""
    passages_of, packages_of, licences_of = Counter[str](), Counter[str](), defaultdict[str, Counter[str]](Counter)
    for path in sorted(output.glob("sources-*.json")):
        for source in json.loads(path.read_text()):
            for kind, count in source["passages"].items():
                passages_of[kind] += count
                packages_of[kind] += 1
                licences_of[kind].update(dict.fromkeys(source["licences"], count))
    rows = [
        [
            kind,
            f"{count:,}",
            f"{packages_of[kind]:,}",
            ", ".join(name for name, _ in licences_of[kind].most_common(NAMED)),
        ]
        for kind, count in passages_of.most_common()
    ]
    title = f"{sum(passages_of.values()):,} passages"
    return Table(title, ["format", "passages", "packages", "most frequent licences"], rows)
