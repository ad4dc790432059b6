"""A service that follows its folder: how soon changed pages are found, beside clients, after a kill, and one by one.

    python benchmarks/watch.py --pages 3000 --changed 1000

A folder of short Markdown pages with texts of Python's documentation, a tenth of them with links in brackets, is
indexed and served by `vocable serve INDEX --watch FOLDER`. Then, as by a git checkout, most of the changed pages are
written anew, and some added and deleted, while clients search all the time. Seconds count from the last write, and a
sample of the pages is searched by a word that only its new text has. In a second change the process is killed once the
first page is found, and started again: what it did before and after must be each page once. At last one page a time is
written, without clients. The exit status is 1 after an answer with an error, a deleted page that is found, or a
change that was made twice or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from itertools import cycle, islice
from os import getloadavg
from pathlib import Path
from threading import Event, Thread
from typing import IO

from load import Loaded, client
from served import Served

import vocable as vo
from vocable.core.folders import files_of
from vocable.data.pages.wiki_links import links_between

SAMPLE, WORDS, CLIENTS, MOST_SECONDS = 20, 30, 4, 600.0


class Watching(Served):
    """A service that follows a folder, and what it has said of changes."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []  # since it listens
        super().__init__(command, environment)

    def _drain(self, lines: IO[str]) -> None:
        for line in lines:
            self.lines.append(line)
            if '"level": "error"' in line or "no longer followed" in line:
                self.failures.append(line)

    @property
    def changes(self) -> list[str]:
        """What it has told of changes."""
        return [line.partition("watch: ")[2].strip() for line in (*self.said, *self.lines) if "watch: " in line]

    def wait_for(self, count: int) -> None:
        """Wait until so many changes were told."""
        while len(self.changes) < count:
            time.sleep(0.05)

    @staticmethod
    def commits(place: Path) -> int:
        """Return the number of the last commit of an index in a folder."""
        return int(json.loads((place / "commit.json").read_text())["number"])

    def has(self, word: str) -> bool:
        """Whether a search for a word finds a text with it."""
        body = json.dumps({"query": word, "k": 3}).encode()
        request = urllib.request.Request(f"{self.url}/search", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return any(word in hit["text"] for hit in json.load(answer)["hits"])


class Pages:
    """The folder: pages with a word of their own in each round of changes."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        entries = islice(vo.read_corpus("pydocs:"), count)
        self.texts = [" ".join(re.findall(r"[A-Za-z]+", entry.full)[:WORDS]) for entry in entries]
        for number in range(count):
            self.write(number, 0)

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number % 30}" / f"page-{number}.md"

    def write(self, number: int, turn: int) -> None:
        path, text = self.path(number), self.texts[number % len(self.texts)]
        path.parent.mkdir(parents=True, exist_ok=True)
        link = f" [[page-{(number * 7) % self.count}]]" * (number % 10 == 0)
        path.write_text(f"# Page {number}\n\n{word(number, turn)} {text}{link}\n")


def word(number: int, turn: int) -> str:
    return f"mark{number}turn{turn}"


class Beside:
    """Clients that search all the time, in a thread; answers of each phase."""

    def __init__(self, url: str, queries: list[str], name: str) -> None:
        self.into, self.stop = Loaded(name, 0, [], Counter(), 0), Event()
        bodies = [json.dumps({"query": query}).encode() for query in queries]
        self.began, self.thread = time.perf_counter(), Thread(target=asyncio.run, args=(self._search(url, bodies),))
        self.thread.start()

    async def _search(self, url: str, bodies: list[bytes]) -> None:
        while not self.stop.is_set():
            until = time.perf_counter() + 0.5
            await asyncio.gather(
                *(client(url, "/search", bodies, until, number, self.into) for number in range(CLIENTS))
            )

    def row(self) -> str:
        """Stop, and return the row of the phase."""
        self.stop.set()
        self.thread.join()
        seconds, times = time.perf_counter() - self.began, self.into.times
        wrong = sum(count for status, count in self.into.statuses.items() if status != 200)
        p50 = statistics.median(times)
        rate = f"{len(times) / seconds:.1f}"
        return f"| {self.into.name} | {rate} | {p50:,.0f} | {max(times):,.0f} | {wrong} | {getloadavg()[0]:.1f} |"


def found_after(served: Watching, wanted: list[str], began: float) -> list[float]:
    """Return the seconds until each word is found."""
    left, seconds = [*wanted], list[float]()
    while left:
        assert time.perf_counter() - began < MOST_SECONDS, f"not found: {left}"
        for one in [*left]:
            if served.has(one):
                left.remove(one)
                seconds.append(time.perf_counter() - began)
        time.sleep(0.02)
    return seconds


def sample(numbers: range) -> list[int]:
    return [*numbers][:: max(1, len(numbers) // SAMPLE)]


def checkout(pages: Pages, changed: int) -> list[str]:
    """Change pages as `git checkout` does; return words of a sample of new texts."""
    fresh = changed // 20
    written = range(fresh, changed - fresh)
    for number in written:
        pages.write(number, 1)
    for number in range(fresh):
        pages.path(number).unlink()
        pages.write(pages.count + number, 1)
    return [word(number, 1) for number in [*sample(written), pages.count, pages.count + fresh - 1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=3_000)
    parser.add_argument("--changed", type=int, default=1_000)
    parser.add_argument("--model", default="vocable-mini-doc")
    parser.add_argument("--singles", type=int, default=20, help="changes of one page")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the phases before and after the change")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vocable-watch-") as name:
        folder, place = Path(name, "pages"), Path(name, "index")
        pages = Pages(folder, given.pages)
        words = [sys.executable, "-m", "vocable", "index", given.model, str(folder), "-o", str(place), "--no-dense"]
        began = time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f"index of {given.pages:,} pages: {time.perf_counter() - began:.0f} s", flush=True)
        for _ in range(2):
            began = time.perf_counter()
            links_between(folder, files_of(folder).files)
        print(f"links between them, once more: {time.perf_counter() - began:.2f} s", flush=True)
        wrong = beside_clients(place, pages, given.changed, given.seconds)
        wrong += killed(place, pages, given.changed)
        one_by_one(place, pages, given.singles)
    print("wrong:", wrong or "nothing")
    return int(bool(wrong))


def beside_clients(place: Path, pages: Pages, changed: int, seconds: float) -> list[str]:
    """Change many pages while clients search."""
    queries, rows = [text[:60] for text in pages.texts[:200]], []
    with Watching.vocable(place, "--watch", pages.folder) as served:
        served.wait_for(1)
        for name in ("before", "during", "after"):
            beside = Beside(served.url, queries, name)
            if name == "during":
                commits = served.commits(place)
                words = checkout(pages, changed)
                times = found_after(served, words, time.perf_counter())
                gone = [word(number, 0) for number in sample(range(changed // 20))]
                while any(map(served.has, gone)):
                    time.sleep(0.1)
            else:
                time.sleep(seconds)
            rows.append(beside.row())
        print(
            "| searches | answers/s | p50 ms | slowest ms | errors | load |\n|:--|--:|--:|--:|--:|--:|", *rows, sep="\n"
        )
        times.sort()
        print(f"found after {times[0]:.1f} to {times[-1]:.1f} s, median {statistics.median(times):.1f} s")
        print(f"{served.commits(place) - commits} commits:", *served.changes[1:], sep="\n  ", flush=True)
        return served.failures + [row for row in rows if row.split(" | ")[4] != "0"]


def killed(place: Path, pages: Pages, changed: int) -> list[str]:
    """Kill the service in the middle of a change, and start it again."""
    numbers = range(changed, min(2 * changed, pages.count))
    with Watching.vocable(place, "--watch", pages.folder) as served:
        served.wait_for(1)
        for number in numbers:
            pages.write(number, 2)
        until = time.perf_counter() + MOST_SECONDS
        some = [word(number, 2) for number in sample(numbers)]
        for one in cycle(some):
            if served.has(one) or time.perf_counter() > until:
                break
        served.process.kill()
    with vo.open_index(place) as opened:
        done = sum("turn2 " in document.text for document in opened.documents([*opened.store.ids()]) if document)
    began = time.perf_counter()
    with Watching.vocable(place, "--watch", pages.folder) as served:
        times = found_after(served, some, began)
        served.wait_for(1)
        print(f"killed after {done} of {len(numbers)} pages; all found {max(times):.1f} s after the start:")
        print(f"  {served.changes[0]}", flush=True)
    with vo.open_index(place) as opened:
        ids = [*opened.store.ids()]
    replaced = re.search(r"([\d,]+) replaced", served.changes[0])
    again = int(replaced[1].replace(",", "")) if replaced else 0
    faults = [] if done + again == len(numbers) else [f"{done} and {again} of {len(numbers)} pages were replaced"]
    return faults + ([] if len(ids) == len({*ids}) == pages.count else [f"{len(ids)} documents of {pages.count} pages"])


def one_by_one(place: Path, pages: Pages, repeats: int) -> None:
    """Write one page at a time."""
    with Watching.vocable(place, "--watch", pages.folder) as served:
        served.wait_for(1)
        times = list[float]()
        for number in range(pages.count - repeats, pages.count):
            pages.write(number, 3)
            times += found_after(served, [word(number, 3)], time.perf_counter())
        print(
            f"one page: median {statistics.median(times):.2f} s, worst {max(times):.2f} s, load {getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
