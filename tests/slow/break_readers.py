"""Cases of `break.py` that read what another process replaces all the time: every read gives the old whole or the new.

What vocable saves over (indexes, files) is saved over; what it makes once (collections, folders of vectors, models) is
replaced as a server's is: by a link that is pointed to another folder.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import chain, cycle
from pathlib import Path
from typing import Any, cast

import numpy as np
from break_toys import Case, Toys, judge, to
from preloaded import Command, end, run, start
from scipy.sparse import csr_array

import vocable as vo
from vocable.core.arrays import load_arrays
from vocable.core.storage import read_record, write_record
from vocable.encoding.vectors import read_vectors, write_vectors
from vocable.engines.folder import FolderStore

QUERY = ["list of chapter 3"]
FEWEST = 20  # replacements while another process reads
PAUSE = 0.1  # seconds between two: reading a model takes half of that


def _postings(index: Any) -> list[np.ndarray]:
    return list(index.arrays().values())


def _collection(place: Path) -> list[np.ndarray]:
    opened = vo.open_index(place).current()  # a view, as the next search may be of the other index
    segments = [part.segment for part in cast(FolderStore, opened.store).now().parts]
    ranking = opened.search(QUERY, 5)
    return [*chain.from_iterable(segment.arrays().values() for segment in segments), ranking.rows, ranking.scores]


def _vectors(place: Path) -> list[np.ndarray]:
    stored = read_vectors(place)
    return [stored.matrix.data, stored.matrix.indices, np.array(stored.ids), np.array(stored.meta.model)]


def _unverified(place: Path) -> vo.ExactIndex:
    """Open an index whose checksums are not compared: the checks of its arrays must be enough."""
    return vo.ExactIndex.from_arrays(*load_arrays(place, "exact", verify=False), str(place))


READ: dict[str, Callable[[Path], list[np.ndarray]]] = {
    "an index": lambda place: _postings(vo.ExactIndex.load(place)),
    "an index, unverified": lambda place: _postings(_unverified(place)),
    "a lexical index": lambda place: _postings(vo.BM25Index.load(place)),
    "a file of vectors": _vectors,
    "a record": lambda place: [np.array(json.dumps(read_record(place, dict[str, Any])))],
    "a folder of vectors": _vectors,
    "a collection": _collection,
    "a model": lambda place: [cast(csr_array, vo.encode(vo.load(place), QUERY)).toarray()],
}


def _digest(kind: str, place: Path) -> str:
    return blake2b(b"".join(array.tobytes() for array in READ[kind](place))).hexdigest()


def _replace(kind: str, source: Path, place: Path) -> None:
    if kind.startswith(("an index", "a lexical index")):
        index: Any = vo.BM25Index if "lexical" in kind else vo.ExactIndex
        index.load(source).save(place)
    elif kind == "a file of vectors":
        stored = read_vectors(source)
        write_vectors(place, stored.ids, stored.matrix, stored.meta)
    elif kind == "a record":
        write_record(place, read_record(source, dict[str, Any]))
    else:
        link = place.with_name("link")
        link.symlink_to(source)
        link.replace(place)
        time.sleep(PAUSE)


def keep_replacing(kind: str, sources: list[Path], place: Path, ready: Path) -> None:
    """Replace what is at a place by the sources in turn, until this process is killed; note how often."""
    for number, source in enumerate(cycle(sources)):
        _replace(kind, source, place)
        if number == FEWEST:
            ready.touch()


def keep_reading(kind: str, sources: list[Path], place: Path, ready: Path, seconds: float) -> None:
    """Read what is at a place for this time, and until it is `ready`; prints how often it was which source."""
    wholes = {_digest(kind, source): number for number, source in enumerate(sources)}
    found, until = [0] * len(sources), time.monotonic() + seconds
    while time.monotonic() < until or not ready.exists():
        found[wholes[_digest(kind, place)]] += 1  # a KeyError if it is none of them
    print(json.dumps(found))


def reader_cases(toys: Toys, seconds: float) -> Iterator[Case]:
    """Read each kind of what is stored while it is replaced, for this time."""

    def make(folder: Path) -> dict[str, list[Path]]:
        """Two of each kind, of the same documents and of two models."""
        models = [toys.model, folder / "model"]
        commands: dict[Path, Command] = {models[1]: ["rescale", toys.model, "--factor", 2, "-o", models[1]]}
        for number, model in enumerate(models):
            output = folder / f"encode{number}"
            commands[output] = to(["encode", model, toys.corpus], output)

        def save_indexes() -> None:
            for number in range(2):
                stored = read_vectors(folder / f"encode{number}")
                vo.ExactIndex(stored.matrix, stored.ids, stored.meta).save(folder / f"postings{number}")
                vo.BM25Index(toys.texts[:: 1 - 2 * number]).save(folder / f"words{number}")

        commands[folder / "postings"] = save_indexes
        collections = [toys.folder / "index", toys.store]  # of one model
        for command in commands.values():
            made = run(folder, command)
            if made.status:
                raise RuntimeError(made.err)
        names = ("encode", "postings", "words")
        vectors, postings, words = ([folder / f"{name}{number}" for number in (0, 1)] for name in names)
        return {
            "an index": postings,
            "an index, unverified": postings,
            "a lexical index": words,
            "a file of vectors": [folder / "part-00000.parquet" for folder in vectors],
            "a record": [folder / "settings.json" for folder in vectors],
            "a folder of vectors": vectors,
            "a collection": collections,
            "a model": models,
        }

    def case(kind: str, folder: Path) -> tuple[str, str]:
        for name in ("made", "writer", "reader"):
            (folder / name).mkdir()
        place, ready = folder / "place", folder / "ready"
        sources = make(folder / "made")[kind]
        _replace(kind, sources[0], place)
        writer = start(folder / "writer", partial(keep_replacing, kind, sources, place, ready))
        read = run(folder / "reader", partial(keep_reading, kind, sources, place, ready, seconds))
        os.kill(writer, signal.SIGKILL)
        wrote = end(writer, folder / "writer")
        if wrote.status != -signal.SIGKILL:
            return "WRONG", f"the writer: {wrote.err.strip()[-300:]}"
        if read.status:
            outcome, what = judge(read)
            return ("WRONG", what) if outcome == "refused" else (outcome, what)
        after = run(folder / "reader", partial(keep_reading, kind, sources, place, ready, 0.1))
        found = json.loads(read.out)
        if after.status or not all(found):
            return "WRONG", f"read {found}; after a kill: {after.err.strip()[-300:]}"
        return "right", f"read {found}"

    for kind in READ:
        yield Case("readers", kind, partial(case, kind))
