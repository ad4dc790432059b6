"""An index in a folder, the default place: any number of processes read it while one writes.

FOLDER/commit.json       the commit: settings, and the segments with their checksums and deletions
FOLDER/000017.segment    a segment, never changed after the commit that names it
FOLDER/000017.gone-3     which of its documents are gone
FOLDER/lock              locked by a writer, whom it names

A commit is durable: its files are forced to disk, then their names, then the commit. A reader takes no lock and writes
nothing in the folder. It looks at the commit before each search and opens the segments that are new; if a merge removed
one meanwhile, it reads the commit again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from vocable.core.arrays import read_arrays, write_arrays
from vocable.core.folders import COMMIT
from vocable.core.locks import take_lock, unlock_file
from vocable.core.open_folder import OpenFolder
from vocable.core.records import as_json
from vocable.core.storage import ANOTHER, ANOTHER_VERSION, is_there, replacing_folder
from vocable.core.verified import Verified
from vocable.engines.protocols import Space
from vocable.engines.segment import SEGMENT, Segment
from vocable.engines.segmented import Draft, SegmentedStore
from vocable.engines.snapshot import LiveSegment, Snapshot
from vocable.errors import ArgumentError, VectorsError

COMMIT_FORMAT = 3  # of the commit and its segments
WRITER_LOCK = "lock"
GONE_KIND = "gone"  # kind of a file of deletions
OURS = re.compile(r"\d{6,}\.(segment|gone-\d+)|\.commit\.json\.[0-9a-f]{8}")  # files that a commit names, and its parts
PATIENCE = 60.0  # seconds to wait for another writer, which may be merging large segments
SAME = ("model", "meta", "dense", "dense_fingerprint", "bm25", "language", "title_weight", "limits")  # settings
ADVICE = "wait until it is done, and repeat the command"


class SegmentRecord(NamedTuple):
    """A segment of a commit: its file and the file's checksum, and the file of its deletions with its checksum."""

    name: str
    crc32: int
    gone: str | None = None
    gone_crc32: int = 0


class Commit(NamedTuple):
    """The content of `commit.json`; `next` is the number of the next segment."""

    engine: str
    format: int
    number: int
    next: int
    spaces: dict[Space, int]
    settings: dict[str, Any]
    segments: list[SegmentRecord]


