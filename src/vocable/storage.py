"""Files and folders that are whole or absent, and work that resumes.

Long work is done in OUTPUT.partial, which is locked and holds its settings.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from glob import escape
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from vocable.errors import ArgumentError, InUseError, VectorsError, VocableError

try:
    import fcntl
except ImportError:  # Windows: work folders are not locked
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
StrPath: TypeAlias = str | os.PathLike[str]
Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

ANOTHER = "name another output, or remove it"


def path_name(value: object, name: str) -> str:
    """Return an argument that names a place or a source as a str; raise `ArgumentError` for what is neither."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError(f"{name} must be a name or a path, not {type(value).__name__}")
    return os.fspath(value)


def check_file(path: StrPath) -> Path:
    """Return the path of a file to write, of a link its target; called before the work that fills it.

    Raises:
        ArgumentError: it has no name, is a folder, a device or a link to nothing, or its folder is not there.
    """
    target = target_of(path)
    if target.exists() and not target.is_file():
        raise ArgumentError(f"{path} is a {'folder' if target.is_dir() else 'device'}: name a file")
    if not target.parent.is_dir():
        raise ArgumentError(f"{path}: there is no folder {target.parent}: make it, or name another output")
    _check_writable(target)
    return target


def _check_writable(output: Path) -> None:
    """Raise `ArgumentError` if nothing can be made in the folder of an output, or in the first one that is there."""
    folder = next((parent for parent in output.parents if parent.exists()), output)
    if not folder.is_dir():
        raise ArgumentError(f"{output} cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"{output} cannot be written: {folder} is read-only")


def target_of(path: StrPath) -> Path:
    """An output, of a link its target; refused if it has no name or is a link to nothing."""
    output = Path(path)
    if output.name in ("", ".."):
        raise ArgumentError(f"{output} cannot be an output: name a file or folder that is not there yet")
    if output.is_symlink() and not output.exists():
        raise ArgumentError(f"{output} is a link to {output.readlink()}, which is not there: name another output")
    return output.resolve() if output.is_symlink() else output


@contextmanager
def replacing(path: StrPath) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` only when the block ends without an error.

    It is written as `.NAME.RANDOM.part`, forced to disk and renamed. A file that is replaced leaves its mode to the new
    one, and of a link the target is replaced. Errors are those of `check_file`.
    """
    target = check_file(path)
    with part_of(target, Path.touch) as part:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
        force_to_disk(target.parent)


@contextmanager
def part_of(target: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Make `.NAME.RANDOM.part`, locked until the block ends and it is removed; those of killed processes are, too."""
    for left in target.parent.glob(f".{escape(target.name)}.*.part") if fcntl is not None else ():
        with suppress(OSError), _holding(left):
            remove_path(left)
    with _full_disk_of(target), ExitStack() as stack:
        yield _made(target, make, stack)


def _made(target: Path, make: Callable[[Path], object], stack: ExitStack) -> Path:
    """Make a part and lock it; another one if it is taken before its lock for that of a killed process, and removed."""
    while True:
        part = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
        stack.callback(remove_path, part)
        make(part)
        try:
            stack.enter_context(_holding(part))
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:  # a file system without locks
            return part
        if part.exists():
            return part


@contextmanager
def _holding(path: Path) -> Iterator[None]:
    """Lock a file or folder; `OSError` if another process has."""
    descriptor = os.open(path, os.O_RDONLY)
    _locks.add(descriptor)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        _locks.discard(descriptor)
        os.close(descriptor)


def remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _full_disk_of(output: Path) -> Iterator[None]:
    """Turn what libraries say of a full disk, in errors of their own and without a name, into one `OSError`."""
    try:
        yield
    except VocableError:
        raise
    except Exception as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        name = getattr(error, "filename", None) or os.fspath(output)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name) from error


def is_there(output: Path) -> bool:
    """Whether something is there; an empty folder does not count, since renaming replaces it."""
    return output.exists() and not (output.is_dir() and not any(output.iterdir()))


def refuse_existing(output: Path) -> None:
    """Raise `ArgumentError` if something is at the output already, or nothing can be there."""
    target = target_of(output)
    if is_there(target):
        raise ArgumentError(f"{output} is already there: {ANOTHER}")
    if target.is_mount():
        raise ArgumentError(f"{output} is a mount point, which cannot be replaced: name a folder in it")
    _check_writable(target)


@contextmanager
def replacing_folder(path: StrPath, settings: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Make a folder that is at `path` only when the block ends without an error.

    The block is given an empty folder beside `path`, `.NAME.RANDOM.part`, which is forced to disk and renamed, or
    removed after an error. Parents are made where they are missing; what is there is refused as by `refuse_taken`.
    `settings` are written into it for `finished`.
    """
    target = target_of(path)
    refuse_taken(target)
    make_folder(target.parent)
    with part_of(target, Path.mkdir) as part:
        yield part
        if settings is not None:
            write_record(part / SETTINGS, settings)
        force_all_to_disk(part)
        part.replace(target)
        force_to_disk(target.parent)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that their names would outlast a loss of power."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        force_to_disk(path.parent)


def force_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would outlast a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def force_all_to_disk(path: Path) -> None:
    """Wait until a folder with all that is in it would outlast a loss of power."""
    for inner in (*path.rglob("*"), path):
        force_to_disk(inner)


def regular(path: StrPath) -> Path:
    """The path, of a file: `OSError` for anything else, as a pipe, which would block for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return Path(path)


SETTINGS = "settings.json"
RECIPE = "recipe.json"  # in place of settings, of a training
LOCK = ".lock"
RESULT = "result"  # beside the settings of a file: its fingerprint
MADE = ("cloze", "pairs")  # schemes in front of the source that examples or texts are made of
INPUTS = "inputs"  # the settings' key for `fingerprint`; work begun before there was one is gone on with
WORTH = ("part*", "progress.json", "checkpoint-*", "config.json", "stopped.json", "*.npy")  # of work that failed

_locks: set[int] = set()  # descriptors held by this process; a forked child must not keep them locked


def _forget_locks() -> None:
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def partial_of(output: Path) -> Path:
    """Return the folder, beside the output, in which the work on it is done.

    >>> partial_of(Path("indexes/python/")).as_posix()
    'indexes/python.partial'
    """
    target = target_of(output)
    return target.with_name(f"{target.name}.partial")


def refuse_taken(output: Path) -> None:
    """Raise `ArgumentError` if something is at the output already, or if another command has begun to make it.

    For commands that do their work at once: those that can be resumed use `resumable`.
    """
    refuse_existing(output)
    work = partial_of(output)
    if any((work / name).exists() for name in (SETTINGS, RECIPE)):
        instead = "finish or remove it, or name another output"
        raise ArgumentError(f"{work} is the unfinished work of another command: {instead}")


def fingerprint(*sources: StrPath) -> str:
    """Return 16 hexadecimal digits that change with the content of local files, folders and standard input.

    A source is a path, `beir:FOLDER` or `-`, perhaps behind `cloze:` or `pairs:`; what is not local, as `hf:NAME`, adds
    nothing: "" if none is local.
    Callers put it among the settings of `resumable` as `inputs`.
    """
    names = [re.sub(f"^(({'|'.join(MADE)}):)+", "", str(source)) for source in sources if str(source)]
    entries = [_stdin_digest()] if "-" in names else []
    for source in names:
        path = Path(source.removeprefix("beir:").partition("#")[0] if source.startswith("beir:") else source)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                state = file.stat()
                entries.append(f"{file.relative_to(path)} {_digest(file, state.st_size, state.st_mtime_ns)}")
    content = "\n".join(filter(None, entries)).encode(errors="surrogateescape")
    return blake2b(content, digest_size=8).hexdigest() if content else ""


@lru_cache(maxsize=1000)
def _digest(file: Path, size: int, changed: int) -> str:
    with file.open("rb") as content:
        return file_digest(content, blake2b).hexdigest()


def _stdin_digest() -> str:
    """The digest of standard input, which is put into a temporary file, to be read once more; "" if it is no file."""
    try:
        descriptor = sys.stdin.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            with tempfile.TemporaryFile() as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
                spool.seek(0)
                os.dup2(spool.fileno(), descriptor)
        with open(os.dup(descriptor), "rb") as content:
            start = content.tell()
            digest = file_digest(content, blake2b).hexdigest()
            content.seek(start)
            return digest
    except (AttributeError, OSError, ValueError):  # closed, or put there by a program
        return ""


@contextmanager
def resumable(
    output: StrPath, settings: Mapping[str, Any], *, name: str = SETTINGS, upgrade: Upgrade = dict, anew: bool = False
) -> Iterator[Path]:
    """Give the folder `OUTPUT.partial` to work in: a new one, or the one in which the same work was begun.

    It is this process' alone while the block runs, and stays after an error or a kill; one in which nothing has been
    done, or after a mistake of the user nothing of WORTH, is removed. Of processes that `torchrun` started, all but the
    first are given it unlocked and unchecked.

    Args:
        output: the file or folder to make.
        settings: all that decides the result, as JSON values, kept in the folder under `name`.
        upgrade: turns settings of an older version into what they mean today, before they are compared.
        anew: throw away what was done with whatever settings under this `name`.

    Raises:
        ArgumentError: the output exists; the folder is in use, was made with other settings or is something else.
        VectorsError: its settings cannot be read.
    """
    target = target_of(output)
    work = partial_of(target)
    if os.environ.get("RANK", "0") != "0":
        yield work
        return
    refuse_existing(target)
    _begun(work, settings, name, upgrade, anew)  # leaves a folder of something else as it is, without a lock even
    with locked(work):
        refuse_existing(target)  # which another process may have finished meanwhile
        if anew and (work / name).exists():
            _clear(work, last=name)
        if not _begun(work, settings, name, upgrade):
            write_record(work / name, dict(settings))
        try:
            with _full_disk_of(work):
                yield work
        except VocableError:  # a mistake to be mended: a name is not blocked by what cannot be gone on with
            if not any(any(work.rglob(pattern)) for pattern in WORTH):
                shutil.rmtree(work, ignore_errors=True)
            raise
        finally:
            if work.is_dir() and all(path.name == name or path.name[0] == "." for path in work.iterdir()):
                shutil.rmtree(work, ignore_errors=True)


def finish(work: Path, output: StrPath, result: Path, *, name: str = SETTINGS) -> None:
    """Put the `result`, the work folder itself or a file or folder in it, in its place, and remove the work folder.

    A folder is given the settings; those of a file are kept beside it, as `.NAME.settings.json`, with its digest. It is
    all forced to disk before it is renamed.
    """
    target = target_of(output)
    if result.is_dir() and result != work:
        shutil.copy(work / name, result / name)
    if result.is_file():
        settings = read_record(work / name, dict[str, Any])
        write_record(_beside(target, name), {SETTINGS: settings, RESULT: fingerprint(result)})
        if target.is_dir():  # an empty folder, which is as good as nothing
            target.rmdir()
    force_all_to_disk(result)
    result.replace(target)
    force_to_disk(target.parent)
    _unlock(target)
    _clear(work, last=name)


def _unlock(target: Path) -> None:
    """Remove the lock of the work that a folder was until it was finished."""
    if (target / LOCK).exists():
        (target / LOCK).unlink()
        force_to_disk(target)


def _beside(file: Path, name: str) -> Path:
    """Where the settings of a result that is a file are kept."""
    return file.with_name(f".{file.name}.{name}")


def finished(output: StrPath, settings: Mapping[str, Any], *, name: str = SETTINGS, upgrade: Upgrade = dict) -> bool:
    """Return whether the output is there and was made with these settings; arguments and errors as in `resumable`."""
    target = target_of(output)
    if not is_there(target):
        return False
    record = target / name
    made_from = read_record(record, dict[str, Any]) if target.is_dir() and record.exists() else None
    if target.is_file() and (record := _beside(target, name)).exists():
        kept = read_record(record, dict[str, Any])
        made_from = kept[SETTINGS] if kept.get(RESULT) == fingerprint(target) else None
    if made_from is None:
        raise ArgumentError(f"{target} is already there and something else: {ANOTHER}")
    _compare(target, upgrade(made_from), settings)
    _unlock(target)
    work = partial_of(target)
    if work.is_dir():
        with suppress(ArgumentError, VectorsError):  # it is somebody else's, or of a call killed after its last step
            _begun(work, settings, name, upgrade)
            with locked(work):
                _clear(work, last=name)
    return True


def _begun(folder: Path, settings: Mapping[str, Any], name: str, upgrade: Upgrade, anew: bool = False) -> bool:
    """Whether there are settings in the folder; raises what `resumable` raises if it is not free for these."""
    if not (folder / name).exists():
        # A file with a dot in front is the lock, or was being written when an earlier run was killed.
        if folder.exists() and (not folder.is_dir() or any(path.name[0] != "." for path in folder.iterdir())):
            raise ArgumentError(f"{folder} is already there and something else: {ANOTHER}")
        return False
    if anew:
        return True
    _compare(folder, upgrade(read_record(folder / name, dict[str, Any])), settings)
    return True


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The keys of what differs, those inside others as a.b."""
    for key in before.keys() | now.keys():
        one, other = before.get(key), now.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from (f"{key}.{inner}" for inner in _differing(one, other))
        elif one != other:
            yield key


def _compare(place: Path, before: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` if what is at a place was made with other settings."""
    settings = json.loads(json.dumps(dict(settings)))  # as they are when they are read back: lists for tuples
    others = set(_differing(before, settings))
    if len(before.get(INPUTS, "12345678")) == 8:  # of a version that knew no inputs, or not what is in them
        others -= {INPUTS}
    if others == {INPUTS}:
        raise ArgumentError(f"{place} was made from inputs that have changed since: {ANOTHER}")
    if others:
        raise ArgumentError(f"{place} was made with other settings ({', '.join(sorted(others))}): {ANOTHER}")


@contextmanager
def locked(work: Path) -> Iterator[None]:
    """Hold the folder's lock, made with it where it is missing; a process that dies lets go of it."""
    descriptor = _take_lock(work)
    try:
        yield
    finally:
        (work / LOCK).unlink(missing_ok=True)
        unlock_file(descriptor)
        with suppress(OSError):
            work.rmdir()  # if it is empty


def lock_file(path: Path, advice: str, patience: float = 0.0) -> int:
    """Lock a file, made where it is missing, and return the descriptor that holds the lock until `unlock_file`.

    The file names its holder while it is locked. The lock ends with the process, however it ends; on a file system
    without locks there is none.

    Raises:
        InUseError: another process holds the lock, and did for `patience` seconds; the message ends with `advice`.
    """
    descriptor, until = os.open(path, os.O_RDWR | os.O_CREAT, 0o666), time.monotonic() + patience
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() > until:
                holder = os.read(descriptor, 100).decode() or "another process"
                os.close(descriptor)
                raise InUseError(f"{path.parent} is in use by {holder}: {advice}") from error
            time.sleep(0.05)
        except OSError:  # a file system without locks
            break
    _locks.add(descriptor)
    with suppress(OSError):  # a full disk: the lock holds without a name
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} since {time.strftime('%H:%M:%S')}".encode())
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Let go of a lock of `lock_file`; a forked child, which holds none, does nothing."""
    if descriptor in _locks:
        _locks.discard(descriptor)
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def _take_lock(work: Path) -> int:
    while True:
        make_folder(work)
        with suppress(FileNotFoundError):  # another process has just removed the folder
            descriptor = lock_file(work / LOCK, "wait for it, or name another output")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), (work / LOCK).stat()):
                    return descriptor
            unlock_file(descriptor)  # the lock of work that has just been finished


def _clear(work: Path, last: str) -> None:
    """Remove a work folder; its settings `last`: until then it can be told whose it is."""
    for path in list(work.iterdir()) if work.is_dir() else []:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (last, LOCK):
            path.unlink(missing_ok=True)
    (work / last).unlink(missing_ok=True)


def read_record(path: StrPath, kind: type[T], *, error: type[VocableError] = VectorsError) -> T:
    """Read a JSON file as a `kind`: a pydantic model, dataclass, named tuple or typed dict.

    The `error` that is raised where it is none names the file and the first wrong field.
    """
    try:
        return TypeAdapter(kind).validate_json(regular(path).read_bytes(), extra="forbid")
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        field = "".join(f"{part}: " for part in first["loc"])
        raise error(f"{path}: damaged: {field}{first['msg']}") from failure


def write_record(path: StrPath, record: Any) -> None:
    """Write a pydantic model, dataclass, named tuple or dict as a JSON file that `read_record` reads."""
    values = record._asdict() if hasattr(record, "_asdict") else record
    with replacing(path) as file:
        file.write(json.dumps(to_jsonable_python(values), indent=2, ensure_ascii=False).encode())
