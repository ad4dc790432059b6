"""Files that are whole or absent: one file or folder replaced at a time, and folders of arrays, memory-mapped.

A folder of arrays is what an index is on disk: one `NAME.npy` each, and `index.json`, which says what made the folder
and gives the type, shape and checksum of every array. Raises `VectorsError` for whatever cannot be trusted.

Work that may be killed: it is done in `OUTPUT.partial`, and only a whole result is renamed to `OUTPUT`.

`settings.json` in either folder says what is being made, or was: the same command goes on with it, any other is
refused.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import pyarrow as pa

from vocable.errors import ArgumentError, VectorsError

ANOTHER = "name another output, or remove it"
HEADER = "index.json"
FORMAT = 1


class Ids(Sequence[str]):
    """Ids as one Arrow array: a few bytes each and read from disk without a copy, yet a sequence of `str`.

    >>> ids = Ids(["d1", "d2", "d3"])
    >>> ids[1], list(ids[1:]), ids == ["d1", "d2", "d3"]
    ('d2', ['d2', 'd3'], True)
    """

    def __init__(self, ids: Iterable[str] | pa.LargeStringArray) -> None:
        if isinstance(ids, pa.LargeStringArray):
            self.array = ids
            return
        try:
            self.array = pa.array(ids if isinstance(ids, Sequence) else list(ids), type=pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ArgumentError(f"ids must be strings: {error}") from error

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Ids: ...
    def __getitem__(self, position: int | slice) -> str | Ids:
        if isinstance(position, slice):
            return Ids(self.array[position])
        text: str = self.array[int(position)].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.array.to_pylist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ids):
            return bool(self.array.equals(other.array))
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Ids({len(self)})" if len(self) > 5 else f"Ids({list(self)})"


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` only when the block ends without an error.

    It is written beside `path` as `.NAME.part`, forced to disk, then renamed: whoever opens `path` sees the old file or
    the whole new one. A file that is replaced leaves its mode to the new one, and of a link the target is replaced.
    """
    target = Path(path)
    if target.is_symlink():
        target = target.resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
        _force_to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)


def occupied(output: Path) -> bool:
    """Whether something is there already; an empty folder does not count, since renaming replaces it."""
    return output.exists() and not (output.is_dir() and not any(output.iterdir()))


def refuse_occupied(output: Path) -> None:
    """Raise `ArgumentError` if something is there already."""
    if occupied(output):
        raise ArgumentError(f"{output} is already there: {ANOTHER}")


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder that is at `path` only when the block ends without an error.

    The block is given an empty folder beside `path`, `.NAME.RANDOM.part`, which is nobody else's. It is forced to disk
    with all that is in it, then renamed; after an error it is removed. Parents are made where they are missing.

    Raises:
        ArgumentError: something is at `path` already, or it has no name of its own, as ".".
    """
    target = Path(path)
    refuse_occupied(target)
    if target.name in ("", ".."):
        raise ArgumentError(f"{target} cannot be an output: name a folder that is not there yet")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        part.chmod(_mode_of_new(part))
        yield part
        for folder, _, files in os.walk(part):
            for name in files:
                _force_to_disk(Path(folder, name))
            _force_to_disk(Path(folder))
        part.replace(target)
        _force_to_disk(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _mode_of_new(parent: Path) -> int:
    """The mode of a new folder in `parent`; asking for the umask would set it, for all threads."""
    probe = parent / "mode"
    probe.mkdir()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.rmdir()
    return mode


def _force_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would outlast a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_arrays(
    folder: str | os.PathLike[str], kind: str, arrays: dict[str, np.ndarray], header: dict[str, Any]
) -> None:
    """Write `arrays` and `header` (JSON values) as a folder that takes the place of an older one only when it is whole.

    `kind` says what the folder is. Raises `VectorsError` if something other than such a folder stands in its place.
    """
    target = Path(folder)
    if target.exists() and not _replaceable(target):
        raise VectorsError(f"{target}: exists and is not an index; it is left as it is")
    part, old = target.with_name(f".{target.name}.part"), target.with_name(f".{target.name}.old")
    for leftover in (part, old):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        described = {}
        for name, array in arrays.items():
            with replacing(part / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
            described[name] = {"type": array.dtype.str, "shape": list(array.shape), "crc32": _checksum(array)}
        text = json.dumps({"kind": kind, "format": FORMAT, **header, "arrays": described}, ensure_ascii=False, indent=1)
        with replacing(part / HEADER) as file:
            file.write(text.encode())
        if target.exists():
            target.rename(old)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def load_arrays(
    folder: str | os.PathLike[str], kind: str, *, verify: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The memory-mapped, read-only arrays and the header that `save_arrays` wrote.

    `verify` reads every byte once and compares the checksums; without it only types, shapes and lengths are checked.
    """
    place = Path(folder)
    header = _read_header(place, kind)
    arrays = {}
    for name, described in header.pop("arrays").items():
        file = place / f"{name}.npy"
        try:
            array = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise VectorsError(f"{file}: missing, cut short or damaged: {error}") from error
        if array.dtype.str != described.get("type") or list(array.shape) != described.get("shape"):
            raise VectorsError(f"{file}: holds {array.shape} {array.dtype}, the index says otherwise")
        if verify and _checksum(array) != described.get("crc32"):
            raise VectorsError(f"{file}: damaged (its checksum differs)")
        arrays[name] = array
    return arrays, header


