"""Fingerprints of inputs, and the settings of an output, which decide whether a repeated command resumes or refuses."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from vocable.core.folders import files_of, something_else
from vocable.options import values_of

DERIVED = ("cloze", "crops", "pairs")  # source prefixes that derive data from another source
INPUTS_KEY = "inputs"  # key of the fingerprint among the settings of an output
CALL_KEY = "call"  # key of the digest of the call that made an output (`core.calls`)
IRRELEVANT = {"output", "device", "skip_bad", "minutes", "dry_run"}  # arguments that never change a result


def fingerprint(*sources: str | os.PathLike[str]) -> str:
    """Return 16 hexadecimal digits that change with the content of local files, folders and standard input.

    A source is a path, `beir:FOLDER` or `-`, perhaps after `cloze:`, `crops:` or `pairs:`. Of a folder of documents
    only the documents and lists count (`vocable.core.folders`). Other sources, such as `hf:NAME`, add nothing; without
    a local source the result is "".
    """
    names = [re.sub(f"^(({'|'.join(DERIVED)}):)+", "", str(source)) for source in sources if str(source)]
    entries = [_stdin_digest()] if "-" in names else []
    for source in names:
        is_beir = source.startswith("beir:")
        path = Path(source.removeprefix("beir:").partition("#")[0] if is_beir else source)
        for file in _files(path, whole=is_beir):
            if file.is_file():
                state = file.stat()
                entries.append(f"{file.relative_to(path)} {_digest(file, state.st_size, state.st_mtime_ns)}")
    content = "\n".join(filter(None, entries)).encode(errors="surrogateescape")
    return blake2b(content, digest_size=8).hexdigest() if content else ""


def fingerprints(places: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each place that is local."""
    return {place: content for place in places if (content := fingerprint(place))}


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names whose fingerprints differ; a name that only one of them has is not compared.

    >>> changed({"a.jsonl": "1f", "b.jsonl": "2e", "gone.jsonl": "3d"}, {"a.jsonl": "1f", "b.jsonl": "4c"})
    ['b.jsonl']
    """
    return [name for name, content in then.items() if now.get(name, content) != content]


def _files(path: Path, *, whole: bool) -> list[Path]:
    """Return a file, or the files of a folder; unless `whole`, a folder of documents gives its documents alone."""
    if not path.is_dir():
        return [path]
    if not whole and something_else(path) is None and (documents := files_of(path, all_pages=True).files):
        return [path / file for file in documents]
    return sorted(path.rglob("*"))


@lru_cache(maxsize=1000)
def _digest(file: Path, size: int, changed: int) -> str:
    with file.open("rb") as content:
        return file_digest(content, blake2b).hexdigest()


def _stdin_digest() -> str:
    """Return the digest of standard input ("" if it is closed), and rewind it; a temporary file replaces a pipe."""
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
    except (AttributeError, OSError, ValueError):  # closed, or replaced by a Python object
        return ""


def settings_of(
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    others: Mapping[str, object] = {},
    *,
    without: tuple[str, ...] = (),
) -> dict[str, object]:
    """Return the settings of an output as JSON values: all arguments of the function that makes it, and its inputs.

    Settings are all parameters, future ones included, and all options of `**options` that are not None. The fingerprint
    `inputs` covers the content of all local files and folders that the arguments name.

    Args:
        function: the verb.
        arguments: its arguments by name: `locals()` before anything else is assigned.
        others: further settings; they also replace arguments that are not JSON values, such as a model.
        without: parameters that do not change the result, besides `IRRELEVANT`.

    >>> def verb(source, output, *, size=1, **options): ...
    >>> settings_of(verb, {"source": "hf:a", "output": "x", "size": 2, "options": {"mass": 0.5}})
    {'source': 'hf:a', 'size': 2, 'mass': 0.5, 'inputs': ''}
    """
    words = {name for name, values in values_of(function).items() if values.words}
    # Arguments by name. An option of `**options` that is None has its default, and is no setting.
    given: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= {option: value for option, value in arguments[name].items() if value is not None}
        else:
            given[name] = arguments[name]
    # A word such as a language names no file, even if the current folder has a file of this name.
    left_out = IRRELEVANT | {*without, *others}
    settings = {name: _json_value(name, value) for name, value in given.items() if name not in left_out}
    named = [value for name, value in settings.items() if name not in words]
    return {**settings, **others, INPUTS_KEY: fingerprint(*_texts(named))}


def _json_value(name: str, value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_json_value(name, item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json_value(name, item) for key, item in value.items()}
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"the argument {name} is a {type(value).__name__}: pass a setting in its place")
    return value


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def differences(made_from: Mapping[str, object], settings: Mapping[str, object]) -> tuple[list[str], list[str] | None]:
    """Return the settings of an output that differ, nested ones as a.b, and the inputs that have changed, or None.

    Inputs have one fingerprint together, which names none of them, or one for each place.
    """
    then, now = made_from.get(INPUTS_KEY), settings.get(INPUTS_KEY)
    keys = [key for key in differing(made_from, settings) if key.partition(".")[0] not in (INPUTS_KEY, CALL_KEY)]
    if isinstance(now, dict):
        return keys, changed(then, now) or None if isinstance(then, dict) else None
    return keys, None if then == now else []


def differing(first: Mapping[str, object], second: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys whose values differ, nested keys as a.b."""
    for key in first.keys() | second.keys():
        left, right = first.get(key), second.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from (f"{key}.{inner}" for inner in differing(left, right))
        elif left != right:
            yield key
