"""Kill the process of a collection at random moments while it adds, replaces and deletes, and check what it keeps.

    python tests/slow/crash.py --kills 1000

A process (a fork, `preloaded.py`) adds, replaces and deletes random batches of documents in an index made with
--bm25. It writes to a log what it begins, and that it is done when the call has returned. It is killed: three times of
four at a random moment of that work, else after its start, while it opens the index or counts its words anew. The next
process opens the same folder and compares what is there with the log, then goes on. It finds

    lost    a document, or a deletion, that the log says was done
    half    a document of the operation that was cut short that is neither the old nor the new one, or whose vectors are
            not those of its text
    wrong   a search (sparse, BM25, hybrid, with a filter) that is not that of the exact index over what is there, or
            figures of BM25 that are not those of a count

Vectors are made of a text's words directly, so that no time goes into encoding. The exit status is 1 if anything is
found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from preloaded import Ran, end, preload, run, start

preload()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from machine import machine, print_machine  # noqa: E402
from scipy.sparse import csr_array  # noqa: E402

from vocable.collection.collection import Collection  # noqa: E402
from vocable.collection.statistics import DRIFT  # noqa: E402
from vocable.collection.verbs import index, open_index  # noqa: E402
from vocable.data import Document  # noqa: E402
from vocable.encoding.protocol import EncodedTexts  # noqa: E402
from vocable.encoding.vectors import VectorsMeta, write_vectors  # noqa: E402
from vocable.engines.edge import EdgeStore  # noqa: E402
from vocable.engines.filters import matches, parse_filter  # noqa: E402
from vocable.indexes.exact_index import ExactIndex  # noqa: E402
from vocable.indexes.fusion import aligned, weighted  # noqa: E402
from vocable.indexes.ranking import Ranking, ranking_of  # noqa: E402
from vocable.indexes.word_counts import K1, B  # noqa: E402
from vocable.language.words import stemmed  # noqa: E402

WORDS = [f"{start}{middle}{end}" for start in "bdgklmnprt" for middle in ("a", "ei", "o", "u") for end in "dlmnrt"]
V = 500  # terms of the sparse vectors
IDS = [f"d{number}" for number in range(297)] + ["a/b c", "Ålesund", "日本"]
FIRST = 60  # documents that the index is made with
ROUNDS = 25  # kills of one folder
WORK, OPENING = 0.4, 0.2  # seconds within which a kill comes, of work and of opening
FILTERS = ("lang=de", "year>=2015 and not lang=en")
FOUND = ("lost", "half", "wrong")
Versions = dict[str, list[Document | None]]  # what an operation makes of each id, in turn; None where it deletes


class DamageError(Exception):
    """A contradiction of the log; its text begins with one of `FOUND`, or is an error of another kind."""


class WordVectors:
    """In place of a model: a text's vector has a term for each word, by a checksum, that weighs the same everywhere."""

    truncated = windows_read = unknown = 0

    def encode(self, texts: Sequence[str], advance: object = None) -> csr_array:
        """The vectors [m, v] of m texts."""
        rows = [{crc32(word.encode()) % V: 1 + len(word) / 8 for word in set(text.split())} for text in texts]
        indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
        columns = np.array([column for row in rows for column in sorted(row)], np.int32)
        weights = np.array([row[column] for row in rows for column in sorted(row)], np.float32)
        return csr_array((weights, columns, indptr), shape=(len(rows), V))

    def encode_both(self, texts: Sequence[str], advance: object = None) -> EncodedTexts:
        """The vectors of m texts, without dense ones."""
        return EncodedTexts(self.encode(texts))


def document(identifier: str, rng: random.Random, length: int, least: int = 0) -> Document:
    """A random document of about so many words."""
    words = rng.choices(WORDS, weights=range(len(WORDS), 0, -1), k=rng.randint(least, 2 * length))
    fields = {"lang": rng.choice(["de", "en", "fr"]), "year": rng.randint(2000, 2025), "tags": [rng.random()]}
    return Document(identifier, " ".join(words), f"Title {rng.random()}" if rng.random() < 0.5 else "", fields)