def _read_header(place: Path, kind: str) -> dict[str, Any]:
    file = place / HEADER
    try:
        header: dict[str, Any] = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise VectorsError(f"{place}: not an index (no {HEADER})") from error
    except (OSError, ValueError) as error:
        raise VectorsError(f"{file}: cut short or damaged: {error}") from error
    arrays = header.get("arrays") if isinstance(header, dict) else None
    if not isinstance(arrays, dict) or not all(isinstance(array, dict) for array in arrays.values()):
        raise VectorsError(f"{file}: does not describe an index")
    if header.get("kind") != kind or header.get("format") != FORMAT:
        found = f"kind {header.get('kind')!r}, format {header.get('format')}"
        raise VectorsError(f"{place}: expected an index of kind {kind!r}, format {FORMAT}, not {found}")
    return header


def _replaceable(target: Path) -> bool:
    return target.is_dir() and ((target / HEADER).is_file() or not any(target.iterdir()))


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def strings_to_arrays(name: str, strings: Ids) -> dict[str, np.ndarray]:
    """The two arrays, `NAME_offsets` int64 [n + 1] and `NAME_bytes` uint8, that hold the n strings as UTF-8."""
    array = pa.concat_arrays([strings.array])  # a slice of a larger array starts at an offset; a copy starts at 0
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return {f"{name}_offsets": ends - ends[0], f"{name}_bytes": content[ends[0] : ends[-1]]}


def strings_from_arrays(name: str, arrays: dict[str, np.ndarray]) -> Ids:
    """The strings that `strings_to_arrays` took apart, without a copy."""
    offsets, content = arrays[f"{name}_offsets"], arrays[f"{name}_bytes"]
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(content) or (np.diff(offsets) < 0).any():
        raise VectorsError(f"{name}_offsets.npy: does not fit {name}_bytes.npy")
    buffers = pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(content))
    return Ids(pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers))


SETTINGS = "settings.json"
RECIPE = "recipe.json"  # in place of settings, of a training


def partial_of(output: Path) -> Path:
    """Where the work on `output` is done, beside it.

    >>> partial_of(Path("indexes/python/")).as_posix()
    'indexes/python.partial'

    Raises:
        ArgumentError: the output has no name of its own, as ".".
    """
    if output.name in ("", ".."):
        raise ArgumentError(f"{output} cannot be an output: name a folder that is not there yet")
    return output.with_name(f"{output.name}.partial")


def refuse_taken(output: Path) -> None:
    """Raise `ArgumentError` if something is there already, or if another command has begun to make it.

    For commands that do their work at once: those that can go on with theirs `claim` it.
    """
    refuse_occupied(output)
    work = partial_of(output)
    if any((work / name).exists() for name in (SETTINGS, RECIPE)):
        raise ArgumentError(
            f"{work} is the unfinished work of another command: finish or remove it, or name another output"
        )


def claim(work: Path, settings: dict[str, Any]) -> None:
    """Make `work` the folder of the run with these settings (JSON values), or go on with that run.

    Raises:
        ArgumentError: it is the folder of another run, or of something else.
        VectorsError: its settings cannot be read.
    """
    work.mkdir(parents=True, exist_ok=True)
    # A file with a dot in front is one that was being written when an earlier run was killed.
    if (work / SETTINGS).exists() or any(not path.name.startswith(".") for path in work.iterdir()):
        check_settings(work, settings)
    else:
        write_json(work / SETTINGS, settings)


def check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Make sure that `folder` is of the run with these settings; errors are those of `claim`."""
    if not (folder / SETTINGS).is_file():
        raise ArgumentError(f"{folder} is already there and something else: {ANOTHER}")
    found = read_json(folder / SETTINGS)
    others = [key for key in sorted(settings.keys() | found.keys()) if found.get(key) != settings.get(key)]
    if others:
        raise ArgumentError(f"{folder} was made with other settings ({', '.join(others)}): {ANOTHER}")


def clear_up(work: Path, settings: dict[str, Any]) -> None:
    """Remove `work` if it is empty or the folder of the run with these settings; any other is left as it is."""
    try:
        if work.is_dir() and not occupied(work):
            work.rmdir()
        check_settings(work, settings)
    except (ArgumentError, VectorsError):
        return
    for path in work.iterdir():  # the settings last: until then it can be told whose it is
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != SETTINGS:
            path.unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises `VectorsError` if it is damaged."""
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise VectorsError(f"{path}: damaged: {error}") from error
    if not isinstance(values, dict):
        raise VectorsError(f"{path}: damaged: not a JSON object")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with replacing(path) as file:
        file.write(as_json(values))


def as_json(values: dict[str, Any]) -> bytes:
    """The content of a file that `read_json` reads."""
    return json.dumps(values, indent=2, ensure_ascii=False).encode()
