"""Files and folders that are written atomically, and work that resumes after an interruption.

Long work is done in OUTPUT.partial, which is locked and holds its settings.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar
from uuid import uuid4

from vocable.core.fingerprint import differences, fingerprint
from vocable.core.links import open_regular, refuse_link, refuse_links
from vocable.core.locks import HAS_LOCKS, holding, lock_file, unlock_file
from vocable.core.records import as_json, as_record
from vocable.errors import ArgumentError, VectorsError, VocableError

T = TypeVar("T")
StrPath: TypeAlias = str | os.PathLike[str]

FULL_DISK = (
    os.strerror(errno.ENOSPC),
    "PytorchStreamWriter failed",
    "unexpected pos",
    "iostream error",
)  # in errors of libraries
ANOTHER = "name another output, or remove it"
ANOTHER_VERSION = "made by another version of vocable: index again"


def path_name(value: object, name: str) -> str:
    """Return the argument `name`, a path or a source, as a str; raise `ArgumentError` for any other type."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError(f"{name} must be a name or a path, not {type(value).__name__}")
    return os.fspath(value)


def check_file(path: StrPath) -> Path:
    """Return the path of a file to write, or the target of a link; call this before the work that fills the file.

    Raises:
        ArgumentError: the path has no name, is a folder, a device or a broken link, or its folder is missing.
    """
    target = target_of(path)
    if target.exists() and not target.is_file():
        raise ArgumentError(f"{path} is a {'folder' if target.is_dir() else 'device'}: name a file")
    if not target.parent.is_dir():
        raise ArgumentError(f"{path}: there is no folder {target.parent}: make it, or name another output")
    _check_writable(target)
    return target


def _check_writable(output: Path) -> None:
    """Raise `ArgumentError` if the nearest existing folder above an output is not writable."""
    folder = next((parent for parent in output.parents if parent.exists()), output)
    if not folder.is_dir():
        raise ArgumentError(f"{output} cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"{output} cannot be written: {folder} is read-only")


def target_of(path: StrPath) -> Path:
    """Return the path of an output, or the target of a link; raise `ArgumentError` for a broken link."""
    output = Path(path)
    if output.name in ("", ".."):
        raise ArgumentError(f"{output} cannot be an output: name a file or folder that does not exist yet")
    if output.is_symlink() and not output.exists():
        raise ArgumentError(f"{output} is a link to {output.readlink()}, which does not exist: name another output")
    return output.resolve() if output.is_symlink() else output


@contextmanager
def replacing(path: StrPath) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends without an error.

    It is written as `.NAME.RANDOM.part`, forced to disk and renamed. The new file has the mode of the old file. If
    `path` is a link, its target is replaced. Raises the errors of `check_file`.
    """
    target = check_file(path)
    with part_of(target, partial(Path.touch, exist_ok=False)) as part:
        with os.fdopen(open_regular(part, os.O_WRONLY), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
        force_to_disk(target.parent)


@contextmanager
def part_of(target: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Make `.NAME.RANDOM.part`, lock it, and remove it when the block ends; remove leftovers of killed processes."""
    for left in target.parent.glob(f".{escape(target.name)}.*.part") if HAS_LOCKS else ():
        with suppress(OSError), holding(left):
            remove_path(left)
    with _full_disk_of(target), ExitStack() as stack:
        yield _made(target, make, stack)


def _made(target: Path, make: Callable[[Path], object], stack: ExitStack) -> Path:
    """Make and lock a part; start again if another process removed it as a leftover before it was locked."""
    while True:
        part = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
        stack.callback(remove_path, part)
        make(part)
        try:
            stack.enter_context(holding(part))
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:  # a file system without locks
            return part
        if part.exists():
            return part


def remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _full_disk_of(output: Path) -> Iterator[None]:
    """Turn the errors of libraries about a full disk into an `OSError` with a file name."""
    try:
        yield
    except VocableError:
        raise
    except Exception as error:
        if not any(text in str(error) for text in FULL_DISK):
            raise
        name = getattr(error, "filename", None) or os.fspath(output)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name) from error


def is_there(output: Path) -> bool:
    """Return whether something exists at a path, other than an empty folder, which a renamed folder may replace."""
    return output.exists() and not (output.is_dir() and not any(output.iterdir()))


def refuse_existing(output: Path) -> None:
    """Raise `ArgumentError` if the output exists already or cannot be written."""
    target = target_of(output)
    if is_there(target):
        raise ArgumentError(f"{output} already exists: {ANOTHER}")
    if target.is_mount():
        raise ArgumentError(f"{output} is a mount point, which cannot be replaced: name a folder in it")
    _check_writable(target)