def make(folder: Path) -> None:
    """Make the index."""
    rng = random.Random(0)
    documents = [document(identifier, rng, 8, 1) for identifier in IDS[:FIRST]]
    meta = VectorsMeta("words", "words", "max", "document", 0, V)
    texts = [one.full for one in documents]
    write_vectors(folder / "vectors.parquet", IDS[:FIRST], WordVectors().encode(texts), meta)
    lines = [json.dumps({"_id": one.id, "title": one.title, "text": one.text, **one.fields}) for one in documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    made = index(folder / "vectors.parquet", folder / "corpus.jsonl", folder / "index", bm25=True)
    made.close()
    (folder / "log").write_text(_line("found", [[one.id, one] for one in documents]))


def _line(kind: str, value: Any) -> str:
    return json.dumps([kind, value]) + "\n"


def replayed(log: Path) -> tuple[dict[str, Document], Versions, int]:
    """The documents that the log says are there, what the last operation may have made of them, how many were done."""
    content = log.read_bytes()
    os.truncate(log, content.rfind(b"\n") + 1)  # a line may be cut short by a kill, too
    there: dict[str, Document] = {}
    begun: Versions = {}
    done = 0
    for kind, value in map(json.loads, content[: content.rfind(b"\n") + 1].splitlines()):
        pairs = [(identifier, Document(*one) if one else None) for identifier, one in value]
        if kind == "begun":
            begun = {}
            for identifier, one in pairs:
                begun.setdefault(identifier, []).append(one)
            continue
        for identifier, one in [(key, versions[-1]) for key, versions in begun.items()] if kind == "done" else pairs:
            if one is None:
                there.pop(identifier, None)
            else:
                there[identifier] = one
        begun, done = {}, done + (kind == "done")
    return there, begun, done


def documents_found(collection: Collection, there: dict[str, Document], begun: Versions) -> list[Document]:
    """The documents of a collection; raises `DamageError` if there are others than the log says."""
    ids = sorted(collection.store.ids())
    found = {one.id: one for one in collection.documents(ids) if one is not None}
    if not len(found) == len(ids) == len(collection):
        raise DamageError(f"half: {len(ids)} ids, {len(found)} documents, counted {len(collection)}")
    for identifier in {*there, *found, *begun}:
        got, before = found.get(identifier), there.get(identifier)
        if got not in [before, *begun.get(identifier, [])]:
            kind = "half" if identifier in begun and got else "lost"
            raise DamageError(
                f"{kind}: {identifier!r} is {got}, was {before}, {begun.get(identifier, 'in no operation')}"
            )
    return [found[identifier] for identifier in ids]


def _same(found: csr_array, expected: csr_array, what: str, kind: str = "half") -> None:
    if (found.indptr != expected.indptr).any() or (found.indices != expected.indices).any():
        raise DamageError(f"{kind}: {what}: other terms")
    if not np.allclose(found.data, expected.data, rtol=1e-6):
        raise DamageError(f"{kind}: {what}: weights differ by {np.abs(found.data - expected.data).max()}")


def lexical_weights(collection: Collection, documents: Sequence[Document]) -> tuple[csr_array, dict[str, int]]:
    """BM25's vectors [n, words] by its formula, and how many documents have each word, both compared with the index's.

    The mean length is the one in use, which may be off by `DRIFT`.
    """
    texts, statistics = stemmed([one.full for one in documents]), collection.counts.statistics
    assert statistics is not None
    df, words = Counter(chain.from_iterable(map(set, texts))), sum(map(len, texts))
    with closing(sqlite3.connect(Path(collection.place, "statistics.sqlite"))) as connection:
        rows = connection.execute("SELECT word, number, df FROM words").fetchall()
    numbers = {word: number for word, number, _ in rows}
    mean = statistics["mean"]
    counted, real = [statistics["documents"], statistics["words"], statistics["pending"]], [len(texts), words, 0]
    if counted != real or {word: count for word, _, count in rows if count} != dict(df):
        raise DamageError(f"wrong: BM25 counts {counted}, a count gives {real}; or other words")
    if words and abs(words / len(texts) / mean - 1) > DRIFT:
        raise DamageError(f"wrong: a mean length of {mean} is in use, it is {words / len(texts)}")
    weights = []
    for some in texts:
        norm = K1 * (1 - B + B * len(some) / (mean or 1))
        weights.append({numbers[word]: tf / (tf + norm) for word, tf in Counter(some).items()})
    flat = [(row, number, weight) for row, some in enumerate(weights) for number, weight in sorted(some.items())]
    at, columns, values = (np.array(part) for part in zip(*flat, strict=True)) if flat else (np.zeros(0, int),) * 3
    shape = len(texts), max(numbers.values(), default=0) + 1
    matrix = csr_array((values, (at, columns)), shape=shape)
    ids = [one.id for one in documents]
    _same(csr_array(collection.store.vectors(ids, "bm25")), matrix, "vectors of BM25")
    return matrix, {word: numbers[word] for word in df}


def compare(found: Ranking, expected: Ranking, what: str) -> None:
    """Raise `DamageError` if two rankings of all documents that are hits are not the same."""
    for query in range(len(expected)):
        one, other = dict(found.hits(query)), dict(expected.hits(query))
        if one.keys() != other.keys():
            raise DamageError(f"wrong: {what}: hits that are not in both: {one.keys() ^ other.keys()}")
        if not np.allclose([one[key] for key in other], list(other.values()), rtol=1e-4, atol=1e-6):
            raise DamageError(f"wrong: {what}: other scores")
        if list(one.values()) != sorted(one.values(), reverse=True):
            raise DamageError(f"wrong: {what}: not in order")


def check(collection: Collection, there: dict[str, Document], begun: Versions) -> list[Document]:
    """The documents of a collection, after everything that can be asked of it was compared."""
    documents = documents_found(collection, there, begun)
    ids, n = [one.id for one in documents], max(1, len(documents))
    sparse = WordVectors().encode([one.full for one in documents])
    if documents:
        _same(collection.vectors(ids), sparse, "sparse vectors")
    counts, counted, _ = collection.counts.terms
    if counted != len(ids) or (counts != np.bincount(sparse.indices, minlength=V)).any():
        raise DamageError(f"wrong: the document frequencies of {counted} documents are not those of a count")
    weights, numbers = lexical_weights(collection, documents)
    df = np.diff(weights.tocsc().indptr)
    queries = ["bad dem", "Title", " ".join(WORDS[::9]), "nowhere"]
    vectors = WordVectors().encode(queries)
    for text in (None, *FILTERS):
        filter = None if text is None else parse_filter(text)
        rows = [row for row, one in enumerate(documents) if filter is None or matches(filter, one.fields)]
        some = [ids[row] for row in rows]
        if not rows:
            expected, lexical = (ranking_of([[] for _ in queries], n) for _ in range(2))
        else:
            expected = ExactIndex(sparse[rows], some).search(vectors, n, threads=1)
            scores = []
            for words in stemmed(queries):
                query = np.zeros(weights.shape[1])
                for word, count in Counter(word for word in words if word in numbers).items():
                    column = numbers[word]
                    query[column] = count * np.log1p((len(ids) - df[column] + 0.5) / (df[column] + 0.5))
                scores.append(list(zip(some, (weights[rows] @ query).tolist(), strict=True)))
            lexical = ranking_of(scores, n)
        compare(collection.searcher.rank(vectors, n, filter=filter), expected, f"sparse, filter {text}")
        by_words = collection.searcher.rank(
            collection.counts.lexicon.query_vectors(queries), n, space="bm25", filter=filter
        )
        compare(by_words, lexical, f"BM25, filter {text}")
        both = weighted(aligned([expected, lexical]), [1, 1], depth=n)
        found = collection.search(queries, n, vectors=vectors, hybrid=True, filter=text)
        compare(found, both, f"hybrid, filter {text}")
    return documents


def operations(there: dict[str, Document], rng: random.Random) -> Iterator[list[tuple[str, Document | None]]]:
    """Random operations without end: what they make of each id; `there` follows."""
    while True:
        ids = rng.choices(IDS, k=rng.choice([1, 3, 10, 60]))
        if rng.random() < 0.35:
            pairs: list[tuple[str, Document | None]] = [(identifier, None) for identifier in dict.fromkeys(ids)]
        else:
            length = rng.choice([3, 8, 8, 20])
            fresh = {identifier: document(identifier, rng, length) for identifier in ids}
            same = [there[identifier] for identifier in rng.choices(IDS, k=2) if identifier in there]  # unchanged
            pairs = [*fresh.items(), *((one.id, one) for one in same if one.id not in fresh)]
        yield pairs
        for identifier, one in pairs:
            if one is None:
                there.pop(identifier, None)
            else:
                there[identifier] = one


def work(folder: Path, seed: int, then: bool = True) -> None:
    """Compare the index with the log, say so, and then change it until the end."""
    rng, log, parent = random.Random(seed), folder / "log", os.getppid()
    EdgeStore.about = replace(EdgeStore.about, part=rng.choice([7, 512]))  # so that there are several
    EdgeStore.page = rng.choice([5, 512])
    there, begun, _ = replayed(log)
    with closing(sqlite3.connect(folder / "index" / "statistics.sqlite")) as connection:
        [pending] = connection.execute("SELECT value FROM figures WHERE name = 'pending'").fetchone()
    collection = open_index(folder / "index")
    assert isinstance(collection, Collection)
    collection.models.documents = WordVectors()  # type: ignore[assignment]
    there = {one.id: one for one in check(collection, there, begun)}
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)

    def write(kind: str, pairs: Sequence[Any] = ()) -> None:
        os.write(descriptor, _line(kind, pairs).encode())

    write("found", [[identifier, there.get(identifier)] for identifier in begun])
    print("recounted" if pending else "opened", flush=True)
    for pairs in operations(there, rng) if then else ():
        if os.getppid() != parent:  # which was to kill this one
            return
        write("begun", pairs)
        if pairs[0][1] is None:
            collection.delete([identifier for identifier, _ in pairs])
        else:
            collection.writer.add_stream([one for _, one in pairs if one])
        write("done")
        if rng.random() < 0.02:  # in between as it ends by itself
            check(collection, dict(there) | {key: one for key, one in pairs if one}, {key: [one] for key, one in pairs})