def _first_commit(engine: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Commit:
    return Commit(
        engine=engine, format=COMMIT_FORMAT, number=0, next=1, spaces=dict(spaces), settings=settings, segments=[]
    )


def read_commit(directory: OpenFolder) -> Commit:
    """Read the commit of a folder; raise `VectorsError` if it is missing, damaged or of another version."""
    place = directory.path
    try:
        text = directory.read(COMMIT)
    except FileNotFoundError as error:
        old = any(name in ("store.json", "settings.json") for name in directory.names())
        hint = ANOTHER_VERSION if old else "make one with vocable index"
        raise VectorsError(f"{place}: there is no index here ({hint})") from error
    try:
        values = json.loads(text)
        if values.get("format") != COMMIT_FORMAT and isinstance(values.get("format"), int):
            raise VectorsError(f"{place}: stored in format {values['format']}, not {COMMIT_FORMAT}: {ANOTHER_VERSION}")
        checksum = values.pop("crc32")
        if checksum != _checksum(values):
            raise VectorsError(f"{place / COMMIT}: damaged (its checksum differs)")
        values["segments"] = [SegmentRecord(**record) for record in values["segments"]]
        return Commit(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise VectorsError(f"{place / COMMIT}: damaged: {error}") from error


def _checksum(values: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def _write_commit(directory: OpenFolder, commit: Commit) -> None:
    segments = [record._asdict() for record in commit.segments]
    values: dict[str, Any] = as_json(commit._asdict() | {"segments": segments})
    text = json.dumps(values | {"crc32": _checksum(values)}, ensure_ascii=False, indent=1)
    directory.replace(COMMIT, text.encode())


class FolderStore(SegmentedStore):
    """Documents in the segments of a folder."""

    about = replace(SegmentedStore.about, engine="folder")
    folder: Path

    def __init__(self, directory: OpenFolder, commit: Commit) -> None:
        super().__init__(str(directory.path), commit.spaces, commit.settings)
        self.folder, self._directory, self._commit_read = directory.path, directory, commit
        self._state: tuple[int, ...] = ()
        self._was_replaced = False
        self._verified = Verified(directory.identity)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        try:
            with replacing_folder(address) as work:
                _write_commit(OpenFolder(work), _first_commit(cls.about.engine, spaces, settings))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise ArgumentError(f"{address} already exists: another process has just made it") from error
        return cls.open(address)

    @classmethod
    def open(cls, address: str) -> Self:
        """Open a store; new files are compared with their checksums."""
        directory = OpenFolder(Path(address))
        commit = read_commit(directory)
        if commit.engine != cls.about.engine:
            raise VectorsError(f"{address}: an index of the {commit.engine} engine: open it by its folder alone")
        store = cls(directory, commit)
        store.now()
        return store

    @classmethod
    def find(cls, address: str) -> Self | None:
        if Path(address, COMMIT).exists():
            return cls.open(address)
        if address and is_there(Path(address)):
            raise ArgumentError(f"{address} already exists and is something else: {ANOTHER}")
        return None

    def _look(self) -> None:
        if self._directory.standing() == "replaced":
            self._take_another()
        status = self._directory.status(COMMIT)
        if status is None:
            return  # removed: what is open stays readable
        state = status.st_ino, status.st_mtime_ns, status.st_size
        if state != self._state:
            self._read()
            self._state = state

    def _take_another(self) -> None:
        """Follow an index that took this place, if it has the same models and settings."""
        directory = OpenFolder(self.folder)
        commit = read_commit(directory)
        others = [name for name in SAME if commit.settings.get(name) != self.settings.get(name)]
        if others or commit.spaces != self.spaces or commit.engine != self.about.engine:
            reason = f"another index took its place ({', '.join(others) or 'other vectors'} differ)"
            raise VectorsError(f"{self.place}: {reason}: open it again")
        self._directory, self._state, self._was_replaced = directory, (), True
        self._verified = Verified(directory.identity)
        self._snapshot = Snapshot([])

    def _read(self) -> None:
        """Take the commit in the folder; read it again if a merge removes one of its segments meanwhile."""
        while True:
            commit = read_commit(self._directory)
            try:
                snapshot = self._opened(commit)
            except FileNotFoundError as error:
                if read_commit(self._directory).number == commit.number:
                    name = error.filename
                    raise VectorsError(f"{self.place}: the index is damaged: {name} is missing") from error
                continue
            self._commit_read, self._snapshot, self.settings = commit, snapshot, commit.settings
            return

    def _opened(self, commit: Commit) -> Snapshot:
        """Return the snapshot of a commit; segments that are open already are taken over."""
        known = {(part.segment.name, part.segment.checksum): part for part in self._snapshot.parts}
        parts, new = list[LiveSegment](), list[tuple[str, os.stat_result]]()
        for record in commit.segments:
            part = known.get((record.name, record.crc32))
            segment = self._open_segment(record, new) if part is None else part.segment
            if part is None or part.gone_name != record.gone:
                part = LiveSegment(segment, self._open_gone(record, len(segment)), record.gone)
            parts.append(part)
        if new:
            self._verified.add(new, [record.name for record in commit.segments])
        return Snapshot(parts, commit.number)

    def _open_segment(self, record: SegmentRecord, new: list[tuple[str, os.stat_result]]) -> Segment:
        place, descriptor = self.folder / record.name, self._directory.open(record.name)
        try:
            status = os.fstat(descriptor)
            verified = (record.name, status) in self._verified
            arrays, header = read_arrays(descriptor, SEGMENT, place, verify=not verified)
        finally:
            os.close(descriptor)
        if header["crc32"] != record.crc32:
            raise VectorsError(f"{place}: the index is damaged: not the segment of this commit")
        segment = Segment.stored(arrays, header, place, record.name, verified)
        if not verified:
            new.append((record.name, status))
        return segment

    def _open_gone(self, record: SegmentRecord, n: int) -> np.ndarray | None:
        if record.gone is None:
            return None
        place, descriptor = self.folder / record.gone, self._directory.open(record.gone)
        try:
            arrays, header = read_arrays(descriptor, GONE_KIND, place)
        finally:
            os.close(descriptor)
        packed = arrays.get("gone", np.empty(0))
        if header["crc32"] != record.gone_crc32 or packed.dtype != np.uint8 or packed.shape != (-(-n // 8),):
            raise VectorsError(f"{place}: the index is damaged: not the deletions of this commit")
        return np.unpackbits(packed, count=n).astype(bool)

    def check(self) -> int:
        """Compare all files with their checksums, and return the number of segments; `VectorsError` for damage."""
        directory = OpenFolder(self.folder)
        store = type(self)(directory, read_commit(directory))
        store._verified = Verified(None)  # all files are compared, however often
        store._read()
        return len(store._snapshot.parts)

    @contextmanager
    def _keep_out(self) -> Iterator[None]:
        self._check_standing()
        lock = take_lock(self._directory.open(WRITER_LOCK, os.O_RDWR | os.O_CREAT), self.folder, ADVICE, PATIENCE)
        try:
            self._check_standing()
            yield
        finally:
            unlock_file(lock)

    def _check_standing(self) -> None:
        standing = "replaced" if self._was_replaced else self._directory.standing()
        if standing in ("replaced", "removed"):
            raise VectorsError(f"{self.place} was {standing} since it was opened: open it again")

    def _save(self, draft: Draft) -> Snapshot:
        commit = self._commit_read
        directory, number = self._directory, commit.next
        # First free space: remove files that no commit names.
        self._tidy(durable=False)
        # Write new segments, and the deletions in old segments.
        records = list[SegmentRecord]()
        for place, part in enumerate(draft.parts):
            segment = part.segment
            if not segment.name:
                name = f"{number:06}.segment"
                number += 1
                with directory.writing(name) as file:
                    segment.checksum = write_arrays(file, SEGMENT, segment.arrays(), segment.header())
                record = SegmentRecord(name, segment.checksum)
                draft.parts[place] = part = LiveSegment(self._open_written(record), part.gone)
            record = SegmentRecord(part.segment.name, part.segment.checksum)
            if part.gone is not None:
                record = self._with_gone(record, part, commit)
            records.append(record)
        # Files become durable first, then the folder, then the commit.
        if any(record not in commit.segments for record in records):
            directory.sync()
        new = commit._replace(
            number=commit.number + 1, next=number, spaces=self.spaces, settings=draft.settings, segments=records
        )
        _write_commit(directory, new)
        self._commit_read = new
        self._tidy()
        # The state of the file shows later whether another process has committed.
        status = directory.status(COMMIT)
        assert status is not None
        self._state = status.st_ino, status.st_mtime_ns, status.st_size
        return Snapshot(draft.parts, new.number)

    def _open_written(self, record: SegmentRecord) -> Segment:
        """Return a segment that this process has just written, memory-mapped."""
        descriptor = self._directory.open(record.name)
        try:
            arrays, header = read_arrays(descriptor, SEGMENT, self.folder / record.name, verify=False)
        finally:
            os.close(descriptor)
        return Segment.stored(arrays, header, self.folder / record.name, record.name, verified=True)

    def _with_gone(self, record: SegmentRecord, part: LiveSegment, commit: Commit) -> SegmentRecord:
        """Write the deletions of a part, unless they are written, and name them in its record."""
        old = next((one for one in commit.segments if one.name == record.name), None)
        if part.gone_name is not None and old is not None and old.gone == part.gone_name:
            return old
        assert part.gone is not None
        part.gone_name = f"{record.name.partition('.')[0]}.gone-{commit.number + 1}"
        with self._directory.writing(part.gone_name) as file:
            checksum = write_arrays(file, GONE_KIND, {"gone": np.packbits(part.gone)}, {})
        return SegmentRecord(record.name, record.crc32, part.gone_name, checksum)

    def _tidy(self, *, durable: bool = True) -> None:
        """Remove files that the commit does not name: of a killed writer, or of a commit before.

        The name of the commit is forced to disk first unless it is `durable`: its writer may have been killed, and
        after a loss of power the commit before would need its files.
        """
        named = set[str]()
        for record in self._commit_read.segments:
            named |= {record.name, *([record.gone] if record.gone else [])}
        left = [name for name in self._directory.names() if OURS.fullmatch(name) and name not in named]
        if left and not durable:
            self._directory.sync()
        for name in left:
            with suppress(OSError):  # Windows keeps files that are open: the next commit removes them
                self._directory.remove(name)

    def settle(self) -> None:
        self._directory.sync()

    def version(self) -> object:
        number = self.now().number
        return self._directory.identity, number

    def close(self) -> None:
        super().close()
        self._directory.close()

    def drop(self) -> None:
        standing = self._directory.standing()
        self.close()
        if standing == "in place":  # another index may have taken the place
            shutil.rmtree(self.folder)

    @property
    def nbytes(self) -> int:
        """Size of the files on disk."""
        states = (self._directory.status(name) for name in self._directory.names())
        return sum(state.st_size for state in states if state is not None)


def write_index(folder: Path, snapshot: Snapshot, spaces: Mapping[Space, int], settings: dict[str, Any]) -> None:
    """Write a snapshot as a new folder, whole or not at all."""
    with replacing_folder(folder) as work:
        _write_commit(OpenFolder(work), _first_commit(FolderStore.about.engine, spaces, settings))
        store = FolderStore.open(str(work))
        with store.changing():
            assert store._draft is not None
            store._draft.parts = [LiveSegment(part.segment, part.gone) for part in snapshot.parts]
        store.close()


ENGINE = FolderStore