@contextmanager
def replacing_folder(path: StrPath, settings: Mapping[str, object] | None = None) -> Iterator[Path]:
    """Make a folder that appears at `path` when the block ends without an error.

    The block gets the empty folder `.NAME.RANDOM.part` next to `path`. After the block the folder is forced to disk and
    renamed; after an error it is removed. Missing parents are made. `settings` are written into the folder, where
    `finished` reads them. Raises the errors of `refuse_taken`.
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
    """Make a folder and its missing parents, and force their names to disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        force_to_disk(path.parent)


def force_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def force_all_to_disk(path: Path) -> None:
    """Wait until a folder and everything in it are on disk; give files the read permissions of their folders."""
    for inner in (*path.rglob("*"), path):
        _follow_umask(inner)
        force_to_disk(inner)


def _follow_umask(path: Path) -> None:
    """Give a file the permissions that the umask gave its folder: safetensors writes files for their owner alone."""
    mode = path.lstat().st_mode
    granted = path.parent.stat().st_mode & (stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH)
    if stat.S_ISREG(mode) and mode | granted != mode:
        path.chmod(stat.S_IMODE(mode) | granted)


def regular(path: StrPath) -> Path:
    """Return the path of a regular file; raise `OSError` for anything else, such as a pipe, which could block."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return Path(path)


SETTINGS = "settings.json"
RECIPE = "recipe.json"  # the settings of a training
LOCK = ".lock"
RESULT = "result"  # key of the fingerprint of a result that is a file
KEEP_ON_ERROR = ("part*", "progress.json", "checkpoint-*", "config.json", "stopped.json", "*.npy")  # worth resuming


def partial_of(output: Path) -> Path:
    """Return the work folder of an output.

    >>> partial_of(Path("indexes/python/")).as_posix()
    'indexes/python.partial'
    """
    target = target_of(output)
    return target.with_name(f"{target.name}.partial")


def refuse_taken(output: Path) -> None:
    """Raise `ArgumentError` if the output exists or another command has begun to make it.

    For work that does not resume; other work uses `resumable`.
    """
    refuse_existing(output)
    work = partial_of(output)
    if any((work / name).exists() for name in (SETTINGS, RECIPE)):
        instead = "finish or remove it, or name another output"
        raise ArgumentError(f"{work} is the unfinished work of another command: {instead}")


@contextmanager
def resumable(
    output: StrPath, settings: Mapping[str, object], *, name: str = SETTINGS, anew: bool = False
) -> Iterator[Path]:
    """Yield the locked work folder `OUTPUT.partial`, new or left by an interrupted run with equal settings.

    After an error or a kill the folder stays. It is removed if nothing was written, or if a user error left nothing
    worth resuming (`KEEP_ON_ERROR`). Only the first of the processes that `torchrun` starts locks and checks it.

    Args:
        output: the file or folder to make.
        settings: everything that decides the result, as JSON values (`settings_of`), kept in the folder under `name`.
        name: file of the settings.
        anew: discard earlier work under this `name`, whatever its settings.

    Raises:
        ArgumentError: the output exists; the work folder is in use, was made with other settings or is something else.
        VectorsError: its settings cannot be read, or there is a link in it.
    """
    target = target_of(output)
    work = partial_of(target)
    # The other processes of `torchrun` use the folder that the first has checked.
    if os.environ.get("RANK", "0") != "0":
        yield work
        return
    # Refuse what can be refused without the lock.
    refuse_existing(target)
    refuse_link(work)
    refuse_links(work)
    _begun(work, settings, name, anew)  # before the lock, which would be a new file in a foreign folder
    with locked(work):
        refuse_existing(target)  # again: another process may have finished it
        # The folder is new, or its settings are equal: `_begun` compares them.
        if anew and (work / name).exists():
            _clear(work, last=name)
        if not _begun(work, settings, name):
            write_record(work / name, dict(settings))
        try:
            with _full_disk_of(work):
                yield work
        except VocableError:  # a user error: the name stays free unless there is work to resume
            if not any(any(work.rglob(pattern)) for pattern in KEEP_ON_ERROR):
                shutil.rmtree(work, ignore_errors=True)
            raise
        finally:
            # A folder with nothing but settings and hidden files, such as the lock, is not worth resuming.
            if work.is_dir() and all(path.name == name or path.name[0] == "." for path in work.iterdir()):
                shutil.rmtree(work, ignore_errors=True)


def finish(work: Path, output: StrPath, result: Path, *, name: str = SETTINGS) -> None:
    """Move the `result`, the work folder or a file or folder in it, to the output, and remove the work folder.

    A folder contains its settings. The settings of a file are in `.NAME.settings.json` next to it, with its digest. The
    result is forced to disk before it is renamed.
    """
    target = target_of(output)
    if result.is_dir() and result != work:
        shutil.copy(work / name, result / name)
    if result.is_file():
        if target.is_dir():  # an empty folder
            target.rmdir()
        settings = read_record(work / name, dict[str, object])
        write_record(settings_file(target, name), {SETTINGS: settings, RESULT: fingerprint(result)})
    force_all_to_disk(result)
    result.replace(target)
    force_to_disk(target.parent)
    _unlock(target)
    _clear(work, last=name)


def _unlock(target: Path) -> None:
    """Remove the lock of a finished folder, which was the work folder."""
    if (target / LOCK).exists():
        (target / LOCK).unlink()
        force_to_disk(target)


def settings_file(target: Path, name: str = SETTINGS) -> Path:
    """Return the path of the settings of a result: in a folder, or next to a file."""
    return target / name if target.is_dir() else target.with_name(f".{target.name}.{name}")


def finished(output: StrPath, settings: Mapping[str, Any], *, name: str = SETTINGS) -> bool:
    """Return whether the output exists and was made with these settings; arguments and errors as in `resumable`."""
    target = target_of(output)
    if not is_there(target):
        return False
    record = settings_file(target, name)
    made_from = read_record(record, dict[str, Any]) if record.exists() else None
    if made_from is not None and target.is_file():
        made_from = made_from[SETTINGS] if made_from.get(RESULT) == fingerprint(target) else None
    if made_from is None:
        raise ArgumentError(f"{target} already exists and is something else: {ANOTHER}")
    _compare(target, made_from, settings)
    _unlock(target)
    work = partial_of(target)
    if work.is_dir():
        # Another command's work folder raises and stays; ours was left by a kill after the last step.
        with suppress(ArgumentError, VectorsError):
            _begun(work, settings, name)
            with locked(work):
                _clear(work, last=name)
    return True


def _begun(folder: Path, settings: Mapping[str, object], name: str, anew: bool = False) -> bool:
    """Return whether the folder has settings; raise the errors of `resumable` if they differ from `settings`."""
    if not (folder / name).exists():
        # Hidden files are the lock, or were left by a kill.
        if folder.exists() and (not folder.is_dir() or any(path.name[0] != "." for path in folder.iterdir())):
            raise ArgumentError(f"{folder} already exists and is something else: {ANOTHER}")
        return False
    if anew:
        return True
    _compare(folder, read_record(folder / name, dict[str, object]), settings)
    return True


def _compare(place: Path, made_from: dict[str, object], settings: Mapping[str, object]) -> None:
    """Raise `ArgumentError` if a file or folder was made from other settings than `settings`."""
    keys, inputs = differences(made_from, json.loads(json.dumps(dict(settings))))  # with lists, as they are read back
    if keys:
        raise ArgumentError(f"{place} was made with other settings ({', '.join(sorted(keys))}): {ANOTHER}")
    if inputs is not None:
        which = f" ({', '.join(inputs)})" if inputs else ""
        raise ArgumentError(f"{place} was made from inputs that have changed since then{which}: {ANOTHER}")


@contextmanager
def locked(work: Path) -> Iterator[None]:
    """Hold the lock of a folder, and create the folder if it is missing; the lock ends with the process.

    Raises `VectorsError` if the folder is a link: the lock in its target would be removed.
    """
    refuse_link(work)
    descriptor = _take_lock(work)
    try:
        yield
    finally:
        (work / LOCK).unlink(missing_ok=True)
        unlock_file(descriptor)
        with suppress(OSError):
            work.rmdir()  # if it is empty


def _take_lock(work: Path) -> int:
    while True:
        make_folder(work)
        with suppress(FileNotFoundError):  # another process removed the folder just now
            descriptor = lock_file(work / LOCK, "wait for it, or name another output")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), (work / LOCK).stat()):
                    return descriptor
            unlock_file(descriptor)  # another process finished the work just now and removed the lock


def _clear(work: Path, last: str) -> None:
    """Remove the content of a work folder, its settings `last`: until then they tell whose folder it is."""
    for path in list(work.iterdir()) if work.is_dir() else []:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (last, LOCK):
            path.unlink(missing_ok=True)
    (work / last).unlink(missing_ok=True)


def read_record(path: StrPath, kind: type[T], *, error: type[VocableError] = VectorsError) -> T:
    """Read a JSON file as a `kind`: a dataclass, named tuple or typed dict.

    Raises `error` with the file and the first wrong field.
    """
    try:
        return as_record(json.loads(regular(path).read_bytes()), kind)
    except ValueError as failure:  # of JSON, of UTF-8, or of a record
        raise error(f"{path}: damaged: {failure}") from failure


def write_record(path: StrPath, record: object) -> None:
    """Write a pydantic model, dataclass, named tuple or dict as a JSON file for `read_record`.

    Raises `VectorsError` if the path is a link.
    """
    refuse_link(Path(path))
    values = record._asdict() if hasattr(record, "_asdict") else record
    with replacing(path) as file:
        file.write(json.dumps(as_json(values), indent=2, ensure_ascii=False).encode())