def damage_of(ran: Ran) -> DamageError:
    """Return the damage that a process has found which ended by itself."""
    last = (ran.err.strip().splitlines() or [f"status {ran.status}"])[-1]
    return DamageError(last.removeprefix("__main__.").removeprefix("DamageError: "))


def kill(folder: Path, rng: random.Random) -> str:
    """Start a process, kill it, and return what it said: "" if that was before it had compared everything."""
    child = start(folder, partial(work, folder, rng.getrandbits(32)))
    if rng.random() < 0.25:
        time.sleep(rng.random() * OPENING)
    else:
        began = time.monotonic()
        while not (folder / ".out").stat().st_size and time.monotonic() - began < 10:
            if (folder / ".err").stat().st_size:
                break
            time.sleep(0.002)
        time.sleep(rng.random() * WORK)
    os.kill(child, signal.SIGKILL)
    ran = end(child, folder)
    if ran.status != -signal.SIGKILL:
        raise damage_of(ran)
    return ran.out.strip()


def rounds(folder: Path, kills: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Kill so many times, in a new folder after `ROUNDS` or when something was found: figures, and what was found."""
    figures, messages, killed = Counter[str](), list[str](), 0
    while killed < kills:
        place = folder / str(killed)
        place.mkdir()
        made = run(place, partial(make, place))
        if made.status:
            raise RuntimeError(made.err)
        try:
            for _ in range(min(ROUNDS, kills - killed)):
                killed += 1
                figures[kill(place, rng) or "opening"] += 1
            last = run(place, partial(work, place, 0, False))
            if last.status:
                raise damage_of(last)
            figures[last.out.strip()] += 1
        except DamageError as damage:
            messages.append(f"after {killed} kills: {damage}")
            kind = str(damage).partition(": ")
            figures[next((name for name in FOUND if name in kind[0]), "wrong")] += 1
        figures["acknowledged"] += replayed(place / "log")[2]
        shutil.rmtree(place)
    return figures, messages


def benchmark() -> int:
    """Kill, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    began, words = time.monotonic(), WordVectors().encode(["bad dem"])
    ExactIndex(words).search(words, 1, threads=1)  # its compiled code is read here, once
    with tempfile.TemporaryDirectory(prefix="vocable-crash-") as name:
        figures, messages = rounds(Path(name), options.kills, random.Random(options.seed))
    row = {
        "kills": options.kills,
        "while opening": figures["opening"],
        "acknowledged": figures["acknowledged"],
        **{kind: figures[kind] for kind in FOUND},
        "compared": figures["opened"] + figures["recounted"],
        "recounted": figures["recounted"],
        "seconds": round(time.monotonic() - began),
    }
    print_machine(machine(torch.device("cpu"), "qdrant-edge-py"))
    print("  ".join(row))
    print("  ".join(f"{value:>{len(name)}}" for name, value in row.items()))
    print(*messages, sep="\n")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    return int(any(row[kind] for kind in FOUND))


if __name__ == "__main__":
    sys.exit(benchmark())
